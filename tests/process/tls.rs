//! TLS of the API: what it demands, who gets in, and rotations that nobody on an open connection notices.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use toolpulse::proto::{
    health::{HealthCheckRequest, health_client::HealthClient},
    v1::{RegisterToolRequest, tool_registry_service_client::ToolRegistryServiceClient},
};

use crate::{
    run,
    support::{SOON, Server, eventually, inproc::tool},
    watches::Kind,
};

/// The name in both certificates.
const NAME: &str = "tool.example";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prober/tls").join(name)
}

/// A directory as Kubernetes mounts a secret: its files are links into `..data`, itself a link that is swapped.
struct Mounted {
    dir: TempDir,
    versions: usize,
}

impl Mounted {
    fn new(cert: &str, key: &str) -> Self {
        let mut mounted = Self { dir: tempfile::tempdir().unwrap(), versions: 0 };
        mounted.swap(cert, key);
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), mounted.path(name)).unwrap();
        }
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn swap(&mut self, cert: &str, key: &str) {
        self.versions += 1;
        let version = format!("..v{}", self.versions);
        fs::create_dir(self.path(&version)).unwrap();
        for (from, to) in [(cert, "tls.crt"), (key, "tls.key")] {
            fs::copy(fixture(from), self.path(&version).join(to)).unwrap();
        }
        let new = self.path("..new");
        symlink(version, &new).unwrap();
        fs::rename(new, self.path("..data")).unwrap();
    }
}

/// A connection to whom `root` vouches for; the client shows a certificate, or none.
async fn connect(server: &Server, root: &str, shows: Option<&str>) -> Result<Channel, String> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(fs::read(fixture(root)).unwrap()))
        .domain_name(NAME);
    if let Some(name) = shows {
        let read = |end: &str| fs::read(fixture(&format!("{name}.{end}"))).unwrap();
        tls = tls.identity(Identity::from_pem(read("pem"), read("key")));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address())).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await.map_err(|e| format!("{e:?}"))?;
    // In TLS 1.3 a server that refuses a client's certificate says so after the client's handshake.
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
    health.map(|_| channel).map_err(|status| status.to_string())
}

async fn metric(server: &Server, line: &str) -> bool {
    server.admin_get("/metrics").await.unwrap().1.lines().any(|l| l == line)
}

#[tokio::test]
async fn settings_that_do_not_go_together_are_named() {
    let (cert, key) = (fixture("served.pem"), fixture("served.key"));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let other = fixture("tool.example.key");
    let other = other.to_str().unwrap();
    let root = fixture("zoo-root.pem");
    let root = root.to_str().unwrap();
    for (flags, words) in [
        (&["--tls-cert", cert][..], &["tls_cert from flag --tls-cert", "tls_key"][..]),
        (&["--tls-key", key], &["tls_key from flag --tls-key", "tls_cert"]),
        (&["--tls-client-ca", root], &["tls_client_ca", "tls_cert and tls_key"]),
        (&["--tls-cert", cert, "--tls-key", key, "--tls-client-auth", "optional"], &["needs tls_client_ca"]),
        (&["--tls-cert", cert, "--tls-key", other], &["tls_cert and tls_key", "together"]),
        (&["--tls-cert", cert, "--tls-key", cert], &["tls_key", "no private key"]),
        (&["--tls-cert", key, "--tls-key", key], &["tls_cert", "no certificate"]),
        (&["--tls-cert", "/nowhere.pem", "--tls-key", key], &["tls_cert", "/nowhere.pem"]),
        (
            &["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key],
            &["tls_client_ca", "no certificate"],
        ),
        (&["--listen", "0.0.0.0:0"], &["0.0.0.0:0", "tls_cert and tls_key", "allow_plaintext=true"]),
        (&["--listen", "[::]:0"], &["[::]:0", "allow_plaintext=true"]),
    ] {
        let mut args = vec!["serve", "--admin-listen", "127.0.0.1:0", "--store", "memory"];
        if !flags.contains(&"--listen") {
            args.extend(["--listen", "127.0.0.1:0"]);
        }
        args.extend(flags);
        let ran = run(&args, &[]).await;
        assert_eq!(ran.code, 2, "{flags:?}: {ran:?}");
        let last = ran.stderr.lines().last().unwrap();
        for word in words {
            assert!(last.contains(word), "{flags:?}: '{word}' is not in: {last}");
        }
    }
    let told = run(&["tools", "list", "--server", "http://h:1", "--server-ca", root], &[]).await;
    assert_eq!(told.code, 2);
    assert!(told.error().contains("server_ca") && told.error().contains("https://"), "{told:?}");
}

#[tokio::test]
async fn plaintext_off_loopback_is_a_decision() {
    let server = Server::start(|config| {
        config.store("memory").args(["--allow-plaintext"]).listen("0.0.0.0:0");
    })
    .await;
    assert!(server.address().starts_with("0.0.0.0:"));
}

#[tokio::test]
async fn a_rotation_ends_no_stream_and_a_pair_that_does_not_match_changes_nothing() {
    let mut files = Mounted::new("served.pem", "served.key");
    let server = Server::start(|config| {
        config.store("memory");
        config.env("TOOLPULSE_TLS_CERT", files.path("tls.crt"));
        config.env("TOOLPULSE_TLS_KEY", files.path("tls.key"));
    })
    .await;
    let before = connect(&server, "zoo-root.pem", None).await.unwrap();
    let mut watch = Kind::Tools.synced(before.clone()).await;
    let mut calls = ToolRegistryServiceClient::new(before);

    // New connections see the new certificate; those who trust only the old one's authority get none.
    files.swap("tool.example.pem", "tool.example.key");
    eventually("the new certificate", SOON, async || connect(&server, "root.pem", None).await.ok()).await;
    assert!(connect(&server, "zoo-root.pem", None).await.is_err());
    assert!(metric(&server, "toolpulse_tls_reloads_total{result=\"ok\"} 1").await);

    files.swap("served.pem", "tool.example.key");
    let failed = "toolpulse_tls_reloads_total{result=\"failed\"} 1";
    eventually("the failure", SOON, async || metric(&server, failed).await.then_some(())).await;
    server.logs("the old ones stay in force").await;
    connect(&server, "root.pem", None).await.unwrap();

    files.swap("served.pem", "served.key");
    eventually("the first one again", SOON, async || connect(&server, "zoo-root.pem", None).await.ok()).await;

    // What was open all the while still is: calls and the watch.
    let request = RegisterToolRequest { tool: Some(tool("late")), ..Default::default() };
    calls.register_tool(request).await.unwrap();
    let seen = tokio::time::timeout(SOON, tokio_stream::StreamExt::next(&mut watch)).await;
    assert!(seen.unwrap().unwrap().unwrap().synced);
}

#[tokio::test]
async fn clients_show_certificates_where_they_must() {
    for (auth, without) in [("required", false), ("optional", true)] {
        let server = Server::start(|config| {
            config.store("memory");
            config.args(["--tls-cert".into(), fixture("tool.example.pem").into_os_string()]);
            config.args(["--tls-key".into(), fixture("tool.example.key").into_os_string()]);
            config.args(["--tls-client-ca".into(), fixture("zoo-root.pem").into_os_string()]);
            config.args(["--tls-client-auth", auth]);
        })
        .await;
        connect(&server, "root.pem", Some("client")).await.unwrap();
        assert_eq!(connect(&server, "root.pem", None).await.is_ok(), without, "{auth}");
        // Signed by nobody known.
        assert!(connect(&server, "root.pem", Some("self-signed")).await.is_err(), "{auth}");
        // Plaintext.
        let plain = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let plain = HealthClient::new(plain.connect_lazy()).check(HealthCheckRequest::default()).await;
        assert!(plain.is_err());
        assert!(!metric(&server, "toolpulse_tls_handshake_failures_total 0").await);
    }
}

/// The commands speak to it, and say why they can't.
#[tokio::test]
async fn the_command_line_speaks_tls() {
    let server = Server::start(|config| {
        config.store("memory");
        config.args(["--tls-cert".into(), fixture("tool.example.pem").into_os_string()]);
        config.args(["--tls-key".into(), fixture("tool.example.key").into_os_string()]);
        config.args(["--tls-client-ca".into(), fixture("zoo-root.pem").into_os_string()]);
    })
    .await;
    let text = |name: &str| fixture(name).to_str().unwrap().to_owned();
    let url = format!("https://{}", server.address());
    let (root, cert, key) = (text("root.pem"), text("client.pem"), text("client.key"));
    let env = [
        ("TOOLPULSE_SERVER", url.as_str()),
        ("TOOLPULSE_SERVER_CA", &root),
        ("TOOLPULSE_CLIENT_CERT", &cert),
        ("TOOLPULSE_CLIENT_KEY", &key),
    ];
    let healthy = run(&["healthcheck"], &env).await;
    assert_eq!((healthy.code, healthy.stdout.as_str()), (0, "SERVING\n"), "{healthy:?}");
    assert_eq!(run(&["tools", "list"], &env).await.code, 0);

    let untrusted = run(&["healthcheck"], &env[..1]).await;
    assert_eq!(untrusted.code, 3);
    assert!(untrusted.error().contains("certificate"), "{untrusted:?}");
    let nobody = run(&["tools", "list"], &env[..2]).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.error().to_lowercase().contains("certificate"), "{nobody:?}");
    let missing = run(&["tools", "list", "--server-ca", "/nowhere.pem"], &env[..1]).await;
    assert!(missing.error().contains("server_ca: cannot read /nowhere.pem"), "{missing:?}");
}
