//! What each agent may see: policies, the operators' switch, explanations, searches. All with the real binary.

#![allow(clippy::unwrap_used)]

mod command_line;
mod every_rpc;
mod labels;
mod lists;
mod stored;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;

use support::Server;
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    AgentPolicy, AllowedTools, ListAvailableToolsRequest, ListAvailableToolsResponse, RegisterToolRequest,
    SetAgentPolicyRequest, SetToolEnabledRequest, ToolSpec, ToolStatus,
    agent_policy_service_client::AgentPolicyServiceClient,
};

fn policies(server: &Server) -> AgentPolicyServiceClient<Channel> {
    AgentPolicyServiceClient::new(server.channel())
}

async fn set(server: &Server, policy: AgentPolicy) -> Result<AgentPolicy, Status> {
    let request = SetAgentPolicyRequest { policy: Some(policy), create_only: false };
    policies(server).set_agent_policy(request).await.map(|reply| reply.into_inner().policy.unwrap())
}

fn policy(agent: &str) -> AgentPolicy {
    AgentPolicy { agent_id: agent.into(), ..AgentPolicy::default() }
}

async fn switch(server: &Server, name: &str, enabled: bool, message: &str) -> ToolStatus {
    let request = SetToolEnabledRequest {
        name: name.into(),
        enabled,
        message: message.into(),
        ..SetToolEnabledRequest::default()
    };
    server.tools().set_tool_enabled(request).await.unwrap().into_inner().status.unwrap()
}

async fn register(server: &Server, spec: ToolSpec) {
    let request = RegisterToolRequest { tool: Some(spec), overwrite: true, ..RegisterToolRequest::default() };
    server.tools().register_tool(request).await.unwrap();
}

fn named(name: &str) -> ToolSpec {
    ToolSpec { name: name.into(), description: format!("Does {name}."), ..ToolSpec::default() }
}

fn labelled(name: &str, labels: &[(&str, &str)]) -> ToolSpec {
    let labels: HashMap<String, String> =
        labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ToolSpec { labels, ..named(name) }
}

fn names(names: &[&str]) -> Option<AllowedTools> {
    Some(AllowedTools { names: names.iter().map(|n| (*n).to_owned()).collect() })
}

async fn list(server: &Server, request: ListAvailableToolsRequest) -> ListAvailableToolsResponse {
    server.tools().list_available_tools(request).await.unwrap().into_inner()
}

/// Names of what an agent may use now.
async fn seen_by(server: &Server, agent: &str) -> Vec<String> {
    let request =
        ListAvailableToolsRequest { agent_id: agent.into(), ..ListAvailableToolsRequest::default() };
    list(server, request).await.tools.into_iter().map(|t| t.name).collect()
}

fn refused(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}
