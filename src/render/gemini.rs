//! Definitions as Gemini takes them with `parametersJsonSchema`.

use super::{
    Object, common, dialect,
    rule::{At, Effect, Place, Rule},
};
use crate::core::{
    schema::tree::{self, Json},
    tool::ToolSpec,
};

pub(super) const RULES: &[Rule] = &[
    // GetStream/Vision-Agents#513: $schema is an unknown field.
    Rule { id: "DIALECT", at: At::With(&["$schema"]), effect: Effect::Convert, apply: dialect::drop_dialect },
    Rule {
        id: "OLDER_DRAFT",
        at: At::With(common::OLDER),
        effect: Effect::Convert,
        apply: common::modernise,
    },
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Omit, apply: common::root_reference_stuck },
    // spring-projects/spring-ai#1373: "parameters schema should be of type OBJECT".
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Convert, apply: common::root_reference },
    Rule { id: "ROOT_TYPE", at: At::Root, effect: Effect::Convert, apply: common::root_type },
    // Gemini API reference, responseJsonSchema: if $ref is set, no other members may be, but for those beginning with $.
    // su-kaka/gcli2api#374 has the error.
    Rule { id: "REF_SIBLINGS", at: At::With(&["$ref"]), effect: Effect::Convert, apply: ref_siblings },
    // containers/kubernetes-mcp-server#340: a function without arguments is declared without parameters.
    Rule { id: "NO_PARAMETERS", at: At::Root, effect: Effect::Convert, apply: no_parameters },
];

/// google-genai SDK, FunctionDeclaration; `keyword` is `parametersJsonSchema` or `parameters`.
pub(super) fn definition(
    exposed_name: &str,
    keyword: &str,
    parameters: Option<&str>,
    spec: &ToolSpec,
) -> String {
    let mut declaration = Object::new();
    declaration.text("name", exposed_name).text("description", &spec.description);
    if let Some(parameters) = parameters {
        declaration.json(keyword, parameters);
    }
    declaration.finish()
}

/// Whether a converted schema says that there are no arguments.
pub(super) fn is_without_arguments(schema: &Json<'_>) -> bool {
    schema.object().is_some_and(|object| object.0.is_empty())
}

/// A schema of no arguments at all becomes `{}`, for which nothing is written.
pub(super) fn no_parameters(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let empty = object.get("properties").is_none_or(|p| p.object().is_some_and(|p| p.0.is_empty()));
    let idle = |key: &str, value: &Json<'_>| match key {
        "properties" | "type" | "title" | "description" | "$comment" | "$id" | "$defs" | "definitions" => {
            true
        }
        "additionalProperties" => matches!(value, Json::Literal(_)),
        "required" => value.array().is_some_and(<[_]>::is_empty),
        _ => false,
    };
    if empty && object.0.iter().all(|(key, value)| idle(key.value(), value)) {
        *object = tree::Object::default();
        place.hit("no arguments, so no parameters");
    }
}

/// `$ref` gets a place of its own, so that nothing stands beside it.
fn ref_siblings(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let beside = object.0.iter().any(|(key, _)| !key.value().starts_with('$'));
    if !beside || !object.has("$ref") {
        return;
    }
    if let Some(reference) = object.remove("$ref") {
        let alone = Json::Object(tree::Object(vec![(tree::Text::new("$ref"), reference)]));
        match (object.has("anyOf"), object.get_mut("allOf")) {
            (false, _) => object.set("anyOf", Json::Array(vec![alone])),
            (true, Some(Json::Array(all))) => all.push(alone),
            (true, _) => object.set("allOf", Json::Array(vec![alone])),
        }
        place.hit_at("$ref", "put into a schema of its own");
    }
}
