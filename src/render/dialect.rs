//! `$schema` goes, and with it what only its dialect makes true: the rest has to say the same to whoever reads it as 2020-12.

use std::collections::HashSet;

use super::rule::Place;
use crate::core::schema::{
    refs::Targets,
    tree::{Json, Object, Text},
    walk::{Path, Slot, each},
};

/// `$schema` goes: what follows from it is written out, here and by [`super::common::modernise`].
pub(super) fn drop_dialect(place: &mut Place<'_, '_>) {
    let Some(declared) = place.object().and_then(|object| object.remove("$schema")) else { return };
    let declared = declared.str().unwrap_or_default();
    // A dialect is one of the whole.
    if place.is_root() && declared.contains("/draft-0") {
        // Only as long as no reference leads into what is dropped.
        let mut without = place.schema.clone();
        drop_idle_siblings(&mut without, true);
        if without != *place.schema && references_hold(&without) {
            *place.schema = without;
        }
    }
    place.hit_at("$schema", "left out");
    if place.is_root() && declared.contains("/2019-09/") {
        recursion(place);
    }
}

/// Up to draft-07 what stands beside `$ref` meant nothing; once `$schema` is gone it would.
fn drop_idle_siblings(schema: &mut Json<'_>, root: bool) {
    const KEPT: [&str; 8] =
        ["default", "definitions", "description", "examples", "id", "readOnly", "title", "writeOnly"];
    let Some(object) = schema.object_mut() else { return };
    if object.get("$ref").is_some_and(|reference| reference.str().is_some()) {
        object.0.retain(|(key, _)| {
            let key = key.value();
            key.starts_with('$') || KEPT.contains(&key) || root && key == "type"
        });
    }
    for slot in Slot::of(object) {
        if let Some(inner) = slot.get_mut(object) {
            drop_idle_siblings(inner, false);
        }
    }
}

/// Whether each reference points to something.
fn references_hold(schema: &Json<'_>) -> bool {
    let mut targets = Targets::of(schema);
    let mut hold = true;
    each(schema, &mut Path::default(), &mut |schema, _| {
        if let Some(reference) = schema.object().and_then(|o| o.get("$ref")).and_then(Json::str) {
            hold &= targets.find(reference).is_some();
        }
    });
    hold
}

/// Keywords of 2019-09 that 2020-12 has not, and of 2020-12 that 2019-09 has not.
const OF_RECURSION: [&str; 4] = ["$recursiveRef", "$recursiveAnchor", "$dynamicRef", "$dynamicAnchor"];

/// `$recursiveRef` is `$ref` where there is one schema alone. Where schemas with ids of their own are inside, it means the
/// outermost one that has a `$recursiveAnchor`, which is what `$dynamicRef` means with one name for all of them.
fn recursion(place: &mut Place<'_, '_>) {
    let (mut used, mut embedded) = (false, false);
    let mut names = HashSet::new();
    each(place.schema, &mut Path::default(), &mut |schema, path| {
        let Some(object) = schema.object() else { return };
        used |= OF_RECURSION.iter().any(|keyword| object.has(keyword));
        embedded |= path.mark() > 0 && has_id(object);
        names.extend(object.get("$anchor").and_then(Json::str).map(str::to_owned));
    });
    if !used {
        return;
    }
    let name = embedded.then(|| {
        let mut name = "recursive".to_owned();
        while names.contains(&name) {
            name.push('_');
        }
        name
    });
    let mut strange = Vec::new();
    rewrite(place.schema, true, false, name.as_deref(), &mut Path::default(), &mut strange);
    place.hit_at("$schema", "recursion is written as JSON Schema 2020-12 has it");
    for pointer in strange {
        place.lost_pointer(pointer, "leads to another place than #, which has no meaning; left out");
    }
}

/// `anchored`: the schema with an id around this one has a `$recursiveAnchor`.
fn rewrite(
    schema: &mut Json<'_>,
    root: bool,
    anchored: bool,
    name: Option<&str>,
    path: &mut Path,
    strange: &mut Vec<String>,
) {
    let Some(object) = schema.object_mut() else { return };
    // They mean nothing in 2019-09, and should not begin to.
    object.remove("$dynamicRef");
    object.remove("$dynamicAnchor");
    let whole = root || has_id(object);
    let anchor = object.get("$recursiveAnchor").is_some_and(|anchor| anchor.is("true"));
    let anchored = if whole { anchor } else { anchored };
    match name.filter(|_| whole && anchor) {
        Some(name) => {
            object.set("$recursiveAnchor", Json::text(name.to_owned()));
            object.rename("$recursiveAnchor", "$dynamicAnchor");
        }
        None => drop(object.remove("$recursiveAnchor")),
    }
    match object.get("$recursiveRef").map(|reference| reference.str() == Some("#")) {
        None => {}
        Some(false) => {
            object.remove("$recursiveRef");
            strange.push(path.at("$recursiveRef"));
        }
        Some(true) => match name.filter(|_| anchored) {
            Some(name) => {
                object.set("$recursiveRef", Json::text(format!("#{name}")));
                object.rename("$recursiveRef", "$dynamicRef");
            }
            None if object.has("$ref") => {
                object.remove("$recursiveRef");
                let alone = Json::Object(Object(vec![(Text::new("$ref"), Json::text("#"))]));
                match object.get_mut("allOf") {
                    Some(Json::Array(all)) => all.push(alone),
                    _ => object.set("allOf", Json::Array(vec![alone])),
                }
            }
            None => object.rename("$recursiveRef", "$ref"),
        },
    }
    for slot in Slot::of(object) {
        let mark = path.mark();
        slot.enter(object, path);
        if let Some(inner) = slot.get_mut(object) {
            rewrite(inner, false, anchored, name, path, strange);
        }
        path.back_to(mark);
    }
}

/// Whether a schema is one of its own: references in it are relative to its id.
fn has_id(schema: &Object<'_>) -> bool {
    schema.get("$id").and_then(Json::str).is_some_and(|id| !id.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use jsonschema::Draft;
    use serde_json::{Value, json};

    use crate::{
        core::{
            name::{Namespace, ToolKey},
            schema::EMPTY_INPUT,
        },
        proto::v1,
        render::{Format, Rendered},
        service::convert,
    };

    /// What Anthropic gets of a schema of 2019-09, and how many losses there are.
    fn rendered(schema: &Value) -> (Value, usize) {
        let pb = v1::ToolSpec {
            name: "t".to_owned(),
            input_schema_json: EMPTY_INPUT.to_owned(),
            ..Default::default()
        };
        let mut spec = convert::tool_spec(pb).unwrap();
        spec.input_schema = schema.to_string();
        let key = ToolKey { namespace: Namespace::default(), name: spec.name.clone() };
        match Format::Anthropic.render(&key, &spec) {
            Rendered::Ok { json, losses, converted } => {
                assert!(converted);
                let definition: Value = serde_json::from_str(&json).unwrap();
                (definition["input_schema"].clone(), losses.len())
            }
            omitted => panic!("{omitted:?}"),
        }
    }

    fn declared(members: &Value) -> Value {
        let mut schema = json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object"});
        let all = members.as_object().unwrap().iter();
        all.for_each(|(key, value)| drop(schema.as_object_mut().unwrap().insert(key.clone(), value.clone())));
        schema
    }

    #[test]
    fn recursion_of_2019_09_is_said_as_2020_12_says_it() {
        for (given, expected, losses) in [
            // One schema alone: the recursion is one to the whole.
            (
                json!({"$recursiveAnchor": true, "properties": {"next": {"$recursiveRef": "#"}}, "additionalProperties": false}),
                json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false}),
                0,
            ),
            (
                json!({"$id": "https://x/tree", "properties": {"next": {"$recursiveRef": "#", "minProperties": 1}}}),
                json!({"type": "object", "$id": "https://x/tree", "properties": {"next": {"$ref": "#", "minProperties": 1}}}),
                0,
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/A", "$recursiveRef": "#"}}, "$defs": {"A": {"maxProperties": 1}}}),
                json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "allOf": [{"$ref": "#"}]}}, "$defs": {"A": {"maxProperties": 1}}}),
                0,
            ),
            // A schema inside that is extended by the one around it.
            (
                json!({
                    "$id": "https://x/strict", "$recursiveAnchor": true, "required": ["id"],
                    "properties": {"tree": {"$ref": "tree"}, "recursive": {"$anchor": "recursive"}},
                    "$defs": {"tree": {"$id": "tree", "$recursiveAnchor": true, "properties": {"kid": {"$recursiveRef": "#"}}}}
                }),
                json!({
                    "type": "object", "$id": "https://x/strict", "$dynamicAnchor": "recursive_", "required": ["id"],
                    "properties": {"tree": {"$ref": "tree"}, "recursive": {"$anchor": "recursive"}},
                    "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "recursive_", "properties": {"kid": {"$dynamicRef": "#recursive_"}}}}
                }),
                0,
            ),
            // One that is not: it means itself.
            (
                json!({
                    "$id": "https://x/strict", "$recursiveAnchor": true, "required": ["id"],
                    "properties": {"tree": {"$ref": "tree"}},
                    "$defs": {"tree": {"$id": "tree", "properties": {"kid": {"$recursiveRef": "#"}}}}
                }),
                json!({
                    "type": "object", "$id": "https://x/strict", "$dynamicAnchor": "recursive", "required": ["id"],
                    "properties": {"tree": {"$ref": "tree"}},
                    "$defs": {"tree": {"$id": "tree", "properties": {"kid": {"$ref": "#"}}}}
                }),
                0,
            ),
            // What has no meaning there gets none here.
            (
                json!({"properties": {"a": {"$dynamicRef": "#x", "$recursiveAnchor": true}, "b": {"$dynamicAnchor": "x", "maxProperties": 1}}}),
                json!({"type": "object", "properties": {"a": {}, "b": {"maxProperties": 1}}}),
                0,
            ),
            (
                json!({"properties": {"a": {"$recursiveRef": "#/properties/b"}}}),
                json!({"type": "object", "properties": {"a": {}}}),
                1,
            ),
        ] {
            let given = declared(&given);
            let (made, lost) = rendered(&given);
            assert_eq!((&made, lost), (&expected, losses), "{given}");
            if lost > 0 {
                continue;
            }
            let before =
                jsonschema::options().with_draft(Draft::Draft201909).offline().build(&given).unwrap();
            let after = jsonschema::options().with_draft(Draft::Draft202012).offline().build(&made).unwrap();
            for instance in [
                json!({}),
                json!({"id": 1}),
                json!({"next": {}}),
                json!({"next": {"next": 1}}),
                json!({"next": {"next": {"other": 1}}}),
                json!({"a": {"a": {}}}),
                json!({"a": {"a": {}, "b": 1}}),
                json!({"a": {"a": 1}}),
                json!({"id": 1, "tree": {}}),
                json!({"id": 1, "tree": {"kid": {}}}),
                json!({"id": 1, "tree": {"kid": {"id": 1}}}),
                json!({"id": 1, "tree": {"kid": {"id": 1, "tree": {"kid": {}}}}}),
                json!({"id": 1, "tree": {"kid": {"id": 1, "tree": {"kid": {"kid": 1}}}}}),
            ] {
                assert_eq!(before.is_valid(&instance), after.is_valid(&instance), "{instance}: {given}");
            }
        }
    }

    #[test]
    fn formats_without_references_say_so() {
        let given = declared(&json!({"properties": {"next": {"$recursiveRef": "#"}}}));
        let pb =
            v1::ToolSpec { name: "t".to_owned(), input_schema_json: given.to_string(), ..Default::default() };
        let spec = convert::tool_spec(pb).unwrap();
        let key = ToolKey { namespace: Namespace::default(), name: spec.name.clone() };
        for format in Format::ALL {
            match format.render(&key, &spec) {
                Rendered::Omitted(omission) => {
                    assert_eq!((format, omission.reason), (Format::GeminiOpenApi, "RECURSIVE_SCHEMA"));
                    assert_eq!(omission.pointer, "/properties/next");
                }
                Rendered::Ok { json, .. } => {
                    assert_ne!(format, Format::GeminiOpenApi);
                    assert_eq!(json.contains("$recursiveRef"), format == Format::Mcp, "{format:?}: {json}");
                }
            }
        }
    }
}
