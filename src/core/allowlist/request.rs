//! The allowlist that a request brings along.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

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

/// The names that a request or a policy restricts itself to: `name` or `namespace/name`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct RequestAllowlist(Arc<Items>);

impl Hash for RequestAllowlist {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names().hash(state);
    }
}

impl TryFrom<Vec<String>> for RequestAllowlist {
    type Error = Refusal;
    fn try_from(names: Vec<String>) -> Result<Self, Refusal> {
        Self::parse(&names)
    }
}

impl From<RequestAllowlist> for Vec<String> {
    fn from(list: RequestAllowlist) -> Self {
        list.names().to_vec()
    }
}

impl RequestAllowlist {
    /// Parses the list of a request that has one. An empty list is refused: it must never be taken for "all".
    ///
    /// # Errors
    /// Every wrong name (the first 32), at `allowed_tools.names[i]`.
    pub fn parse(names: &[String]) -> Result<Self, Refusal> {
        Self::parse_at(FIELD, names).map_err(Refusal::Invalid)
    }

    /// Parses a list that stands in another field.
    ///
    /// # Errors
    /// As [`Self::parse`], at `field`.
    pub fn parse_at(field: &str, names: &[String]) -> Result<Self, Vec<Fault>> {
        if names.is_empty() {
            let message = "is empty: name at least one tool, or leave allowed_tools out for all tools";
            return Err(vec![Fault::new(field, message)]);
        }
        if names.len() > MAX_NAMES {
            return Err(vec![Fault::new(field, format!("has {} names; at most {MAX_NAMES}", names.len()))]);
        }
        let faults: Vec<Fault> = names
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some(Fault::new(format!("{field}[{i}]"), fault(name)?)))
            .take(MAX_FAULTS)
            .collect();
        if faults.is_empty() {
            Ok(Self(Arc::new(Items::new(names.iter().map(String::as_str)))))
        } else {
            Err(faults)
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

    /// The names that a tool of a namespace may have to be wanted; one that is written both ways comes twice.
    pub fn names_in<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = &'a str> {
        let here = |at: Option<&str>| at.is_none_or(|at| at == namespace.as_str());
        self.0.parts().filter(move |(_, at, _)| here(*at)).map(|(.., name)| name)
    }

    /// The names that no tool has which `known` knows where the request looks; sorted. Costs a look-up for each name of the
    /// list, however many tools there are. A name of another namespace is none of those.
    pub fn unknown_in(&self, namespace: &Namespace, known: impl Fn(&str) -> bool) -> Vec<String> {
        let here = |at: Option<&str>| at.is_none_or(|at| at == namespace.as_str());
        let unknown = self.0.parts().filter(|(_, at, name)| !(here(*at) && known(name)));
        unknown.map(|(item, ..)| item.to_owned()).collect()
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
