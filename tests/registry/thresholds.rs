//! Thresholds, the flap mark, and how a verdict turned.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolpulse::proto::v1::{
    ErrorClass, GetToolRequest, ListToolsRequest, ProbeOutcome, ToolSpec, Verdict, WatchToolsRequest,
};

use crate::support::{
    inproc::{InProc, between, http, millis, probed, report, seconds},
    targets::{Answer, HttpTarget},
};

#[tokio::test(start_paused = true)]
async fn thresholds_put_edges_off_and_ask_fast_meanwhile() {
    let server = InProc::start().await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    let spec =
        ToolSpec { success_threshold: 3, failure_threshold: 2, ..probed("t", [http(target.url("/"))]) };
    let tool = server.register_and_wait(spec).await.tool.unwrap();
    let windows = tool.windows.unwrap();
    assert_eq!((windows.success_threshold, windows.failure_threshold), (3, 2));
    assert_eq!(server.verdict("t").await, Verdict::Available, "the very first pass is enough");

    target.set(Answer::Status(403));
    let status = server.probe("t").await.unwrap().status.unwrap();
    assert_eq!((status.verdict(), status.last_good), (Verdict::Available, true));
    assert!(status.message.contains("said no 1 of 2 times"), "{}", status.message);
    assert_eq!((status.reason.as_str(), status.error_class()), ("HTTP_STATUS", ErrorClass::Unspecified));
    assert_eq!((status.probes[0].noes, status.probes[0].consecutive_passes), (1, 0));
    let hits = target.hits();
    sleep(millis(2_100)).await;
    assert_eq!(target.hits(), hits + 1, "asked again 2 s later");
    let status = server.status("t").await;
    assert_eq!((status.verdict(), status.last_success_time), (Verdict::Unavailable, None));

    target.set(Answer::Status(200));
    for passes in 1..=2 {
        let status = server.probe("t").await.unwrap().status.unwrap();
        assert_eq!(status.verdict(), Verdict::Unavailable);
        assert!(status.message.contains(&format!("passed {passes} of 3 times")), "{}", status.message);
    }
    assert!(!server.shows("t").await);
    sleep(millis(2_100)).await;
    let status = server.status("t").await;
    assert_eq!((status.verdict(), status.reason.as_str()), (Verdict::Available, ""));
    assert_eq!(status.probes[0].consecutive_passes, 3);
}

#[tokio::test(start_paused = true)]
async fn a_target_is_asked_once_a_second_however_many_ask() {
    let server = InProc::start().await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    server.register_and_wait(probed("t", [http(target.url("/a/b?token=secret"))])).await;
    let start = Instant::now();
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut client = server.tools();
        let request = toolpulse::proto::v1::ProbeToolRequest { name: "t".into(), ..Default::default() };
        asks.spawn(async move { client.probe_tool(request).await.unwrap().into_inner() });
    }
    for reply in asks.join_all().await {
        let run = &reply.results[0];
        assert_eq!(run.outcome(), ProbeOutcome::Pass);
        assert_eq!(run.sent, format!("GET {}", target.url("/a/b")), "without its query");
        assert_eq!(run.address, target.address());
    }
    assert_eq!((target.hits(), start.elapsed()), (2, Duration::from_secs(1)));
    for _ in 0..3 {
        server.probe("t").await.unwrap();
    }
    assert_eq!((target.hits(), start.elapsed()), (5, Duration::from_secs(4)));
}

/// Turns a tool with a report probe once a second.
async fn flap(server: &InProc, name: &str, times: u32) {
    for i in 0..times {
        sleep(Duration::from_secs(1)).await;
        server.report(name, if i % 2 == 0 { ProbeOutcome::No } else { ProbeOutcome::Pass }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_flaps_is_marked_until_it_is_over_and_watchers_hear_of_both() {
    let server = InProc::start().await;
    let day = seconds(86_400);
    server.register(ToolSpec { ttl: Some(day), ..probed("t", [report()]) }).await;
    server.report("t", ProbeOutcome::Pass).await;
    let mut watch = server.tools().watch_tools(WatchToolsRequest::default()).await.unwrap().into_inner();
    let start = Instant::now();
    flap(&server, "t", 6).await;
    assert!(!server.status("t").await.flapping);
    flap(&server, "t", 1).await;
    assert!(server.status("t").await.flapping);
    let marked = |wanted: bool| {
        move |tools: &[toolpulse::proto::v1::Tool]| {
            tools.iter().any(|t| t.status.as_ref().is_some_and(|s| s.flapping == wanted))
        }
    };
    let is_marked = marked(true);
    while !is_marked(&watch.message().await.unwrap().unwrap().upserts) {}
    // The first of the seven edges came at 1 s.
    let is_calm = marked(false);
    while !is_calm(&watch.message().await.unwrap().unwrap().upserts) {}
    let took = start.elapsed();
    assert!((Duration::from_secs(601)..Duration::from_millis(601_200)).contains(&took), "{took:?}");
    assert!(!server.status("t").await.flapping);
}

#[tokio::test(start_paused = true)]
async fn how_a_verdict_turned_is_told_by_get_alone() {
    let server = InProc::start().await;
    server.register(probed("t", [report()])).await;
    let begin = server.status("t").await.since.unwrap();
    server.report("t", ProbeOutcome::Pass).await;
    sleep(Duration::from_secs(5)).await;
    server.report("t", ProbeOutcome::No).await;
    sleep(Duration::from_secs(5)).await;
    server.report("t", ProbeOutcome::Pass).await;
    sleep(Duration::from_secs(40)).await;
    let turns = server.get("t").await.transitions;
    let told: Vec<_> = turns
        .iter()
        .map(|t| (between(Some(&begin), t.time.as_ref()).as_secs(), t.from(), t.to(), t.reason.as_str()))
        .collect();
    use Verdict::{Available, Pending, Unavailable};
    assert_eq!(
        told,
        [
            (0, Pending, Available, "PROBE_PASSED"),
            (5, Available, Unavailable, "PROBE_SAID_NO"),
            (10, Unavailable, Available, "PROBE_PASSED"),
            (40, Available, Unavailable, "PROBE_ERROR"),
        ]
    );
    assert_eq!((turns[1].probe.as_str(), turns[1].message.as_str()), ("p0", "told"));
    assert_eq!(turns[3].error_class(), ErrorClass::Stale);
    flap(&server, "t", 40).await;
    let turns = server.get("t").await.transitions;
    assert_eq!((turns.len(), turns[31].to()), (32, Available));

    let list = server.tools().list_tools(ListToolsRequest::default()).await.unwrap().into_inner();
    assert!(list.tools[0].transitions.is_empty());
    // A replaced tool inherits nothing.
    server.register(ToolSpec { description: "other".into(), ..probed("t", [report()]) }).await;
    let request = GetToolRequest { name: "t".into(), ..Default::default() };
    let tool = server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap();
    assert!(tool.transitions.is_empty() && !tool.status.unwrap().flapping);
}
