//! Which tools may be seen at all: the server's allowlist (from the environment) and the request's.
//!
//! The environment comes in as values and log lines go out as values. Texts and keys that the seeds have are theirs to the
//! byte. "Registered" always means registered, not available: a tool whose probe fails is never an unknown one.

mod diagnostics;
mod items;
mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    diagnostics::{Diagnostics, View},
    request::RequestAllowlist,
};
use self::{
    diagnostics::{MAX_LOGGED_NAMES, shown},
    items::Items,
};
use super::{
    name::{Namespace, ToolKey, ToolName},
    python,
};

/// The variable of those who configure no other.
pub const ALLOWED_TOOLS: &str = "ALLOWED_TOOLS";
/// The variable's deprecated name.
pub const HERMES_ONLY_TOOLS: &str = "HERMES_ONLY_TOOLS";
/// The setting that lets a strict start wait for tools that are registered after it.
pub const STRICT_WAIT: &str = "TOOLPULSE_STRICT_WAIT";

/// What the allowlist depends on in the server's environment. `None` is a variable that is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `ALLOWED_TOOLS`.
    pub allowed_tools: Option<String>,
    /// `HERMES_ONLY_TOOLS`.
    pub hermes_only_tools: Option<String>,
    /// `CI`.
    pub ci: Option<String>,
    /// Name and value of the variable that is configured instead of `ALLOWED_TOOLS`.
    pub custom: Option<(String, Option<String>)>,
}

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For those who look for a fault.
    Debug,
    /// For the record.
    Info,
    /// Somebody should change something.
    Warn,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How loud.
    pub level: Level,
    /// The text.
    pub text: String,
}

impl Line {
    fn info(text: impl Into<String>) -> Self {
        Self { level: Level::Info, text: text.into() }
    }

    fn warn(text: impl Into<String>) -> Self {
        Self { level: Level::Warn, text: text.into() }
    }
}

/// The server's allowlist: read from the environment once, at the start.
#[derive(Clone, Debug)]
pub struct ServerAllowlist {
    /// The variable that it came from, or would come from.
    variable: String,
    /// The variable's value as it was read.
    value: Option<String>,
    is_ci: bool,
    /// `None`: all tools are visible.
    items: Option<Items>,
}

impl ServerAllowlist {
    /// Reads the environment. The lines are for the log.
    ///
    /// # Errors
    /// The start-up error, where a variable is set and names no tool.
    pub fn from_environment(environment: &Environment) -> Result<(Self, Vec<Line>), String> {
        let (primary, value) = match &environment.custom {
            Some((name, value)) => (name.as_str(), value),
            None => (ALLOWED_TOOLS, &environment.allowed_tools),
        };
        let legacy = &environment.hermes_only_tools;
        // Presence decides, not content: an empty variable must not silently hand over to the other one.
        let (variable, value) = match (value, legacy) {
            (None, Some(_)) => (HERMES_ONLY_TOOLS, legacy),
            _ => (primary, value),
        };
        let items = value.as_deref().map(|value| parse(variable, value)).transpose()?;

        let mut lines = Vec::new();
        if let Some(items) = &items {
            if variable == HERMES_ONLY_TOOLS {
                let instead = if primary == HERMES_ONLY_TOOLS { ALLOWED_TOOLS } else { primary };
                lines.push(Line::warn(format!("{HERMES_ONLY_TOOLS} is deprecated. Use {instead} instead.")));
            } else if legacy.as_deref().is_some_and(|legacy| &Items::new(split(legacy)) != items) {
                lines.push(Line::warn(format!(
                    "{variable} and {HERMES_ONLY_TOOLS} are both set and differ. {variable} is used, {HERMES_ONLY_TOOLS} is ignored."
                )));
            }
        }
        let is_ci = environment.ci.as_deref().is_some_and(is_truthy);
        Ok((Self { variable: variable.to_owned(), value: value.clone(), is_ci, items }, lines))
    }

    /// Whether there is an allowlist; without one, all tools are visible.
    pub fn is_set(&self) -> bool {
        self.items.is_some()
    }

    /// Whether names that no tool has stop the start.
    pub fn is_ci(&self) -> bool {
        self.is_ci
    }

    /// The variable that the allowlist came from, or would come from.
    pub fn variable(&self) -> &str {
        &self.variable
    }

    /// Whether agents may see the tool. Asked for every tool of every list.
    pub fn allows(&self, namespace: &Namespace, name: &ToolName) -> bool {
        self.items.as_ref().is_none_or(|items| items.allows(namespace, name))
    }

    /// Its names that no registered tool has, in any namespace; sorted. `registered` are all tools of the server.
    pub fn missing<'a>(&self, registered: impl IntoIterator<Item = &'a ToolKey>) -> Vec<String> {
        self.items.as_ref().map_or_else(Vec::new, |items| items.unknown(registered))
    }

    /// The start-up error for names that no tool has. `waited`: how long the start waited for them to be registered.
    pub fn ci_error(&self, missing: &[String], waited: Option<Duration>) -> String {
        let variable = &self.variable;
        let list = python::repr_list_bounded(missing, MAX_LOGGED_NAMES);
        let error =
            format!("Unknown tools in {variable}: {list}. All specified tools must be available in CI mode.");
        match waited {
            None => error,
            Some(waited) => format!(
                "{error} They were not registered within {STRICT_WAIT}={waited:?}; check the names with 'toolpulse allowlist check'."
            ),
        }
    }

    /// What the allowlists alone do to the registered tools of `namespace`, or of all namespaces.
    pub fn diagnostics<'a>(
        &self,
        registered: impl IntoIterator<Item = &'a ToolKey> + Clone,
        namespace: Option<&Namespace>,
        request: Option<&RequestAllowlist>,
    ) -> Diagnostics {
        self.diagnose(registered, &View { namespace, request, ..View::default() }, |_| true)
    }

    /// What the allowlists do to the registered tools that `view` looks at. `others`: whether whatever else there is lets a
    /// tool pass.
    ///
    /// `registered` are all tools of the server, also where one namespace is asked for: a name of the server's list is known
    /// as soon as any namespace has it. A name of the request's list has to be known where the request looks. A tool that
    /// may not be known of counts as none in both, since a name that is in no list at all would tell of it.
    pub fn diagnose<'a>(
        &self,
        registered: impl IntoIterator<Item = &'a ToolKey> + Clone,
        view: &View<'_>,
        others: impl Fn(&ToolKey) -> bool,
    ) -> Diagnostics {
        let View { namespace, request, may_know } = *view;
        let asked = || {
            let here = |key: &&ToolKey| namespace.is_none_or(|n| *n == key.namespace) && may_know(key);
            registered.clone().into_iter().filter(here)
        };
        let passes = |key: &ToolKey| {
            self.allows(&key.namespace, &key.name)
                && request.is_none_or(|request| request.allows(&key.namespace, &key.name))
                && others(key)
        };
        let print = |keys: &mut dyn Iterator<Item = &'a ToolKey>| {
            let mut names: Vec<String> = keys.map(|key| shown(key, namespace)).collect();
            names.sort_unstable();
            names
        };
        let mut unknown = self.missing(registered.clone().into_iter().filter(|key| may_know(key)));
        if let Some(request) = request {
            unknown.extend(request.unknown(asked()));
            unknown.sort_unstable();
            unknown.dedup();
        }
        Diagnostics {
            env_var_name: self.variable.clone(),
            env_value: self.value.clone(),
            is_ci: self.is_ci,
            whitelist: self.items.as_ref().map(|items| items.names().to_vec()),
            registered_before_filter: print(&mut asked()),
            registered_after_filter: print(&mut asked().filter(|key| passes(key))),
            dropped_tools: print(&mut asked().filter(|key| !passes(key))),
            unknown_tools: unknown,
        }
    }

    /// What a start says about the allowlist, once store and manifest are loaded; the error is the start-up error.
    ///
    /// The lines end with the diagnostics block. It is there beside an error as well: it shows the names that would be right.
    /// A start that may wait ([`STRICT_WAIT`]) calls this when [`Self::missing`] has become empty, or the time is up.
    pub fn startup_check<'a>(
        &self,
        registered: impl IntoIterator<Item = &'a ToolKey> + Clone,
    ) -> (Vec<Line>, Result<(), String>) {
        let found = self.diagnostics(registered, None, None);
        let variable = &self.variable;
        let total = found.registered_before_filter.len();
        let mut lines = Vec::new();
        let mut result = Ok(());
        if !self.is_set() {
            lines.push(Line::warn(format!(
                "Tool whitelist is unset. All {total} tools are visible. Consider using ALLOWED_TOOLS to prevent tool name collisions."
            )));
        } else if self.is_ci && !found.unknown_tools.is_empty() {
            result = Err(self.ci_error(&found.unknown_tools, None));
        } else {
            if !found.unknown_tools.is_empty() {
                let unknown = python::repr_list_bounded(&found.unknown_tools, MAX_LOGGED_NAMES);
                lines.push(Line::warn(format!("Unknown tools in {variable} will be ignored: {unknown}")));
            }
            if !found.dropped_tools.is_empty() {
                let count = found.dropped_tools.len();
                let dropped = python::repr_list_bounded(&found.dropped_tools, MAX_LOGGED_NAMES);
                lines.push(Line::info(format!(
                    "Dropped {count} tools not in {variable} whitelist: {dropped}"
                )));
            }
            let after = found.registered_after_filter.len();
            lines.push(Line::info(format!(
                "{variable} filtered tools: {total} available, {after} after filter"
            )));
        }
        lines.extend(found.block().into_iter().map(Line::info));
        (lines, result)
    }
}

/// What the seeds take for a true `CI`: no trimming, and no other words.
fn is_truthy(value: &str) -> bool {
    ["true", "1", "yes"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn parse(variable: &str, value: &str) -> Result<Items, String> {
    if python::strip(value).is_empty() {
        return Err(format!(
            "{variable} cannot be empty. Either unset it for all tools or provide a comma-separated list of tool names."
        ));
    }
    let items = Items::new(split(value));
    if items.names().is_empty() {
        return Err(format!(
            "{variable} contains no valid tool names. Provide comma-separated tool names or unset the variable."
        ));
    }
    Ok(items)
}

fn split(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(python::strip).filter(|item| !item.is_empty())
}
