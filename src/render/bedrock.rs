//! Definitions as Bedrock's Converse takes them.

use super::{Object, rule::Rule};
use crate::core::tool::ToolSpec;

/// Bedrock hands schemas to the model's own API; Claude's rules are the strictest of those that are known.
pub(super) const RULES: &[Rule] = super::anthropic::RULES;

/// botocore bedrock-runtime ToolSpecification. danny-avila/LibreChat#13209: a description has at least one character; the
/// name stands in, as in LiteLLM.
pub(super) fn definition(exposed_name: &str, json: &str, spec: &ToolSpec) -> String {
    let description = if spec.description.is_empty() { exposed_name } else { &spec.description };
    let schema = Object::new().json("json", json).finish();
    let tool = Object::new()
        .text("name", exposed_name)
        .text("description", description)
        .json("inputSchema", &schema)
        .finish();
    Object::new().json("toolSpec", &tool).finish()
}
