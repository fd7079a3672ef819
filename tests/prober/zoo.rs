//! The targets that do harm to a prober, or that a prober does wrong by: each with its outcome, in bounded time, and with
//! its connection closed at the end. The plainer ones are beside their kinds, in `http.rs` and `grpc.rs`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, timeout},
};
use toolpulse::{
    core::probe::{ErrorClass, GrpcProbe, HostPort, HttpProbe, HttpUrl, ProbeKind, Tls},
    prober::{
        Parts, Prober,
        egress::{Mode, Policy},
    },
};

use super::{
    TIMEOUT, assert_error, endpoint, local, shown,
    targets::{self, Identity},
    tcp,
};

fn get(scheme: &str, endpoint: HostPort, tls: Option<Tls>) -> ProbeKind {
    let text = format!("{scheme}://{endpoint}/");
    let url = HttpUrl { text, https: scheme == "https", endpoint, path_and_query: "/".to_owned() };
    ProbeKind::Http(HttpProbe { tls, ..HttpProbe::get(url) })
}

fn grpc(target: SocketAddr) -> ProbeKind {
    ProbeKind::Grpc(GrpcProbe {
        target: endpoint(target),
        service: String::new(),
        headers: vec![],
        tls: None,
    })
}

/// A prober that may reach loopback, whose names mean what `resolve` says.
fn resolving(
    allow: &[&str],
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
) -> Prober {
    let allow: Vec<_> = allow.iter().map(|e| (*e).to_owned()).collect();
    let egress = Policy::parse(Mode::Strict, &allow).unwrap();
    Prober::of(Parts { resolve: Arc::new(resolve), ..Parts::new(egress) })
}

/// Answers each request with `answer`, and says when the peer has closed.
async fn watched(answer: Vec<u8>) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let (sender, closed) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let (answer, sender) = (answer.clone(), sender.clone());
        async move {
            targets::head(&mut stream).await;
            let _gone = stream.write_all(&answer).await;
            // Until the peer ends it, well or by a reset.
            while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {}
            sender.send(()).unwrap();
        }
    })
    .await;
    (target, closed)
}

/// 10 MiB of zeros in 10 KiB: deflate can do no better than 1,032-fold.
const BOMB: &[u8] = include_bytes!("bomb.gz");

#[tokio::test]
async fn what_is_packed_is_not_inflated() {
    let no = br#"{"available": false}"#;
    let packed = |body: &[u8]| {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    // Over the cap as it is, and under it.
    let large = [BOMB, BOMB].concat();
    let cases = [
        (packed(BOMB), "PASS"),
        (packed(&large), "ERROR OVERSIZE: http status 200 OK with a body of more than 16384 bytes"),
        // What only says that it is packed counts as it came.
        (packed(no), "NO PROBE_SAID_NO: the target says that it is not available"),
    ];
    for (answer, expect) in cases {
        let (target, mut closed) = watched(answer).await;
        let run = local().run(&get("http", endpoint(target), None), TIMEOUT).await;
        assert_eq!(shown(&run), expect);
        timeout(TIMEOUT, closed.recv()).await.expect("the connection is closed").unwrap();
    }
}

#[tokio::test]
async fn certificates_that_are_no_good() {
    let https = |target, name: Option<&str>| {
        let tls = Tls { server_name: name.map(str::to_owned), ..Tls::default() };
        get("https", endpoint(target), Some(tls))
    };
    let cases = [
        (Identity::SelfSigned, None, "UnknownIssuer"),
        (Identity::Zoo, None, "UnknownIssuer"),
        (Identity::Expired, None, "expired"),
        (Identity::Good, Some("other.example"), "not valid for name"),
    ];
    for (identity, name, part) in cases {
        let (sender, mut closed) = mpsc::unbounded_channel();
        let acceptor = targets::tls_as(identity, b"http/1.1", false);
        let target = targets::tcp(move |stream| {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            async move { sender.send(acceptor.accept(stream).await.is_err()).unwrap() }
        })
        .await;
        let run = targets::trusting().run(&https(target, name), TIMEOUT).await;
        assert_error(&run, ErrorClass::Tls, part);
        assert_eq!(run.address, Some(target));
        assert_eq!(timeout(TIMEOUT, closed.recv()).await.unwrap(), Some(true), "{identity:?}");
    }
}

const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// A GOAWAY: the last stream that is still answered, and why.
fn goaway(last: u8, code: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, code]
}

/// An answer SERVING on stream 1.
fn serving() -> Vec<u8> {
    let field =
        |name: &[u8], value: &[u8]| [&[0, name.len() as u8], name, &[value.len() as u8], value].concat();
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
    };
    let head = [&b"\x88"[..], &field(b"content-type", b"application/grpc")].concat();
    [frame(1, 4, &head), frame(0, 0, b"\0\0\0\0\x02\x08\x01"), frame(1, 5, &field(b"grpc-status", b"0"))]
        .concat()
}

/// Reads the preface, and frames up to the one that ends the request.
async fn request(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        stream.read_exact(&mut vec![0; usize::from(head[1]) << 8 | usize::from(head[2])]).await?;
        if head[3] == 0 && head[4] & 1 == 1 {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_server_that_goes_away() {
    const ENHANCE_YOUR_CALM: u8 = 11;
    let cases: [(Vec<u8>, Option<ErrorClass>); 5] = [
        (serving(), None),
        // It answers what it has taken, so its going is no failure.
        ([goaway(1, 0), serving()].concat(), None),
        ([serving(), goaway(1, 0)].concat(), None),
        // It takes nothing more.
        (goaway(0, 0), Some(ErrorClass::Protocol)),
        (goaway(0, ENHANCE_YOUR_CALM), Some(ErrorClass::Protocol)),
    ];
    for (frames, class) in cases {
        let sent = frames.clone();
        let target = targets::tcp(move |mut stream| {
            let frames = frames.clone();
            async move {
                stream.write_all(SETTINGS).await.unwrap();
                if request(&mut stream).await.is_err() {
                    return;
                }
                let _gone = stream.write_all(&frames).await;
                let _end = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await;
        let run = local().run(&grpc(target), TIMEOUT).await;
        match class {
            None => assert_eq!(shown(&run), "PASS", "{sent:?}"),
            Some(class) => assert_error(&run, class, "broken"),
        }
    }
}

/// A port of loopback that IPv4 listens on and IPv6 does not.
async fn v4_only() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn one_dead_family_does_not_hide_the_other() {
    let (_listener, port) = v4_only().await;
    let both =
        |_: &str, port| Ok(["::1", "127.0.0.1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).into());
    let allow = ["127.0.0.0/8", "::1"];
    let run = resolving(&allow, both).run(&tcp("both.example", port), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert_eq!(run.address, Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port)));
    // Only one of them may be reached: the other is left out, not a reason to refuse.
    let run = resolving(&["127.0.0.0/8"], both).run(&tcp("both.example", port), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    let run = resolving(&["::1"], both).run(&tcp("both.example", port), TIMEOUT).await;
    assert_error(&run, ErrorClass::Connect, "refused");
}

#[tokio::test]
async fn a_slow_resolver_costs_the_deadline_and_no_more() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let slow = resolving(&["127.0.0.0/8"], move |_, port| {
        let _released = wait.lock().unwrap().recv();
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    });
    let limit = Duration::from_millis(100);
    let start = Instant::now();
    let run = slow.run(&tcp("slow.example", 1), limit).await;
    assert_error(&run, ErrorClass::Timeout, "the name was still being resolved");
    assert!((limit..TIMEOUT).contains(&start.elapsed()));
    assert_eq!(run.address, None);
    // The thread that waits is let go.
    drop(release);
}

#[tokio::test]
async fn a_resolver_that_fails_or_knows_nothing() {
    let run =
        resolving(&[], |_, _| Err(io::Error::other("no such name"))).run(&tcp("a.example", 1), TIMEOUT).await;
    assert_error(&run, ErrorClass::Dns, "no such name");
    let run = resolving(&[], |_, _| Ok(vec![])).run(&tcp("a.example", 1), TIMEOUT).await;
    assert_error(&run, ErrorClass::Dns, "has no address");
}

/// The name of an attacker: once it is what may be reached, and the next time what may not.
#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_on_every_run() {
    let (sender, mut accepted) = mpsc::unbounded_channel();
    let forbidden = targets::tcp(move |_| {
        sender.send(()).unwrap();
        async {}
    })
    .await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let good = listener.local_addr().unwrap();
    let looked_up = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&looked_up);
    let flips = resolving(&["127.0.0.2"], move |_, _| {
        Ok(match count.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => vec![good],
            1 => vec![forbidden],
            2 => vec!["169.254.169.254:80".parse().unwrap()],
            _ => vec![forbidden, "[fe80::1]:80".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), good],
        })
    });
    let name = tcp("flip.example", good.port());
    for round in 0..3 {
        assert_eq!(flips.run(&name, TIMEOUT).await.address, Some(good));
        assert_error(&flips.run(&name, TIMEOUT).await, ErrorClass::Blocked, "'flip.example' (127.0.0.1:");
        assert_error(&flips.run(&name, TIMEOUT).await, ErrorClass::Blocked, "metadata");
        // Of several, only the good one is tried.
        assert_eq!(flips.run(&name, TIMEOUT).await.address, Some(good));
        assert_eq!(
            looked_up.load(Ordering::SeqCst),
            4 * (round + 1),
            "one look-up a run, and none between check and use"
        );
    }
    assert!(accepted.try_recv().is_err(), "what is forbidden was reached");
}
