//! What watches cost, by counts: encodings, messages, and who is woken for nothing.

use std::time::Duration;

use toolpulse::proto::v1::{AllowedTools, ProbeOutcome, WatchAvailableToolsRequest};

use crate::{
    agent::SETTLED,
    reader::Agent,
    support::inproc::{InProc, millis, probed, report, tool},
};

/// A counter of the admin port.
async fn encodings(server: &InProc) -> u64 {
    let text = server.metrics().await;
    let line = text.lines().find_map(|line| line.strip_prefix("toolpulse_watch_encodings_total "));
    line.unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_flip_for_a_thousand_equal_watchers_is_encoded_once() {
    let server = InProc::start_with(|settings| settings.watch.max_per_peer = 2_000).await;
    server.register(tool("a")).await;
    server.register(probed("flips", [report()])).await;
    let mut watchers = Vec::new();
    let mut client = server.tools();
    for i in 0..1_000 {
        // Whatever the agents are called.
        let asked = WatchAvailableToolsRequest { agent_id: format!("agent-{i}"), ..Default::default() };
        if i % 100 == 0 {
            client = server.other_client().await;
        }
        watchers.push(Agent::on(client.clone(), asked).await.unwrap());
    }
    for watch in &mut watchers {
        watch.batch().await;
    }
    assert_eq!(encodings(&server).await, 1, "the first state");
    server.report("flips", ProbeOutcome::Pass).await;
    for watch in &mut watchers {
        assert_eq!(watch.batch().await[0].upserts.len(), 1);
    }
    assert_eq!(encodings(&server).await, 2, "one flip, one encoding");
    watchers[999].check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_registrations_are_few_messages_and_none_to_others() {
    let server = InProc::start().await;
    let mut all = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    let few = AllowedTools { names: vec!["t1".into(), "t2".into()] };
    let asked = WatchAvailableToolsRequest { allowed_tools: Some(few), ..Default::default() };
    let mut few = Agent::open(&server, asked).await;
    let elsewhere = WatchAvailableToolsRequest { namespace: "elsewhere".into(), ..Default::default() };
    let mut elsewhere = Agent::open(&server, elsewhere).await;
    for watch in [&mut all, &mut few, &mut elsewhere] {
        watch.batch().await;
    }
    for i in 0..1_000 {
        server.register(tool(&format!("t{i}"))).await;
    }
    // A call takes no virtual time, so all of it falls into one window.
    let messages = all.within(Duration::from_secs(2)).await;
    assert_eq!(all.known.len(), 1_000);
    assert!(messages.len() <= 4, "{} messages", messages.len());
    all.check(&server).await;
    assert!(few.within(millis(10)).await.len() <= 2);
    few.check(&server).await;
    assert!(elsewhere.within(millis(10)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_flapping_probe_is_merged() {
    let server = InProc::start().await;
    server.register(probed("flaps", [report()])).await;
    server.register(tool("calm")).await;
    let mut affected = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    let calm = AllowedTools { names: vec!["calm".into()] };
    let asked = WatchAvailableToolsRequest { allowed_tools: Some(calm), ..Default::default() };
    let mut calm = Agent::open(&server, asked).await;
    affected.batch().await;
    calm.batch().await;
    let flap = async {
        // 2 s of a flip each 5 ms.
        for _ in 0..200 {
            server.report("flaps", ProbeOutcome::Pass).await;
            tokio::time::sleep(millis(5)).await;
            server.report("flaps", ProbeOutcome::No).await;
            tokio::time::sleep(millis(5)).await;
        }
    };
    let (messages, ()) = tokio::join!(affected.within(Duration::from_secs(3)), flap);
    assert!((1..=22).contains(&messages.len()), "{} messages in 2 s", messages.len());
    assert_eq!(affected.names(), ["calm"], "the final state is not missed");
    affected.check(&server).await;
    assert!(calm.within(SETTLED).await.is_empty(), "an unaffected watcher gets nothing");
}
