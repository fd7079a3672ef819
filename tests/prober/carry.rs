//! What probes carry: headers, bodies, secrets and TLS by reference.

use std::{fs, net::SocketAddr};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};
use toolpulse::{
    core::{
        name::ToolName,
        probe::{
            ClientIdentity, ErrorClass, GrpcProbe, Header, HeaderValue, HttpProbe, HttpUrl, Method,
            ProbeKind, ProbeSpec, Secret, SecretName, Tls,
        },
        tool::ToolSpec,
    },
    prober::{
        Parts, Prober,
        carry::Rules,
        egress::{Mode, Policy},
        secrets::Secrets,
    },
};

use super::{
    TIMEOUT, assert_error, endpoint, local, shown,
    targets::{self, Identity},
};

const CANARY: &str = "canary-6f1c";

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

fn header(name: &str, value: HeaderValue) -> Header {
    Header { name: name.to_owned(), value }
}

fn literal(text: &str) -> HeaderValue {
    HeaderValue::Literal(Secret::new(text))
}

fn http(target: SocketAddr, scheme: &str) -> HttpProbe {
    let text = format!("{scheme}://{target}/a?q={CANARY}");
    let path_and_query = format!("/a?q={CANARY}");
    HttpProbe::get(HttpUrl { text, https: scheme == "https", endpoint: endpoint(target), path_and_query })
}

/// Secrets in files, each with its rule.
struct Mounted(TempDir);

impl Mounted {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (file, content) in files {
            fs::write(dir.path().join(file), content).unwrap();
        }
        Self(dir)
    }

    fn rules(&self, insecure_tls: bool) -> Rules {
        Rules { secrets: Secrets::new(Some(self.0.path().to_owned())), insecure_tls }
    }

    fn prober(&self, insecure_tls: bool) -> Prober {
        let egress = Policy::parse(Mode::Strict, &["127.0.0.0/8".to_owned()]).unwrap();
        Prober::of(Parts { rules: self.rules(insecure_tls), ..Parts::new(egress) })
    }
}

/// Reads a request with a body of `length`, hands it over and answers 403 with a reason that repeats it.
async fn echo(length: usize) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (sender, seen) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut request = targets::head(&mut stream).await;
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            let told = request.replace("\r\n", " ").replace(['"', '\\'], "'");
            // From the end, as a message has room for 256 characters.
            let told = &told[told.len().saturating_sub(200)..];
            let answer = format!(r#"{{"available": false, "reason": "you said {told}"}}"#);
            let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.write_all((head + &answer).as_bytes()).await.unwrap();
            sender.send(request).unwrap();
        }
    })
    .await;
    (target, seen)
}

#[tokio::test]
async fn a_request_with_everything() {
    let (target, mut seen) = echo(7).await;
    let mounted = Mounted::new(&[
        ("token", &format!("{CANARY}-token\n")),
        ("token.hosts", "http://127.0.0.1"),
        ("key", &format!("{CANARY}-key")),
        ("key.hosts", &format!("http://127.0.0.1:{}", target.port())),
    ]);
    let probe = HttpProbe {
        method: Method::Post(Secret::new("ping it")),
        headers: vec![
            header("accept", literal("text/plain")),
            header("authorization", HeaderValue::Bearer(name("token"))),
            header("x-api-key", HeaderValue::Secret(name("key"))),
            header("x-literal", literal(&format!("{CANARY}-literal"))),
        ],
        ..http(target, "http")
    };
    let run = mounted.prober(false).run(&ProbeKind::Http(probe), TIMEOUT).await;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        seen.recv().await.unwrap(),
        format!(
            "POST /a?q={CANARY} HTTP/1.1\r\nhost: {target}\r\nuser-agent: toolpulse-probe/{version}\r\n\
             accept: text/plain\r\nconnection: close\r\ncontent-length: 7\r\ncontent-type: application/json\r\n\
             authorization: Bearer {CANARY}-token\r\nx-api-key: {CANARY}-key\r\nx-literal: {CANARY}-literal\r\n\
             \r\nping it"
        )
    );
    assert!(shown(&run).starts_with("NO PROBE_SAID_NO: you said "), "{}", shown(&run));
    assert!(
        shown(&run).contains("x-api-key: [hidden]") && shown(&run).ends_with("[hidden]"),
        "{}",
        shown(&run)
    );
    assert!(!format!("{run:?}").contains(CANARY), "{run:?}");
}

#[tokio::test]
async fn a_body_says_what_it_is() {
    let cases =
        [("", "content-length: 0\r\n\r\n"), ("{}", "content-length: 2\r\ncontent-type: a/b\r\n\r\n{}")];
    for (body, end) in cases {
        let (target, mut seen) = echo(body.len()).await;
        let headers = if body.is_empty() { vec![] } else { vec![header("content-type", literal("a/b"))] };
        let probe = HttpProbe { method: Method::Post(Secret::new(body)), headers, ..http(target, "http") };
        local().run(&ProbeKind::Http(probe), TIMEOUT).await;
        let request = seen.recv().await.unwrap();
        assert!(request.ends_with(end), "{request}");
        for never in ["accept-encoding", "cookie", "proxy"] {
            assert!(!request.contains(never), "{request}");
        }
    }
}

#[tokio::test]
async fn a_secret_that_may_not_go_is_an_error_and_nothing_is_sent() {
    let (sender, mut connected) = mpsc::unbounded_channel();
    let target = targets::tcp(move |_stream| {
        sender.send(()).unwrap();
        async {}
    })
    .await;
    let mounted = Mounted::new(&[
        ("unruled", CANARY),
        ("elsewhere", CANARY),
        ("elsewhere.hosts", "http://api.example"),
        ("tls-only", CANARY),
        ("tls-only.hosts", "127.0.0.1"),
        ("broken", &format!("{CANARY}\nline")),
        ("broken.hosts", "http://127.0.0.1"),
    ]);
    let with = |value| HttpProbe { headers: vec![header("x-key", value)], ..http(target, "http") };
    let prober = mounted.prober(false);
    for secret in ["absent", "unruled", "elsewhere", "tls-only"] {
        for value in [HeaderValue::Secret(name(secret)), HeaderValue::Bearer(name(secret))] {
            let run = prober.run(&ProbeKind::Http(with(value)), TIMEOUT).await;
            let text = format!("secret '{secret}' is not for 127.0.0.1 port {} without TLS", target.port());
            assert_error(&run, ErrorClass::Secret, &text);
            assert_eq!(run.address, None);
        }
    }
    let run = prober.run(&ProbeKind::Http(with(HeaderValue::Secret(name("broken")))), TIMEOUT).await;
    assert_error(&run, ErrorClass::Secret, "secret 'broken' can't be a header: it must be visible ASCII");
    let run = local().run(&ProbeKind::Http(with(HeaderValue::Secret(name("absent")))), TIMEOUT).await;
    assert_error(&run, ErrorClass::Secret, "TOOLPULSE_SECRETS_DIR is not set");
    assert!(connected.try_recv().is_err());
}

#[tokio::test]
async fn a_secret_that_changes_is_read_anew() {
    let (target, mut seen) = echo(0).await;
    let mounted = Mounted::new(&[("token", "first"), ("token.hosts", "http://127.0.0.1")]);
    let headers = vec![header("authorization", HeaderValue::Bearer(name("token")))];
    let probe = ProbeKind::Http(HttpProbe { headers, ..http(target, "http") });
    let prober = mounted.prober(false);
    for token in ["first", "second"] {
        fs::write(mounted.0.path().join("token"), token).unwrap();
        prober.run(&probe, TIMEOUT).await;
        let request = seen.recv().await.unwrap();
        assert!(request.contains(&format!("authorization: Bearer {token}\r\n")), "{request}");
    }
    fs::remove_file(mounted.0.path().join("token.hosts")).unwrap();
    assert_error(&prober.run(&probe, TIMEOUT).await, ErrorClass::Secret, "is not for 127.0.0.1");
}

/// Speaks TLS, answers 204 to one request, and says whether a client certificate was shown.
async fn tls_target(identity: Identity, asks: bool) -> (SocketAddr, mpsc::UnboundedReceiver<bool>) {
    let (sender, shown) = mpsc::unbounded_channel();
    let acceptor = targets::tls_as(identity, b"http/1.1", asks);
    let target = targets::tcp(move |stream| {
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let _unheard = sender.send(stream.get_ref().1.peer_certificates().is_some());
            targets::head(&mut stream).await;
            let _gone = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _gone = stream.shutdown().await;
        }
    })
    .await;
    (target, shown)
}

#[tokio::test]
async fn tls_by_reference() {
    let (target, _) = tls_target(Identity::Zoo, false).await;
    let (asking, mut certified) = tls_target(Identity::Zoo, true).await;
    let key = include_str!("tls/client.key");
    let mounted = Mounted::new(&[
        ("ca", targets::ZOO_ROOT),
        ("ca.hosts", "127.0.0.1"),
        ("other-ca", targets::ZOO_ROOT),
        ("other-ca.hosts", "other.example"),
        ("nothing", "no certificate"),
        ("nothing.hosts", "127.0.0.1"),
        ("client.crt", include_str!("tls/client.pem")),
        ("client.key", key),
        ("client.key.hosts", "127.0.0.1"),
        ("unruled.key", key),
        ("other.key", include_str!("tls/served.key")),
        ("other.key.hosts", "127.0.0.1"),
        ("token", "t"),
        ("token.hosts", "127.0.0.1"),
    ]);
    let prober = mounted.prober(false);
    let run = async |target, tls: Tls| {
        let headers = vec![header("authorization", HeaderValue::Bearer(name("token")))];
        let probe = HttpProbe { tls: Some(tls), headers, ..http(target, "https") };
        prober.run(&ProbeKind::Http(probe), TIMEOUT).await
    };
    let ca = || Some(name("ca"));
    let with = |key: &str| {
        let client = Some(ClientIdentity { cert: name("client.crt"), key: name(key) });
        Tls { ca: ca(), client, ..Tls::default() }
    };
    assert_error(&run(target, Tls::default()).await, ErrorClass::Tls, "UnknownIssuer");
    assert_eq!(shown(&run(target, Tls { ca: ca(), ..Tls::default() }).await), "PASS");
    let named = Tls { ca: ca(), server_name: Some("other.example".to_owned()), ..Tls::default() };
    assert_error(&run(target, named).await, ErrorClass::Secret, "secret 'token' is not for");
    let nothing = Tls { ca: Some(name("nothing")), ..Tls::default() };
    assert_error(
        &run(target, nothing).await,
        ErrorClass::Secret,
        "secret 'nothing' holds no certificates in PEM",
    );
    for ca in ["absent", "other-ca"] {
        let text = format!("secret '{ca}' is not for 127.0.0.1 port {}: ", target.port());
        let run = run(target, Tls { ca: Some(name(ca)), ..Tls::default() }).await;
        assert_error(&run, ErrorClass::Secret, &text);
    }

    assert_eq!(shown(&run(asking, with("client.key")).await), "PASS");
    assert_eq!(certified.recv().await, Some(true));
    assert_error(
        &run(asking, with("unruled.key")).await,
        ErrorClass::Secret,
        "secret 'unruled.key' is not for",
    );
    assert_error(&run(asking, with("other.key")).await, ErrorClass::Secret, "are no certificate and its key");
    assert_error(
        &run(asking, with("client.crt")).await,
        ErrorClass::Secret,
        "secret 'client.crt' is not for",
    );
    // Without one, the server refuses; TLS 1.3 says so only after the handshake.
    assert_error(&run(asking, Tls { ca: ca(), ..Tls::default() }).await, ErrorClass::Tls, "ertificate");
}

#[tokio::test]
async fn any_certificate_is_taken_only_where_the_operator_permits_it() {
    let mounted = Mounted::new(&[]);
    let tls = Some(Tls { insecure_skip_verify: true, ..Tls::default() });
    for identity in [Identity::SelfSigned, Identity::Expired, Identity::Zoo] {
        let (target, _) = tls_target(identity, false).await;
        let probe = ProbeKind::Http(HttpProbe { tls: tls.clone(), ..http(target, "https") });
        assert_eq!(shown(&mounted.prober(true).run(&probe, TIMEOUT).await), "PASS", "{identity:?}");
        let run = mounted.prober(false).run(&probe, TIMEOUT).await;
        assert_error(&run, ErrorClass::Blocked, "TOOLPULSE_PROBE_INSECURE_TLS");
        assert_eq!(run.address, None);
        assert!(mounted.rules(false).judge(&probe).unwrap_err().contains("TOOLPULSE_PROBE_INSECURE_TLS"));
        assert_eq!(mounted.rules(true).judge(&probe), Ok(()));
    }
}

#[tokio::test]
async fn what_can_not_be_used_is_told_at_registration() {
    let mounted = Mounted::new(&[
        ("token", "t"),
        ("token.hosts", "api.example"),
        ("ca", targets::ZOO_ROOT),
        ("ca.hosts", "127.0.0.1"),
    ]);
    let target: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let tls = Tls {
        ca: Some(name("ca")),
        client: Some(ClientIdentity { cert: name("ca"), key: name("token") }),
        ..Tls::default()
    };
    let headers = vec![header("a", literal("a")), header("b", HeaderValue::Secret(name("token")))];
    let spec = ToolSpec {
        probes: vec![
            ProbeSpec { name: "report".into(), kind: ProbeKind::Report },
            ProbeSpec {
                name: "http".into(),
                kind: ProbeKind::Http(HttpProbe { tls: Some(tls), headers, ..http(target, "https") }),
            },
        ],
        ..ToolSpec::new(ToolName::parse("t").unwrap())
    };
    let told: Vec<String> = mounted
        .rules(false)
        .warnings(&spec)
        .await
        .into_iter()
        .map(|w| format!("{} {}", w.code, w.field))
        .collect();
    assert_eq!(
        told,
        [
            "SECRET_NOT_USABLE probes[1].http.headers[1]",
            "SECRET_NOT_USABLE probes[1].http.tls.client_key_ref"
        ]
    );
}

#[tokio::test]
async fn grpc_metadata() {
    use tonic::{Request, Response, Status};
    use toolpulse::proto::health::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_server::{Health, HealthServer},
    };

    /// Refuses, and repeats the metadata.
    struct Repeats;

    #[tonic::async_trait]
    impl Health for Repeats {
        type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

        async fn check(
            &self,
            request: Request<HealthCheckRequest>,
        ) -> Result<Response<HealthCheckResponse>, Status> {
            let told = |name: &str| request.metadata().get(name).unwrap().to_str().unwrap().to_owned();
            let (token, plain) = (told("authorization"), told("x-plain"));
            assert_eq!(token, format!("Bearer {CANARY}"));
            Err(Status::permission_denied(format!("not you, {token}; {plain} {}", &CANARY[2..])))
        }

        async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
            Err(Status::unimplemented(""))
        }
    }

    let target = super::grpc::serve(tonic::service::Routes::new(HealthServer::new(Repeats))).await;
    let mounted = Mounted::new(&[("token", CANARY), ("token.hosts", "http://127.0.0.1")]);
    let probe = GrpcProbe {
        target: endpoint(target),
        service: String::new(),
        headers: vec![
            header("authorization", HeaderValue::Bearer(name("token"))),
            header("x-plain", literal("plain-text")),
        ],
        tls: None,
    };
    let run = mounted.prober(false).run(&ProbeKind::Grpc(probe), TIMEOUT).await;
    let text = "NO PERMISSION_DENIED: health check answered PERMISSION_DENIED: not you, Bearer [hidden]; [hidden] nary-6f1c";
    assert_eq!(shown(&run), text);
}
