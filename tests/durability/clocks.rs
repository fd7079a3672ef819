//! The age of what was known before a restart, where somebody set the wall clock meanwhile: the clock that counts since the boot
//! decides, and after a reboot a success that seems to come from the future is none.

use rusqlite::Connection;
use toolpulse::{
    proto::v1::{ProbeOutcome, ProbeSpec, ReportProbe, ReportProbeResultRequest, ToolSpec, probe_spec::Kind},
    store::FILE,
};

use crate::{available, named, register, restarts::until_saved, seconds, support::Server};

const CASES: [(&str, &str, bool); 7] = [
    ("nothing-happened", "", true),
    ("same-boot-set-back-an-hour", "wall_ms = wall_ms + 3600000", true),
    ("same-boot-set-forward-an-hour", "wall_ms = wall_ms - 3600000", true),
    ("same-boot-an-hour-ago", "boot_ns = boot_ns - 3600000000000", false),
    ("rebooted", "boot_id = 'another', boot_ns = 0", true),
    ("rebooted-set-back-an-hour", "boot_id = 'another', wall_ms = wall_ms + 3600000", false),
    ("rebooted-set-forward-an-hour", "boot_id = 'another', wall_ms = wall_ms - 3600000", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_was_set_makes_nothing_available() {
    let mut server = Server::start(|_| {}).await;
    for (name, ..) in CASES {
        let probe = ProbeSpec { kind: Some(Kind::Report(ReportProbe {})), ..ProbeSpec::default() };
        let windows = (Some(seconds(300.0)), Some(seconds(300.0)));
        let spec = ToolSpec { probes: vec![probe], ttl: windows.0, grace: windows.1, ..named(name) };
        // Nobody has reported yet, so there is no first result to wait for.
        let request = toolpulse::proto::v1::RegisterToolRequest { tool: Some(spec), ..Default::default() };
        server.tools().register_tool(request).await.unwrap();
        let report = ReportProbeResultRequest {
            name: name.into(),
            outcome: ProbeOutcome::Pass.into(),
            ..Default::default()
        };
        server.tools().report_probe_result(report).await.unwrap();
    }
    register(&server, named("free")).await.unwrap();
    assert_eq!(available(&server).await.len(), CASES.len() + 1);
    until_saved(&server, i64::try_from(CASES.len()).unwrap()).await;
    server.kill9();
    let store = Connection::open(server.data_dir().join(FILE)).unwrap();
    for (name, change, _) in CASES.into_iter().filter(|(_, change, _)| !change.is_empty()) {
        let changed = store.execute(&format!("UPDATE success SET {change} WHERE name = ?1"), [name]).unwrap();
        assert_eq!(changed, 1, "{name}");
    }
    drop(store);
    server.start_again().await;
    let listed = available(&server).await;
    for (name, _, shown) in CASES {
        assert_eq!(listed.iter().any(|listed| listed == name), shown, "{name}: {listed:?}");
    }
    assert!(listed.iter().any(|listed| listed == "free"));
}
