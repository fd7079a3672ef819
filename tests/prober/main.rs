//! Probes against targets that behave, and against those that do everything else, over loopback.
//!
//! The certificates in `tls/` are for this test alone: two roots that nobody trusts, and what they have signed.

#![allow(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions, and their helpers are no less tests"
)]

mod addresses;
mod carry;
mod grpc;
mod http;
mod mcp;
mod targets;
mod zoo;

use std::{net::SocketAddr, time::Duration};

use tokio::{io::AsyncReadExt, sync::mpsc};
use toolpulse::{
    core::probe::{ErrorClass, HostPort, Outcome, ProbeKind, Run, TcpProbe},
    prober::{
        Prober,
        egress::{Mode, Policy},
    },
};

/// Long enough for anything that works on a busy machine; tests in which time matters pause the clock.
const TIMEOUT: Duration = Duration::from_secs(20);

fn prober(allow: &[&str]) -> Prober {
    let allow: Vec<_> = allow.iter().map(|e| (*e).to_owned()).collect();
    Prober::new(Policy::parse(Mode::Strict, &allow).unwrap())
}

/// A prober that may reach loopback.
fn local() -> Prober {
    prober(&["127.0.0.0/8", "::1"])
}

fn endpoint(address: SocketAddr) -> HostPort {
    HostPort { host: address.ip().to_string(), port: address.port() }
}

fn tcp(host: &str, port: u16) -> ProbeKind {
    ProbeKind::Tcp(TcpProbe { address: HostPort { host: host.to_owned(), port } })
}

/// `PASS`, or the label with the code and the message.
fn shown(run: &Run) -> String {
    match &run.outcome {
        Outcome::Pass => "PASS".to_owned(),
        Outcome::No(why) => format!("NO {}: {}", why.reason, why.message),
        Outcome::Error(_, why) => format!("ERROR {}: {}", why.reason, why.message),
    }
}

#[track_caller]
fn assert_error(run: &Run, class: ErrorClass, part: &str) {
    let (Outcome::Error(found, why), true) = (&run.outcome, part.len() > 2) else {
        panic!("no error: {}", shown(run))
    };
    assert_eq!(*found, class, "{}", shown(run));
    assert!(why.message.contains(part), "{}", shown(run));
}

#[tokio::test]
async fn a_connection_is_a_pass_and_is_closed() {
    let (sender, mut closed) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut read = Vec::new();
            let count = stream.read_to_end(&mut read).await;
            sender.send(count.unwrap()).unwrap();
        }
    })
    .await;
    let run = local().run(&tcp("127.0.0.1", target.port()), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert_eq!(run.address, Some(target));
    assert_eq!(closed.recv().await, Some(0), "nothing is sent");
}

#[tokio::test]
async fn a_closed_port_is_an_error() {
    let closed = targets::closed_port().await;
    let run = local().run(&tcp("127.0.0.1", closed.port()), TIMEOUT).await;
    assert_error(&run, ErrorClass::Connect, "connection refused");
    assert_eq!(run.address, None);
}

#[tokio::test]
async fn a_name_without_an_address_is_an_error() {
    let run = local().run(&tcp("nosuch.invalid", 80), TIMEOUT).await;
    assert_error(&run, ErrorClass::Dns, "'nosuch.invalid'");
    let run = local().run(&tcp("no such\u{1b}[2J", 80), TIMEOUT).await;
    assert_error(&run, ErrorClass::Dns, "\\u{1b}");
}

#[tokio::test]
async fn what_the_guard_refuses_is_never_connected() {
    let (sender, mut accepted) = mpsc::unbounded_channel();
    let target = targets::tcp(move |_stream| {
        sender.send(()).unwrap();
        async {}
    })
    .await;
    // The last four are texts that only a resolver reads as loopback.
    let texts =
        ["127.0.0.1", "::ffff:127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"];
    for host in texts {
        let run = prober(&["other.example", "127.0.0.1:1"]).run(&tcp(host, target.port()), TIMEOUT).await;
        // A resolver may refuse such a text, and then nothing is connected either.
        match &run.outcome {
            Outcome::Error(ErrorClass::Dns, _) if host.parse::<std::net::IpAddr>().is_err() => {}
            _ => assert_error(&run, ErrorClass::Blocked, "TOOLPULSE_PROBE_ALLOW"),
        }
        assert_eq!(run.address, None);
    }
    for host in ["0.0.0.0", "::", "169.254.169.254", "fe80::1%lo"] {
        let run = local().run(&tcp(host, target.port()), TIMEOUT).await;
        assert!(
            matches!(run.outcome, Outcome::Error(ErrorClass::Blocked | ErrorClass::Dns, _)),
            "{}",
            shown(&run)
        );
    }
    assert!(accepted.try_recv().is_err());
    // The target does accept what the guard lets through.
    let run = local().run(&tcp("127.0.0.1", target.port()), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert_eq!(accepted.recv().await, Some(()));
}

#[tokio::test]
async fn names_are_resolved_and_every_address_is_tried() {
    // `localhost` can resolve to ::1 first, where nobody listens.
    let target = targets::tcp(|_stream| async {}).await;
    let run = prober(&["localhost"]).run(&tcp("localhost", target.port()), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert_eq!(run.address, Some(target));
}

#[tokio::test]
async fn ipv6_is_reached() {
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        return; // A machine without IPv6.
    };
    let address = listener.local_addr().unwrap();
    let run = local().run(&tcp("::1", address.port()), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert_eq!(run.address, Some(address));
}

#[tokio::test]
async fn a_report_probe_is_not_run() {
    // Spawned, as the owner of the runs does it: a run must be able to change its thread.
    let run = tokio::spawn(async { local().run(&ProbeKind::Report, TIMEOUT).await }).await.unwrap();
    assert_error(&run, ErrorClass::Protocol, "not run");
}
