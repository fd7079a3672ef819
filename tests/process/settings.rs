//! Starts that depend on the rest of the environment, and the admin port.

use std::{net::TcpListener, os::unix::fs::PermissionsExt};

use toolpulse::proto::v1::{ProbeOutcome, RegisterToolRequest, ReportProbeResultRequest};

use crate::{
    run,
    support::{
        Server,
        inproc::{probed, report, tool},
    },
};

#[tokio::test]
async fn variables_that_kubernetes_injects_do_no_harm() {
    let server = Server::start(|config| {
        config.store("memory");
        config.env("TOOLPULSE_PORT", "tcp://10.0.0.1:50051").env("TOOLPULSE_SERVICE_HOST", "10.0.0.1");
        config.env("TOOLPULSE_PORT_50051_TCP_ADDR", "10.0.0.1").env("TOOLPULSE_SERVICE_PORT_GRPC", "50051");
        config.env("TOOLPULSE_PROBE_INTERVALL", "5s");
    })
    .await;
    let log = server.log();
    let unknown: Vec<_> = log.lines().filter(|line| line.contains("unknown environment variable")).collect();
    assert_eq!(unknown.len(), 1, "{log}");
    assert!(unknown[0].contains("did you mean TOOLPULSE_PROBE_INTERVAL?"), "{log}");
}

#[tokio::test]
async fn settings_that_are_wrong_stop_the_start_and_are_named() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (name, value, code, words) in [
        (
            "TOOLPULSE_PROBE_GRACE",
            "10s",
            2,
            &["probe_grace", "TOOLPULSE_PROBE_GRACE", "10s", "13s 500ms"][..],
        ),
        ("TOOLPULSE_PROBE_TTL", "10s", 2, &["probe_ttl", "10s"]),
        ("TOOLPULSE_PROBE_INTERVAL", "10", 2, &["TOOLPULSE_PROBE_INTERVAL", "10s"]),
        ("TOOLPULSE_STORE", "postgres://u:secret@h/db", 2, &["postgres://", "sqlite or memory"]),
        ("TOOLPULSE_PROBE_ALLOW", "10.0.0.0/99", 2, &["TOOLPULSE_PROBE_ALLOW", "10.0.0.0/99"]),
        ("TOOLPULSE_PROBE_DENY", "*:0", 2, &["TOOLPULSE_PROBE_DENY entry '*:0'", "a port from 1 to 65535"]),
        ("TOOLPULSE_MANIFEST", "/nowhere/tools.yaml", 2, &["/nowhere/tools.yaml"]),
        ("TOOLPULSE_LOG", "toolpulse=loud", 2, &["TOOLPULSE_LOG"]),
        ("TOOLPULSE_LISTEN", &taken, 1, &["TOOLPULSE_LISTEN", &taken, "another process listens there"]),
        ("TOOLPULSE_ADMIN_LISTEN", &taken, 1, &["TOOLPULSE_ADMIN_LISTEN", "another process listens there"]),
    ] {
        let mut env = vec![
            ("TOOLPULSE_LISTEN", "127.0.0.1:0"),
            ("TOOLPULSE_ADMIN_LISTEN", "127.0.0.1:0"),
            ("TOOLPULSE_STORE", "memory"),
        ];
        env.retain(|(known, _)| *known != name);
        env.push((name, value));
        let ran = run(&["serve"], &env).await;
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert_eq!(ran.code, code, "{name}={value}: {ran:?}");
        assert!(last.starts_with("error: "), "{ran:?}");
        for word in words {
            assert!(last.contains(word), "{name}={value}: '{word}' is not in: {last}");
        }
        assert!(!ran.stderr.contains("secret"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_written_is_named() {
    // For root, permissions are no hindrance; a file in the way is one for everybody.
    let files = tempfile::tempdir().unwrap();
    let in_the_way = files.path().join("file");
    std::fs::write(&in_the_way, "x").unwrap();
    let locked = files.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o500)).unwrap();
    let mut directories = vec![in_the_way.join("data")];
    if !rustix::process::geteuid().is_root() {
        directories.push(locked);
    }
    for directory in directories {
        let ended = Server::refuse(|config| {
            config.data_dir(&directory);
        })
        .await;
        let last = ended.log.lines().last().unwrap_or_default();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.log);
        assert!(last.starts_with("error: ") && last.contains(&*directory.to_string_lossy()), "{last}");
    }
}

#[tokio::test]
async fn the_admin_port_tells_life_readiness_and_counts() {
    let server = Server::start(|config| {
        config.store("memory");
    })
    .await;
    for spec in [tool("free"), probed("pushed", [report()]), probed("pending", [report()])] {
        let request = RegisterToolRequest { tool: Some(spec), ..Default::default() };
        server.tools().register_tool(request).await.unwrap();
    }
    let outcome = ProbeOutcome::No.into();
    let no = ReportProbeResultRequest { name: "pushed".into(), outcome, ..Default::default() };
    server.tools().report_probe_result(no).await.unwrap();
    let refused = server.tools().register_tool(RegisterToolRequest::default()).await;
    assert!(refused.is_err());

    for path in ["/livez", "/readyz"] {
        assert_eq!(server.admin_get(path).await.unwrap(), (200, "ok\n".to_owned()), "{path}");
    }
    assert_eq!(server.admin_get("/nope").await.unwrap().0, 404);
    let (code, text) = server.admin_get("/metrics").await.unwrap();
    assert_eq!(code, 200);
    let value = |name: &str, labels: &[&str]| {
        let line = text.lines().find(|l| l.starts_with(name) && labels.iter().all(|label| l.contains(label)));
        line.and_then(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
    };
    for verdict in ["available", "unavailable", "pending"] {
        assert_eq!(value("toolpulse_tools{", &[&format!("\"{verdict}\"")]), Some(1.0), "{verdict}:\n{text}");
    }
    assert_eq!(value("toolpulse_probe_results_total", &["report", "\"no\""]), Some(1.0), "{text}");
    let calls = |code: &str| value("toolpulse_rpcs_total", &["RegisterTool\"", code]);
    assert_eq!((calls("\"OK\""), calls("\"INVALID_ARGUMENT\"")), (Some(3.0), Some(1.0)), "{text}");
    for name in ["free", "pushed", "pending\","] {
        assert!(!text.contains(&format!("\"{name}")), "a tool's name is never a label: {text}");
    }
}
