//! What agents are shown after a restart: what passed lately, and nothing that said no.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use toolpulse::{
    proto::v1::{
        HttpProbe, ProbeOutcome, ProbeSpec, ProbeToolRequest, RegisterToolRequest, ReportProbe,
        ReportProbeResultRequest, ToolSpec, Verdict, probe_spec::Kind,
    },
    store::FILE,
};

use crate::{
    available, get, named, register, seconds,
    support::{
        SOON, Server, eventually,
        targets::{Answer, HttpTarget},
    },
    verdict,
};

const GRACE: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    Term,
}

fn probed(name: &str, target: &HttpTarget) -> ToolSpec {
    let probe = HttpProbe { url: target.url("/"), ..HttpProbe::default() };
    ToolSpec {
        probes: vec![ProbeSpec { kind: Some(Kind::Http(probe)), ..ProbeSpec::default() }],
        interval: Some(seconds(1.0)),
        timeout: Some(seconds(0.2)),
        ttl: Some(seconds(GRACE.as_secs_f64())),
        grace: Some(seconds(GRACE.as_secs_f64())),
        ..named(name)
    }
}

/// How many last successes the store's file holds: what a crash right now would leave.
fn saved(server: &Server) -> i64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(server.data_dir().join(FILE), flags).unwrap();
    conn.busy_timeout(SOON).unwrap();
    conn.query_row("SELECT count(*) FROM success", [], |row| row.get(0)).unwrap()
}

pub(crate) async fn until_saved(server: &Server, count: i64) {
    eventually("the success is checkpointed", SOON, || async { (saved(server) == count).then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_within_the_grace_is_listed_after_kill_9() {
    listed_within_the_grace(End::Kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_within_the_grace_is_listed_after_sigterm() {
    listed_within_the_grace(End::Term).await;
}

/// Both targets are down by then: one refuses connections, one takes them and never answers.
async fn listed_within_the_grace(end: End) {
    let mut server = Server::start(|_| {}).await;
    let mut gone = HttpTarget::start(Answer::Status(200)).await;
    let silent = HttpTarget::start(Answer::Status(200)).await;
    register(&server, probed("gone", &gone)).await.unwrap();
    register(&server, probed("silent", &silent)).await.unwrap();
    assert_eq!(available(&server).await, ["gone", "silent"]);
    until_saved(&server, 2).await;

    gone.stop().await;
    silent.set(Answer::Hang);
    match end {
        End::Kill => server.crash_and_restart().await,
        End::Term => server.restart().await,
    }
    assert_eq!(available(&server).await, ["gone", "silent"], "the first list after {end:?}");

    for name in ["gone", "silent"] {
        let status = eventually("a run failed", SOON, || async {
            get(&server, name).await.status.filter(|s| s.last_probe_time.is_some())
        })
        .await;
        assert!(status.last_good && status.verdict() == Verdict::Available, "{name}: {status:?}");
    }
    for name in ["gone", "silent"] {
        let status = eventually("the grace ends", SOON, || async {
            get(&server, name).await.status.filter(|s| s.verdict() == Verdict::Unavailable)
        })
        .await;
        // The grace counts on from the success of before the restart, not from the start.
        let time = |t: Option<prost_types::Timestamp>| SystemTime::try_from(t.unwrap()).unwrap();
        let outlived = time(status.since).duration_since(time(status.last_success_time)).unwrap();
        assert!(
            outlived >= GRACE && outlived < GRACE + Duration::from_secs(1),
            "{name}: hidden after {outlived:?}"
        );
    }
    assert!(available(&server).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_before_the_grace_is_not_listed_after_a_restart() {
    let mut server = Server::start(|_| {}).await;
    let mut target = HttpTarget::start(Answer::Status(200)).await;
    register(&server, probed("tool", &target)).await.unwrap();
    until_saved(&server, 1).await;
    target.stop().await;
    server.kill9();
    // The passing of this time is what is tested.
    sleep_until(Instant::now() + GRACE + Duration::from_millis(100)).await;
    server.start_again().await;
    assert!(available(&server).await.is_empty());
    assert_ne!(verdict(&server, "tool").await, Verdict::Available);
    target.resume().await;
    eventually("the tool is back", SOON, || async { (available(&server).await == ["tool"]).then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_said_no_stays_hidden_after_kill_9() {
    let mut lanes = JoinSet::new();
    for _ in 0..4 {
        lanes.spawn(said_no(5));
    }
    lanes.join_all().await;
}

/// PASS, NO, SIGKILL as soon as an agent sees it hidden, errors, restart.
async fn said_no(rounds: usize) {
    let mut server = Server::start(|_| {}).await;
    let mut target = HttpTarget::start(Answer::Status(200)).await;
    register(&server, probed("tool", &target)).await.unwrap();
    for round in 0..rounds {
        eventually("the tool works", SOON, || async { (available(&server).await == ["tool"]).then_some(()) })
            .await;
        // Any moment of what the checkpoint does, but mostly with a success that is saved.
        if round > 0 {
            until_saved(&server, 1).await;
        }
        sleep(Duration::from_millis(fastrand::u64(0..1100))).await;
        target.set(
            [Answer::Status(403), Answer::Body(200, r#"{"available": false}"#.into())][round % 2].clone(),
        );
        let mut tools = server.tools();
        let asked = tokio::spawn(async move {
            let request = ProbeToolRequest { name: "tool".into(), ..ProbeToolRequest::default() };
            // Cut off by the kill, most of the time.
            let _ = tools.probe_tool(request).await;
        });
        let hidden = async { while available(&server).await == ["tool"] {} };
        timeout(SOON, hidden).await.expect("what said no is hidden");
        server.kill9();
        match round % 3 {
            0 => target.set(Answer::Status(500)),
            1 => target.set(Answer::Hang),
            _ => target.stop().await,
        }
        asked.await.unwrap();
        server.start_again().await;
        assert!(available(&server).await.is_empty(), "round {round}: back after a NO");
        let request = ProbeToolRequest { name: "tool".into(), ..ProbeToolRequest::default() };
        let reply = server.tools().probe_tool(request).await.unwrap().into_inner();
        assert_eq!(reply.results[0].outcome(), ProbeOutcome::Error, "round {round}");
        assert_eq!(reply.status.unwrap().verdict(), Verdict::Unavailable, "round {round}");
        assert!(available(&server).await.is_empty(), "round {round}: back after an ERROR");
        target.set(Answer::Status(200));
        target.resume().await;
    }
}

async fn register_reported(server: &Server, name: &str, window: f64) {
    let probe = ProbeSpec { kind: Some(Kind::Report(ReportProbe {})), ..ProbeSpec::default() };
    let spec = ToolSpec {
        probes: vec![probe],
        interval: Some(seconds(1.0)),
        timeout: Some(seconds(0.2)),
        ttl: Some(seconds(window)),
        grace: Some(seconds(window)),
        ..named(name)
    };
    let request = RegisterToolRequest { tool: Some(spec), ..RegisterToolRequest::default() };
    server.tools().register_tool(request).await.unwrap();
}

async fn report(server: &Server, name: &str, outcome: ProbeOutcome, ttl: Option<f64>) {
    let request = ReportProbeResultRequest {
        name: name.into(),
        outcome: outcome.into(),
        ttl: ttl.map(seconds),
        ..ReportProbeResultRequest::default()
    };
    server.tools().report_probe_result(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_live_on_the_checkpoint() {
    let mut server = Server::start(|_| {}).await;
    for name in ["long", "short", "said-no", "silent"] {
        register_reported(&server, name, 3.0).await;
    }
    register_reported(&server, "brief", 30.0).await;
    // Longer than the grace; the tool's own 3 s; taken back; shorter than the grace.
    report(&server, "long", ProbeOutcome::Pass, Some(60.0)).await;
    report(&server, "short", ProbeOutcome::Pass, None).await;
    report(&server, "said-no", ProbeOutcome::Pass, Some(60.0)).await;
    report(&server, "brief", ProbeOutcome::Pass, Some(1.0)).await;
    let reported_at = Instant::now();
    until_saved(&server, 4).await;
    report(&server, "said-no", ProbeOutcome::No, None).await;

    server.crash_and_restart().await;
    if reported_at.elapsed() < Duration::from_secs(3) {
        assert_eq!(available(&server).await, ["brief", "long", "short"]);
    }
    for name in ["said-no", "silent"] {
        assert_ne!(verdict(&server, name).await, Verdict::Available, "{name}");
    }
    eventually("the short report is over", SOON, || async {
        (verdict(&server, "short").await == Verdict::Unavailable).then_some(())
    })
    .await;
    assert_eq!(available(&server).await, ["brief", "long"]);
    let brief = get(&server, "brief").await.status.unwrap();
    assert!(brief.last_good, "its report is over, its grace is not: {brief:?}");

    // Once more, now that the short one's time is over, and that of the brief one's report.
    server.crash_and_restart().await;
    assert_eq!(available(&server).await, ["brief", "long"]);
    report(&server, "long", ProbeOutcome::No, None).await;
    assert_eq!(available(&server).await, ["brief"]);
    server.crash_and_restart().await;
    assert_eq!(available(&server).await, ["brief"]);
}

/// The time that a report may be used ends with the next report, an ERROR too; a restart must not bring it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_reported_error_counts_after_a_restart() {
    let mut server = Server::start(|_| {}).await;
    for name in ["early", "late"] {
        register_reported(&server, name, 3.0).await;
        report(&server, name, ProbeOutcome::Pass, Some(60.0)).await;
    }
    until_saved(&server, 2).await;
    report(&server, "early", ProbeOutcome::Error, None).await;
    server.restart().await;
    eventually("the grace ends", SOON, || async {
        (verdict(&server, "early").await == Verdict::Unavailable).then_some(())
    })
    .await;
    assert_eq!(available(&server).await, ["late"]);
    server.crash_and_restart().await;
    assert_eq!(available(&server).await, ["late"]);
    // The grace is over, so this one goes at once.
    report(&server, "late", ProbeOutcome::Error, None).await;
    assert!(available(&server).await.is_empty());
    server.crash_and_restart().await;
    assert!(available(&server).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_success_outlives_a_kill_right_after_it() {
    let target = HttpTarget::start(Answer::Status(200)).await;
    let mut server = Server::start(|_| {}).await;
    // The reply says that it passed.
    register(&server, probed("t", &target)).await.unwrap();
    server.kill9();
    target.set(Answer::Status(503));
    server.start_again().await;
    assert_eq!(available(&server).await, ["t"]);
}
