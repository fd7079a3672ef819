//! No RPC shows an agent what a layer keeps from it: all methods of the contract are looked at, and a new one must be
//! judged here.

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};
use toolpulse::proto::{
    DESCRIPTORS,
    v1::{
        AgentPolicy, ExplainToolRequest, GetAllowlistDiagnosticsRequest, GetToolRequest, Position, ProbeSpec,
        ReportProbe, SearchToolsRequest, WatchAvailableToolsRequest, probe_spec::Kind,
    },
};

use super::*;

/// Methods for owners and operators, who see all there is: none of them is told which agent asks.
const FOR_OPERATORS: [&str; 20] = [
    "AgentPolicyService/DeleteAgentPolicy",
    "AgentPolicyService/GetAgentPolicy",
    "AgentPolicyService/ListAgentPolicies",
    "AgentPolicyService/SetAgentPolicy",
    "GatewayStatusService/GetGatewayStatus",
    "GatewayStatusService/ListGatewayStatuses",
    "GatewayStatusService/PublishGatewayStatus",
    "GatewayStatusService/ReportGatewayStatus",
    "GatewayStatusService/WatchGatewayStatus",
    "ToolRegistryService/ApproveToolLabels",
    "ToolRegistryService/ClearTools",
    "ToolRegistryService/ListNamespaces",
    "ToolRegistryService/ListTools",
    "ToolRegistryService/ProbeTool",
    "ToolRegistryService/RegisterTool",
    "ToolRegistryService/RegisterTools",
    "ToolRegistryService/ReportProbeResult",
    "ToolRegistryService/SetToolEnabled",
    "ToolRegistryService/UnregisterTools",
    "ToolRegistryService/WatchTools",
];
/// Methods that show tools to an agent: each is checked below.
const FOR_AGENTS: [&str; 6] = [
    "ToolRegistryService/ExplainTool",
    "ToolRegistryService/GetAllowlistDiagnostics",
    "ToolRegistryService/GetTool",
    "ToolRegistryService/ListAvailableTools",
    "ToolRegistryService/SearchTools",
    "ToolRegistryService/WatchAvailableTools",
];
/// Messages that are made for agents.
const AGENTS_MESSAGES: [&str; 3] = ["AvailableTool", "HiddenTool", "ExplainedStage"];
const NAME: &str = "forbidden_tool";

#[test]
fn every_method_is_known_and_those_for_agents_are_told_which() {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let ours: Vec<_> = files.iter().filter(|f| f.package() == "toolpulse.v1").collect();
    let messages: HashMap<String, &DescriptorProto> = ours
        .iter()
        .flat_map(|file| &file.message_type)
        .map(|message| (format!(".toolpulse.v1.{}", message.name()), message))
        .collect();
    let mut methods = Vec::new();
    for service in ours.iter().flat_map(|file| &file.service) {
        for method in &service.method {
            let name = format!("{}/{}", service.name(), method.name());
            let request = messages[method.input_type()];
            let told = request.field.iter().any(|f| f.name() == "agent_id");
            let for_agents = FOR_AGENTS.contains(&name.as_str());
            assert!(!for_agents || told, "{name} shows tools to an agent without asking which");
            let shows = AGENTS_MESSAGES.iter().any(|m| reaches(&messages, method.output_type(), m));
            assert!(!shows || for_agents, "{name} replies with what is made for agents");
            assert!(
                for_agents || !told || service.name() == "AgentPolicyService",
                "{name} is told which agent asks: it belongs to those for agents"
            );
            methods.push(name);
        }
    }
    methods.sort();
    let mut known: Vec<&str> = FOR_OPERATORS.iter().chain(&FOR_AGENTS).copied().collect();
    known.sort_unstable();
    assert_eq!(methods, known, "judge the new method, and check it below if it shows tools to an agent");
}

/// Whether a message holds another one, at any depth.
fn reaches(messages: &HashMap<String, &DescriptorProto>, from: &str, to: &str) -> bool {
    let Some(message) = messages.get(from) else { return false };
    message.name() == to || message.field.iter().any(|f| reaches(messages, f.type_name(), to))
}

/// What an agent asks with.
#[derive(Clone, Debug, Default)]
struct Ask {
    agent_id: String,
    allowed_tools: Option<AllowedTools>,
    label_selector: String,
}

/// The layer that keeps the tool from the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    None,
    Server,
    Operator,
    Policy,
    Request,
    Labels,
    Availability,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_layer_hides_is_in_no_reply() {
    use Layer::{Availability, Labels, None, Operator, Policy, Request, Server};
    for layer in [None, Server, Operator, Policy, Request, Labels, Availability] {
        let server = support::Server::start(|c| {
            c.store("memory");
            if layer == Server {
                c.env("ALLOWED_TOOLS", "other_tool");
            }
        })
        .await;
        register(&server, labelled("other_tool", &[("team", "x")])).await;
        let mut tool = labelled(NAME, &[("team", if layer == Labels { "y" } else { "x" })]);
        if layer == Availability {
            let kind = Some(Kind::Report(ReportProbe::default()));
            tool.probes = vec![ProbeSpec { kind, ..ProbeSpec::default() }];
        }
        register(&server, tool).await;
        if layer == Operator {
            switch(&server, NAME, false, "").await;
        }
        let denied = if layer == Policy { vec![NAME.into()] } else { vec![] };
        set(&server, AgentPolicy { denied_tools: denied, ..policy("bot") }).await.unwrap();
        let request = if layer == Request { &["other_tool"][..] } else { &["other_tool", NAME] };
        let ask =
            Ask { agent_id: "bot".into(), allowed_tools: names(request), label_selector: "team=x".into() };
        got(&server, &ask, layer).await;
        listed(&server, &ask, layer).await;
        watched(&server, &ask, layer).await;
        found(&server, &ask, layer).await;
        explained(&server, &ask, layer).await;
        diagnosed(&server, &ask, layer).await;
    }
}

/// Whether a reply names the tool anywhere.
fn names_it(reply: &impl Message) -> bool {
    reply.encode_to_vec().windows(NAME.len()).any(|bytes| bytes == NAME.as_bytes())
}

async fn got(server: &Server, ask: &Ask, layer: Layer) {
    let request = GetToolRequest { name: NAME.into(), agent_id: ask.agent_id.clone(), ..Default::default() };
    let answer = server.tools().get_tool(request.clone()).await;
    // It has no allowlist and no selector of the request.
    let hides = matches!(layer, Layer::Server | Layer::Operator | Layer::Policy);
    assert_eq!(answer.is_err(), hides, "{layer:?}");
    if let Err(status) = answer {
        let none =
            server.tools().get_tool(GetToolRequest { name: "nope".into(), ..request }).await.unwrap_err();
        let as_if_none = none.message().replace("nope", NAME);
        assert_eq!((status.code(), status.message()), (Code::NotFound, as_if_none.as_str()));
    }
}

async fn listed(server: &Server, ask: &Ask, layer: Layer) {
    // A name that is asked for may come back as unknown, which tells nothing.
    let allowed = if layer == Layer::Policy { None } else { ask.allowed_tools.clone() };
    let request = |include_hidden| ListAvailableToolsRequest {
        agent_id: ask.agent_id.clone(),
        allowed_tools: allowed.clone(),
        label_selector: ask.label_selector.clone(),
        include_hidden,
        ..ListAvailableToolsRequest::default()
    };
    let reply = list(server, request(false)).await;
    assert!(reply.tools.iter().any(|t| t.name == "other_tool"), "{layer:?}");
    assert_eq!(names_it(&reply), layer == Layer::None, "{layer:?}");
    let told = matches!(layer, Layer::None | Layer::Server | Layer::Operator | Layer::Availability);
    let reply = list(server, request(true)).await;
    assert_eq!(names_it(&reply), told, "{layer:?}: hidden tools are named where the agent may know of them");
}

async fn found(server: &Server, ask: &Ask, layer: Layer) {
    let request = SearchToolsRequest {
        agent_id: ask.agent_id.clone(),
        allowed_tools: ask.allowed_tools.clone(),
        label_selector: ask.label_selector.clone(),
        query: "forbidden other tool".into(),
        ..SearchToolsRequest::default()
    };
    let reply = server.tools().search_tools(request).await.unwrap().into_inner();
    assert!(!reply.results.is_empty(), "{layer:?}");
    assert_eq!(names_it(&reply), layer == Layer::None, "{layer:?}");
}

/// A watch tells of it where a list would, from the start and after a change of it, live and resumed.
async fn watched(server: &Server, ask: &Ask, layer: Layer) {
    let request = |resume| WatchAvailableToolsRequest {
        agent_id: ask.agent_id.clone(),
        allowed_tools: ask.allowed_tools.clone(),
        label_selector: ask.label_selector.clone(),
        resume,
        ..WatchAvailableToolsRequest::default()
    };
    let open =
        async |resume| server.tools().watch_available_tools(request(resume)).await.unwrap().into_inner();
    let mut live = open(None).await;
    let first = live.message().await.unwrap().unwrap();
    assert!(first.synced && first.upserts.iter().any(|t| t.name == "other_tool"), "{layer:?}");
    assert_eq!(names_it(&first), layer == Layer::None, "{layer:?}");
    let position = Position { epoch: first.epoch.clone(), revision: first.revision };

    let before = server.tools().get_tool(GetToolRequest { name: NAME.into(), ..Default::default() }).await;
    let before = before.unwrap().into_inner().tool.unwrap().spec.unwrap();
    for spec in [ToolSpec { title: "changed".into(), ..before.clone() }, before] {
        register(server, spec).await;
    }
    register(server, labelled("other_tool", &[("team", "x"), ("changed", "")])).await;
    register(server, ToolSpec { title: "changed".into(), ..labelled("other_tool", &[("team", "x")]) }).await;
    let told = loop {
        let next = live.message().await.unwrap().unwrap();
        if names_it(&next) || next.upserts.iter().any(|t| t.name == "other_tool") {
            break names_it(&next);
        }
    };
    assert!(!told || layer == Layer::None, "{layer:?}");
    let resumed = open(Some(position)).await.message().await.unwrap().unwrap();
    assert!(!resumed.reset && resumed.upserts.iter().any(|t| t.name == "other_tool"), "{layer:?}");
    // That it does not work, an agent may know; so it may be told to forget it.
    let told = matches!(layer, Layer::None | Layer::Availability);
    assert_eq!(names_it(&resumed), told, "{layer:?}");
    register(server, labelled("other_tool", &[("team", "x")])).await;
}

async fn explained(server: &Server, ask: &Ask, layer: Layer) {
    let request = |name: &str| ExplainToolRequest {
        name: name.into(),
        agent_id: ask.agent_id.clone(),
        allowed_tools: ask.allowed_tools.clone(),
        label_selector: ask.label_selector.clone(),
        ..ExplainToolRequest::default()
    };
    let reply = server.tools().explain_tool(request(NAME)).await.unwrap().into_inner();
    let stopped: Vec<&str> = reply.stages.iter().filter(|s| !s.passed).map(|s| s.stage.as_str()).collect();
    let expected = match layer {
        Layer::None => &[][..],
        Layer::Server => &["server_allowlist"],
        Layer::Operator => &["operator"],
        Layer::Policy => &["policy"],
        Layer::Request => &["request"],
        Layer::Labels => &["labels"],
        Layer::Availability => &["availability"],
    };
    assert_eq!((reply.visible, stopped.as_slice()), (layer == Layer::None, expected));
    let reply = server.tools().explain_tool(request("forbiden_tool")).await.unwrap().into_inner();
    assert!(!reply.visible);
    let offered = matches!(layer, Layer::None | Layer::Availability);
    assert_eq!(names_it(&reply), offered, "{layer:?}: a name is offered only where it could be seen");
}

async fn diagnosed(server: &Server, ask: &Ask, layer: Layer) {
    let request = GetAllowlistDiagnosticsRequest {
        agent_id: ask.agent_id.clone(),
        allowed_tools: ask.allowed_tools.clone().filter(|_| layer == Layer::Request),
        ..GetAllowlistDiagnosticsRequest::default()
    };
    let reply = server.tools().get_allowlist_diagnostics(request).await.unwrap().into_inner();
    // Labels and availability are no allowlists.
    let passes = matches!(layer, Layer::None | Layer::Labels | Layer::Availability);
    assert_eq!(reply.registered_after_filter.contains(&NAME.to_owned()), passes, "{layer:?}");
    assert_eq!(names_it(&reply), layer != Layer::Policy, "{layer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_the_servers_allowlist_does_not_tell_that_a_denied_tool_is_there() {
    let server = support::Server::start(|c| {
        c.store("memory");
        c.env("ALLOWED_TOOLS", "forbidden_tool,other_tool,never_registered");
    })
    .await;
    register(&server, named("other_tool")).await;
    register(&server, named(NAME)).await;
    set(&server, AgentPolicy { denied_tools: vec![NAME.into()], ..policy("bot") }).await.unwrap();
    for (agent, unknown) in [("bot", &[NAME, "never_registered"][..]), ("", &["never_registered"])] {
        let request = GetAllowlistDiagnosticsRequest {
            agent_id: agent.into(),
            ..GetAllowlistDiagnosticsRequest::default()
        };
        let reply = server.tools().get_allowlist_diagnostics(request).await.unwrap().into_inner();
        assert_eq!(reply.unknown_tools, unknown, "agent '{agent}'");
    }
}
