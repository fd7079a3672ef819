//! The allowlist that a request brings along.

use super::items::Items;
use crate::core::{
    name::{Namespace, ToolKey, ToolName},
    refusal::{Fault, Refusal},
};

/// Most names in a request's allowlist.
const MAX_NAMES: usize = 10_000;
/// Most faults that are told of one list: enough to mend it, and a status has to fit into response headers.
const MAX_FAULTS: usize = 32;
const FIELD: &str = "allowed_tools.names";

/// The names that a request restricts itself to: `name` or `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAllowlist(Items);

impl RequestAllowlist {
    /// Parses the list of a request that has one. An empty list is refused: it must never be taken for "all".
    ///
    /// # Errors
    /// Every wrong name (the first 32), at `allowed_tools.names[i]`.
    pub fn parse(names: &[String]) -> Result<Self, Refusal> {
        if names.is_empty() {
            return Err(Refusal::invalid(
                FIELD,
                "is empty: name at least one tool, or leave allowed_tools out for all tools",
            ));
        }
        if names.len() > MAX_NAMES {
            return Err(Refusal::invalid(FIELD, format!("has {} names; at most {MAX_NAMES}", names.len())));
        }
        let faults: Vec<Fault> = names
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some(Fault::new(format!("{FIELD}[{i}]"), fault(name)?)))
            .take(MAX_FAULTS)
            .collect();
        if faults.is_empty() {
            Ok(Self(Items::new(names.iter().map(String::as_str))))
        } else {
            Err(Refusal::Invalid(faults))
        }
    }

    /// Whether the request wants to see the tool.
    pub fn allows(&self, namespace: &Namespace, name: &ToolName) -> bool {
        self.0.allows(namespace, name)
    }

    /// The names, sorted and each once.
    pub fn names(&self) -> &[String] {
        self.0.names()
    }

    /// The names that none of the tools has; sorted. `registered` are the tools where the request looks.
    pub fn unknown<'a>(&self, registered: impl IntoIterator<Item = &'a ToolKey>) -> Vec<String> {
        self.0.unknown(registered)
    }
}

fn fault(item: &str) -> Option<String> {
    if item.trim().is_empty() {
        return Some("is blank; must be a tool's name or namespace/name".to_owned());
    }
    let Some((namespace, name)) = item.split_once('/') else {
        return ToolName::parse(item).err();
    };
    if namespace.is_empty() {
        return Some("has no namespace before '/'; must be a tool's name or namespace/name".to_owned());
    }
    Namespace::parse(namespace).err().or_else(|| ToolName::parse(name).err())
}
