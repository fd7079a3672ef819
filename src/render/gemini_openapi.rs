//! Definitions as Gemini takes them with `parameters`: a subset of OpenAPI 3.0, for Vertex and older clients. A protocol buffer:
//! one unknown keyword refuses the whole request.

mod unions;
mod values;

use super::{
    common, dialect, gemini,
    inline::{Stuck, has_references, inlined},
    rule::{At, Effect, FLAGS, NULL_BRANCH, Place, Rule},
};
use crate::core::schema::tree::{Json, Object};

/// google-genai SDK, types.Schema, without `$ref`, `defs` and `additionalProperties`, which were refused until recently.
const KNOWN: [&str; 21] = [
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
];
/// Keywords that tell a model nothing: they go without a word.
const IDLE: [&str; 9] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$recursiveAnchor",
    "$vocabulary",
    "definitions",
    "id",
];

pub(super) const RULES: &[Rule] = &[
    // promptfoo/promptfoo#6902: "Unknown name \"$schema\": Cannot find field".
    Rule { id: "DIALECT", at: At::With(&["$schema"]), effect: Effect::Convert, apply: dialect::drop_dialect },
    Rule {
        id: "OLDER_DRAFT",
        at: At::With(common::OLDER),
        effect: Effect::Convert,
        apply: common::modernise,
    },
    // n8n-io/n8n#25964: no $ref and no $defs. BerriAI/litellm#13151: a recursion has no end when it is written out.
    Rule { id: "REF_INLINED", at: At::Root, effect: Effect::Convert, apply: inline },
    Rule { id: "UNRESOLVABLE_REF", at: At::Root, effect: Effect::Omit, apply: dangling },
    Rule { id: "RECURSIVE_SCHEMA", at: At::Root, effect: Effect::Omit, apply: recursive },
    Rule { id: "REF_EXPANSION_LIMIT", at: At::Root, effect: Effect::Omit, apply: too_large },
    // Unknown fields of the message.
    Rule { id: "IDLE_KEYWORD", at: At::Each, effect: Effect::Convert, apply: idle_keywords },
    // spring-projects/spring-ai#1373: "parameters schema should be of type OBJECT".
    Rule { id: "ROOT_COMBINATOR", at: At::Root, effect: Effect::Convert, apply: common::root_combinators },
    Rule { id: "ROOT_TYPE", at: At::Root, effect: Effect::Convert, apply: common::root_type },
    // google-genai SDK, Schema: no allOf, no oneOf; anyOf is the only union.
    Rule { id: "ALL_OF", at: At::With(&["allOf"]), effect: Effect::Convert, apply: unions::all_of },
    Rule { id: "ONE_OF", at: At::With(&["oneOf"]), effect: Effect::Lossy, apply: unions::one_of },
    // No const: an enum of one.
    Rule { id: "CONST", at: At::With(&["const"]), effect: Effect::Convert, apply: values::constant },
    // netclaw-dev/netclaw#51, zereight/gitlab-mcp#166: `type` is one type; null is `nullable`.
    Rule { id: "TYPE_LIST", at: At::Each, effect: Effect::Convert, apply: unions::type_list },
    Rule { id: NULL_BRANCH, at: At::With(&["anyOf"]), effect: Effect::Convert, apply: unions::null_branch },
    Rule { id: "NULL_VALUE", at: At::With(&["enum"]), effect: Effect::Convert, apply: values::null_value },
    // microsoft/azure-devops-mcp#139, #145: an enum holds texts alone, and no empty ones.
    Rule {
        id: "ENUM_OF_TEXTS",
        at: At::With(&["enum"]),
        effect: Effect::Lossy,
        apply: values::enum_of_texts,
    },
    // decolua/9router#380: "enum only allowed for STRING type"; directus/mcp#8: "didn't specify the schema type field".
    Rule { id: "IMPLIED_TYPE", at: At::Each, effect: Effect::Convert, apply: values::implied_type },
    // A union beside properties only says which of them go together.
    Rule { id: "CONDITION", at: At::With(&["anyOf"]), effect: Effect::Lossy, apply: unions::condition },
    // Ours: what the next rules add is bounded.
    Rule { id: "EXPANSION_LIMIT", at: At::Root, effect: Effect::Omit, apply: values::expansion },
    // No tuples, and an array says what it holds.
    Rule { id: "TUPLE", at: At::With(&["prefixItems"]), effect: Effect::Lossy, apply: values::tuple },
    Rule { id: "ARRAY_ITEMS", at: At::Each, effect: Effect::Convert, apply: values::array_items },
    // "schema didn't specify the schema type field": a value of any kind can be a text, a number or a boolean.
    Rule { id: "ANY_VALUE", at: At::Each, effect: Effect::Lossy, apply: values::any_value },
    // No exclusive bounds; of whole numbers the next one is the same.
    Rule {
        id: "EXCLUSIVE_BOUND",
        at: At::With(&["exclusiveMinimum", "exclusiveMaximum"]),
        effect: Effect::Convert,
        apply: values::exclusive_bound,
    },
    // google-gemini/gemini-cli#3178: "only 'enum' and 'date-time' are supported for STRING type".
    Rule { id: "TEXT_FORMAT", at: At::With(&["format"]), effect: Effect::Lossy, apply: values::text_format },
    // promptfoo/promptfoo#6902: additionalProperties is an unknown field. That an object is closed needs no word.
    Rule {
        id: "OPEN_OR_CLOSED",
        at: At::With(&FLAGS),
        effect: Effect::Convert,
        apply: values::open_or_closed,
    },
    Rule { id: "UNKNOWN_KEYWORD", at: At::Each, effect: Effect::Lossy, apply: unknown_keywords },
    // ai.google.dev function calling: names begin with a letter or _, then [A-Za-z0-9_], 64.
    Rule { id: "PARAMETER_NAME", at: At::Each, effect: Effect::Omit, apply: parameter_names },
    // containers/kubernetes-mcp-server#340: "should be non-empty for OBJECT type". What can't be said is left out where it may
    // be; where it is required, the tool is.
    Rule { id: "INEXPRESSIBLE", at: At::Root, effect: Effect::Omit, apply: unions::inexpressible },
    Rule { id: "EMPTY_OBJECT", at: At::Root, effect: Effect::Lossy, apply: unions::left_out },
    // "required[0]: property is not defined".
    Rule {
        id: "REQUIRED_UNKNOWN",
        at: At::With(&["required"]),
        effect: Effect::Lossy,
        apply: values::required_unknown,
    },
    // lambda-alpha-labs/Graphenium#37: "When using any_of, it must be the only field set".
    Rule { id: "UNION_ALONE", at: At::With(&["anyOf"]), effect: Effect::Convert, apply: unions::alone },
    // decolua/9router#380: "enum only allowed for STRING type", and the like. Last, as unions and parts become one before.
    Rule { id: "OF_ITS_TYPE", at: At::Each, effect: Effect::Lossy, apply: values::of_its_type },
    Rule { id: "NO_PARAMETERS", at: At::Root, effect: Effect::Convert, apply: gemini::no_parameters },
    Rule { id: "NO_PROPERTIES", at: At::Root, effect: Effect::Lossy, apply: no_properties },
];

fn inline(place: &mut Place<'_, '_>) {
    if !has_references(place.schema) {
        return;
    }
    match inlined(place.schema) {
        Ok(whole) => {
            *place.schema = whole;
            place.hit("references are replaced by what they point to");
        }
        Err(stuck) => place.set_stuck(stuck),
    }
}

fn dangling(place: &mut Place<'_, '_>) {
    if let Some(Stuck::Dangling(at)) = place.stuck().cloned() {
        place.hit_pointer(at, "the reference points to nothing that is known here");
    }
}

fn recursive(place: &mut Place<'_, '_>) {
    if let Some(Stuck::Recursive(at)) = place.stuck().cloned() {
        place
            .hit_pointer(at, "the reference leads back to itself; this format has no references, and no end");
    }
}

fn too_large(place: &mut Place<'_, '_>) {
    if let Some(Stuck::TooLarge(at)) = place.stuck().cloned() {
        let most = super::inline::MAX_NODES;
        place.hit_pointer(
            at,
            format_args!("without references the schema has more than {most} values or 64 levels"),
        );
    }
}

fn idle_keywords(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let before = object.0.len();
    let idle = |key: &str| IDLE.contains(&key) || key.starts_with("x-");
    object.0.retain(|(key, _)| !idle(key.value()));
    if object.0.len() < before {
        place.hit("keywords that say nothing of the arguments are left out");
    }
}

/// Arguments of unknown names can't be said at all.
fn no_properties(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let named = object.get("properties").and_then(Json::object).is_some_and(|named| !named.0.is_empty());
    if !named && !object.0.is_empty() {
        *object = Object::default();
        place.hit("this format can't speak of arguments without names; left out");
    }
}

/// All that is left and not known: told in the description, as Anthropic's SDK does with bounds.
fn unknown_keywords(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    if object.0.iter().all(|(key, _)| KNOWN.contains(&key.value())) {
        return;
    }
    let (known, unknown): (Vec<_>, Vec<_>) =
        std::mem::take(&mut object.0).into_iter().partition(|(key, _)| KNOWN.contains(&key.value()));
    object.0 = known;
    // Annotations and small bounds help the model as a text; a schema would not.
    let helpful = unknown.iter().filter(|(_, value)| value.object().is_none());
    tell(object, helpful.filter_map(|(key, value)| told(key.value(), value)));
    for (key, _) in unknown {
        place.hit_at(key.value(), "this format has no such keyword");
    }
}

fn parameter_names(place: &mut Place<'_, '_>) {
    common::bad_names(place, "must be a letter or _, then letters, digits and _, at most 64", |name| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    });
}

/// What a schema can't say, for its description: `(multipleOf: 5)`. None if it is long.
fn told(keyword: &str, value: &Json<'_>) -> Option<String> {
    /// Longest value that is told, in bytes.
    const MAX_TOLD: usize = 200;
    (value.bytes(MAX_TOLD) <= MAX_TOLD)
        .then(|| value.to_text())
        .filter(|value| value.len() <= MAX_TOLD)
        .map(|value| format!("({keyword}: {value})"))
}

/// Adds to a description what was [`told`].
fn tell(object: &mut Object<'_>, told: impl IntoIterator<Item = String>) {
    let mut told = told.into_iter().peekable();
    if told.peek().is_none() {
        return;
    }
    let mut text = object.get("description").and_then(Json::str).unwrap_or_default().to_owned();
    for one in told {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&one);
    }
    object.set("description", Json::text(text));
}
