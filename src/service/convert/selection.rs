//! The fields that say who asks for which tools: every RPC that shows tools to an agent has them, and parses them here.

use crate::{
    catalog::{Budget, Selection, Visibility},
    core::{
        allowlist::RequestAllowlist,
        labels::Selector,
        name::clean,
        policy::AgentId,
        refusal::{Fault, Refusal},
    },
    proto::v1,
};

/// Longest message of a switch, in characters.
const MAX_REASON: usize = 256;

/// The selection fields of a request, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// `namespace`.
    pub namespace: &'a str,
    /// `agent_id`.
    pub agent_id: &'a str,
    /// `allowed_tools`.
    pub allowed_tools: Option<&'a v1::AllowedTools>,
    /// `label_selector`.
    pub label_selector: &'a str,
    /// `format`.
    pub format: i32,
    /// `visibility`.
    pub visibility: i32,
    /// `max_tools`.
    pub max_tools: u32,
    /// `max_tokens`.
    pub max_tokens: u32,
}

impl Asked<'_> {
    /// The selection; wrong fields are added to `faults`, and count as left out.
    pub fn parse(&self, faults: &mut Vec<Fault>) -> Selection {
        let mut keep = Keep(faults);
        Selection {
            namespace: keep.one(super::namespace(self.namespace)),
            agent: keep.one(agent("agent_id", self.agent_id)),
            format: keep.one(super::schema_format(self.format)),
            allowed: keep.all(allowed(self.allowed_tools)),
            selector: keep.one(selector("label_selector", self.label_selector)),
            budget: Budget { tools: self.max_tools, tokens: self.max_tokens },
            visibility: keep.one(visibility(self.visibility)),
        }
    }

    /// The selection.
    ///
    /// # Errors
    /// All wrong fields.
    pub fn selection(&self) -> Result<Selection, Refusal> {
        let mut faults = Vec::new();
        let selection = self.parse(&mut faults);
        if faults.is_empty() { Ok(selection) } else { Err(Refusal::Invalid(faults)) }
    }
}

struct Keep<'f>(&'f mut Vec<Fault>);

impl Keep<'_> {
    fn one<T: Default>(&mut self, judged: Result<T, Fault>) -> T {
        self.all(judged.map_err(|fault| vec![fault]))
    }

    fn all<T: Default>(&mut self, judged: Result<T, Vec<Fault>>) -> T {
        judged.unwrap_or_else(|wrong| {
            self.0.extend(wrong);
            T::default()
        })
    }
}

/// Parses an agent's id; none if it is empty.
///
/// # Errors
/// A fault at `field`.
pub fn agent(field: &str, text: &str) -> Result<Option<AgentId>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    AgentId::parse(text).map(Some).map_err(|message| Fault::new(field, message))
}

/// Parses a label selector.
///
/// # Errors
/// A fault at `field`.
pub fn selector(field: &str, text: &str) -> Result<Selector, Fault> {
    Selector::parse(text).map_err(|message| Fault::new(field, message))
}

/// Parses `allowed_tools`.
///
/// # Errors
/// All wrong names, or that there are none.
pub fn allowed(given: Option<&v1::AllowedTools>) -> Result<Option<RequestAllowlist>, Vec<Fault>> {
    given.map(|list| RequestAllowlist::parse_at("allowed_tools.names", &list.names)).transpose()
}

/// Parses the message of SetToolEnabled.
///
/// # Errors
/// A fault at `message`.
pub fn switch_message(enabled: bool, text: &str) -> Result<String, Fault> {
    let count = text.chars().count();
    if enabled && !text.is_empty() {
        return Err(Fault::new("message", "must be empty where enabled is true"));
    }
    if count > MAX_REASON {
        return Err(Fault::new(
            "message",
            format!("has {count} characters; at most {MAX_REASON} are allowed"),
        ));
    }
    Ok(clean(text, MAX_REASON))
}

/// A visibility on the wire.
pub fn visibility_to_proto(visibility: Visibility) -> v1::Visibility {
    match visibility {
        Visibility::Hide => v1::Visibility::Hide,
        Visibility::Stable => v1::Visibility::Stable,
    }
}

fn visibility(value: i32) -> Result<Visibility, Fault> {
    Ok(match super::scalar::known("visibility", value)? {
        v1::Visibility::Unspecified | v1::Visibility::Hide => Visibility::Hide,
        v1::Visibility::Stable => Visibility::Stable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_told_together() {
        let none = v1::AllowedTools::default();
        let asked = Asked {
            namespace: "A",
            agent_id: "a b",
            allowed_tools: Some(&none),
            label_selector: "a in",
            format: 99,
            visibility: 7,
            ..Asked::default()
        };
        let Err(Refusal::Invalid(faults)) = asked.selection() else { panic!("accepted") };
        let fields: Vec<&str> = faults.iter().map(|f| f.field.as_str()).collect();
        assert_eq!(
            fields,
            ["namespace", "agent_id", "format", "allowed_tools.names", "label_selector", "visibility"]
        );
        assert!(Asked::default().selection().is_ok());
    }

    #[test]
    fn messages_of_switches() {
        assert_eq!(switch_message(false, "broken\nsince").as_deref(), Ok("brokensince"));
        assert!(switch_message(true, "x").is_err());
        assert!(switch_message(false, &"\u{e4}".repeat(256)).is_ok());
        assert!(switch_message(false, &"a".repeat(257)).is_err());
    }
}
