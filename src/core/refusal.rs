//! Why a request is refused. The one place that knows every reason; `service::error` turns it into a gRPC status.

use std::time::Duration;

/// One wrong field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field, as in the proto: `tool.probes[2].http.url`. A JSON pointer may follow after `#`.
    pub field: String,
    /// What is wrong and what would be right. Lower case, no full stop.
    pub message: String,
}

impl Fault {
    /// A fault at `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The same fault, seen from a message that holds this one at `prefix`.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        let field = match self.field.as_str() {
            "" => prefix.to_owned(),
            inner => format!("{prefix}.{inner}"),
        };
        Self { field, ..self }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Fields are wrong: all of them, not just the first.
    #[error("{}", describe(.0))]
    Invalid(Vec<Fault>),
    /// There is no such tool.
    #[error("no tool '{name}' in namespace '{namespace}'")]
    ToolNotFound {
        /// The namespace that was asked for.
        namespace: String,
        /// The name that was asked for.
        name: String,
    },
    /// There is no such policy.
    #[error("no policy for agent '{agent_id}' in namespace '{namespace}'")]
    PolicyNotFound {
        /// The namespace that was asked for.
        namespace: String,
        /// The agent that was asked for.
        agent_id: String,
    },
    /// The policy is not the one that the writer read.
    #[error("{}", mismatch(agent_id, given, current))]
    EtagMismatch {
        /// The agent.
        agent_id: String,
        /// The etag that the writer read.
        given: String,
        /// The etag in force; empty if there is no policy.
        current: String,
    },
    /// The agent has a policy, where one was only to be created.
    #[error(
        "agent '{agent_id}' has a policy already; its etag is '{current}': read it, and replace it without create_only"
    )]
    PolicyExists {
        /// The agent.
        agent_id: String,
        /// The etag in force.
        current: String,
    },
    /// The tool has no probe of that name.
    #[error("tool '{name}' has no probe '{probe}'; its probes: {known}")]
    ProbeNotFound {
        /// The tool.
        name: String,
        /// The probe that was asked for.
        probe: String,
        /// The names it has.
        known: String,
    },
    /// The name is taken.
    #[error(
        "tool '{name}' is already registered by '{owner}' with {difference}; set overwrite to replace it"
    )]
    AlreadyExists {
        /// The tool.
        name: String,
        /// Who holds it.
        owner: String,
        /// `a different spec` or `the same spec`.
        difference: &'static str,
    },
    /// Another owner holds the tool.
    #[error("tool '{name}' belongs to '{owner}', not to '{caller}'; set force to replace it all the same")]
    OwnerMismatch {
        /// The tool.
        name: String,
        /// Who holds it.
        owner: String,
        /// Who asked.
        caller: String,
    },
    /// The server's manifest declares the tool: no call may change it.
    #[error("tool '{name}' is declared in the server's manifest; change it there, or choose another name")]
    DeclaredTool {
        /// The tool.
        name: String,
    },
    /// Another tool of the batch was rejected and the batch was all or nothing.
    #[error("not registered because another tool of the batch was rejected (all_or_nothing)")]
    BatchRejected,
    /// The result is about a spec that is no longer, or not yet, the current one.
    #[error("generation {given} of tool '{name}' is not current; the current one is {current}")]
    StaleGeneration {
        /// The tool.
        name: String,
        /// The generation that the report named.
        given: u64,
        /// The current one.
        current: u64,
    },
    /// The probe is one that the server runs itself.
    #[error("probe '{probe}' of tool '{name}' is a {kind} probe; only report probes take reports")]
    NotAReportProbe {
        /// The tool.
        name: String,
        /// The probe.
        probe: String,
        /// Its kind.
        kind: &'static str,
    },
    /// The tool has no probes to run.
    #[error("tool '{name}' has no probes: it is always available")]
    NoProbes {
        /// The tool.
        name: String,
    },
    /// The tool was replaced or unregistered while somebody waited for its probes.
    #[error("tool '{name}' was replaced or unregistered meanwhile")]
    ToolChanged {
        /// The tool.
        name: String,
    },
    /// A bound is reached.
    #[error("{what}: at most {limit}")]
    Exhausted {
        /// UPPER_SNAKE reason.
        reason: &'static str,
        /// What there is too much of.
        what: String,
        /// How much there may be.
        limit: u64,
    },
    /// So many watches are open already.
    #[error("too many watches {whose}: at most {limit}; watch less, or try again later")]
    TooManyWatches {
        /// `are open` or `are open from this address`.
        whose: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// So many calls wait for probes already.
    #[error("too many calls wait for probes: at most {limit}; try again later")]
    TooManyProbes {
        /// How many may wait.
        limit: usize,
    },
    /// A strict list would say less than was registered.
    #[error("format {format} can't say {count} things of the tools as they were registered: {first}")]
    FormatLossy {
        /// The format's name.
        format: &'static str,
        /// How many tools are omitted, and how many losses there are.
        count: usize,
        /// The first of them.
        first: String,
    },
    /// Not every probe had its first turn since the start.
    #[error("the registry is settling: not every probe had its turn yet")]
    Settling {
        /// When to try again.
        retry_after: Duration,
    },
    /// The store takes no writes now.
    #[error("the store refuses writes: {message}")]
    StoreUnavailable {
        /// What the store says.
        message: String,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// A newer publish stream holds the gateway.
    #[error("a newer stream publishes gateway '{gateway_id}'")]
    Superseded {
        /// The gateway.
        gateway_id: String,
    },
}

impl Refusal {
    /// A refusal for one wrong field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault::new(field, message)])
    }

    /// The same refusal of a message's part, seen from the message that holds it at `prefix`.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        match self {
            Self::Invalid(faults) => {
                Self::Invalid(faults.into_iter().map(|fault| fault.under(prefix)).collect())
            }
            other => other,
        }
    }
}

fn mismatch(agent: &str, given: &str, current: &str) -> String {
    match current {
        "" => format!(
            "agent '{agent}' has no policy, so none with etag '{given}'; leave the etag out to create one"
        ),
        _ => format!(
            "the policy of agent '{agent}' is another one by now: its etag is '{current}', not '{given}'; read it again"
        ),
    }
}

fn describe(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(|f| format!("{}: {}", f.field, f.message)).collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_that_none_has_is_told_apart_from_another_ones() {
        for (current, expected) in [
            ("", "agent 'bot' has no policy, so none with etag 'x'; leave the etag out to create one"),
            ("y", "the policy of agent 'bot' is another one by now: its etag is 'y', not 'x'; read it again"),
        ] {
            let refusal = Refusal::EtagMismatch {
                agent_id: "bot".to_owned(),
                given: "x".to_owned(),
                current: current.to_owned(),
            };
            assert_eq!(refusal.to_string(), expected);
        }
    }
}
