//! Tools that are unregistered by themselves.

use std::{cell::Cell, time::Duration};

use tokio::time::{Instant, advance, sleep};
use tonic::Code;
use toolpulse::{
    clock::Clock,
    proto::v1::{ProbeOutcome, SetToolEnabledRequest, ToolSpec, Verdict, WatchToolsRequest},
};

use crate::support::{
    held::AutoTarget,
    inproc::{InProc, at, http, millis, probed, report, seconds},
};

fn short_lived(name: &str) -> ToolSpec {
    ToolSpec { unregister_after: Some(seconds(60)), ..probed(name, [report()]) }
}

async fn is_there(server: &InProc, name: &str) -> bool {
    match server.try_get(name).await {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound);
            false
        }
    }
}

async fn enable(server: &InProc, name: &str, enabled: bool) {
    let request = SetToolEnabledRequest { name: name.to_owned(), enabled, ..Default::default() };
    server.tools().set_tool_enabled(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_unavailable_for_too_long_goes_and_watchers_hear_of_it() {
    let server = InProc::start().await;
    for name in ["gone", "back", "pending", "off"] {
        server.register(short_lived(name)).await;
    }
    server.register(probed("stays", [report()])).await;
    let mut watch = server.tools().watch_tools(WatchToolsRequest::default()).await.unwrap().into_inner();
    let start = Instant::now();
    for name in ["gone", "back", "off", "stays"] {
        server.report(name, ProbeOutcome::No).await;
    }
    enable(&server, "off", false).await;
    at(start, millis(30_000)).await;
    server.report("back", ProbeOutcome::Pass).await;
    server.report("back", ProbeOutcome::No).await;
    at(start, millis(59_990)).await;
    assert!(is_there(&server, "gone").await);
    let mut removed = Vec::new();
    while removed.is_empty() {
        removed = watch.message().await.unwrap().unwrap().removed;
    }
    assert_eq!(removed, ["gone"]);
    let took = start.elapsed();
    assert!((millis(60_000)..millis(60_200)).contains(&took), "{took:?}");
    assert!(!is_there(&server, "gone").await && is_there(&server, "back").await);
    at(start, millis(90_050)).await;
    assert!(!is_there(&server, "back").await, "counted from its second no");

    at(start, Duration::from_secs(600)).await;
    assert_eq!(server.verdict("pending").await, Verdict::Pending);
    assert!(is_there(&server, "off").await, "an operator has it disabled");
    enable(&server, "off", true).await;
    sleep(millis(59_900)).await;
    assert!(is_there(&server, "off").await);
    sleep(millis(200)).await;
    assert!(!is_there(&server, "off").await);
    assert!(is_there(&server, "stays").await);

    // The name is free.
    server.register(short_lived("gone")).await;
    assert_eq!(server.verdict("gone").await, Verdict::Pending);
}

thread_local! {
    // The server runs on the test's own thread.
    static SUSPENDED: Cell<i64> = const { Cell::new(0) };
}

/// Whether the process stands still or the machine sleeps, nothing that was seen before says that a tool was gone meanwhile.
#[tokio::test(start_paused = true)]
async fn the_time_begins_anew_after_a_standstill_and_a_sleep() {
    for sleeps in [false, true] {
        let server = InProc::start_on(Clock::start_on(|| SUSPENDED.get()), |_| {}).await;
        server.list().await;
        let target = AutoTarget::start(403).await;
        let spec = ToolSpec { unregister_after: Some(seconds(60)), ..probed("t", [http(target.url())]) };
        server.register_and_wait(spec).await;
        assert_eq!(server.verdict("t").await, Verdict::Unavailable);
        sleep(Duration::from_secs(50)).await;
        if sleeps {
            SUSPENDED.set(SUSPENDED.get() + 3_600_000_000_000);
            sleep(millis(1_001)).await;
        } else {
            advance(Duration::from_secs(3_600)).await;
        }
        assert!(is_there(&server, "t").await, "an hour of which nothing was seen");
        let woke = Instant::now();
        at(woke, Duration::from_secs(58)).await;
        assert!(is_there(&server, "t").await);
        at(woke, Duration::from_secs(62)).await;
        assert!(!is_there(&server, "t").await, "a minute after");
    }
}
