//! What operators read: pages, filters, namespaces.

use std::collections::BTreeSet;

use tonic::{Code, Status};
use toolpulse::proto::v1::{
    ListNamespacesRequest, ListToolsRequest, ListToolsResponse, ProbeOutcome, RegisterToolsRequest, ToolSpec,
    UnregisterToolsRequest, Verdict,
};

use crate::support::inproc::{InProc, probed, reason, report, tool};

async fn page(server: &InProc, request: ListToolsRequest) -> Result<ListToolsResponse, Status> {
    Ok(server.tools().list_tools(request).await?.into_inner())
}

fn names(page: &ListToolsResponse) -> Vec<String> {
    page.tools.iter().map(|t| t.spec.as_ref().unwrap().name.clone()).collect()
}

/// All pages, one after the other; `between` happens after each.
async fn walk(server: &InProc, filter: ListToolsRequest, mut between: impl AsyncFnMut(usize)) -> Vec<String> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    for n in 0.. {
        let reply = page(server, ListToolsRequest { page_token, ..filter.clone() }).await.unwrap();
        all.extend(names(&reply));
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            break;
        }
        between(n).await;
    }
    all
}

async fn register(server: &InProc, namespace: &str, owner: &str, tools: Vec<ToolSpec>) {
    let request = RegisterToolsRequest {
        namespace: namespace.into(),
        owner: owner.into(),
        tools,
        ..Default::default()
    };
    server.tools().register_tools(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pages_are_complete_while_tools_come_and_go() {
    let server = InProc::start().await;
    let name = |i: usize| format!("t{i:03}");
    server.register_many((0..250).map(|i| tool(&name(i))).collect()).await;
    let filter = ListToolsRequest { page_size: 20, ..Default::default() };
    // In each pause one tool goes and one comes, before and behind where the reader stands.
    let seen = walk(&server, filter, async |n| {
        let names = [name(n * 20 + 3), name(n * 20 + 35)].map(|n| n + "x").to_vec();
        server.register_many(names.iter().map(|n| tool(n)).collect()).await;
        let gone = UnregisterToolsRequest { names: vec![name(n * 20 + 5)], ..Default::default() };
        server.tools().unregister_tools(gone).await.unwrap();
    })
    .await;
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(seen, sorted, "sorted, and none twice");
    let unique: BTreeSet<_> = seen.into_iter().collect();
    // None that was there all the time is missing.
    assert!((0..250).all(|i| unique.contains(&name(i))));

    // The last entry of a page goes: the next page begins behind where it was.
    let first = page(&server, ListToolsRequest { page_size: 10, ..Default::default() }).await.unwrap();
    let last = names(&first).pop().unwrap();
    server.unregister(&last).await;
    let request = ListToolsRequest { page_size: 10, page_token: first.next_page_token, ..Default::default() };
    let second = page(&server, request).await.unwrap();
    assert!(names(&second)[0] > last);
}

#[tokio::test(start_paused = true)]
async fn sizes_of_pages() {
    let server = InProc::start().await;
    server.register_many((0..1_200).map(|i| tool(&format!("t{i:04}"))).collect()).await;
    for (page_size, expected) in [(0, 100), (1, 1), (999, 999), (1_000, 1_000), (5_000, 1_000)] {
        let reply = page(&server, ListToolsRequest { page_size, ..Default::default() }).await.unwrap();
        assert_eq!(reply.tools.len(), expected, "{page_size}");
        assert!(!reply.next_page_token.is_empty());
    }
    // A page that ends exactly with the last tool has none after it.
    let filter = ListToolsRequest { page_size: 600, ..Default::default() };
    let mut pauses = 0;
    assert_eq!(walk(&server, filter, async |_| pauses += 1).await.len(), 1_200);
    assert_eq!(pauses, 1);
    // A page ends before clients refuse it.
    let big = |i: usize| ToolSpec { description: "d".repeat(16_000), ..tool(&format!("big{i:03}")) };
    register(&server, "big", "", (0..400).map(big).collect()).await;
    let filter = ListToolsRequest { namespace: "big".into(), page_size: 1_000, ..Default::default() };
    let reply = page(&server, filter.clone()).await.unwrap();
    assert!(prost::Message::encoded_len(&reply) < 4 << 20);
    assert!((100..400).contains(&reply.tools.len()));
    assert_eq!(walk(&server, filter, async |_| {}).await.len(), 400);
}

#[tokio::test(start_paused = true)]
async fn filters_select_and_bind_the_token() {
    let server = InProc::start().await;
    register(&server, "", "ann", (0..6).map(|i| probed(&format!("a{i}"), [report()])).collect()).await;
    register(&server, "", "bob", (0..6).map(|i| tool(&format!("b{i}"))).collect()).await;
    register(&server, "prod", "ann", (0..6).map(|i| tool(&format!("p{i}"))).collect()).await;
    for name in ["a0", "a1"] {
        server.report(name, ProbeOutcome::Pass).await;
    }
    for name in ["a2", "a3"] {
        server.report(name, ProbeOutcome::No).await;
    }
    let filter = |namespace: &str, owner: &str, verdict: Verdict| ListToolsRequest {
        namespace: namespace.into(),
        owner: owner.into(),
        verdict: verdict.into(),
        page_size: 1,
        ..Default::default()
    };
    let any = Verdict::Unspecified;
    for (request, expected) in [
        (filter("", "", any), "a0 a1 a2 a3 a4 a5 b0 b1 b2 b3 b4 b5"),
        (filter("", "ann", any), "a0 a1 a2 a3 a4 a5"),
        (filter("", "", Verdict::Available), "a0 a1 b0 b1 b2 b3 b4 b5"),
        (filter("", "ann", Verdict::Available), "a0 a1"),
        (filter("", "", Verdict::Unavailable), "a2 a3"),
        (filter("", "", Verdict::Pending), "a4 a5"),
        (filter("", "bob", Verdict::Pending), ""),
        (filter("prod", "", any), "p0 p1 p2 p3 p4 p5"),
        (filter("prod", "bob", any), ""),
        (filter("unknown", "", any), ""),
    ] {
        assert_eq!(walk(&server, request.clone(), async |_| {}).await.join(" "), expected, "{request:?}");
    }

    let token = page(&server, filter("", "", any)).await.unwrap().next_page_token;
    let with = |request: ListToolsRequest| ListToolsRequest { page_token: token.clone(), ..request };
    for other in [filter("prod", "", any), filter("", "ann", any), filter("", "", Verdict::Available)] {
        let refused = page(&server, with(other.clone())).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{other:?}");
        assert_eq!(reason(&refused), "INVALID_FIELDS");
        assert!(refused.message().contains("page_token"), "{}", refused.message());
    }
    // The size of a page is no part of the filter, and an empty namespace is the default one.
    for same in [ListToolsRequest { page_size: 3, ..filter("", "", any) }, filter("default", "", any)] {
        assert_eq!(names(&page(&server, with(same)).await.unwrap())[0], "a1");
    }
    let refused = server
        .tools()
        .list_namespaces(ListNamespacesRequest { page_token: token, ..Default::default() })
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_those_that_hold_a_tool() {
    let server = InProc::start().await;
    let list = async |page_size, page_token| {
        let request = ListNamespacesRequest { page_size, page_token };
        let reply = server.tools().list_namespaces(request).await.unwrap().into_inner();
        let told: Vec<_> = reply.namespaces.into_iter().map(|n| (n.name, n.tools, n.available)).collect();
        (told, reply.next_page_token)
    };
    assert_eq!(list(0, String::new()).await, (vec![], String::new()));
    for namespace in ["prod", "", "b-2"] {
        register(&server, namespace, "", vec![tool("a"), probed("b", [report()]), tool("c")]).await;
    }
    let row = |name: &str, tools, available| (name.to_owned(), tools, available);
    let all = vec![row("b-2", 3, 2), row("default", 3, 2), row("prod", 3, 2)];
    assert_eq!(list(0, String::new()).await, (all, String::new()));
    let (first, token) = list(2, String::new()).await;
    assert_eq!(first.len(), 2);
    assert_eq!(list(2, token).await, (vec![row("prod", 3, 2)], String::new()));

    server.report("b", ProbeOutcome::Pass).await;
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let gone = UnregisterToolsRequest { namespace: "prod".into(), names, ..Default::default() };
    server.tools().unregister_tools(gone).await.unwrap();
    let (now, _) = list(0, String::new()).await;
    assert_eq!(now, [row("b-2", 3, 2), row("default", 3, 3)]);
}
