//! A tool's definition in the form that one family of APIs takes. Works on texts, so that the author's property order and
//! number literals come out as they went in.

mod mcp;
mod openai;

use std::borrow::Cow;

use crate::core::{
    hash::{ContentHash, hex},
    name::ToolKey,
    schema,
    tool::ToolSpec,
};

/// Longest name that OpenAI takes.
const MAX_OPENAI_NAME: usize = 64;
/// How much of a name is left in its mapped form: 64 less `_` and 8 digits.
const MAPPED_PREFIX: usize = 55;

/// The form of tool definitions that one family of APIs takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The `tools` of an MCP tools/list result.
    Mcp,
    /// The `tools` of OpenAI's chat completions.
    OpenAiChat,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Mcp, Self::OpenAiChat];

    /// The format's name, for hashes, metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::OpenAiChat => "openai_chat",
        }
    }

    /// The name inside the definition: what the model will say. The same for ever, whatever else is registered.
    pub fn exposed_name(self, key: &ToolKey) -> Cow<'_, str> {
        self.mapped_name(key).map_or(Cow::Borrowed(key.name.as_str()), Cow::Owned)
    }

    /// The name that takes the place of one that this format refuses; none if it admits the registered name.
    pub fn mapped_name(self, key: &ToolKey) -> Option<String> {
        let name = key.name.as_str();
        match self {
            Self::Mcp => None,
            Self::OpenAiChat => {
                let admitted = name.len() <= MAX_OPENAI_NAME && name.bytes().all(is_openai);
                (!admitted).then(|| map(key))
            }
        }
    }

    /// The definition as compact JSON text.
    pub fn definition(self, key: &ToolKey, spec: &ToolSpec) -> String {
        match self {
            Self::Mcp => mcp::definition(spec),
            Self::OpenAiChat => openai::definition(&self.exposed_name(key), spec),
        }
    }
}

fn is_openai(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
}

/// The first characters made harmless, and a hash that keeps the names of different tools apart.
fn map(key: &ToolKey) -> String {
    let mut hash = ContentHash::new("toolpulse exposed name 1");
    hash.text(key.namespace.as_str()).text(key.name.as_str());
    let prefix = key.name.as_str().bytes().take(MAPPED_PREFIX);
    let harmless: String = prefix.map(|b| if is_openai(b) { char::from(b) } else { '_' }).collect();
    format!("{harmless}_{}", hex(&hash.finish()[..4]))
}

/// Writes one object, member by member.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    /// A member whose value is JSON text.
    fn json(&mut self, key: &str, value: &str) -> &mut Self {
        self.verbatim(&format!("{}:{value}", schema::string(key)))
    }

    /// A member whose value is a string; left out if that is empty.
    fn text(&mut self, key: &str, value: &str) -> &mut Self {
        if value.is_empty() { self } else { self.json(key, &schema::string(value)) }
    }

    /// A member whose value is an owner's JSON text; left out if that is empty.
    fn given(&mut self, key: &str, value: &str) -> &mut Self {
        if value.is_empty() { self } else { self.json(key, &schema::minify(value)) }
    }

    /// Members that are written already.
    fn verbatim(&mut self, members: &str) -> &mut Self {
        if !members.is_empty() {
            if self.0.len() > 1 {
                self.0.push(',');
            }
            self.0.push_str(members);
        }
        self
    }

    fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.0);
        text.push('}');
        text
    }
}

#[cfg(test)]
mod tests;
