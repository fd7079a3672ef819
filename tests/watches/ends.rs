//! How watches begin and end: settling, limits, age, deadline, drain.

use std::{io::Write, time::Duration};

use tempfile::NamedTempFile;
use tokio::time::Instant;
use tonic::Code;
use tonic_types::StatusExt;
use toolpulse::proto::v1::{GoodbyeReason, Verdict, WatchAvailableToolsRequest, WatchToolsRequest};

use crate::{
    reader::{Agent, Operator},
    support::{
        held::HeldTarget,
        inproc::{InProc, reason, tool, within},
    },
};

#[tokio::test(start_paused = true)]
async fn an_old_watch_says_goodbye_and_can_be_resumed() {
    let server = InProc::start().await;
    server.register(tool("a")).await;
    let mut ages = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
        let goodbye = watch.goodbye().await;
        assert_eq!(goodbye.reason(), GoodbyeReason::AgeLimit);
        assert!(goodbye.retry_after.is_some());
        assert!(watch.next().await.unwrap().is_none(), "the status is OK");
        ages.push(start.elapsed());
        let mut watch = watch.resume(&server).await;
        assert!(!watch.batch().await[0].reset);
    }
    let minutes = |n: u64| Duration::from_secs(60 * n);
    assert!(ages.iter().all(|age| (minutes(27)..=minutes(33)).contains(age)), "{ages:?}");
    assert!(ages[0] != ages[1] || ages[1] != ages[2], "they are spread: {ages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_watch() {
    let server = InProc::start().await;
    let deadline = Duration::from_secs(20);
    let start = Instant::now();
    let request = within(deadline, WatchAvailableToolsRequest::default());
    let mut agent = server.tools().watch_available_tools(request).await.unwrap().into_inner();
    let request = within(deadline, WatchToolsRequest::default());
    let mut operator = server.tools().watch_tools(request).await.unwrap().into_inner();
    let end = loop {
        if let Err(status) = agent.message().await {
            break status;
        }
    };
    assert_eq!((end.code(), start.elapsed().as_secs()), (Code::DeadlineExceeded, 20));
    let end = loop {
        if let Err(status) = operator.message().await {
            break status;
        }
    };
    assert_eq!(end.code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_quiet_watch_alive() {
    let server = InProc::start().await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    let mut last = Instant::now();
    let mut gaps = Vec::new();
    for _ in 0..20 {
        let beat = watch.next().await.unwrap().unwrap();
        assert!(beat.synced && beat.upserts.is_empty() && beat.etag.is_empty());
        gaps.push(last.elapsed());
        last = Instant::now();
    }
    let range = Duration::from_millis(13_499)..=Duration::from_millis(16_501);
    assert!(gaps.iter().all(|gap| range.contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| gap != &gaps[0]), "they are spread: {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn too_many_are_refused_and_places_come_back() {
    let server = InProc::start_with(|settings| settings.watch.max_total = 3).await;
    server.list().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
        watch.batch().await;
        open.push(watch);
    }
    let refused = Agent::try_open(&server, WatchAvailableToolsRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "TOO_MANY_WATCHES"));
    assert!(refused.get_error_details().retry_info().is_some());
    let operator = server.tools().watch_tools(WatchToolsRequest::default()).await.unwrap_err();
    assert_eq!(operator.code(), Code::ResourceExhausted, "one limit for all watches");
    open.pop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    Agent::open(&server, WatchAvailableToolsRequest::default()).await.batch().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_silent_while_the_server_settles() {
    let mut target = HeldTarget::start().await;
    let mut file = NamedTempFile::with_suffix(".yaml").unwrap();
    let url = target.url();
    write!(file, "tools: [{{name: asked, probes: [{{http: {{url: \"{url}\"}}}}]}}, {{name: free}}]").unwrap();
    let server = InProc::start_with(|settings| settings.manifest = Some(file.path().to_owned())).await;
    let start = Instant::now();
    let mut agent = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    let mut operator = Operator::open(&server, WatchToolsRequest::default()).await;
    let held = target.next().await;
    assert!(agent.within(Duration::from_millis(700)).await.is_empty());
    held.answer(200).await;
    let first = agent.batch().await;
    assert_eq!(
        (first.len(), agent.names()),
        (1, vec!["asked", "free"]),
        "no state that is merely an ignorant one"
    );
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(
        operator
            .next()
            .await
            .unwrap()
            .upserts
            .iter()
            .all(|t| t.status.as_ref().unwrap().verdict() == Verdict::Available)
    );
    agent.check(&server).await;
}
