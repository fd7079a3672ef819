//! What an operator's watch tells: every tool, its status and why.

use std::time::Duration;

use toolpulse::proto::v1::{ProbeOutcome, RegisterToolRequest, ToolSpec, Verdict, WatchToolsRequest};

use crate::{
    agent::{SETTLED, switch},
    reader::Operator,
    support::{
        held::AutoTarget,
        inproc::{InProc, http, probed, report, tool},
    },
};

#[tokio::test(start_paused = true)]
async fn every_tool_with_its_status_and_each_change_of_it() {
    let server = InProc::start().await;
    server.register(tool("plain")).await;
    server.register(probed("asked", [report()])).await;
    let mut watch = Operator::open(&server, WatchToolsRequest::default()).await;
    let first = watch.next().await.unwrap();
    assert!(first.synced && first.upserts.len() == 2 && !first.reset);
    watch.check(&server).await;

    for (outcome, verdict) in [
        (ProbeOutcome::Pass, Verdict::Available),
        // Last-good: agents see no change, operators do.
        (ProbeOutcome::Error, Verdict::Available),
        (ProbeOutcome::No, Verdict::Unavailable),
    ] {
        server.report("asked", outcome).await;
        let told = watch.within(SETTLED).await;
        assert_eq!(told.len(), 1, "{outcome:?}: {told:?}");
        let status = told[0].upserts[0].status.as_ref().unwrap();
        assert_eq!(status.verdict(), verdict);
        assert_eq!(status.last_good, outcome == ProbeOutcome::Error);
        assert_eq!(status.reason.is_empty(), outcome == ProbeOutcome::Pass, "{status:?}");
        watch.check(&server).await;
        // The same again is no change.
        server.report("asked", outcome).await;
        assert!(watch.within(SETTLED).await.is_empty(), "{outcome:?} again");
    }
    switch(&server, "plain", false).await;
    assert!(!watch.within(SETTLED).await[0].upserts[0].status.as_ref().unwrap().enabled);
    server.unregister("plain").await;
    assert_eq!(watch.within(SETTLED).await[0].removed, ["plain"]);
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_passes_on_and_on_is_silent() {
    let server = InProc::start().await;
    let target = AutoTarget::start(200).await;
    server.register_and_wait(probed("asked", [http(target.url())])).await;
    let mut watch = Operator::open(&server, WatchToolsRequest::default()).await;
    watch.within(SETTLED).await;
    let hits = target.times().len();
    assert!(watch.within(Duration::from_secs(60)).await.is_empty());
    assert!(target.times().len() >= hits + 5, "it was asked meanwhile");
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn owners_and_labels_select_and_let_go() {
    let server = InProc::start().await;
    let labelled = |name: &str, label: &str| ToolSpec {
        labels: [("team".to_owned(), label.to_owned())].into(),
        ..tool(name)
    };
    let register = async |owner: &str, spec: ToolSpec| {
        let request = RegisterToolRequest {
            tool: Some(spec),
            owner: owner.into(),
            overwrite: true,
            force: true,
            ..Default::default()
        };
        server.try_register(request).await.unwrap();
    };
    register("ann", labelled("a", "x")).await;
    register("ben", labelled("b", "x")).await;
    let of = |owner: &str, labels: &str| WatchToolsRequest {
        owner: owner.into(),
        label_selector: labels.into(),
        ..Default::default()
    };
    let mut anns = Operator::open(&server, of("ann", "")).await;
    let mut xs = Operator::open(&server, of("", "team=x")).await;
    anns.within(SETTLED).await;
    xs.within(SETTLED).await;
    assert_eq!((anns.known.len(), xs.known.len()), (1, 2));

    register("ben", labelled("b2", "y")).await;
    server.unregister_as("ben", "b2").await;
    assert!(anns.within(SETTLED).await.is_empty(), "others' tools come and go");
    assert!(xs.within(SETTLED).await.is_empty());

    register("ann", labelled("a", "y")).await;
    assert_eq!(anns.within(SETTLED).await[0].upserts.len(), 1);
    assert_eq!(xs.within(SETTLED).await[0].removed, ["a"]);
    register("ben", labelled("a", "y")).await;
    assert_eq!(anns.within(SETTLED).await[0].removed, ["a"]);
    anns.check(&server).await;
    xs.check(&server).await;

    // One who comes back is led by what changed, also out of the selection.
    let position = xs.position.clone();
    register("ben", labelled("b", "y")).await;
    xs.position = position;
    let mut xs = xs.resume(&server).await;
    let told = xs.within(SETTLED).await;
    assert!(told.iter().all(|m| !m.reset) && told.iter().any(|m| m.removed.contains(&"b".to_owned())));
    xs.check(&server).await;
}
