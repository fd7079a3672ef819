//! Schemas that are right beyond doubt need no meta-schema. What is left of a schema without them is small, if it is not made
//! to be judged for long.

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::judged;
use crate::core::schema::{
    lint::TYPES,
    tree::{Json, Object},
    walk::{Holds, Slot, holds},
};

/// The value to be judged instead of a schema: of the schemas inside, those that are right are `{}`. None if all is right.
pub(super) fn doubtful(schema: &Json<'_>, draft: Draft) -> Option<Value> {
    let object = match schema {
        Json::Object(object) => object,
        // Draft-04 has no boolean schemas but in a few places.
        Json::Literal(literal) if draft != Draft::Draft4 && matches!(&**literal, "true" | "false") => {
            return None;
        }
        other => return Some(judged(other)),
    };
    let mut inside = Vec::new();
    for (i, slot) in Slot::of(object).into_iter().enumerate() {
        if let Some(value) = slot.get(object).and_then(|inner| doubtful(inner, draft)) {
            inside.push((i, value));
        }
    }
    if inside.is_empty() && object.0.iter().all(|(key, value)| is_right(key.value(), value, draft)) {
        return None;
    }
    Some(rest(object, inside))
}

/// A schema with those of the schemas inside that are doubtful; they are counted as [`Slot::of`] does.
fn rest(object: &Object<'_>, inside: Vec<(usize, Value)>) -> Value {
    let mut inside = inside.into_iter().peekable();
    let mut slot = 0;
    let mut schema = |value: &Json<'_>| {
        // An array of names beside schemas, in `dependencies`.
        if matches!(value, Json::Array(_)) {
            return judged(value);
        }
        slot += 1;
        inside
            .next_if(|(at, _)| *at + 1 == slot)
            .map_or_else(|| Value::Object(Map::new()), |(_, value)| value)
    };
    let members = object.0.iter().map(|(key, value)| {
        let made = match (holds(key.value(), value), value) {
            (Some(Holds::Schema), value) => schema(value),
            (Some(Holds::Schemas), Json::Array(items)) => items.iter().map(&mut schema).collect(),
            (Some(Holds::NamedSchemas), Json::Object(named)) => {
                let numbers = key.value() == "patternProperties";
                let name = |i: usize, name: &str| if numbers { i.to_string() } else { name.to_owned() };
                let all = named.0.iter().enumerate();
                all.map(|(i, (key, value))| (name(i, key.value()), schema(value))).collect()
            }
            _ => super::member(key.value(), value),
        };
        (key.value().to_owned(), made)
    });
    Value::Object(members.collect())
}

/// Whether every meta-schema of the draft admits the value of a keyword; schemas inside it are another matter. False where it
/// would take long to tell.
fn is_right(keyword: &str, value: &Json<'_>, draft: Draft) -> bool {
    let new = matches!(draft, Draft::Draft201909 | Draft::Draft202012);
    let text = || value.str().is_some();
    let flag = || value.is("true") || value.is("false");
    match keyword {
        "$comment" | "contentEncoding" | "contentMediaType" | "description" | "format" | "pattern"
        | "title" => text(),
        "deprecated" | "readOnly" | "uniqueItems" | "writeOnly" => flag(),
        "maximum" | "minimum" => number(value).is_some(),
        "exclusiveMaximum" | "exclusiveMinimum" => draft != Draft::Draft4 && number(value).is_some(),
        "multipleOf" => number(value).is_some_and(|n| n > 0.0),
        "maxContains" | "maxItems" | "maxLength" | "maxProperties" | "minContains" | "minItems"
        | "minLength" | "minProperties" => count(value),
        "type" => types(value),
        "enum" => value.array().is_some_and(|all| new || draft == Draft::Draft7 || all.len() == 1),
        "examples" => value.array().is_some(),
        // Names that are there twice are another rule's.
        "required" => value
            .array()
            .is_some_and(|names| !names.is_empty() && names.iter().all(|name| name.str().is_some())),
        "$anchor" => value.str().is_some_and(anchor),
        "$ref" => value.str().is_some_and(|reference| new || plain_pointer(reference)),
        // The dialect of the whole is known by now.
        "$schema" => value.str().is_some_and(|uri| new || uri.starts_with("http://json-schema.org/draft-0")),
        "$id" => value.str().is_some_and(|id| new && !id.contains('#')),
        "$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "properties" => {
            value.object().is_some_and(|named| named.0.iter().all(|(_, value)| value.array().is_none()))
        }
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => several(value),
        "items" if draft != Draft::Draft202012 && value.array().is_some() => several(value),
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "items"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => value.object().is_some() || flag(),
        "$dynamicAnchor" | "$dynamicRef" | "$recursiveAnchor" | "$recursiveRef" | "$vocabulary"
        | "dependencies" | "dependentRequired" | "id" => false,
        // `const`, `default`, and what no meta-schema knows.
        _ => true,
    }
}

/// A list of schemas; those themselves are looked at elsewhere, but for arrays, which are none.
fn several(value: &Json<'_>) -> bool {
    value.array().is_some_and(|all| !all.is_empty() && all.iter().all(|one| one.array().is_none()))
}

fn number(value: &Json<'_>) -> Option<f64> {
    match value {
        Json::Literal(literal) if !matches!(&**literal, "true" | "false" | "null") => literal.parse().ok(),
        _ => None,
    }
}

fn count(value: &Json<'_>) -> bool {
    matches!(value, Json::Literal(n) if n.len() < 16 && n.bytes().all(|b| b.is_ascii_digit()))
}

fn types(value: &Json<'_>) -> bool {
    let known = |name: &Json<'_>| name.str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Json::Array(names) => {
            let twice = names
                .iter()
                .enumerate()
                .any(|(i, name)| names.iter().take(i).any(|one| one.str() == name.str()));
            (1..=TYPES.len()).contains(&names.len()) && names.iter().all(known) && !twice
        }
        one => known(one),
    }
}

/// What both newer drafts take for an anchor.
fn anchor(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A reference that is a URI beyond doubt, as older drafts demand.
fn plain_pointer(reference: &str) -> bool {
    reference == "#"
        || reference
            .strip_prefix("#/")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"$/_-.".contains(&b)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published(draft: Draft, schema: &Value) -> bool {
        match draft {
            Draft::Draft4 => jsonschema::draft4::meta::is_valid(schema),
            Draft::Draft6 => jsonschema::draft6::meta::is_valid(schema),
            Draft::Draft7 => jsonschema::draft7::meta::is_valid(schema),
            Draft::Draft201909 => jsonschema::draft201909::meta::is_valid(schema),
            _ => jsonschema::draft202012::meta::is_valid(schema),
        }
    }

    const DRAFTS: [Draft; 5] =
        [Draft::Draft4, Draft::Draft6, Draft::Draft7, Draft::Draft201909, Draft::Draft202012];

    /// Every keyword of every draft, alone and inside others.
    #[test]
    fn what_is_right_beyond_doubt_is_right() {
        let keywords = super::super::flat::tests::keywords();
        let values = super::super::flat::tests::values();
        let (mut sure, mut wrong) = (0, 0);
        for keyword in &keywords {
            for value in &values {
                for schema in [
                    json!({keyword: value}),
                    json!({"properties": {"p": {keyword: value}, "q": {}}}),
                    json!({"anyOf": [{"type": "string"}, {keyword: value}, {"type": "strin"}]}),
                    json!({"allOf": [{keyword: value}, true], "items": [{"not": {keyword: value}}]}),
                ] {
                    let text = schema.to_string();
                    let parsed = Json::parse(&text).unwrap();
                    for draft in DRAFTS {
                        // Patterns, and names that are required twice, are not the meta-schema's to judge.
                        let whole = published(draft, &judged(&parsed));
                        let left = doubtful(&parsed, draft);
                        sure += usize::from(left.is_none());
                        wrong += usize::from(!whole);
                        let found = left.as_ref().is_none_or(|left| published(draft, left));
                        assert_eq!(found, whole, "{draft:?}: {schema} {left:?}");
                        assert_eq!(
                            super::super::check(&parsed, draft).is_empty(),
                            whole,
                            "{draft:?}: {schema}"
                        );
                    }
                }
            }
        }
        assert!(sure > 1_000 && wrong > 1_000, "{sure} {wrong}");
    }

    #[test]
    fn of_a_thousand_schemas_the_wrong_one_is_left() {
        let properties: Map<String, Value> =
            (0..1_000).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
        let mut schema = json!({"type": "object", "properties": properties, "required": ["p0"]});
        assert_eq!(doubtful(&Json::parse(&schema.to_string()).unwrap(), Draft::Draft202012), None);
        schema["properties"]["p7"]["minLength"] = json!(-1);
        let left = doubtful(&Json::parse(&schema.to_string()).unwrap(), Draft::Draft202012).unwrap();
        assert_eq!(left["properties"]["p7"], json!({"type": "string", "minLength": -1}));
        assert_eq!(left["properties"]["p8"], json!({}));
        assert_eq!(left["properties"].as_object().unwrap().len(), 1_000);
    }
}
