//! What operators say is on disk when it is answered.

use toolpulse::proto::v1::{
    AgentPolicy, DeleteAgentPolicyRequest, GetAgentPolicyRequest, GetToolRequest, ListAgentPoliciesRequest,
    UnregisterToolsRequest,
};

use super::*;

async fn all(server: &Server, page_size: i32) -> Vec<AgentPolicy> {
    let mut policies = Vec::new();
    let mut request = ListAgentPoliciesRequest { page_size, ..ListAgentPoliciesRequest::default() };
    loop {
        let page = super::policies(server).list_agent_policies(request.clone()).await.unwrap().into_inner();
        policies.extend(page.policies);
        if page.next_page_token.is_empty() {
            return policies;
        }
        request.page_token = page.next_page_token;
    }
}

async fn get(server: &Server, agent: &str) -> Result<AgentPolicy, Status> {
    let request = GetAgentPolicyRequest { agent_id: agent.into(), ..GetAgentPolicyRequest::default() };
    policies(server).get_agent_policy(request).await.map(|reply| reply.into_inner().policy.unwrap())
}

async fn delete(server: &Server, agent: &str, etag: &str) -> Result<(), Status> {
    let (agent_id, etag) = (agent.into(), etag.into());
    let request = DeleteAgentPolicyRequest { agent_id, etag, ..DeleteAgentPolicyRequest::default() };
    policies(server).delete_agent_policy(request).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_switches_outlive_kill_9() {
    let mut server = Server::start(|_| {}).await;
    for name in ["a", "b", "c"] {
        register(&server, named(name)).await;
    }
    let full = AgentPolicy {
        allowed_tools: names(&["b", "a", "default/c"]),
        denied_tools: vec!["b".into()],
        label_selector: "!internal , team notin (x)".into(),
        max_tools: 7,
        ..policy("bot")
    };
    let full = set(&server, full).await.unwrap();
    assert_eq!(full.label_selector, "!internal,team!=x");
    set(&server, AgentPolicy { deny_all: true, ..policy("gone") }).await.unwrap();
    set(&server, AgentPolicy { deny_all: true, ..policy("shut") }).await.unwrap();
    delete(&server, "gone", "").await.unwrap();
    let status = switch(&server, "c", false, "costs too much").await;
    assert_eq!((status.enabled, status.disabled_message.as_str()), (false, "costs too much"));
    switch(&server, "b", false, "").await;
    assert!(switch(&server, "b", true, "").await.enabled);

    server.crash_and_restart().await;
    assert_eq!(get(&server, "bot").await.unwrap(), full);
    assert_eq!(
        refused(&get(&server, "gone").await.unwrap_err()),
        (Code::NotFound, "POLICY_NOT_FOUND".into())
    );
    assert_eq!(seen_by(&server, "bot").await, ["a"]);
    assert!(seen_by(&server, "shut").await.is_empty());
    assert_eq!(seen_by(&server, "gone").await, ["a", "b"]);

    // The switch belongs to the name: it outlives the tool, other labels, another spec and another owner.
    let unregister = UnregisterToolsRequest { names: vec!["c".into()], ..UnregisterToolsRequest::default() };
    server.tools().unregister_tools(unregister).await.unwrap();
    server.crash_and_restart().await;
    register(&server, labelled("c", &[("team", "new")])).await;
    assert_eq!(seen_by(&server, "").await, ["a", "b"]);
    let request = GetToolRequest { name: "c".into(), ..GetToolRequest::default() };
    let tool = server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap();
    assert!(!tool.status.unwrap().enabled);
    switch(&server, "c", true, "").await;
    assert_eq!(seen_by(&server, "").await, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etag_guards_what_was_read() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let mismatch = (Code::Aborted, "ETAG_MISMATCH".to_owned());
    let first = set(&server, policy("bot")).await.unwrap();
    let second = AgentPolicy { max_tools: 2, etag: first.etag.clone(), ..policy("bot") };
    let second = set(&server, second).await.unwrap();
    let stale = AgentPolicy { max_tools: 3, etag: first.etag.clone(), ..policy("bot") };
    assert_eq!(refused(&set(&server, stale).await.unwrap_err()), mismatch);
    assert_eq!(get(&server, "bot").await.unwrap(), second);
    let new = AgentPolicy { etag: first.etag.clone(), ..policy("new") };
    assert_eq!(refused(&set(&server, new).await.unwrap_err()), mismatch, "there is none to be that one");
    assert_eq!(refused(&delete(&server, "bot", &first.etag).await.unwrap_err()), mismatch);
    delete(&server, "bot", &second.etag).await.unwrap();

    // Who only creates finds it there, be it the same.
    let create = async |policy: AgentPolicy| {
        let request = SetAgentPolicyRequest { policy: Some(policy), create_only: true };
        policies(&server).set_agent_policy(request).await.map(|reply| reply.into_inner().policy.unwrap())
    };
    let created = create(policy("fresh")).await.unwrap();
    let exists = (Code::AlreadyExists, "POLICY_EXISTS".to_owned());
    for again in [policy("fresh"), AgentPolicy { max_tools: 2, ..policy("fresh") }] {
        assert_eq!(refused(&create(again).await.unwrap_err()), exists);
    }
    assert_eq!(get(&server, "fresh").await.unwrap(), created);
    let both = create(AgentPolicy { etag: created.etag.clone(), ..policy("b c") }).await.unwrap_err();
    let faults = both.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = faults.iter().map(|f| f.field.as_str()).collect();
    assert_eq!(fields, ["policy.agent_id", "create_only"]);

    // Of many writers that read the same, one wins.
    let base = set(&server, policy("bot")).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for max_tools in 1..=20 {
        let mut client = policies(&server);
        let policy = AgentPolicy { max_tools, etag: base.etag.clone(), ..policy("bot") };
        writers.spawn(async move {
            let request = SetAgentPolicyRequest { policy: Some(policy), create_only: false };
            client.set_agent_policy(request).await.is_ok()
        });
    }
    let won = writers.join_all().await.into_iter().filter(|ok| *ok).count();
    assert_eq!(won, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_listed_in_pages() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    for n in 0..7 {
        set(&server, policy(&format!("bot-{n}"))).await.unwrap();
    }
    set(&server, AgentPolicy { namespace: "other".into(), ..policy("bot-9") }).await.unwrap();
    for page_size in [1, 3, 7, 0] {
        let agents: Vec<String> = all(&server, page_size).await.into_iter().map(|p| p.agent_id).collect();
        assert_eq!(agents, (0..7).map(|n| format!("bot-{n}")).collect::<Vec<_>>(), "{page_size}");
    }
    let request = ListAgentPoliciesRequest { page_size: 1, ..ListAgentPoliciesRequest::default() };
    let token = policies(&server).list_agent_policies(request).await.unwrap().into_inner().next_page_token;
    let elsewhere = ListAgentPoliciesRequest {
        namespace: "other".into(),
        page_token: token,
        ..ListAgentPoliciesRequest::default()
    };
    let status = policies(&server).list_agent_policies(elsewhere).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn ill_formed_policies_are_refused_with_all_their_faults() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let wrong = AgentPolicy {
        namespace: "A".into(),
        allowed_tools: Some(AllowedTools::default()),
        denied_tools: vec!["a".into(), "b c".into()],
        label_selector: "a in".into(),
        ..policy("b c")
    };
    let status = set(&server, wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let faults = status.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = faults.iter().map(|f| f.field.as_str()).collect();
    let expected = [
        "policy.namespace",
        "policy.agent_id",
        "policy.allowed_tools.names",
        "policy.denied_tools[1]",
        "policy.label_selector",
    ];
    assert_eq!(fields, expected);
    let many = |from: usize| (from..from + 5_001).map(|n| format!("t{n}")).collect::<Vec<_>>();
    let huge = AgentPolicy {
        allowed_tools: Some(AllowedTools { names: many(0) }),
        denied_tools: many(5_000),
        ..policy("bot")
    };
    assert_eq!(set(&server, huge).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(all(&server, 0).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_seen_without_a_policy_where_the_default_is_deny() {
    let server = Server::start(|c| {
        c.store("memory").env("TOOLPULSE_DEFAULT_POLICY", "deny");
    })
    .await;
    register(&server, named("a")).await;
    set(&server, policy("bot")).await.unwrap();
    assert_eq!(seen_by(&server, "bot").await, ["a"]);
    assert!(seen_by(&server, "other").await.is_empty());
    assert!(seen_by(&server, "").await.is_empty());
    let ended = Server::refuse(|c| {
        c.env("TOOLPULSE_DEFAULT_POLICY", "perhaps");
    })
    .await;
    assert!(ended.log.contains("TOOLPULSE_DEFAULT_POLICY"), "{}", ended.log);
}
