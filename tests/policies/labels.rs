//! What an owner says of a registered tool closes it to an agent, and never opens it.

use toolpulse::proto::v1::{
    AgentPolicy, ApproveToolLabelsRequest, ExplainToolRequest, GetToolRequest, ListToolsRequest, Tool,
    UnregisterToolsRequest,
};

use super::*;

async fn relabel(server: &Server, name: &str, labels: &[(&str, &str)]) {
    register(server, labelled(name, labels)).await;
}

async fn get(server: &Server, name: &str) -> Tool {
    let request = GetToolRequest { name: name.into(), ..GetToolRequest::default() };
    server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap()
}

async fn approve(server: &Server, name: &str) -> Result<Tool, Status> {
    let request = ApproveToolLabelsRequest { name: name.into(), ..ApproveToolLabelsRequest::default() };
    server.tools().approve_tool_labels(request).await.map(|reply| reply.into_inner().tool.unwrap())
}

/// The approved labels, where others are told now.
fn approved(tool: &Tool) -> Option<Vec<(&str, &str)>> {
    let labels = &tool.approved_labels.as_ref()?.labels;
    let mut labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.sort_unstable();
    Some(labels)
}

/// The policy's stage: whether it lets the tool pass, the reason and the text.
async fn explained(server: &Server, name: &str) -> (bool, String, String) {
    let request =
        ExplainToolRequest { name: name.into(), agent_id: "bot".into(), ..ExplainToolRequest::default() };
    let stages = server.tools().explain_tool(request).await.unwrap().into_inner().stages;
    let stage = stages.into_iter().find(|s| s.stage == "policy").unwrap();
    (stage.passed, stage.reason, stage.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_narrows_and_an_operator_approves() {
    let mut server = Server::start(|_| {}).await;
    relabel(&server, "a", &[("team", "search")]).await;
    relabel(&server, "b", &[("team", "mail"), ("internal", "")]).await;
    relabel(&server, "c", &[]).await;
    let selector = AgentPolicy { label_selector: "team=search,!internal".into(), ..policy("bot") };
    set(&server, selector).await.unwrap();
    // So that there is a list ready that could be stale.
    assert_eq!(seen_by(&server, "bot").await, ["a"]);
    let generation = get(&server, "b").await.generation;

    for name in ["b", "c"] {
        relabel(&server, name, &[("team", "search")]).await;
    }
    let told = "the policy of 'bot' asks for labels !internal; its labels meet that now, but are not approved; to approve them: \
                toolpulse tools approve-labels b";
    for _ in ["before", "after a restart"] {
        assert_eq!(seen_by(&server, "bot").await, ["a"]);
        let b = get(&server, "b").await;
        assert_eq!(approved(&b), Some(vec![("internal", ""), ("team", "mail")]));
        assert_eq!(b.generation, generation, "only labels differ");
        assert_eq!(approved(&get(&server, "a").await), None);
        assert_eq!(approved(&get(&server, "c").await), Some(vec![]));
        assert_eq!(explained(&server, "b").await, (false, "LABELS_NOT_APPROVED".into(), told.into()));
        server.crash_and_restart().await;
    }
    // What a caller asks for itself goes by the labels as they are.
    let mine = ListAvailableToolsRequest {
        label_selector: "team=search".into(),
        ..ListAvailableToolsRequest::default()
    };
    assert_eq!(list(&server, mine).await.tools.len(), 3);
    let all = ListToolsRequest { label_selector: "team=search".into(), ..ListToolsRequest::default() };
    let all = server.tools().list_tools(all).await.unwrap().into_inner().tools;
    assert_eq!(all.iter().filter(|tool| tool.approved_labels.is_some()).count(), 2);

    for _ in ["the first time", "again"] {
        assert_eq!(approved(&approve(&server, "b").await.unwrap()), None);
        assert_eq!(seen_by(&server, "bot").await, ["a", "b"]);
    }
    assert_eq!(
        refused(&approve(&server, "nosuch").await.unwrap_err()),
        (Code::NotFound, "TOOL_NOT_FOUND".into())
    );
    server.crash_and_restart().await;
    assert_eq!(seen_by(&server, "bot").await, ["a", "b"]);
    // Another owner's spec under the name is still that name's.
    let request = RegisterToolRequest {
        tool: Some(ToolSpec { title: "taken over".into(), ..labelled("c", &[("team", "search")]) }),
        overwrite: true,
        force: true,
        owner: "another".into(),
        ..RegisterToolRequest::default()
    };
    server.tools().register_tool(request).await.unwrap();
    relabel(&server, "a", &[("team", "mail")]).await;
    assert_eq!(seen_by(&server, "bot").await, ["b"]);
    relabel(&server, "a", &[("team", "search")]).await;
    assert_eq!(seen_by(&server, "bot").await, ["a", "b"], "what is approved needs no second approval");
    // A new registration is a new tool.
    let c =
        UnregisterToolsRequest { names: vec!["c".into()], force: true, ..UnregisterToolsRequest::default() };
    server.tools().unregister_tools(c).await.unwrap();
    relabel(&server, "c", &[("team", "search")]).await;
    assert_eq!(seen_by(&server, "bot").await, ["a", "b", "c"]);
}
