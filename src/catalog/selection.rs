//! Who asks for what, and the one predicate that says what they get: every reply that carries tools to an agent goes through
//! [`Filter::stopped_at`].

use std::sync::Arc;

use super::{Catalog, CatalogTool};
use crate::{
    core::{
        allowlist::{RequestAllowlist, ServerAllowlist},
        labels::Selector,
        name::Namespace,
        policy::{AgentId, Denial, Rules},
        tool::StoredTool,
    },
    render::Format,
};

/// Who asks for what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Where.
    pub namespace: Namespace,
    /// Who. None: an agent without a policy.
    pub agent: Option<AgentId>,
    /// In which form.
    pub format: Format,
    /// The request's own restriction to names.
    pub allowed: Option<RequestAllowlist>,
    /// The request's own restriction to labels.
    pub selector: Selector,
    /// How much it may be.
    pub budget: Budget,
    /// What becomes of tools that do not work now.
    pub visibility: Visibility,
}

/// How much a list may hold. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Tools.
    pub tools: u32,
    /// Estimated tokens of the whole array.
    pub tokens: u32,
}

/// What becomes of tools that are allowed and do not work now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// They are left out.
    #[default]
    Hide,
    /// They stay in the array, whose bytes then outlive a flap; a second piece names those that work.
    Stable,
}

/// What a selection means now.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Where.
    pub namespace: Namespace,
    /// All but the names, by content.
    pub shape: Shape,
    pub(super) rules: Arc<Rules>,
    pub(super) allowed: Option<RequestAllowlist>,
}

/// What a selection means now, but for its namespace and names, by content: agents whose shapes are equal share their lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// In which form.
    pub format: Format,
    /// As used: a format without the second piece hides.
    pub visibility: Visibility,
    /// The smaller of the request's and the policy's.
    pub budget: Budget,
    /// Digest of what the policy does to a single tool.
    pub(super) rules: u128,
    pub(super) selector: Selector,
}

/// The stages that a tool passes on its way to an agent, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The server's allowlist.
    ServerAllowlist,
    /// The operators' switch.
    Operator,
    /// The agent's policy, or what applies without one.
    Policy,
    /// The request's allowlist.
    Request,
    /// The request's label selector.
    Labels,
    /// The probes.
    Availability,
    /// Whether the asked form can express it.
    Format,
    /// The budgets: these judge the whole list, after all others.
    Budget,
}

/// The stages that judge a tool by itself.
pub(super) const EACH: [Stage; 7] = [
    Stage::ServerAllowlist,
    Stage::Operator,
    Stage::Policy,
    Stage::Request,
    Stage::Labels,
    Stage::Availability,
    Stage::Format,
];

impl Stage {
    /// Its name on the wire.
    pub fn label(self) -> &'static str {
        match self {
            Self::ServerAllowlist => "server_allowlist",
            Self::Operator => "operator",
            Self::Policy => "policy",
            Self::Request => "request",
            Self::Labels => "labels",
            Self::Availability => "availability",
            Self::Format => "format",
            Self::Budget => "budget",
        }
    }
}

impl Catalog {
    /// What a selection means now.
    pub fn resolve(&self, selection: Selection) -> Filter {
        let Selection { namespace, agent, format, allowed, selector, budget, visibility } = selection;
        let policy = agent.and_then(|agent| self.policies.get(&(namespace.clone(), agent)));
        let (rules, max_tools) = match policy {
            Some(entry) => (&entry.rules, entry.policy.rules.max_tools),
            None => (&self.without_policy, 0),
        };
        let tools = match (budget.tools, max_tools) {
            (0, limit) | (limit, 0) => limit,
            (asked, limit) => asked.min(limit),
        };
        let visibility = if format.names_allowed() { visibility } else { Visibility::Hide };
        let budget = Budget { tools, ..budget };
        let shape = Shape { format, visibility, budget, rules: rules.digest, selector };
        Filter { namespace, shape, rules: Arc::clone(&rules.rules), allowed }
    }
}

impl Filter {
    /// The one predicate: the first stage that keeps a tool from the agent, or none. Allowlists come before availability, so
    /// that a tool that does not work is never called unknown.
    pub fn stopped_at(&self, tool: &CatalogTool, server: &ServerAllowlist) -> Option<Stage> {
        EACH.into_iter().find(|stage| !self.passes(*stage, tool, server))
    }

    /// The names of all tools that it lets pass, sorted, where the request or the policy names them.
    pub(super) fn named(&self) -> Option<Vec<&str>> {
        let lists = [self.allowed.as_ref(), self.rules.allowed.as_ref()];
        let shortest = lists.into_iter().flatten().min_by_key(|list| list.names().len())?;
        let mut names: Vec<&str> = shortest.names_in(&self.namespace).collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// Whether a tool belongs into the array of definitions.
    pub(super) fn holds(&self, tool: &CatalogTool, server: &ServerAllowlist) -> bool {
        let dead_too = self.shape.visibility == Visibility::Stable;
        EACH.into_iter()
            .all(|stage| dead_too && stage == Stage::Availability || self.passes(stage, tool, server))
    }

    /// Whether the agent may know that there is such a tool.
    pub fn may_know(&self, tool: &CatalogTool) -> bool {
        self.denial(tool).is_none()
    }

    /// Whether the agent could see the tool if it worked: what no reply but an operator's tells of others.
    pub fn permits(&self, tool: &CatalogTool, server: &ServerAllowlist) -> bool {
        !matches!(
            self.stopped_at(tool, server),
            Some(Stage::ServerAllowlist | Stage::Operator | Stage::Policy | Stage::Request | Stage::Labels)
        )
    }

    /// Whether one stage lets a tool pass. The budgets judge no single tool.
    pub(super) fn passes(&self, stage: Stage, tool: &CatalogTool, server: &ServerAllowlist) -> bool {
        let (namespace, name) = (&self.namespace, &tool.stored.key.name);
        match stage {
            Stage::ServerAllowlist => server.allows(namespace, name),
            Stage::Operator => tool.disabled.is_none(),
            Stage::Policy => self.denial(tool).is_none(),
            Stage::Request => self.allowed.as_ref().is_none_or(|allowed| allowed.allows(namespace, name)),
            Stage::Labels => self.shape.selector.matches(&tool.stored.spec.labels),
            Stage::Availability => tool.is_available(),
            Stage::Format => tool.definition(self.shape.format).is_ok(),
            Stage::Budget => true,
        }
    }

    pub(super) fn denial(&self, tool: &CatalogTool) -> Option<Denial> {
        let StoredTool { key, spec, approved, .. } = &*tool.stored;
        self.rules.denies(&self.namespace, &key.name, &spec.labels, approved.as_deref())
    }
}
