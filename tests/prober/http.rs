//! The `http` kind.

use std::{future::pending, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use toolpulse::{
    core::probe::{ErrorClass, HostPort, HttpProbe, HttpUrl, Method, ProbeKind, Tls},
    prober::http::MAX_BODY,
};

use super::{TIMEOUT, assert_error, endpoint, local, prober, shown, targets};

fn probe(endpoint: HostPort) -> HttpProbe {
    let text = format!("http://{endpoint}/health?a=1");
    HttpProbe::get(HttpUrl { text, https: false, endpoint, path_and_query: "/health?a=1".to_owned() })
}

fn at(address: std::net::SocketAddr) -> ProbeKind {
    ProbeKind::Http(probe(endpoint(address)))
}

fn sized(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn whole_answers() {
    let no = r#"{"available": false, "reason": "no licence"}"#;
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{no}\r\n0\r\n\r\n", no.len());
    let cases = [
        (sized("200 OK", "fine"), "PASS"),
        (sized("204 No Content", ""), "PASS"),
        (format!("HTTP/1.1 200 OK\r\n\r\n{no}"), "NO PROBE_SAID_NO: no licence"),
        (chunked, "NO PROBE_SAID_NO: no licence"),
        (sized("503 Service Unavailable", no), "NO PROBE_SAID_NO: no licence"),
        (sized("503 Service Unavailable", "later"), "ERROR STATUS: http status 503 Service Unavailable"),
        (sized("404 Not Found", ""), "ERROR STATUS: http status 404 Not Found"),
        (sized("403 Forbidden", "<html>"), "NO HTTP_STATUS: http status 403 Forbidden"),
        (sized("403 Forbidden", no), "NO PROBE_SAID_NO: no licence"),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "NO REDIRECT_NOT_FOLLOWED: http status 302 Found: redirects are not followed",
        ),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), "PASS"),
        ("HTTP/1.0 200 OK\r\n\r\nfine".to_owned(), "PASS"),
    ];
    for (answer, expect) in cases {
        let target = targets::canned(answer.clone()).await;
        let run = local().run(&at(target), TIMEOUT).await;
        assert_eq!(shown(&run), expect, "{answer}");
        assert_eq!(run.address, Some(target));
    }
}

#[tokio::test]
async fn broken_answers() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(MAX_BODY));
    let cases = [
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), ErrorClass::Protocol, "broken"),
        ("HTTP/2 200 OK\r\n\r\n".to_owned(), ErrorClass::Protocol, "broken"),
        ("HTTP/1.1 2x0 OK\r\n\r\n".to_owned(), ErrorClass::Protocol, "broken"),
        (String::new(), ErrorClass::Protocol, "broken"),
        ("HTTP/1.1 200 OK\r\ncontent-len".to_owned(), ErrorClass::Protocol, "broken"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort".to_owned(), ErrorClass::Protocol, "broken"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(),
            ErrorClass::Protocol,
            "broken",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            ErrorClass::Protocol,
            "broken",
        ),
        (many, ErrorClass::Oversize, "100 headers"),
        (long, ErrorClass::Oversize, "16384 bytes"),
        (sized("200 OK", &"b".repeat(MAX_BODY + 1)), ErrorClass::Oversize, "more than 16384 bytes"),
        (sized("503 No", &"b".repeat(MAX_BODY + 1)), ErrorClass::Oversize, "http status 503"),
        (
            format!("HTTP/1.1 200 OK\r\n\r\n{}", "b".repeat(MAX_BODY + 1)),
            ErrorClass::Oversize,
            "more than 16384 bytes",
        ),
    ];
    for (answer, class, part) in cases {
        let target = targets::canned(answer.clone()).await;
        let run = local().run(&at(target), TIMEOUT).await;
        assert_error(&run, class, part);
        assert_eq!(run.address, Some(target));
    }
}

#[tokio::test]
async fn a_body_of_exactly_the_cap_is_read() {
    let reason = r#"{"available": false, "reason": "at the end"}"#;
    let body = format!("{}{reason}", " ".repeat(MAX_BODY - reason.len()));
    for answer in [sized("200 OK", &body), format!("HTTP/1.1 200 OK\r\n\r\n{body}")] {
        let target = targets::canned(answer).await;
        assert_eq!(shown(&local().run(&at(target), TIMEOUT).await), "NO PROBE_SAID_NO: at the end");
    }
}

#[tokio::test]
async fn the_request() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            sender.send(targets::head(&mut stream).await).unwrap();
            // The length of what a GET would get; no body follows.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let head = ProbeKind::Http(HttpProbe { method: Method::Head, ..probe(endpoint(target)) });
    assert_eq!(shown(&local().run(&head, TIMEOUT).await), "PASS");
    let expect = |method: &str| {
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "{method} /health?a=1 HTTP/1.1\r\nhost: {target}\r\nuser-agent: toolpulse-probe/{version}\r\n\
             accept: */*\r\nconnection: close\r\n\r\n"
        )
    };
    assert_eq!(seen.recv().await.unwrap(), expect("HEAD"));
    // A GET misses its body.
    assert_error(&local().run(&at(target), TIMEOUT).await, ErrorClass::Protocol, "broken");
    assert_eq!(seen.recv().await.unwrap(), expect("GET"));
}

#[tokio::test]
async fn the_owners_lists_count() {
    let target = targets::canned(sized("401 Unauthorized", "")).await;
    let expected = HttpProbe { expected_statuses: vec![401], ..probe(endpoint(target)) };
    assert_eq!(shown(&local().run(&ProbeKind::Http(expected), TIMEOUT).await), "PASS");
}

/// Writes `piece` for ever; says how many bytes were taken when the peer is gone.
async fn endless(
    start: &'static str,
    piece: &'static [u8],
) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<usize>) {
    let (sender, taken) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            targets::head(&mut stream).await;
            stream.write_all(start.as_bytes()).await.unwrap();
            let mut count = 0;
            while let Ok(more) = stream.write(piece).await {
                count += more;
            }
            sender.send(count).unwrap();
        }
    })
    .await;
    (target, taken)
}

#[tokio::test]
async fn endless_answers_are_cut() {
    const PIECE: &[u8] = &[b'x'; 64 * 1024];
    let cases: [(&str, &[u8], &str); 4] = [
        ("HTTP/1.1 200 OK\r\n\r\n", PIECE, "ERROR OVERSIZE"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n", PIECE, "ERROR OVERSIZE"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", PIECE, "NO HTTP_STATUS: http status 403 Forbidden"),
        ("HTTP/1.1 200 OK\r\n", b"flood: flood\r\n", "ERROR OVERSIZE"),
    ];
    for (start, piece, expect) in cases {
        let (target, mut taken) = endless(start, piece).await;
        let run = local().run(&at(target), TIMEOUT).await;
        assert!(shown(&run).starts_with(expect), "{}", shown(&run));
        // What the kernel's two socket buffers can hold, and not much more.
        let taken = timeout(TIMEOUT, taken.recv()).await.unwrap().unwrap();
        assert!(taken < 16 << 20, "{start}: {taken} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_everything() {
    let cases = [
        ("", "ERROR TIMEOUT: no answer within 3s: connected, and the answer did not end"),
        ("HTTP/1.1 200 OK\r\n", "ERROR TIMEOUT: no answer within 3s: connected, and the answer did not end"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
            "ERROR TIMEOUT: no answer within 3s: connected, and the answer did not end",
        ),
        (
            "HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nab",
            "ERROR TIMEOUT: no answer within 3s: connected, and the answer did not end",
        ),
        // It has said no, and only why is missing.
        ("HTTP/1.1 403 No\r\ncontent-length: 5\r\n\r\nab", "NO HTTP_STATUS: http status 403 Forbidden"),
    ];
    for (start, expect) in cases {
        let (sender, mut closed) = mpsc::unbounded_channel();
        let target = targets::tcp(move |mut stream| {
            let sender = sender.clone();
            async move {
                targets::head(&mut stream).await;
                stream.write_all(start.as_bytes()).await.unwrap();
                sender.send(stream.read(&mut [0]).await.unwrap()).unwrap();
            }
        })
        .await;
        let run = local().run(&at(target), Duration::from_secs(3)).await;
        assert_eq!(shown(&run), expect, "{start}");
        assert_eq!(run.address, Some(target));
        assert!((3000..3010).contains(&run.duration.as_millis()), "{:?}", run.duration);
        assert_eq!(closed.recv().await, Some(0), "the connection is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drip_does_not_extend_the_deadline() {
    let target = targets::tcp(|mut stream| async move {
        targets::head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(b" ").await.is_ok() {
            sleep(Duration::from_secs(2)).await;
        }
    })
    .await;
    let run = local().run(&at(target), Duration::from_secs(9)).await;
    assert_error(&run, ErrorClass::Timeout, "within 9s");
    assert!((9000..9010).contains(&run.duration.as_millis()), "{:?}", run.duration);
}

#[tokio::test]
async fn a_reset_is_an_error() {
    let target = targets::tcp(|stream| async move {
        stream.set_zero_linger().unwrap();
    })
    .await;
    let run = local().run(&at(target), TIMEOUT).await;
    // The reset can come while the connection is still being set up here.
    assert!(
        shown(&run).starts_with("ERROR PROTOCOL") || shown(&run).starts_with("ERROR CONNECT"),
        "{}",
        shown(&run)
    );
}

#[tokio::test]
async fn a_dropped_run_closes_its_connection() {
    let (sender, asked) = oneshot::channel();
    let (gone, closed) = oneshot::channel();
    let ends = std::sync::Mutex::new(Some((sender, gone)));
    let target = targets::tcp(move |mut stream| {
        let (sender, gone) = ends.lock().unwrap().take().unwrap();
        async move {
            targets::head(&mut stream).await;
            sender.send(()).unwrap();
            gone.send(stream.read(&mut [0]).await.unwrap()).unwrap();
        }
    })
    .await;
    let (prober, probe) = (local(), at(target));
    tokio::select! {
        run = prober.run(&probe, TIMEOUT) => panic!("{}", shown(&run)),
        asked = asked => asked.unwrap(),
    }
    let start = Instant::now();
    assert_eq!(closed.await, Ok(0));
    assert!(start.elapsed() < TIMEOUT / 2);
}

/// The probe of an `https` target, verified as `server_name`.
fn https(address: std::net::SocketAddr, server_name: Option<&str>) -> ProbeKind {
    let plain = probe(endpoint(address));
    let url = HttpUrl { https: true, ..plain.url };
    let tls = Some(Tls { server_name: server_name.map(str::to_owned), ..Tls::default() });
    ProbeKind::Http(HttpProbe { url, tls, ..plain })
}

#[tokio::test]
async fn tls_is_verified() {
    let acceptor = targets::tls(b"http/1.1");
    let target = targets::tcp(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            targets::head(&mut stream).await;
            stream.write_all(sized("200 OK", "fine").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    for name in [None, Some("tool.example"), Some("tool.example.")] {
        assert_eq!(shown(&targets::trusting().run(&https(target, name), TIMEOUT).await), "PASS", "{name:?}");
    }
    for name in [Some("other.example"), Some("127.0.0.2"), Some("no name")] {
        let run = targets::trusting().run(&https(target, name), TIMEOUT).await;
        assert_error(&run, ErrorClass::Tls, "name");
        assert_eq!(run.address, Some(target));
    }
    // The public roots have not signed it.
    assert_error(
        &local().run(&https(target, Some("tool.example")), TIMEOUT).await,
        ErrorClass::Tls,
        "UnknownIssuer",
    );
}

#[tokio::test]
async fn tls_against_plaintext_is_an_error() {
    let target = targets::canned(sized("400 Bad Request", "")).await;
    // What it sends is no TLS record; `canned` waits for an empty line first, which no handshake has.
    let eager = targets::tcp(|mut stream| async move {
        let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        pending::<()>().await;
    })
    .await;
    assert_error(&local().run(&https(eager, None), TIMEOUT).await, ErrorClass::Tls, "handshake");
    // And plaintext against TLS, or a handshake that never ends.
    let run = local().run(&https(target, None), Duration::from_millis(50)).await;
    assert_error(&run, ErrorClass::Timeout, "the TLS handshake did not end");
}

#[tokio::test]
async fn hosts_are_named_in_blocks() {
    let target = targets::canned(sized("200 OK", "")).await;
    let named = HostPort { host: "localhost".to_owned(), port: target.port() };
    let run = prober(&[]).run(&ProbeKind::Http(probe(named)), TIMEOUT).await;
    assert_error(&run, ErrorClass::Blocked, "'localhost' (");
}
