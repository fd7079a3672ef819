//! Definitions as MCP's tools/list gives them.

use super::Object;
use crate::core::{schema, tool::ToolSpec};

pub(super) fn definition(spec: &ToolSpec) -> String {
    let input = if spec.input_schema.is_empty() { schema::EMPTY_INPUT } else { &spec.input_schema };
    let extra = schema::minify(&spec.extra);
    // Without its braces: an object's members, or nothing.
    let further = extra.get(1..extra.len().saturating_sub(1)).unwrap_or_default();
    Object::new()
        .text("name", spec.name.as_str())
        .text("title", &spec.title)
        .text("description", &spec.description)
        .given("inputSchema", input)
        .given("outputSchema", &spec.output_schema)
        .given("annotations", &spec.annotations)
        .verbatim(further)
        .finish()
}
