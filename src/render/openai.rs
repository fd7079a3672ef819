//! Definitions as OpenAI's chat completions take them.

use super::Object;
use crate::core::{schema, tool::ToolSpec};

pub(super) fn definition(exposed_name: &str, spec: &ToolSpec) -> String {
    let function = Object::new()
        .text("name", exposed_name)
        .text("description", &spec.description)
        .json("parameters", &parameters(&spec.input_schema))
        .finish();
    Object::new().text("type", "function").json("function", &function).finish()
}

/// The input schema, with what OpenAI demands at its root and without `$schema`, which it doesn't know. Nothing is lost:
/// arguments are an object anyway.
fn parameters(input_schema: &str) -> String {
    if input_schema.is_empty() {
        return schema::EMPTY_INPUT.to_owned();
    }
    let minified = schema::minify(input_schema);
    let members = schema::members(&minified);
    let has = |key: &str| members.iter().any(|m| m.key == key);
    let mut object = Object::new();
    if !has("type") {
        object.text("type", "object");
    }
    for member in members.iter().filter(|m| m.key != "$schema") {
        object.verbatim(&format!("{}:{}", member.key_text, member.value));
    }
    if !has("properties") {
        object.json("properties", "{}");
    }
    object.finish()
}
