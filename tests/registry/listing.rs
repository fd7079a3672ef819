//! What agents list: its form, its identity, what it leaves out and why.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use tonic::Code;
use toolpulse::{
    config::AllowlistEnvironment,
    proto::v1::{
        AllowedTools, ListAvailableToolsRequest, ProbeOutcome, RegisterToolsRequest, SchemaFormat, ToolSpec,
        UnregisterToolsRequest,
    },
};

use crate::support::inproc::{InProc, probed, reason, report, tool};

fn all() -> ListAvailableToolsRequest {
    ListAvailableToolsRequest::default()
}

fn allowed<const N: usize>(names: [&str; N]) -> Option<AllowedTools> {
    Some(AllowedTools { names: names.map(str::to_owned).to_vec() })
}

fn rich(i: usize) -> ToolSpec {
    ToolSpec {
        description: format!("Tool number {i}"),
        input_schema_json: format!(
            r#"{{ "type": "object", "properties": {{ "z{i}": {{"type":"number","maximum":1.0}}, "a": {{}} }} }}"#
        ),
        endpoint: format!("https://tools.example/{i}"),
        extra_json: r#"{"_meta": {"k": 1e2}}"#.into(),
        ..tool(&format!("{}.{i}", ["Zeta", "alpha", "mid-", "_x"][i % 4]))
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_list_is_not_sent_again() {
    let server = InProc::start().await;
    server.register_many(vec![tool("a"), probed("b", [report()])]).await;
    let first = server.available(all()).await;
    assert!(!first.not_modified && !first.etag.is_empty());
    let again = ListAvailableToolsRequest { if_etag: first.etag.clone(), ..all() };
    let reply = server.available(again.clone()).await;
    assert!(reply.not_modified && reply.tools.is_empty() && reply.tools_json.is_empty());
    assert_eq!(reply.etag, first.etag);
    // What moves without the list: another tool's state, its labels, time.
    server.report("b", ProbeOutcome::No).await;
    sleep(Duration::from_secs(5)).await;
    server.register(ToolSpec { labels: [("k".into(), "v".into())].into(), ..tool("a") }).await;
    assert!(server.available(again.clone()).await.not_modified);
    // What moves it.
    server.report("b", ProbeOutcome::Pass).await;
    let moved = server.available(again.clone()).await;
    assert!(!moved.not_modified && moved.etag != first.etag && moved.revision > first.revision);
    server.report("b", ProbeOutcome::No).await;
    assert!(server.available(again.clone()).await.not_modified, "the same list has the same etag");
    server.register(ToolSpec { description: "other".into(), ..tool("a") }).await;
    assert!(!server.available(again.clone()).await.not_modified);
    // Each format has its own.
    let chat = ListAvailableToolsRequest { format: SchemaFormat::OpenaiChat.into(), ..all() };
    assert_ne!(server.available(chat).await.etag, server.available(all()).await.etag);
    // An etag of nothing.
    let reply = server.available(ListAvailableToolsRequest { if_etag: "x".into(), ..all() }).await;
    assert!(!reply.not_modified);
}

#[tokio::test(start_paused = true)]
async fn a_list_says_when_it_may_change_by_itself() {
    let server = InProc::start().await;
    server.register(probed("b", [report()])).await;
    server.report("b", ProbeOutcome::Pass).await;
    let max_age = async || Duration::try_from(server.available(all()).await.max_age.unwrap()).unwrap();
    assert_eq!(max_age().await, Duration::from_secs(5));
    sleep(Duration::from_secs(28)).await;
    assert_eq!(max_age().await, Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn hidden_tools_are_named_with_the_stage_that_hides_them() {
    let server = InProc::start_with(|settings| {
        settings.allowlist = AllowlistEnvironment {
            allowed_tools: Some("a, b,default/c,other/d,dead".into()),
            ..Default::default()
        };
    })
    .await;
    server
        .register_many(vec![
            tool("a"),
            tool("b"),
            tool("c"),
            tool("d"),
            probed("dead", [report()]),
            probed("dropped", [report()]),
        ])
        .await;
    server.report("dead", ProbeOutcome::No).await;
    assert_eq!(server.list().await, ["a", "b", "c"]);
    let reply = server.available(ListAvailableToolsRequest { include_hidden: true, ..all() }).await;
    let hidden: Vec<_> =
        reply.hidden.iter().map(|h| (h.name.as_str(), h.stage.as_str(), h.reason.as_str())).collect();
    assert_eq!(
        hidden,
        [
            ("d", "server_allowlist", "NOT_IN_ALLOWLIST"),
            ("dead", "availability", "PROBE_SAID_NO"),
            ("dropped", "server_allowlist", "NOT_IN_ALLOWLIST"),
        ]
    );
    assert_eq!(reply.hidden_count, 3);
    assert!(reply.hidden.iter().all(|h| !h.message.is_empty()));

    // The request's own list is intersected; a tool that doesn't work is never an unknown one.
    let asked = ListAvailableToolsRequest {
        allowed_tools: allowed(["b", "nope", "dead", "d", "default/a", "other/a", "A"]),
        include_hidden: true,
        ..all()
    };
    let reply = server.available(asked).await;
    assert_eq!(reply.tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(reply.unknown_tools, ["A", "nope", "other/a"]);
    let hidden: Vec<_> = reply.hidden.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(hidden, ["d", "dead"], "tools outside the request's own list are not named");
    // Not asked for: not told.
    let reply =
        server.available(ListAvailableToolsRequest { allowed_tools: allowed(["nope"]), ..all() }).await;
    assert_eq!((reply.hidden.len(), reply.hidden_count, reply.tools_json.as_str()), (0, 0, "[]"));
    assert_eq!(reply.unknown_tools, ["nope"]);
}

#[tokio::test(start_paused = true)]
async fn hidden_tools_are_counted_beyond_the_thousand_that_are_named() {
    let server = InProc::start().await;
    let name = |i: usize| format!("t{i:04}");
    server.register_many((0..1_010).map(|i| probed(&name(i), [report()])).collect()).await;
    let reply = server.available(ListAvailableToolsRequest { include_hidden: true, ..all() }).await;
    assert_eq!((reply.hidden.len(), reply.hidden_count), (1_000, 1_010));
    assert_eq!((reply.hidden[0].name.clone(), reply.hidden[999].name.clone()), (name(0), name(999)));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_too_large_says_what_to_narrow() {
    let server = InProc::start().await;
    server.register_many((0..20).map(rich).collect()).await;
    let limited = |max_reply_bytes| ListAvailableToolsRequest { max_reply_bytes, ..all() };
    let refused = server.tools().list_available_tools(limited(1_000)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "REPLY_TOO_LARGE"));
    for word in ["allowed_tools", "max_reply_bytes", "1000", "20 tools"] {
        assert!(refused.message().contains(word), "{word}: {}", refused.message());
    }
    let narrowed = ListAvailableToolsRequest { allowed_tools: allowed(["alpha.1"]), ..limited(1_000) };
    assert_eq!(server.available(narrowed).await.tools.len(), 1);
    // Not modified is small whatever the list is.
    let etag = server.available(all()).await.etag;
    assert!(
        server.available(ListAvailableToolsRequest { if_etag: etag, ..limited(1_000) }).await.not_modified
    );

    // The default is what clients take: 4 MiB.
    let big = |i: usize| ToolSpec { description: "d".repeat(16_000), ..tool(&format!("big{i:03}")) };
    server.register_many((0..300).map(big).collect()).await;
    let refused = server.tools().list_available_tools(all()).await.unwrap_err();
    assert_eq!(reason(&refused), "REPLY_TOO_LARGE");
    assert_eq!(server.available(limited(16 << 20)).await.tools.len(), 320);
}

#[tokio::test(start_paused = true)]
async fn order_and_bytes_do_not_depend_on_the_order_of_registration() {
    let mut orders: Vec<Vec<usize>> = vec![(0..60).collect(), (0..60).rev().collect()];
    orders.push((0..60).map(|i| i * 37 % 60).collect());
    let mut seen: Vec<[(String, String); 2]> = Vec::new();
    for order in orders {
        let server = InProc::start().await;
        for i in &order {
            server.register(rich(*i)).await;
        }
        let mut lists = Vec::new();
        for format in [SchemaFormat::Mcp, SchemaFormat::OpenaiChat] {
            let reply = server.available(ListAvailableToolsRequest { format: format.into(), ..all() }).await;
            let parsed: Vec<Value> = serde_json::from_str(&reply.tools_json).unwrap();
            assert_eq!((parsed.len(), reply.tools.len()), (60, 60));
            let exposed: Vec<_> = reply.tools.iter().map(|t| t.exposed_name.clone()).collect();
            let mut sorted = exposed.clone();
            sorted.sort_unstable();
            assert_eq!(exposed, sorted);
            let named = parsed.iter().map(|t| t.get("function").unwrap_or(t)["name"].as_str().unwrap());
            assert!(named.eq(exposed.iter().map(String::as_str)));
            assert!(reply.tools_json.contains(r#""maximum":1.0"#), "number literals are kept");
            assert_eq!(reply.token_estimate as usize, reply.tools_json.len().div_ceil(4));
            lists.push((reply.tools_json, reply.etag));
        }
        seen.push(lists.try_into().unwrap());
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_apart() {
    let server = InProc::start().await;
    let into = |namespace: &str, name: &str| RegisterToolsRequest {
        namespace: namespace.into(),
        tools: vec![tool(name)],
        ..Default::default()
    };
    for (namespace, name) in [("", "a"), ("prod", "a"), ("prod", "b")] {
        server.tools().register_tools(into(namespace, name)).await.unwrap();
    }
    let list = async |namespace: &str| {
        let reply =
            server.available(ListAvailableToolsRequest { namespace: namespace.into(), ..all() }).await;
        reply.tools.into_iter().map(|t| t.name).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["a"]);
    assert_eq!(list("default").await, ["a"]);
    assert_eq!(list("prod").await, ["a", "b"]);
    assert_eq!(list("unknown").await, Vec::<String>::new());
    let gone =
        UnregisterToolsRequest { namespace: "prod".into(), names: vec!["a".into()], ..Default::default() };
    server.tools().unregister_tools(gone).await.unwrap();
    assert_eq!((list("").await, list("prod").await), (vec!["a".to_owned()], vec!["b".to_owned()]));
}
