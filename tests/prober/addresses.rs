//! The address table: what owners write, against each mode. A text is refused as it is, refused at registration, or left to
//! the resolver, whose answer is judged on every run.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;
use toolpulse::{
    core::{
        availability::Defaults,
        probe::{ErrorClass, HostPort, Outcome, ProbeKind},
    },
    prober::{
        Parts, Prober,
        carry::Rules,
        egress::{Mode, Policy},
    },
    proto::v1,
    service::tools::{Judge, Manner},
};

use super::{TIMEOUT, targets, tcp};

/// What becomes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is no URL of a probe.
    Malformed,
    /// Refused at registration, in both modes.
    Refused,
    /// Refused at registration, but not in a cluster.
    Private,
    /// Registered: an address that both modes permit.
    Public,
    /// Registered: only a resolver knows.
    Name,
}
use Fate::{Malformed, Name, Private, Public, Refused};

const TEXTS: &[(&str, Fate)] = &[
    // Loopback and unspecified, in every writing.
    ("http://127.0.0.1", Refused),
    ("http://127.0.0.1:8080/x", Refused),
    ("http://127.255.255.254", Refused),
    ("HTTP://127.0.0.1", Refused),
    ("https://127.0.0.1", Refused),
    ("http://0.0.0.0", Refused),
    ("http://[::]", Refused),
    ("http://[::1]", Refused),
    ("http://[0:0:0:0:0:0:0:1]", Refused),
    ("http://[0000::0001]", Refused),
    ("http://[::ffff:127.0.0.1]", Refused),
    ("http://[::FFFF:7F00:1]", Refused),
    ("http://[::127.0.0.1]", Refused),
    ("http://localhost", Refused),
    ("http://LOCALHOST", Refused),
    ("http://LocalHost.", Refused),
    ("http://a.localhost", Refused),
    ("http://a.LOCALHOST.", Refused),
    ("http://localhost:50051/", Refused),
    // What a resolver reads as an address.
    ("http://127.1", Name),
    ("http://127.0.1", Name),
    ("http://2130706433", Name),
    ("http://0x7f000001", Name),
    ("http://0x7f.0.0.1", Name),
    ("http://0177.0.0.1", Name),
    ("http://017700000001", Name),
    ("http://0", Name),
    ("http://127.0.0.1.", Name),
    ("http://127.000.000.001", Name),
    ("http://127.0.0.1.nip.example", Name),
    // Link-local and metadata.
    ("http://169.254.169.254/latest/meta-data/", Refused),
    ("http://169.254.170.2/v2/credentials", Refused),
    ("http://[::ffff:169.254.169.254]", Refused),
    ("http://[::ffff:a9fe:a9fe]", Refused),
    ("http://[64:ff9b::a9fe:a9fe]", Refused),
    ("http://[64:ff9b:1::a9fe:a9fe]", Refused),
    ("http://[2002:a9fe:a9fe::1]", Refused),
    ("http://[2001:0:808:808::5601:5601]", Refused),
    ("http://[2606:4700::5efe:169.254.169.254]", Refused),
    ("http://[fd00:ec2::254]", Refused),
    ("http://100.100.100.200", Refused),
    ("http://192.0.0.192", Refused),
    ("http://168.63.129.16", Refused),
    ("http://[fe80::1]", Refused),
    ("http://metadata.google.internal", Name),
    ("http://0xa9fea9fe", Name),
    ("http://2852039166", Name),
    // Private.
    ("http://10.0.0.1", Private),
    ("http://172.31.255.255", Private),
    ("http://192.168.1.1", Private),
    ("http://100.64.0.1", Private),
    ("http://[fd12::1]", Private),
    ("http://[::ffff:10.0.0.1]", Private),
    ("http://[64:ff9b::a00:1]", Private),
    ("http://[2002:a00:1::1]", Private),
    // Multicast, reserved, documentation.
    ("http://224.0.0.1", Refused),
    ("http://255.255.255.255", Refused),
    ("http://240.0.0.1", Refused),
    ("http://192.0.2.1", Refused),
    ("http://[ff02::1]", Refused),
    ("http://[2001:db8::1]", Refused),
    ("http://198.18.0.1", Refused),
    // Public.
    ("http://8.8.8.8", Public),
    ("http://[2606:4700::1111]", Public),
    ("http://[::ffff:8.8.8.8]", Public),
    ("http://[64:ff9b::808:808]", Public),
    // Names.
    ("http://example.com", Name),
    ("http://EXAMPLE.com.", Name),
    ("http://xn--bcher-kva.example", Name),
    ("http://notlocalhost", Name),
    ("http://localhost.evil.example", Name),
    ("http://my_app.default.svc.cluster.local", Name),
    // What is no URL of a probe: zone ids, user info, other alphabets, other schemes, tricks with the parser.
    ("http://[fe80::1%eth0]", Malformed),
    ("http://[fe80::1%25eth0]", Malformed),
    ("http://user@127.0.0.1", Malformed),
    ("http://example.com@127.0.0.1", Malformed),
    ("http://user:pass@example.com", Malformed),
    ("http://example.com:80@127.0.0.1:80", Malformed),
    ("http://b\u{fc}cher.example", Malformed),
    ("http://\u{ff11}\u{ff12}\u{ff17}.0.0.1", Malformed),
    ("http://127\u{3002}0.0.1", Malformed),
    ("http://\u{24db}ocalhost", Malformed),
    ("http://127.0.0.1\\@example.com", Malformed),
    ("http://127.0.0.1%2f@example.com", Malformed),
    ("http://127.0.0.1%00.example.com", Malformed),
    ("http://[::1", Malformed),
    ("http://::1", Malformed),
    ("http://[127.0.0.1]", Malformed),
    ("http://[v1.a]", Malformed),
    ("http://a..example", Malformed),
    ("http://..", Malformed),
    ("http://example.com#@127.0.0.1", Malformed),
    ("http://example.com:0", Malformed),
    ("http://example.com:65536", Malformed),
    ("http://example.com:+80", Malformed),
    ("http:127.0.0.1", Malformed),
    ("//127.0.0.1", Malformed),
    ("file:///etc/passwd", Malformed),
    ("gopher://127.0.0.1:6379/_x", Malformed),
    ("unix:///var/run/docker.sock", Malformed),
    ("http+unix://%2fvar%2frun", Malformed),
    ("http://example.com/\r\nHost: 127.0.0.1", Malformed),
    ("http://example.com/ HTTP/1.1", Malformed),
    (" http://127.0.0.1", Malformed),
];

fn judge(mode: Mode) -> Judge {
    Judge {
        defaults: Defaults::default(),
        egress: Policy::parse(mode, &[]).unwrap(),
        rules: Rules::default(),
    }
}

fn spec(url: &str) -> v1::ToolSpec {
    let http = v1::HttpProbe { url: url.to_owned(), ..Default::default() };
    let probe = v1::ProbeSpec { kind: Some(v1::probe_spec::Kind::Http(http)), ..Default::default() };
    v1::ToolSpec { name: "t".to_owned(), probes: vec![probe], ..Default::default() }
}

/// The one probe of a spec that is registered, or the field and the text of its one fault.
fn register(mode: Mode, url: &str) -> Result<ProbeKind, (String, String)> {
    match judge(mode).spec(spec(url), &Manner::default()) {
        Ok(registration) => Ok(registration.spec.probes[0].kind.clone()),
        Err(mut faults) => {
            assert_eq!(faults.len(), 1, "{url}: {faults:?}");
            let fault = faults.remove(0);
            Err((fault.field, fault.message))
        }
    }
}

#[test]
fn what_owners_write_against_each_mode() {
    assert!(TEXTS.len() >= 80, "{}", TEXTS.len());
    for (text, fate) in TEXTS {
        for mode in [Mode::Strict, Mode::Cluster] {
            let judged = register(mode, text);
            let expect = match (fate, mode) {
                (Malformed, _) => Some(("probes[0].http.url", "")),
                (Refused, _) | (Private, Mode::Strict) => Some(("probes[0].http", "TOOLPULSE_PROBE_ALLOW")),
                _ => None,
            };
            match (judged, expect) {
                (Ok(_), None) => {}
                (Err((field, message)), Some((at, setting))) => {
                    assert_eq!(field, at, "{text}: {message}");
                    assert!(message.contains(setting), "{text}: {message}");
                    let cured = message.contains("TOOLPULSE_PROBE_EGRESS=cluster");
                    assert_eq!(cured, *fate == Private, "{text}: {message}");
                }
                (judged, expect) => panic!("{text} in {mode}: {judged:?} instead of {expect:?}"),
            }
        }
    }
}

/// A prober of a mode whose resolver says what `says` says, and that notes what it was asked.
fn resolving(mode: Mode, says: Vec<&'static str>) -> (Prober, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let resolve = move |host: &str, port| -> io::Result<Vec<SocketAddr>> {
        noted.lock().unwrap().push(host.to_owned());
        Ok(says.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
    };
    let egress = Policy::parse(mode, &[]).unwrap();
    (Prober::of(Parts { resolve: Arc::new(resolve), ..Parts::new(egress) }), asked)
}

#[tokio::test]
async fn what_a_name_resolves_to_is_judged_on_the_run() {
    let names: Vec<&str> = TEXTS.iter().filter(|(_, fate)| *fate == Name).map(|(text, _)| *text).collect();
    let never = ["127.0.0.1", "169.254.169.254", "::", "fe80::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe"];
    for text in names {
        let kind = register(Mode::Strict, text).unwrap();
        for mode in [Mode::Strict, Mode::Cluster] {
            let (prober, asked) = resolving(mode, never.to_vec());
            let run = prober.run(&kind, TIMEOUT).await;
            assert!(matches!(run.outcome, Outcome::Error(ErrorClass::Blocked, _)), "{text}: {run:?}");
            assert_eq!(run.address, None);
            // Asked for as it was written, once.
            assert_eq!(*asked.lock().unwrap(), [kind.endpoint().unwrap().host.clone()]);
        }
        let (prober, _) = resolving(Mode::Strict, vec!["10.0.0.1", "fd00::1"]);
        let run = prober.run(&kind, TIMEOUT).await;
        let Outcome::Error(ErrorClass::Blocked, why) = run.outcome else { panic!("{text}: {run:?}") };
        assert!(why.message.contains("TOOLPULSE_PROBE_EGRESS=cluster"), "{}", why.message);
    }
}

/// The connection goes to the checked address and to no other, though the name has others.
#[tokio::test]
async fn only_a_checked_address_is_connected() {
    let (sender, mut accepted) = mpsc::unbounded_channel();
    let target = targets::tcp(move |_| {
        sender.send(()).unwrap();
        async {}
    })
    .await;
    let host = HostPort { host: "a.example".to_owned(), port: target.port() };
    let allow = ["127.0.0.2".to_owned()];
    let resolve = |_: &str, port| {
        Ok(["127.0.0.1", "127.0.0.2"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).into())
    };
    let egress = Policy::parse(Mode::Cluster, &allow).unwrap();
    let prober = Prober::of(Parts { resolve: Arc::new(resolve), ..Parts::new(egress) });
    let run = prober.run(&tcp(&host.host, host.port), TIMEOUT).await;
    assert!(matches!(run.outcome, Outcome::Error(ErrorClass::Connect, _)), "{run:?}");
    assert!(accepted.try_recv().is_err());
}
