//! The contract as a whole, by chance: whatever happens, and however a reader reads, it ends with what a list says.

use std::time::Duration;

use tokio::time::sleep;
use toolpulse::proto::v1::{
    AgentPolicy, AllowedTools, ApproveToolLabelsRequest, DeleteAgentPolicyRequest, ProbeOutcome,
    SchemaFormat, SetAgentPolicyRequest, ToolSpec, UnregisterToolsRequest, Visibility,
    WatchAvailableToolsRequest, WatchToolsRequest, agent_policy_service_client::AgentPolicyServiceClient,
};

use crate::{
    agent::switch,
    reader::{Agent, Operator},
    support::inproc::{InProc, millis, probed, report},
};

const NAMES: [&str; 8] = ["a", "b", "c", "d.e", "f", "g", "h.i.j", "k"];
const SEEDS: std::ops::Range<u64> = 0..6;
const STEPS: usize = 250;

/// One thing happens to the server.
async fn mutate(server: &InProc, dice: &mut fastrand::Rng) {
    let name = NAMES[dice.usize(..NAMES.len())];
    let outcomes = [ProbeOutcome::Pass, ProbeOutcome::Pass, ProbeOutcome::No, ProbeOutcome::Error];
    match dice.u32(..12) {
        0..=2 => {
            let labels = [("team".to_owned(), dice.choice(["x", "y"]).unwrap().to_owned())].into();
            let large = if dice.u32(..8) == 0 { 15_000 } else { 0 };
            let description = format!("{}{}", dice.u32(..3), "x".repeat(large));
            server.register(ToolSpec { labels, description, ..probed(name, [report()]) }).await;
        }
        3 => {
            let request = UnregisterToolsRequest { names: vec![name.into()], ..Default::default() };
            server.tools().unregister_tools(request).await.unwrap();
        }
        4 => {
            if server.try_get(name).await.is_ok() {
                switch(server, name, dice.bool()).await;
            }
            let request = ApproveToolLabelsRequest { name: name.into(), ..Default::default() };
            // There may be no such tool.
            drop(server.tools().approve_tool_labels(request).await);
        }
        5 => {
            let mut policies = AgentPolicyServiceClient::new(server.channel());
            if dice.bool() {
                let policy = AgentPolicy {
                    agent_id: "bot".into(),
                    denied_tools: vec![name.into()],
                    label_selector: dice.choice(["", "team=x"]).unwrap().to_owned(),
                    max_tools: dice.u32(..4),
                    ..Default::default()
                };
                let request = SetAgentPolicyRequest { policy: Some(policy), ..Default::default() };
                policies.set_agent_policy(request).await.unwrap();
            } else {
                let request = DeleteAgentPolicyRequest { agent_id: "bot".into(), ..Default::default() };
                // There may be none.
                drop(policies.delete_agent_policy(request).await);
            }
        }
        _ => {
            if server.try_get(name).await.is_ok() {
                server.report(name, outcomes[dice.usize(..outcomes.len())]).await;
            }
        }
    }
}

fn some_watch(dice: &mut fastrand::Rng) -> WatchAvailableToolsRequest {
    let formats =
        [SchemaFormat::Mcp, SchemaFormat::OpenaiChat, SchemaFormat::OpenaiResponses, SchemaFormat::Gemini];
    let names = ["a", "b", "d.e", "nope"].map(String::from).into();
    WatchAvailableToolsRequest {
        agent_id: dice.choice(["bot", ""]).unwrap().to_owned(),
        allowed_tools: (dice.u32(..3) == 0).then_some(AllowedTools { names }),
        label_selector: dice.choice(["", "", "team=x", "team!=x"]).unwrap().to_owned(),
        format: formats[dice.usize(..formats.len())].into(),
        visibility: dice.choice([Visibility::Hide, Visibility::Hide, Visibility::Stable]).unwrap().into(),
        max_tools: *dice.choice(&[0, 0, 0, 2]).unwrap(),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn every_reader_ends_with_the_list() {
    for seed in SEEDS {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut server = InProc::start().await;
        let mut agents = Vec::new();
        for _ in 0..6 {
            agents.push(Agent::open(&server, some_watch(&mut dice)).await);
        }
        let all = WatchToolsRequest::default();
        let xs = WatchToolsRequest { label_selector: "team=x".into(), ..Default::default() };
        let mut operators = vec![Operator::open(&server, all).await, Operator::open(&server, xs).await];
        for step in 0..STEPS {
            mutate(&server, &mut dice).await;
            match dice.u32(..20) {
                // Some read, the others stall.
                0..=8 => {
                    let one = dice.usize(..agents.len());
                    agents[one].within(millis(dice.u64(..300))).await;
                }
                9..=11 => {
                    let one = dice.usize(..operators.len());
                    operators[one].within(millis(dice.u64(..300))).await;
                }
                12..=13 => {
                    let one = dice.usize(..agents.len());
                    let back = agents.swap_remove(one).resume(&server).await;
                    agents.push(back);
                }
                14 => {
                    let one = dice.usize(..operators.len());
                    let back = operators.swap_remove(one).resume(&server).await;
                    operators.push(back);
                }
                15 => sleep(Duration::from_secs(dice.u64(..40))).await,
                _ => {}
            }
            // In the middle, another server: nobody's position means anything there.
            if step == STEPS / 2 {
                server = InProc::start().await;
                let mut moved = Vec::new();
                for agent in agents {
                    moved.push(agent.resume(&server).await);
                }
                agents = moved;
                let mut moved = Vec::new();
                for operator in operators {
                    moved.push(operator.resume(&server).await);
                }
                operators = moved;
            }
        }
        for agent in &mut agents {
            agent.within(Duration::from_secs(20)).await;
        }
        for operator in &mut operators {
            operator.within(Duration::from_secs(20)).await;
        }
        // Windows may have ended while the last ones read; all catch up.
        for agent in &mut agents {
            agent.within(millis(500)).await;
            agent.check(&server).await;
        }
        for operator in &mut operators {
            operator.within(millis(500)).await;
            operator.check(&server).await;
        }
    }
}
