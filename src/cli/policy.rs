//! `policy`: what agents may see at most.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Client, Failure,
    client::{self, CALL, request},
    print,
};
use crate::{
    config::ClientSettings,
    proto::v1::{
        AgentPolicy, AllowedTools, DeleteAgentPolicyRequest, GetAgentPolicyRequest, ListAgentPoliciesRequest,
        SetAgentPolicyRequest,
    },
};

/// Policies on a page: the most that ListAgentPolicies gives.
const PAGE: i32 = 1_000;

pub(super) type PolicyArgs = Client<PolicyCommand>;

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show an agent's policy
    Get {
        /// The agent's id
        agent: String,
    },
    /// List the policies of the namespace
    List,
    /// Put an agent's policy in force, as a whole: what is left out is no restriction
    Set(SetArgs),
    /// Delete an agent's policy: the server's default applies to it then
    Delete {
        /// The agent's id
        agent: String,
        /// Only if this is the policy's etag
        #[arg(long, default_value = "", hide_default_value = true)]
        etag: String,
    },
}

/// An agent's policy.
#[derive(Clone, Debug, Args)]
pub struct SetArgs {
    /// The agent's id
    pub agent: String,
    /// Only these tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub allow: Option<Vec<String>>,
    /// Never these tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub deny: Vec<String>,
    /// No tool at all
    #[arg(long)]
    pub deny_all: bool,
    /// Only tools whose labels match: team=search,tier!=beta,region in (eu,us),!internal
    #[arg(long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    pub selector: String,
    /// At most so many tools
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_tools: u32,
    /// Only over the policy with this etag
    #[arg(long, default_value = "", hide_default_value = true, conflicts_with = "create_only")]
    pub etag: String,
    /// Only if the agent has no policy yet
    #[arg(long)]
    pub create_only: bool,
}

pub(super) async fn run(command: PolicyCommand, settings: &ClientSettings) -> Result<(), Failure> {
    match command {
        PolicyCommand::Get { agent } => get(agent, settings).await,
        PolicyCommand::List => list(settings).await,
        PolicyCommand::Set(args) => set(args, settings).await,
        PolicyCommand::Delete { agent, etag } => delete(agent, etag, settings).await,
    }
}

async fn get(agent_id: String, settings: &ClientSettings) -> Result<(), Failure> {
    let message = GetAgentPolicyRequest { namespace: settings.namespace.to_string(), agent_id };
    let reply = client::policies(settings).await?.get_agent_policy(request(message, CALL)).await;
    let policy = reply.map_err(|status| Failure::call(&status))?.into_inner().policy.unwrap_or_default();
    show(&policy, settings)
}

async fn set(args: SetArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let policy = AgentPolicy {
        namespace: settings.namespace.to_string(),
        agent_id: args.agent,
        allowed_tools: args.allow.map(|names| AllowedTools { names }),
        denied_tools: args.deny,
        deny_all: args.deny_all,
        label_selector: args.selector,
        max_tools: args.max_tools,
        etag: args.etag,
    };
    let message = SetAgentPolicyRequest { policy: Some(policy), create_only: args.create_only };
    let reply = client::policies(settings).await?.set_agent_policy(request(message, CALL)).await;
    let policy = reply.map_err(|status| Failure::call(&status))?.into_inner().policy.unwrap_or_default();
    show(&policy, settings)
}

async fn delete(agent_id: String, etag: String, settings: &ClientSettings) -> Result<(), Failure> {
    let namespace = settings.namespace.to_string();
    let message = DeleteAgentPolicyRequest { namespace, agent_id: agent_id.clone(), etag };
    let reply = client::policies(settings).await?.delete_agent_policy(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        return print::json(&json!({"epoch": reply.epoch, "revision": reply.revision}));
    }
    print::line(&format!("the policy of '{}' is deleted", print::cell(&agent_id)))
}

async fn list(settings: &ClientSettings) -> Result<(), Failure> {
    let mut client = client::policies(settings).await?;
    let mut policies: Vec<AgentPolicy> = Vec::new();
    let mut page_token = String::new();
    loop {
        let namespace = settings.namespace.to_string();
        let message = ListAgentPoliciesRequest { namespace, page_size: PAGE, page_token };
        let page = client.list_agent_policies(request(message, CALL)).await;
        let page = page.map_err(|status| Failure::call(&status))?.into_inner();
        policies.extend(page.policies);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if settings.json {
        return print::json(&json!({"policies": policies.iter().map(policy_json).collect::<Vec<_>>()}));
    }
    let header = ["AGENT", "DENY ALL", "ALLOWED", "DENIED", "LABELS", "MAX TOOLS", "ETAG"];
    let rows: Vec<Vec<String>> = policies.iter().map(row).collect();
    print::table_or(&header, &rows, &format!("no policies in namespace '{}'", settings.namespace))
}

fn show(policy: &AgentPolicy, settings: &ClientSettings) -> Result<(), Failure> {
    if settings.json {
        return print::json(&policy_json(policy));
    }
    let [agent, deny_all, allowed, denied, labels, max_tools, etag] = cells(policy);
    let lines = [
        ("agent", agent),
        ("deny all", deny_all),
        ("allowed", allowed),
        ("denied", denied),
        ("labels", labels),
        ("max tools", max_tools),
        ("etag", etag),
    ];
    let lines = lines.map(|(name, value)| format!("{:<11}{}", format!("{name}:"), print::cell(&value)));
    print::line(&lines.join("\n"))
}

fn row(policy: &AgentPolicy) -> Vec<String> {
    cells(policy).into()
}

fn cells(policy: &AgentPolicy) -> [String; 7] {
    let allowed = policy.allowed_tools.as_ref().map(|list| list.names.join(","));
    [
        policy.agent_id.clone(),
        if policy.deny_all { "yes" } else { "no" }.to_owned(),
        allowed.unwrap_or_else(|| "all".to_owned()),
        policy.denied_tools.join(","),
        policy.label_selector.clone(),
        if policy.max_tools == 0 { String::new() } else { policy.max_tools.to_string() },
        policy.etag.clone(),
    ]
}

fn policy_json(policy: &AgentPolicy) -> Value {
    json!({
        "namespace": policy.namespace,
        "agent_id": policy.agent_id,
        "allowed_tools": policy.allowed_tools.as_ref().map(|list| &list.names),
        "denied_tools": policy.denied_tools,
        "deny_all": policy.deny_all,
        "label_selector": policy.label_selector,
        "max_tools": policy.max_tools,
        "etag": policy.etag,
    })
}
