//! Why an agent sees a tool or not, stage by stage, through the same predicate as the lists.

use std::sync::Arc;

use super::{Budget, Catalog, CatalogTool, Filter, Selection, Stage, Visibility};
use crate::core::{
    allowlist::ServerAllowlist,
    name::{DEFAULT_NAMESPACE, Namespace, ToolName},
    policy::{AgentId, Denial},
    time::Moment,
    tool::StoredTool,
};

/// The setting that says what applies to an agent without a policy.
const DEFAULT_POLICY: &str = "TOOLPULSE_DEFAULT_POLICY";
/// Most names that are offered for one that is not there.
const MAX_CLOSE: usize = 3;

/// How one stage judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The stage's name on the wire.
    pub stage: &'static str,
    /// Whether it lets the tool pass.
    pub passed: bool,
    /// UPPER_SNAKE; empty where there is nothing to say.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since: Option<Since>,
}

/// A time of either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Of this process's.
    Moment(Moment),
    /// Wall clock, milliseconds since 1970.
    WallMs(i64),
}

/// Why an agent sees a tool or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether it does.
    pub visible: bool,
    /// All stages, in order; only the first two where there is no such tool.
    pub stages: Vec<Judged>,
}

impl Judged {
    fn new(stage: &'static str, passed: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { stage, passed, reason: reason.to_owned(), message: message.into(), since: None }
    }
}

impl Catalog {
    /// Why an agent sees a tool or not. Visibility plays no part: a tool that does not work is hidden.
    pub fn explain(&self, name: &ToolName, selection: Selection, server: &ServerAllowlist) -> Explanation {
        let (namespace, agent) = (selection.namespace.clone(), selection.agent.clone());
        let filter = self.resolve(Selection { visibility: Visibility::Hide, ..selection });
        let mut stages = Vec::new();
        let Some(tool) = self.find(&namespace, name.as_str()) else {
            self.absent(name, &filter, agent, server, &mut stages);
            return Explanation { visible: false, stages };
        };
        let created = tool.stored.create_time_ms;
        let registered = Judged::new("registered", true, "", format!("by '{}'", tool.stored.owner));
        stages.push(Judged { since: (created > 0).then_some(Since::WallMs(created)), ..registered });
        stages.push(Judged::new("namespace", true, "", format!("in namespace '{namespace}'")));
        let source = agent.as_ref().map(|agent| (agent, self.policy(&namespace, agent).is_some()));
        for stage in super::selection::EACH {
            let passed = filter.passes(stage, tool, server);
            stages.push(judge(stage, passed, tool, &filter, source, server));
        }
        let reached = stages.iter().all(|stage| stage.passed);
        let cut =
            reached && filter.shape.budget != Budget::default() && self.list(&filter, server).cuts(tool);
        stages.push(match cut {
            false => Judged::new("budget", true, "", ""),
            true => Judged::new("budget", false, "OVER_BUDGET", over_budget(&filter)),
        });
        Explanation { visible: reached && !cut, stages }
    }

    /// The stages of a name that no tool of the namespace has.
    fn absent(
        &self,
        name: &ToolName,
        filter: &Filter,
        agent: Option<AgentId>,
        server: &ServerAllowlist,
        stages: &mut Vec<Judged>,
    ) {
        // Elsewhere, and only where this agent could see it: others' tools are none of its business.
        let elsewhere = self.namespaces.iter().find(|(namespace, tools)| {
            tools.tools.get(name.as_str()).is_some_and(|tool| {
                let namespace = Namespace::clone(namespace);
                let there =
                    self.resolve(Selection { namespace, agent: agent.clone(), ..Selection::default() });
                there.permits(tool, server)
            })
        });
        if let Some((other, _)) = elsewhere {
            let message = format!("tool '{name}' is in namespace '{other}', not in '{}'", filter.namespace);
            stages.push(Judged::new("registered", true, "", ""));
            stages.push(Judged::new("namespace", false, "OTHER_NAMESPACE", message));
            return;
        }
        let mut message = format!("no tool '{name}' in namespace '{}'", filter.namespace);
        let close = self.close_names(name.as_str(), filter, server);
        if !close.is_empty() {
            message.push_str(&format!("; did you mean {}?", close.join(", ")));
        }
        stages.push(Judged::new("registered", false, "NOT_REGISTERED", message));
    }

    /// Names that are nearly this one, of tools that the agent could see if they worked; the closest first.
    fn close_names(&self, name: &str, filter: &Filter, server: &ServerAllowlist) -> Vec<String> {
        let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '.'], "_");
        let wanted = plain(name);
        let farthest = (wanted.len() / 3).max(1);
        let known = self.candidates(&filter.namespace).filter(|tool| filter.permits(tool, server));
        let mut close: Vec<(usize, &str)> = known
            .map(|tool| tool.stored.key.name.as_str())
            // A distance is at least the difference in length.
            .filter(|other| other.len().abs_diff(wanted.len()) <= farthest)
            .map(|other| (strsim::osa_distance(&wanted, &plain(other)), other))
            .filter(|(distance, _)| *distance <= farthest)
            .collect();
        close.sort_unstable();
        close.into_iter().take(MAX_CLOSE).map(|(_, name)| format!("'{name}'")).collect()
    }
}

/// The command with which an operator approves a tool's labels.
pub fn approve_command(namespace: &str, name: &str) -> String {
    let command = format!("toolpulse tools approve-labels {name}");
    match namespace {
        DEFAULT_NAMESPACE => command,
        namespace => format!("{command} --namespace {namespace}"),
    }
}

/// What a budget says of a tool that it cuts.
pub(super) fn over_budget(filter: &Filter) -> String {
    let Budget { tools, tokens } = filter.shape.budget;
    let limit = match (tools, tokens) {
        (tools, 0) => format!("{tools} tools"),
        (0, tokens) => format!("about {tokens} tokens"),
        (tools, tokens) => format!("{tools} tools and about {tokens} tokens"),
    };
    format!("the list is limited to {limit}; others have a higher priority label, or an earlier name")
}

impl Filter {
    /// Reason and text of a stage that stops a tool.
    pub fn why(&self, stage: Stage, tool: &CatalogTool) -> (String, String) {
        let judged = judge_stop(stage, tool, self, None);
        (judged.reason, judged.message)
    }
}

fn judge(
    stage: Stage,
    passed: bool,
    tool: &Arc<CatalogTool>,
    filter: &Filter,
    source: Option<(&AgentId, bool)>,
    server: &ServerAllowlist,
) -> Judged {
    let label = stage.label();
    if !passed {
        return judge_stop(stage, tool, filter, source);
    }
    let passed = |reason: &str, message: String| Judged::new(label, true, reason, message);
    match stage {
        Stage::ServerAllowlist if !server.is_set() => passed("", format!("{} is not set", server.variable())),
        Stage::ServerAllowlist => passed("", format!("{} names it", server.variable())),
        Stage::Policy => match source {
            Some((agent, true)) => passed("", format!("the policy of '{agent}' lets it pass")),
            Some((agent, false)) => {
                passed("NO_POLICY", format!("'{agent}' has no policy; the default lets all pass"))
            }
            None => passed("NO_POLICY", "no agent is named; the default lets all pass".to_owned()),
        },
        Stage::Availability => {
            let (reason, message) = match &tool.status.trouble {
                Some(trouble) => (trouble.reason.as_str(), trouble.message.clone()),
                None if tool.status.probes.is_empty() => ("", "it has no probe".to_owned()),
                None => ("", String::new()),
            };
            Judged { since: since(tool), ..passed(reason, message) }
        }
        _ => passed("", String::new()),
    }
}

fn judge_stop(stage: Stage, tool: &CatalogTool, filter: &Filter, source: Option<(&AgentId, bool)>) -> Judged {
    let stop = |reason: &str, message: String| Judged::new(stage.label(), false, reason, message);
    match stage {
        Stage::ServerAllowlist => {
            stop("NOT_IN_ALLOWLIST", "the server's allowlist does not name it".to_owned())
        }
        Stage::Operator => {
            let off = tool.disabled.as_ref();
            let message = off.map_or_else(String::new, |off| match &*off.message {
                "" => "an operator disabled it".to_owned(),
                message => format!("an operator disabled it: {message}"),
            });
            Judged { since: off.map(|off| Since::WallMs(off.since_ms)), ..stop("DISABLED", message) }
        }
        Stage::Policy => {
            let whose = match source {
                Some((agent, true)) => format!("the policy of '{agent}'"),
                Some((agent, false)) => {
                    format!("'{agent}' has no policy, and the server's {DEFAULT_POLICY}=deny")
                }
                None => format!("what applies without a policy, {DEFAULT_POLICY}=deny,"),
            };
            match filter.denial(tool) {
                Some(Denial::All) | None => stop("DENY_ALL", format!("{whose} denies all tools")),
                Some(Denial::Named) => stop("DENIED", format!("{whose} denies it by name")),
                Some(Denial::NotAllowed) => {
                    stop("NOT_IN_POLICY", format!("{whose} allows others by name, not this one"))
                }
                Some(Denial::Labels) => {
                    let unmet = filter.rules.selector.unmet(&tool.stored.spec.labels).unwrap_or_default();
                    stop("POLICY_LABELS", format!("{whose} asks for labels {unmet}"))
                }
                Some(Denial::NotApproved) => {
                    let StoredTool { key, approved, .. } = &*tool.stored;
                    let unmet = approved.as_ref().and_then(|approved| filter.rules.selector.unmet(approved));
                    let unmet = unmet.unwrap_or_default();
                    let command = approve_command(key.namespace.as_str(), key.name.as_str());
                    stop(
                        "LABELS_NOT_APPROVED",
                        format!(
                            "{whose} asks for labels {unmet}; its labels meet that now, but are not approved; to approve them: {command}"
                        ),
                    )
                }
            }
        }
        Stage::Request => stop("NOT_IN_REQUEST", "the request does not name it".to_owned()),
        Stage::Labels => {
            let unmet = filter.shape.selector.unmet(&tool.stored.spec.labels).unwrap_or_default();
            stop("LABELS_DIFFER", format!("the request asks for labels {unmet}"))
        }
        Stage::Availability => {
            let (reason, message) = match &tool.status.trouble {
                Some(trouble) => (trouble.reason.as_str(), trouble.message.clone()),
                None => ("NEVER_PROBED", "it was never asked yet".to_owned()),
            };
            Judged { since: since(tool), ..stop(reason, message) }
        }
        Stage::Format => match tool.definition(filter.shape.format) {
            Err(omission) if omission.pointer.is_empty() => stop(omission.reason, omission.message.clone()),
            Err(omission) => stop(omission.reason, format!("at {}: {}", omission.pointer, omission.message)),
            Ok(_) => stop("", String::new()),
        },
        Stage::Budget => stop("OVER_BUDGET", over_budget(filter)),
    }
}

/// When the verdict last changed; that of a tool without probes never did.
fn since(tool: &CatalogTool) -> Option<Since> {
    (!tool.status.probes.is_empty()).then_some(Since::Moment(tool.status.since))
}
