//! Readers that come back: they get what changed, or the whole state, and never a gap.

use std::time::Duration;

use toolpulse::proto::v1::{
    AgentPolicy, Position, ProbeOutcome, SetAgentPolicyRequest, WatchAvailableToolsRequest,
    WatchToolsRequest, agent_policy_service_client::AgentPolicyServiceClient,
};

use crate::{
    agent::SETTLED,
    reader::{Agent, Operator},
    support::inproc::{InProc, probed, report, tool},
};

/// A server whose 1,000 tools work.
async fn thousand() -> InProc {
    let server = InProc::start().await;
    server.register_many((0..1_000).map(|i| probed(&format!("t{i:03}"), [report()])).collect()).await;
    for i in 0..1_000 {
        server.report(&format!("t{i:03}"), ProbeOutcome::Pass).await;
    }
    server
}

#[tokio::test(start_paused = true)]
async fn one_change_among_a_thousand_tools_is_one_upsert() {
    let server = thousand().await;
    let mut agent = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    agent.batch().await;
    assert_eq!(agent.known.len(), 1_000);
    let mut operator = Operator::open(&server, WatchToolsRequest::default()).await;
    operator.within(SETTLED).await;
    assert_eq!(operator.known.len(), 1_000);

    // Nothing changed.
    let mut agent = agent.resume(&server).await;
    let first = agent.batch().await;
    assert!(
        first.len() == 1 && !first[0].reset && first[0].upserts.is_empty() && first[0].removed.is_empty()
    );
    let Agent { position, .. } = &agent;
    assert!(position.revision > 0);

    server.report("t500", ProbeOutcome::No).await;
    server.register(tool("t500")).await;
    let mut agent = agent.resume(&server).await;
    let one = agent.batch().await;
    assert_eq!((one.len(), one[0].upserts.len(), one[0].removed.len(), one[0].reset), (1, 1, 0, false));
    agent.check(&server).await;

    let mut operator = operator.resume(&server).await;
    let one = operator.within(SETTLED).await;
    assert_eq!((one.len(), one[0].upserts.len(), one[0].removed.len(), one[0].reset), (1, 1, 0, false));
    operator.check(&server).await;

    server.unregister("t500").await;
    let mut agent = agent.resume(&server).await;
    assert_eq!(agent.batch().await[0].removed, ["t500"]);
    agent.check(&server).await;
    let mut operator = operator.resume(&server).await;
    assert_eq!(operator.within(SETTLED).await[0].removed, ["t500"]);
    operator.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_can_be_resumed_from() {
    let server = InProc::start().await;
    server.register(tool("a")).await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    let position = watch.position.clone();
    // Something that this reader does not see moves the revision, and the heartbeat tells it.
    server.register(probed("pending", [report()])).await;
    assert!(watch.within(Duration::from_secs(40)).await.is_empty());
    assert!(watch.position.revision > position.revision);
    let mut watch = watch.resume(&server).await;
    let first = watch.batch().await;
    assert!(first.len() == 1 && !first[0].reset && first[0].upserts.is_empty());
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_any_more_starts_over_in_the_same_stream() {
    let server = InProc::start().await;
    server.register(tool("a")).await;
    server.register(tool("b")).await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    let here = watch.position.clone();
    let unknown = [
        Position { epoch: "another".into(), ..here.clone() },
        Position { revision: here.revision + 1_000, ..here.clone() },
        Position { revision: 0, ..here.clone() },
        Position::default(),
    ];
    for resume in unknown {
        let asked = WatchAvailableToolsRequest { resume: Some(resume.clone()), ..Default::default() };
        let mut watch = Agent::open(&server, asked).await;
        watch.position = Position::default();
        let first = watch.batch().await;
        assert!(first[0].reset && watch.known.len() == 2, "{resume:?}: {first:?}");
        watch.check(&server).await;
        let asked = WatchToolsRequest { resume: Some(resume.clone()), ..Default::default() };
        let mut watch = Operator::open(&server, asked).await;
        watch.position = Position::default();
        assert!(watch.next().await.unwrap().reset && watch.known.len() == 2, "{resume:?}");
    }

    // After a policy changed, what the reader could see then is not known.
    let policy = AgentPolicy { agent_id: "other".into(), deny_all: true, ..Default::default() };
    let request = SetAgentPolicyRequest { policy: Some(policy), ..Default::default() };
    AgentPolicyServiceClient::new(server.channel()).set_agent_policy(request).await.unwrap();
    let mut watch = watch.resume(&server).await;
    assert!(watch.batch().await[0].reset);
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn another_server_is_another_history() {
    let before = InProc::start().await;
    before.register(tool("a")).await;
    before.register(tool("gone")).await;
    let mut agent = Agent::open(&before, WatchAvailableToolsRequest::default()).await;
    agent.batch().await;
    let mut operator = Operator::open(&before, WatchToolsRequest::default()).await;
    operator.next().await;
    let after = InProc::start_with(|_| {}).await;
    after.register(tool("a")).await;
    let mut agent = agent.resume(&after).await;
    assert!(agent.batch().await[0].reset && agent.names() == ["a"]);
    agent.check(&after).await;
    let mut operator = operator.resume(&after).await;
    assert!(operator.next().await.unwrap().reset);
    operator.check(&after).await;
}

#[tokio::test(start_paused = true)]
async fn more_departures_than_are_remembered_start_over() {
    let server = InProc::start().await;
    server.register(tool("stays")).await;
    let mut agent = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    agent.batch().await;
    let position = agent.position.clone();
    for round in 0..2 {
        let name = |i: usize| format!("r{round}-{i}");
        server.register_many((0..9_000).map(|i| tool(&name(i))).collect()).await;
        let request = toolpulse::proto::v1::UnregisterToolsRequest {
            names: (0..9_000).map(name).collect(),
            ..Default::default()
        };
        server.tools().unregister_tools(request).await.unwrap();
    }
    agent.within(SETTLED).await;
    agent.check(&server).await;
    agent.position = position;
    let mut agent = agent.resume(&server).await;
    assert!(agent.batch().await[0].reset && agent.known.len() == 1);
    agent.check(&server).await;
}
