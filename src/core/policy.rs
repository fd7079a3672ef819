//! Agent policies: what one agent may see, as an operator stored it. A layer between the server's allowlist and the request's.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    allowlist::RequestAllowlist,
    hash::{ContentHash, hex},
    labels::Selector,
    name::{Namespace, ToolName},
};

/// Longest agent id.
pub const MAX_AGENT_ID: usize = 128;
/// Most policies of one namespace.
pub const MAX_POLICIES: usize = 10_000;

/// Names one agent: 1 to 128 of `[A-Za-z0-9_.:/@-]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Parses an id.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ok = (1..=MAX_AGENT_ID).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:/@-".contains(&b));
        if ok {
            Ok(Self(text.into()))
        } else {
            let shown = super::name::quote(text);
            Err(format!("agent_id {shown} must be 1 to {MAX_AGENT_ID} characters of [A-Za-z0-9_.:/@-]"))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sorts before every id, and is none: where a range begins.
    pub fn least() -> Self {
        Self("".into())
    }
}

impl std::fmt::Display for AgentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an operator stored about one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The agent's namespace.
    pub namespace: Namespace,
    /// The agent.
    pub agent: AgentId,
    /// What it may see.
    pub rules: Arc<Rules>,
}

/// What an agent may see. Every part restricts; deny wins. The default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Only these tools. None: no restriction.
    pub allowed: Option<RequestAllowlist>,
    /// Never these.
    pub denied: Option<RequestAllowlist>,
    /// Nothing at all.
    pub deny_all: bool,
    /// Only tools whose labels match.
    pub selector: Selector,
    /// At most so many tools; 0: no limit.
    pub max_tools: u32,
}

/// What applies to an agent without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultPolicy {
    /// It may see everything that the other layers let through.
    #[default]
    Allow,
    /// Nothing.
    Deny,
}

/// Which part of a policy keeps a tool away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The policy denies everything.
    All,
    /// It names the tool among the denied.
    Named,
    /// It has an allowlist that does not name the tool.
    NotAllowed,
    /// The tool's labels do not meet its selector.
    Labels,
    /// They do now, but the approved ones do not.
    NotApproved,
}

impl Rules {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self { deny_all: true, ..Self::default() }
    }

    /// Why an agent may not see a tool; none if it may. The selector judges the labels as they are, and the approved ones where
    /// these are others: so whoever changes labels takes away at most.
    pub fn denies(
        &self,
        namespace: &Namespace,
        name: &ToolName,
        labels: &BTreeMap<String, String>,
        approved: Option<&BTreeMap<String, String>>,
    ) -> Option<Denial> {
        let names = |list: &Option<RequestAllowlist>| list.as_ref().map(|l| l.allows(namespace, name));
        if self.deny_all {
            Some(Denial::All)
        } else if names(&self.denied) == Some(true) {
            Some(Denial::Named)
        } else if names(&self.allowed) == Some(false) {
            Some(Denial::NotAllowed)
        } else if !self.selector.matches(labels) {
            Some(Denial::Labels)
        } else {
            let unapproved = approved.is_some_and(|approved| !self.selector.matches(approved));
            unapproved.then_some(Denial::NotApproved)
        }
    }
}

impl Rules {
    /// Names the content: equal rules have equal digests, and no others have.
    pub fn digest(&self) -> u128 {
        let mut hash = ContentHash::new("toolpulse rules 1");
        self.hash_into(&mut hash);
        hash.finish()[..16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    fn hash_into(&self, hash: &mut ContentHash) {
        let Self { allowed, denied, deny_all, selector, max_tools } = self;
        for list in [allowed, denied] {
            hash.number(list.as_ref().map_or(0, |l| l.names().len() as u128 + 1));
            for name in list.iter().flat_map(|l| l.names()) {
                hash.text(name);
            }
        }
        hash.number(u128::from(*deny_all)).text(&selector.to_string()).number(u128::from(*max_tools));
    }
}

impl Policy {
    /// Hash of the content: what a writer sends back to change just what it read.
    pub fn etag(&self) -> String {
        let mut hash = ContentHash::new("toolpulse agent policy 1");
        hash.text(self.namespace.as_str()).text(self.agent.as_str());
        self.rules.hash_into(&mut hash);
        hex(&hash.finish()[..16])
    }
}

/// A tool that an operator switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// Why, for people.
    pub message: Arc<str>,
    /// Wall clock, milliseconds since 1970.
    pub since_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Option<RequestAllowlist> {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        Some(RequestAllowlist::parse(&names).unwrap())
    }

    #[test]
    fn every_part_restricts_and_deny_wins() {
        let labels = BTreeMap::from([("team".to_owned(), "search".to_owned())]);
        let tool = ToolName::parse("search").unwrap();
        let selector = |text| Selector::parse(text).unwrap();
        let none = Rules::default;
        for (rules, expected) in [
            (none(), None),
            (Rules::nothing(), Some(Denial::All)),
            (Rules { allowed: list(&["search"]), ..Rules::nothing() }, Some(Denial::All)),
            (Rules { allowed: list(&["search"]), ..none() }, None),
            (Rules { allowed: list(&["default/search"]), ..none() }, None),
            (Rules { allowed: list(&["other/search"]), ..none() }, Some(Denial::NotAllowed)),
            (Rules { allowed: list(&["other"]), ..none() }, Some(Denial::NotAllowed)),
            (Rules { allowed: list(&["search"]), denied: list(&["search"]), ..none() }, Some(Denial::Named)),
            (Rules { denied: list(&["other/search"]), ..none() }, None),
            (Rules { selector: selector("team=search"), ..none() }, None),
            (Rules { selector: selector("team=mail"), ..none() }, Some(Denial::Labels)),
        ] {
            assert_eq!(rules.denies(&Namespace::default(), &tool, &labels, None), expected, "{rules:?}");
        }
    }

    #[test]
    fn a_selector_must_match_the_labels_now_and_the_approved_ones() {
        let (mail, search, none) = (Some("mail"), Some("search"), None);
        let labels = |team: Option<&str>| -> BTreeMap<String, String> {
            team.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect()
        };
        let tool = ToolName::parse("search").unwrap();
        for (selector, approved, now, expected) in [
            ("team=search", search, search, None),
            ("team=search", mail, search, Some(Denial::NotApproved)),
            ("team=search", none, search, Some(Denial::NotApproved)),
            ("team=search", search, mail, Some(Denial::Labels)),
            ("team=search", mail, none, Some(Denial::Labels)),
            ("team!=mail", mail, none, Some(Denial::NotApproved)),
            ("!team", mail, none, Some(Denial::NotApproved)),
            ("!team", none, mail, Some(Denial::Labels)),
            ("team in (mail,search)", mail, search, None),
            ("", mail, search, None),
        ] {
            let rules = Rules { selector: Selector::parse(selector).unwrap(), ..Rules::default() };
            let denial = rules.denies(&Namespace::default(), &tool, &labels(now), Some(&labels(approved)));
            assert_eq!(denial, expected, "{selector}: approved {approved:?}, now {now:?}");
        }
    }

    #[test]
    fn etags_tell_policies_apart_and_survive_the_store() {
        let all = [
            Rules::default(),
            Rules::nothing(),
            Rules { allowed: list(&["a"]), ..Rules::default() },
            Rules { denied: list(&["a"]), ..Rules::default() },
            Rules { allowed: list(&["a", "b"]), ..Rules::default() },
            Rules { selector: Selector::parse("a").unwrap(), ..Rules::default() },
            Rules { max_tools: 1, ..Rules::default() },
        ];
        let policy = |rules| Policy {
            namespace: Namespace::default(),
            agent: AgentId::parse("support-bot").unwrap(),
            rules: Arc::new(rules),
        };
        let etags: std::collections::BTreeSet<String> =
            all.iter().map(|rules| policy(rules.clone()).etag()).collect();
        assert_eq!(etags.len(), all.len());
        for rules in all {
            let text = serde_json::to_string(&rules).unwrap();
            assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules, "{text}");
        }
    }
}
