//! Flags that say who asks for which tools, as an agent would.

use clap::Args;

use super::tools::Format;
use crate::proto::v1::AllowedTools;

/// Who asks for which tools.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// As this agent: its policy applies
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub agent: String,
    /// Only these names, as an agent's allowlist would have it
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub allowed: Option<Vec<String>>,
    /// Only tools whose labels match: team=search,tier!=beta,region in (eu,us),!internal
    #[arg(long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    pub selector: String,
    /// Form of the definitions
    #[arg(long, value_enum, default_value_t = Format::Mcp)]
    pub format: Format,
}

/// How much a list may hold.
#[derive(Clone, Copy, Debug, Args)]
pub struct BudgetArgs {
    /// At most so many tools: the label priority, then the name, decides which
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_tools: u32,
    /// At most so many tokens, by estimate
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_tokens: u32,
}

impl AgentArgs {
    /// The request's allowlist.
    pub(super) fn allowed(&self) -> Option<AllowedTools> {
        self.allowed.clone().map(|names| AllowedTools { names })
    }

    /// The request's format.
    pub(super) fn format(&self) -> i32 {
        self.format.to_proto().into()
    }
}
