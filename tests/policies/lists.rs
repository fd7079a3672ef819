//! Equal content is equal bytes, however and however often it is asked for.

use std::collections::BTreeSet;

use toolpulse::{
    core::hash::ContentHash,
    proto::v1::{
        AgentPolicy, ProbeOutcome, ProbeSpec, ReportProbe, ReportProbeResultRequest, SchemaFormat,
        Visibility, probe_spec::Kind,
    },
};

use super::*;

fn request() -> ListAvailableToolsRequest {
    ListAvailableToolsRequest {
        agent_id: "bot".into(),
        format: SchemaFormat::OpenaiChat.into(),
        visibility: Visibility::Stable.into(),
        ..ListAvailableToolsRequest::default()
    }
}

/// Names of odd forms, in an order of their own.
fn specs(reverse: bool) -> Vec<ToolSpec> {
    let mut specs: Vec<ToolSpec> = (0..40)
        .map(|n| {
            let mut spec = named(&format!("tool{}{n}", if n % 3 == 0 { "." } else { "_" }));
            spec.labels.insert("team".into(), if n % 2 == 0 { "x" } else { "y" }.into());
            spec.input_schema_json =
                format!("{{ \"type\": \"object\", \"properties\": {{\"z{n}\": {{}}, \"a\": {{}}}} }}");
            spec
        })
        .collect();
    if reverse {
        specs.reverse();
    }
    specs
}

async fn filled(reverse: bool) -> Server {
    let server = Server::start(|_| {}).await;
    for spec in specs(reverse) {
        register(&server, spec).await;
    }
    set(&server, AgentPolicy { label_selector: "team=x".into(), max_tools: 15, ..policy("bot") })
        .await
        .unwrap();
    server
}

/// Hash of all that the provider sees, and the etag.
fn bytes(reply: &ListAvailableToolsResponse) -> (String, String) {
    let mut hash = ContentHash::new("test");
    hash.text(&reply.tools_json).text(&reply.allowed_json);
    (hash.finish_hex(), reply.etag.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_content_is_equal_bytes() {
    let mut server = filled(false).await;
    let first = list(&server, request()).await;
    assert_eq!((first.tools.len(), first.visibility_used()), (15, Visibility::Stable));
    let mut seen = BTreeSet::new();
    for _ in 0..1_000 {
        seen.insert(bytes(&list(&server, request()).await));
    }
    server.crash_and_restart().await;
    seen.insert(bytes(&list(&server, request()).await));
    let other = filled(true).await;
    seen.insert(bytes(&list(&other, request()).await));
    assert_eq!(seen, BTreeSet::from([bytes(&first)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn stable_bytes_outlive_a_flap() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let kind = Some(Kind::Report(ReportProbe::default()));
    register(
        &server,
        ToolSpec { probes: vec![ProbeSpec { kind, ..ProbeSpec::default() }], ..named("flaps") },
    )
    .await;
    register(&server, named("stays")).await;
    let mut etags = BTreeSet::new();
    let mut arrays = BTreeSet::new();
    for outcome in [ProbeOutcome::Pass, ProbeOutcome::No, ProbeOutcome::Pass] {
        let report = ReportProbeResultRequest {
            name: "flaps".into(),
            outcome: outcome.into(),
            ..ReportProbeResultRequest::default()
        };
        server.tools().report_probe_result(report).await.unwrap();
        let request = ListAvailableToolsRequest { include_hidden: true, ..request() };
        let reply = list(&server, request.clone()).await;
        assert_eq!(reply.tools.len(), 2);
        let up = outcome == ProbeOutcome::Pass;
        assert_eq!(reply.allowed_json.contains("flaps"), up);
        assert_eq!(reply.hidden.len(), usize::from(!up));
        let again = ListAvailableToolsRequest { if_etag: reply.etag.clone(), ..request };
        let unchanged = list(&server, again).await;
        assert!(unchanged.not_modified && unchanged.allowed_json.is_empty());
        assert_eq!(unchanged.visibility_used(), Visibility::Stable);
        etags.insert(reply.etag);
        arrays.insert(reply.tools_json);
    }
    assert_eq!((arrays.len(), etags.len()), (1, 2));
    let mcp = ListAvailableToolsRequest { format: SchemaFormat::Mcp.into(), ..request() };
    assert_eq!(list(&server, mcp).await.visibility_used(), Visibility::Hide);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_budget_cuts_is_named() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    for (name, priority) in [("a", "1"), ("b", "0"), ("c", "2")] {
        register(&server, labelled(name, &[("priority", priority)])).await;
    }
    let request = ListAvailableToolsRequest {
        max_tools: 2,
        include_hidden: true,
        ..ListAvailableToolsRequest::default()
    };
    let reply = list(&server, request).await;
    assert_eq!(reply.tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let hidden: Vec<(&str, &str, &str)> =
        reply.hidden.iter().map(|h| (h.name.as_str(), h.stage.as_str(), h.reason.as_str())).collect();
    assert_eq!(hidden, [("b", "budget", "OVER_BUDGET")]);
    let request = ListAvailableToolsRequest {
        max_tokens: reply.token_estimate,
        ..ListAvailableToolsRequest::default()
    };
    assert_eq!(list(&server, request).await.tools_json, reply.tools_json);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_age_is_the_namespaces_own() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let kind = Some(Kind::Report(ReportProbe::default()));
    register(&server, ToolSpec { probes: vec![ProbeSpec { kind, ..ProbeSpec::default() }], ..named("a") })
        .await;
    let report = ReportProbeResultRequest {
        name: "a".into(),
        outcome: ProbeOutcome::Pass.into(),
        ttl: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..ReportProbeResultRequest::default()
    };
    server.tools().report_probe_result(report).await.unwrap();
    let age = async |namespace: &str| {
        let request = ListAvailableToolsRequest { namespace: namespace.into(), ..Default::default() };
        list(&server, request).await.max_age.unwrap().seconds
    };
    assert!(age("default").await < 5);
    assert_eq!(age("other").await, 5);
}
