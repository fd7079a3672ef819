//! The piece beside an array of tools that says which of them a model may call now. The array itself then stays the same
//! while tools come and go, and with it the provider's prompt cache.

use super::{Format, Object};
use crate::core::schema;

impl Format {
    /// Whether the format's API takes such a piece.
    pub fn names_allowed(self) -> bool {
        matches!(self, Self::OpenAiChat | Self::OpenAiResponses)
    }

    /// The piece that names tools, by their exposed names; none where the format's API takes none.
    pub fn allowed(self, names: &[&str]) -> Option<String> {
        match self {
            // `tool_choice` of chat completions: https://platform.openai.com/docs/guides/function-calling
            Self::OpenAiChat => Some(openai_chat(names)),
            // `tool_choice` of responses: the same page; the members stand in the outer object, and the names beside the type.
            Self::OpenAiResponses => Some(openai_responses(names)),
            Self::Mcp | Self::Anthropic | Self::Gemini | Self::GeminiOpenApi | Self::Bedrock => None,
        }
    }
}

fn openai_chat(names: &[&str]) -> String {
    let tool = |name: &&str| {
        let function = format!("{{\"name\":{}}}", schema::string(name));
        Object::new().text("type", "function").json("function", &function).finish()
    };
    let tools: Vec<String> = names.iter().map(tool).collect();
    let allowed =
        Object::new().text("mode", "auto").json("tools", &format!("[{}]", tools.join(","))).finish();
    Object::new().text("type", "allowed_tools").json("allowed_tools", &allowed).finish()
}

fn openai_responses(names: &[&str]) -> String {
    let tool = |name: &&str| Object::new().text("type", "function").text("name", name).finish();
    let tools: Vec<String> = names.iter().map(tool).collect();
    let tools = format!("[{}]", tools.join(","));
    Object::new().text("type", "allowed_tools").text("mode", "auto").json("tools", &tools).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_piece_of_openai() {
        let piece = Format::OpenAiChat.allowed(&["a", "b"]).unwrap();
        assert_eq!(
            piece,
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]}}"#
        );
        assert_eq!(
            Format::OpenAiResponses.allowed(&["a"]).unwrap(),
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"a"}]}"#
        );
        assert!(Format::OpenAiChat.allowed(&[]).unwrap().contains(r#""tools":[]"#));
        for format in Format::ALL {
            assert_eq!(format.allowed(&[]).is_some(), format.names_allowed(), "{format:?}");
        }
    }
}
