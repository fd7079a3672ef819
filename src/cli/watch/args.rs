//! The flags of `tools watch`.

use clap::Args;

use super::{AgentTools, AllTools};
use crate::{
    cli::{
        Failure,
        tools::{Format, Seen},
    },
    config::ClientSettings,
    proto::v1::{AllowedTools, WatchAvailableToolsRequest, WatchToolsRequest},
};

/// Which tools to watch, and for whom.
#[derive(Clone, Debug, Args)]
pub struct WatchArgs {
    /// Only tools whose labels match: team=search,tier!=beta,region in (eu,us),!internal
    #[arg(long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    pub selector: String,
    /// Only this owner's tools
    #[arg(long, default_value = "", hide_default_value = true, conflicts_with = "agent")]
    pub owner: String,
    /// The tools that this agent may use, as it watches them; '' for one without a name
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Only these names, as an agent's allowlist would have it
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "agent")]
    pub allowed: Option<Vec<String>>,
    /// Form of the definitions [default: mcp]
    #[arg(long, value_enum, requires = "agent")]
    pub format: Option<Format>,
    /// What becomes of tools that do not work now [default: hide]
    #[arg(long, value_enum, requires = "agent")]
    pub visibility: Option<Seen>,
    /// At most so many tools: the label priority, then the name, decides which
    #[arg(long, value_name = "N", requires = "agent")]
    pub max_tools: Option<u32>,
    /// At most so many tokens, by estimate
    #[arg(long, value_name = "N", requires = "agent")]
    pub max_tokens: Option<u32>,
}

impl WatchArgs {
    /// Watches as operators do, or as the agent that was named.
    pub(in crate::cli) async fn run(self, settings: &ClientSettings) -> Result<(), Failure> {
        let (server, namespace) = (settings.server.clone(), settings.namespace.to_string());
        let Some(agent_id) = self.agent else {
            let request = WatchToolsRequest {
                namespace,
                label_selector: self.selector,
                owner: self.owner,
                resume: None,
            };
            return super::run(AllTools { server, request }, settings).await;
        };
        let request = WatchAvailableToolsRequest {
            namespace,
            agent_id,
            allowed_tools: self.allowed.map(|names| AllowedTools { names }),
            label_selector: self.selector,
            format: self.format.unwrap_or(Format::Mcp).to_proto().into(),
            visibility: self.visibility.unwrap_or(Seen::Hide).to_proto().into(),
            max_tools: self.max_tools.unwrap_or(0),
            max_tokens: self.max_tokens.unwrap_or(0),
            resume: None,
        };
        super::run(AgentTools { server, request }, settings).await
    }
}
