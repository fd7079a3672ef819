//! Definitions as MCP's tools/list gives them.

use std::collections::HashSet;

use super::{
    Object as Writer, common,
    rule::{At, Effect, Place, Rule},
};
use crate::core::schema::{
    self,
    tree::{Json, Object},
    walk::{Path, Slot},
};
use crate::core::tool::ToolSpec;

/// Where a header may be asked for.
const HEADER: &str = "x-mcp-header";

pub(super) const RULES: &[Rule] = &[
    // MCP 2026-07-28 server/tools (SEP-2243): an invalid x-mcp-header => clients MUST exclude that tool. The constraints are
    // those of basic/transports/streamable-http#custom-headers-from-tool-parameters.
    Rule { id: "HEADER_INVALID", at: At::Root, effect: Effect::Omit, apply: headers },
    // MCP schema: inputSchema.type is required and "object". The MCP TypeScript SDK refuses the whole list for one tool.
    Rule { id: "ROOT_TYPE", at: At::Root, effect: Effect::Convert, apply: common::root_type },
];

pub(super) fn definition(input: &str, spec: &ToolSpec) -> String {
    let extra = schema::minify(&spec.extra);
    // Without its braces: an object's members, or nothing.
    let further = extra.get(1..extra.len().saturating_sub(1)).unwrap_or_default();
    Writer::new()
        .text("name", spec.name.as_str())
        .text("title", &spec.title)
        .text("description", &spec.description)
        .json("inputSchema", input)
        .given("outputSchema", &spec.output_schema)
        .given("annotations", &spec.annotations)
        .verbatim(further)
        .finish()
}

fn headers(place: &mut Place<'_, '_>) {
    let mut wrong = Vec::new();
    inspect(place.schema, true, &mut Path::default(), &mut HashSet::new(), &mut wrong);
    for (pointer, message) in wrong {
        place.hit_pointer(pointer, message);
    }
}

/// Looks at a schema that arguments reach through `properties` alone, or by another way.
fn inspect(
    schema: &Json<'_>,
    reachable: bool,
    path: &mut Path,
    seen: &mut HashSet<String>,
    wrong: &mut Vec<(String, &'static str)>,
) {
    let Json::Object(object) = schema else { return };
    if let Some(message) = object.get(HEADER).and_then(|header| fault(header, object, reachable, seen)) {
        wrong.push((path.at(HEADER), message));
    }
    for slot in Slot::of(object) {
        let mark = path.mark();
        slot.enter(object, path);
        if let Some(inner) = slot.get(object) {
            inspect(inner, reachable && slot.keyword(object) == "properties", path, seen, wrong);
        }
        path.back_to(mark);
    }
}

fn fault(
    header: &Json<'_>,
    schema: &Object<'_>,
    reachable: bool,
    seen: &mut HashSet<String>,
) -> Option<&'static str> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let primitive = ["string", "integer", "boolean"];
    match header.str() {
        Some(name) if !name.is_empty() && name.bytes().all(token) => {
            if !seen.insert(name.to_ascii_lowercase()) {
                Some("two arguments ask for the same header")
            } else if !reachable {
                Some("only arguments that are reached through properties alone may ask for a header")
            } else if !schema.get("type").and_then(Json::str).is_some_and(|t| primitive.contains(&t)) {
                Some("only arguments of type string, integer or boolean may ask for a header")
            } else {
                None
            }
        }
        _ => Some("must be the name of a header: a token of RFC 9110"),
    }
}
