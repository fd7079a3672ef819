//! What the allowlists do, under the seeds' keys.

use super::RequestAllowlist;
use crate::core::{
    name::{DEFAULT_NAMESPACE, Namespace, ToolKey},
    python,
};

/// Most names in one log line: a registry may hold 100,000 of them in each namespace.
pub(super) const MAX_LOGGED_NAMES: usize = 1_000;

/// What the allowlists do to the registered tools. The lists are sorted.
///
/// Where all namespaces are asked for, a name is printed as `namespace/name`, except in `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The variable that the server's allowlist came from, or would come from.
    pub env_var_name: String,
    /// Its value as it was read.
    pub env_value: Option<String>,
    /// Whether unknown names stop the start.
    pub is_ci: bool,
    /// The names of the server's allowlist; `None` without one.
    pub whitelist: Option<Vec<String>>,
    /// The registered tools.
    pub registered_before_filter: Vec<String>,
    /// Those that pass.
    pub registered_after_filter: Vec<String>,
    /// Those that do not.
    pub dropped_tools: Vec<String>,
    /// Names of an allowlist that no registered tool has.
    pub unknown_tools: Vec<String>,
}

/// Who looks where.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a Namespace>,
    /// A request's allowlist to intersect with.
    pub request: Option<&'a RequestAllowlist>,
    /// Whether whoever looks may know of a tool; the others are not there.
    pub may_know: &'a dyn Fn(&ToolKey) -> bool,
}

impl Default for View<'_> {
    fn default() -> Self {
        Self { namespace: None, request: None, may_know: &|_| true }
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Diagnostics {
    /// The block that the seeds log at a start, line by line.
    pub fn block(&self) -> Vec<String> {
        let rule = "=".repeat(50);
        let list = |key: &str, names: &[String]| {
            format!("{key}={}", python::repr_list_bounded(names, MAX_LOGGED_NAMES))
        };
        vec![
            rule.clone(),
            "ALLOWED_TOOLS FILTER DIAGNOSTICS".to_owned(),
            rule.clone(),
            format!("{}={}", self.env_var_name, self.env_value.as_deref().unwrap_or("<unset>")),
            list("RegisteredBeforeFilter", &self.registered_before_filter),
            list("RegisteredAfterFilter", &self.registered_after_filter),
            list("DroppedTools", &self.dropped_tools),
            list("UnknownTools", &self.unknown_tools),
            format!("IsCI={}", python::boolean(self.is_ci)),
            rule,
        ]
    }
}

/// A tool's name as it is printed where `asked`, or all namespaces, were asked for.
pub(super) fn shown(key: &ToolKey, asked: Option<&Namespace>) -> String {
    if asked.is_some() || key.namespace.as_str() == DEFAULT_NAMESPACE {
        key.name.to_string()
    } else {
        key.to_string()
    }
}
