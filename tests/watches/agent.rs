//! What an agent's watch tells: the list, and each change of it, whatever it comes from.

use std::time::Duration;

use toolpulse::proto::v1::{
    AgentPolicy, AllowedTools, ListAvailableToolsRequest, ProbeOutcome, SchemaFormat, SetAgentPolicyRequest,
    SetToolEnabledRequest, ToolSpec, Visibility, WatchAvailableToolsRequest,
    agent_policy_service_client::AgentPolicyServiceClient,
};

use crate::{
    reader::Agent,
    support::inproc::{InProc, probed, report, tool},
};

/// Longer than a batch may wait.
pub(crate) const SETTLED: Duration = Duration::from_millis(250);

fn labelled(name: &str, label: &str) -> ToolSpec {
    let labels = [("team".to_owned(), label.to_owned())].into();
    ToolSpec { labels, ..probed(name, [report()]) }
}

fn asks(format: SchemaFormat) -> WatchAvailableToolsRequest {
    WatchAvailableToolsRequest { format: format.into(), ..Default::default() }
}

async fn policy(server: &InProc, policy: AgentPolicy) {
    let request = SetAgentPolicyRequest {
        policy: Some(AgentPolicy { agent_id: "bot".into(), ..policy }),
        ..Default::default()
    };
    AgentPolicyServiceClient::new(server.channel()).set_agent_policy(request).await.unwrap();
}

pub(crate) async fn switch(server: &InProc, name: &str, enabled: bool) {
    let request = SetToolEnabledRequest { name: name.into(), enabled, ..Default::default() };
    server.tools().set_tool_enabled(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_state_comes_first_and_then_each_change() {
    let server = InProc::start().await;
    server.register(tool("b.c")).await;
    server.register(probed("a", [report()])).await;
    let mut watch = Agent::open(&server, asks(SchemaFormat::OpenaiChat)).await;
    let first = watch.batch().await;
    assert_eq!((first.len(), first[0].reset, watch.names()), (1, false, vec!["b.c"]));
    watch.check(&server).await;

    server.report("a", ProbeOutcome::Pass).await;
    let next = watch.batch().await;
    assert_eq!((next.len(), next[0].upserts.len(), next[0].removed.len()), (1, 1, 0));
    watch.check(&server).await;

    server.report("a", ProbeOutcome::No).await;
    assert_eq!(watch.batch().await[0].removed, ["a"]);
    watch.check(&server).await;

    // Another definition of a tool that works; what does not show is no change.
    server.register(ToolSpec { description: "other".into(), ..tool("b.c") }).await;
    assert_eq!(watch.batch().await[0].upserts.len(), 1);
    server.report("a", ProbeOutcome::No).await;
    server.register(probed("never_asked", [report()])).await;
    assert!(watch.within(SETTLED).await.is_empty());
    server.unregister("b.c").await;
    assert!(watch.batch().await[0].removed[0].starts_with("b_c_"), "the exposed name");
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_a_state() {
    let server = InProc::start().await;
    let asked = WatchAvailableToolsRequest { namespace: "later".into(), ..Default::default() };
    let mut watch = Agent::open(&server, asked).await;
    let first = watch.batch().await;
    assert!(first.len() == 1 && first[0].upserts.is_empty());
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn every_layer_is_followed() {
    let server = InProc::start().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        server.register(labelled(name, label)).await;
        server.report(name, ProbeOutcome::Pass).await;
    }
    let asked = WatchAvailableToolsRequest {
        agent_id: "bot".into(),
        label_selector: "team=x".into(),
        allowed_tools: Some(AllowedTools { names: ["a", "b", "c", "e"].map(String::from).into() }),
        ..Default::default()
    };
    let mut watch = Agent::open(&server, asked).await;
    let mut other = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    other.batch().await;
    assert_eq!(watch.names(), ["a", "c"]);

    policy(&server, AgentPolicy { denied_tools: vec!["c".into()], ..Default::default() }).await;
    assert_eq!(watch.batch().await[0].removed, ["c"]);
    watch.check(&server).await;
    assert!(other.within(SETTLED).await.is_empty(), "a policy of another agent");

    server.register(labelled("b", "x")).await;
    assert_eq!(watch.batch().await[0].upserts[0].name, "b");
    watch.check(&server).await;
    server.register(labelled("b", "y")).await;
    assert_eq!(watch.batch().await[0].removed, ["b"]);
    watch.check(&server).await;
    assert!(other.within(SETTLED).await.is_empty(), "labels are no part of a definition");

    switch(&server, "a", false).await;
    assert_eq!(watch.batch().await[0].removed, ["a"]);
    assert_eq!(other.batch().await[0].removed, ["a"]);
    switch(&server, "a", true).await;
    assert_eq!(watch.batch().await[0].upserts[0].name, "a");
    other.batch().await;

    policy(&server, AgentPolicy { deny_all: true, ..Default::default() }).await;
    assert_eq!(watch.batch().await[0].removed, ["a"]);
    watch.check(&server).await;
    other.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_followed() {
    let server = InProc::start().await;
    for name in ["a", "b", "c"] {
        server.register(probed(name, [report()])).await;
        server.report(name, ProbeOutcome::Pass).await;
    }
    let mut watch =
        Agent::open(&server, WatchAvailableToolsRequest { max_tools: 2, ..Default::default() }).await;
    watch.batch().await;
    assert_eq!(watch.names(), ["a", "b"]);
    server.report("a", ProbeOutcome::No).await;
    let moved = watch.batch().await;
    assert_eq!((&moved[0].removed[..], moved[0].upserts[0].name.as_str()), (&["a".to_owned()][..], "c"));
    watch.check(&server).await;
    policy(&server, AgentPolicy { max_tools: 1, ..Default::default() }).await;
    assert!(watch.within(SETTLED).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn stable_bytes_and_those_that_work() {
    let server = InProc::start().await;
    for name in ["a", "b"] {
        server.register(probed(name, [report()])).await;
    }
    let asked = WatchAvailableToolsRequest {
        visibility: Visibility::Stable.into(),
        ..asks(SchemaFormat::OpenaiResponses)
    };
    let mut watch = Agent::open(&server, asked.clone()).await;
    let first = watch.batch().await;
    assert!(first[0].upserts.len() == 2 && first[0].allowed_json.contains("\"tools\":[]"), "{first:?}");
    server.report("b", ProbeOutcome::Pass).await;
    let up = watch.batch().await;
    assert!(up[0].upserts.is_empty() && up[0].removed.is_empty() && up[0].allowed_json.contains("\"b\""));
    watch.check(&server).await;

    // A format without the second piece hides.
    let mut hides = Agent::open(&server, WatchAvailableToolsRequest { format: 0, ..asked }).await;
    hides.batch().await;
    assert_eq!(hides.names(), ["b"]);
    hides.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn every_format_is_put_together_from_its_definitions() {
    let server = InProc::start().await;
    for i in 1..=7 {
        let format = SchemaFormat::try_from(i).unwrap();
        let mut watch = Agent::open(&server, asks(format)).await;
        watch.batch().await;
        watch.check(&server).await;
        let schema = r#"{"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}"#;
        for name in ["search.web", "plain"] {
            let spec = ToolSpec {
                description: "Finds.".into(),
                input_schema_json: schema.into(),
                endpoint: "https://tools.example/mcp".into(),
                ..tool(name)
            };
            server.register(spec).await;
        }
        watch.batch().await;
        watch.check(&server).await;
        server.unregister("plain").await;
        server.unregister("search.web").await;
        watch.within(SETTLED).await;
        watch.check(&server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_state_comes_in_parts() {
    let server = InProc::start().await;
    let large = |i: usize| ToolSpec {
        description: "x".repeat(16 * 1024),
        input_schema_json: format!(
            r#"{{"type":"object","properties":{{"a":{{"type":"string","description":"{}"}}}}}}"#,
            "y".repeat(100 * 1024)
        ),
        ..tool(&format!("t{i:03}"))
    };
    server.register_many((0..40).map(large).collect()).await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    let first = watch.batch().await;
    assert!(first.len() > 15, "{} parts", first.len());
    let sent: Vec<&str> = first.iter().flat_map(|m| &m.upserts).map(|tool| tool.name.as_str()).collect();
    assert!(sent.is_sorted() && sent.len() == 40);
    assert!(first.iter().rev().skip(1).all(|m| m.revision == 0 && m.etag.is_empty() && !m.synced));
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_window_that_ends_is_told_on_time() {
    let server = InProc::start().await;
    server.register(probed("a", [report()])).await;
    server.report("a", ProbeOutcome::Pass).await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    let start = tokio::time::Instant::now();
    assert_eq!(watch.batch().await[0].removed, ["a"]);
    let age = start.elapsed();
    let list = server.available(ListAvailableToolsRequest::default()).await;
    assert!(
        list.tools.is_empty() && age >= Duration::from_secs(30) && age <= Duration::from_secs(61),
        "{age:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_built_in_is_followed() {
    let server = InProc::start_with(|settings| settings.gateway_status_tool = true).await;
    server.list().await;
    let mut watch = Agent::open(&server, WatchAvailableToolsRequest::default()).await;
    watch.batch().await;
    assert_eq!(watch.names(), ["gateway_status"]);
    switch(&server, "gateway_status", false).await;
    assert_eq!(watch.batch().await[0].removed, ["gateway_status"]);
    switch(&server, "gateway_status", true).await;
    watch.batch().await;
    server.register(probed("gateway_status", [report()])).await;
    assert_eq!(watch.batch().await[0].removed, ["gateway_status"]);
    server.unregister("gateway_status").await;
    assert_eq!(watch.batch().await[0].upserts.len(), 1);
    watch.check(&server).await;
}

#[tokio::test(start_paused = true)]
async fn faults_are_told_together_and_nothing_is_opened() {
    let server = InProc::start().await;
    let asked = WatchAvailableToolsRequest {
        namespace: "No".into(),
        label_selector: "a in".into(),
        format: 99,
        allowed_tools: Some(AllowedTools::default()),
        ..Default::default()
    };
    let status = Agent::try_open(&server, asked).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    for field in ["namespace", "label_selector", "format", "allowed_tools.names"] {
        assert!(
            format!("{:?}", tonic_types::StatusExt::get_error_details(&status)).contains(field),
            "{status:?}"
        );
    }
}
