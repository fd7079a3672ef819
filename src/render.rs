//! A tool's definition in the form that one family of APIs takes. Works on texts, so that the author's property order and
//! number literals come out as they went in.

mod allowed;
mod anthropic;
mod bedrock;
mod common;
mod dialect;
mod gemini;
mod gemini_openapi;
mod inline;
mod mcp;
mod merge;
mod openai;
mod owner;
mod rule;

use std::borrow::Cow;

use crate::core::{
    hash::{ContentHash, hex},
    name::ToolKey,
    schema::{self, tree::Json},
    tool::ToolSpec,
};

/// The version of all tables of rules together. Verdicts carry it: of another version they may not hold any more. It is raised
/// whenever rules come to say something else, which a test compels.
pub const RULES_VERSION: u32 = 2;

/// Longest name that any provider but MCP takes.
const MAX_NAME: usize = 64;
/// How much of a name is left in its mapped form: 64 less `_` and 8 digits.
const MAPPED_PREFIX: usize = 55;

/// The form of tool definitions that one family of APIs takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The `tools` of an MCP tools/list result.
    #[default]
    Mcp,
    /// The `tools` of OpenAI's chat completions.
    OpenAiChat,
    /// The `tools` of OpenAI's responses.
    OpenAiResponses,
    /// The `tools` of Anthropic's messages.
    Anthropic,
    /// The `tools` of Gemini, with `parametersJsonSchema`.
    Gemini,
    /// The `tools` of Gemini, with `parameters`.
    GeminiOpenApi,
    /// The `tools` of a `toolConfig` of Bedrock's Converse.
    Bedrock,
}

/// What became of a tool in one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// The provider takes it.
    Ok {
        /// The definition as compact JSON text.
        json: String,
        /// What the definition no longer says.
        losses: Vec<Loss>,
        /// Whether anything was rewritten.
        converted: bool,
    },
    /// The provider would refuse it, and with it all others.
    Omitted(Omission),
}

/// Something that a definition no longer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// JSON pointer into the input schema, as if its references were replaced by what they point to.
    pub pointer: String,
    /// What is lost.
    pub message: String,
}

/// Why a tool can't be said in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// UPPER_SNAKE: the rule.
    pub reason: &'static str,
    /// JSON pointer into the input schema, as if its references were replaced by what they point to.
    pub pointer: String,
    /// For people.
    pub message: String,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Mcp,
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::GeminiOpenApi,
        Self::Bedrock,
    ];

    /// The format's name, for hashes, metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::GeminiOpenApi => "gemini_openapi",
            Self::Bedrock => "bedrock",
        }
    }

    /// The name inside the definition: what the model will say. The same for ever, whatever else is registered.
    pub fn exposed_name(self, key: &ToolKey) -> Cow<'_, str> {
        self.mapped_name(key).map_or(Cow::Borrowed(key.name.as_str()), Cow::Owned)
    }

    /// The name that takes the place of one that this format refuses; none if it admits the registered name.
    pub fn mapped_name(self, key: &ToolKey) -> Option<String> {
        let name = key.name.as_str();
        let fits = name.len() <= MAX_NAME;
        match self {
            // MCP 2026-07-28 server/tools: what registration admits.
            Self::Mcp => None,
            // openai SDK; openai/codex#8174. anthropic: 128, but 64 in connectors and tool_reference (cloudflare/skills#11).
            // botocore: ToolName [a-zA-Z0-9_-]{1,64}.
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic | Self::Bedrock => {
                (!fits || !name.bytes().all(is_plain)).then(|| map(key))
            }
            // google-genai SDK, FunctionDeclaration.name: a letter or _, then [A-Za-z0-9_.:-]; 64 before 2026, 128 now.
            Self::Gemini | Self::GeminiOpenApi => {
                let begins = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                if fits && begins(name) {
                    return None;
                }
                let mut mapped = map(key);
                if !begins(&mapped) {
                    mapped.replace_range(..1, "_");
                }
                Some(mapped)
            }
        }
    }

    /// What stands before the definitions in a list of them, and what after; between them stands a comma. A list of none is
    /// `[]`.
    pub fn frame(self) -> (&'static str, &'static str) {
        match self {
            Self::Gemini | Self::GeminiOpenApi => (r#"[{"functionDeclarations":["#, "]}]"),
            _ => ("[", "]"),
        }
    }

    /// The definition, or why there can be none.
    pub fn render(self, key: &ToolKey, spec: &ToolSpec) -> Rendered {
        let given = if spec.input_schema.is_empty() { schema::EMPTY_INPUT } else { &spec.input_schema };
        // Whatever is stored was read before; should it not be an object, it counts as one that says nothing.
        let mut input = Json::parse(given)
            .filter(|json| json.object().is_some())
            .unwrap_or_else(|| Json::Object(schema::tree::Object::default()));
        let mut report = rule::Report::default();
        if let Err(omission) = report.apply(self.rules(), &mut input, given) {
            return Rendered::Omitted(omission);
        }
        let name = self.exposed_name(key);
        let parameters = input.to_text();
        let without = gemini::is_without_arguments(&input);
        let json = match self {
            Self::Mcp => mcp::definition(&parameters, spec),
            Self::OpenAiChat => openai::chat(&name, &parameters, spec),
            Self::OpenAiResponses => openai::responses(&name, &parameters, spec),
            Self::Anthropic => anthropic::definition(&name, &parameters, spec),
            Self::Gemini | Self::GeminiOpenApi => {
                let keyword = if self == Self::Gemini { "parametersJsonSchema" } else { "parameters" };
                gemini::definition(&name, keyword, (!without).then_some(&parameters), spec)
            }
            Self::Bedrock => bedrock::definition(&name, &parameters, spec),
        };
        let rewritten = name != key.name.as_str() || self == Self::Bedrock && spec.description.is_empty();
        Rendered::Ok { json, losses: report.losses, converted: report.converted || rewritten }
    }

    fn rules(self) -> &'static [rule::Rule] {
        match self {
            Self::Mcp => mcp::RULES,
            Self::OpenAiChat | Self::OpenAiResponses => openai::RULES,
            Self::Anthropic => anthropic::RULES,
            Self::Gemini => gemini::RULES,
            Self::GeminiOpenApi => gemini_openapi::RULES,
            Self::Bedrock => bedrock::RULES,
        }
    }
}

/// All names that formats show for a tool instead of its own, each once.
pub fn mapped_names(key: &ToolKey) -> Vec<String> {
    let mut names: Vec<String> = Format::ALL.iter().filter_map(|format| format.mapped_name(key)).collect();
    names.sort();
    names.dedup();
    names
}

fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
}

/// The first characters made harmless, and a hash that keeps the names of different tools apart.
fn map(key: &ToolKey) -> String {
    let mut hash = ContentHash::new("toolpulse exposed name 1");
    hash.text(key.namespace.as_str()).text(key.name.as_str());
    let prefix = key.name.as_str().bytes().take(MAPPED_PREFIX);
    let harmless: String = prefix.map(|b| if is_plain(b) { char::from(b) } else { '_' }).collect();
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
mod bounds;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
