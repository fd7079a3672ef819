//! The meta-schemas of 2019-09 and 2020-12, each as one document. The published ones are made of seven, which all look at
//! every schema; one admits exactly the same and takes a fraction of the time.

use std::sync::LazyLock;

use jsonschema::{Draft, Validator};
use serde_json::Value;

/// What both have. `$ref` leads to the whole: there is nothing that would extend it.
const COMMON: &str = r##"{
  "type": ["object", "boolean"],
  "properties": {
    "$id": {"type": "string", "pattern": "^[^#]*#?$"},
    "$schema": {"type": "string"},
    "$ref": {"type": "string"},
    "$anchor": {"$ref": "#/$defs/anchor"},
    "$vocabulary": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "$comment": {"type": "string"},
    "$defs": {"$ref": "#/$defs/named"},
    "definitions": {"$ref": "#/$defs/named"},
    "dependencies": {
      "type": "object",
      "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/names"}]}
    },
    "$recursiveRef": {"type": "string"},
    "items": {"$ref": "#"},
    "contains": {"$ref": "#"},
    "additionalProperties": {"$ref": "#"},
    "unevaluatedItems": {"$ref": "#"},
    "unevaluatedProperties": {"$ref": "#"},
    "properties": {"$ref": "#/$defs/named"},
    "patternProperties": {"$ref": "#/$defs/named"},
    "dependentSchemas": {"$ref": "#/$defs/named"},
    "propertyNames": {"$ref": "#"},
    "if": {"$ref": "#"},
    "then": {"$ref": "#"},
    "else": {"$ref": "#"},
    "allOf": {"$ref": "#/$defs/several"},
    "anyOf": {"$ref": "#/$defs/several"},
    "oneOf": {"$ref": "#/$defs/several"},
    "not": {"$ref": "#"},
    "type": {
      "anyOf": [
        {"$ref": "#/$defs/type"},
        {"type": "array", "items": {"$ref": "#/$defs/type"}, "minItems": 1, "uniqueItems": true}
      ]
    },
    "enum": {"type": "array"},
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    "maximum": {"type": "number"},
    "exclusiveMaximum": {"type": "number"},
    "minimum": {"type": "number"},
    "exclusiveMinimum": {"type": "number"},
    "maxLength": {"$ref": "#/$defs/count"},
    "minLength": {"$ref": "#/$defs/count"},
    "pattern": {"type": "string"},
    "maxItems": {"$ref": "#/$defs/count"},
    "minItems": {"$ref": "#/$defs/count"},
    "uniqueItems": {"type": "boolean"},
    "maxContains": {"$ref": "#/$defs/count"},
    "minContains": {"$ref": "#/$defs/count"},
    "maxProperties": {"$ref": "#/$defs/count"},
    "minProperties": {"$ref": "#/$defs/count"},
    "required": {"$ref": "#/$defs/names"},
    "dependentRequired": {"type": "object", "additionalProperties": {"$ref": "#/$defs/names"}},
    "title": {"type": "string"},
    "description": {"type": "string"},
    "deprecated": {"type": "boolean"},
    "readOnly": {"type": "boolean"},
    "writeOnly": {"type": "boolean"},
    "examples": {"type": "array"},
    "format": {"type": "string"},
    "contentEncoding": {"type": "string"},
    "contentMediaType": {"type": "string"},
    "contentSchema": {"$ref": "#"}
  },
  "$defs": {
    "named": {"type": "object", "additionalProperties": {"$ref": "#"}},
    "several": {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
    "names": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
    "count": {"type": "integer", "minimum": 0},
    "type": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}
  }
}"##;

/// What 2019-09 has otherwise: tuples are `items`.
const OF_2019: &str = r##"{
  "properties": {
    "$recursiveAnchor": {"type": "boolean"},
    "additionalItems": {"$ref": "#"},
    "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/several"}]}
  },
  "$defs": {"anchor": {"type": "string", "pattern": "^[A-Za-z][-A-Za-z0-9.:_]*$"}}
}"##;

/// What 2020-12 has otherwise.
const OF_2020: &str = r##"{
  "properties": {
    "$recursiveAnchor": {"$ref": "#/$defs/anchor"},
    "$dynamicRef": {"type": "string"},
    "$dynamicAnchor": {"$ref": "#/$defs/anchor"},
    "prefixItems": {"$ref": "#/$defs/several"}
  },
  "$defs": {"anchor": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"}}
}"##;

/// The validator of a draft's schemas; none for drafts whose meta-schema is one document anyway.
pub(super) fn validator(draft: Draft) -> Option<&'static Validator> {
    static VALIDATORS: LazyLock<[Option<Validator>; 2]> = LazyLock::new(|| [OF_2019, OF_2020].map(build));
    match draft {
        Draft::Draft201909 => VALIDATORS[0].as_ref(),
        Draft::Draft202012 => VALIDATORS[1].as_ref(),
        _ => None,
    }
}

fn build(own: &str) -> Option<Validator> {
    let mut whole: Value = serde_json::from_str(COMMON).ok()?;
    let own: Value = serde_json::from_str(own).ok()?;
    for (part, members) in own.as_object()? {
        for (key, value) in members.as_object()? {
            whole.get_mut(part)?.as_object_mut()?.insert(key.clone(), value.clone());
        }
    }
    jsonschema::options().with_draft(Draft::Draft202012).offline().build(&whole).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn published(draft: Draft, schema: &Value) -> bool {
        match draft {
            Draft::Draft201909 => jsonschema::draft201909::meta::is_valid(schema),
            _ => jsonschema::draft202012::meta::is_valid(schema),
        }
    }

    const DRAFTS: [Draft; 2] = [Draft::Draft201909, Draft::Draft202012];

    /// All keywords that some draft has, and some that none has.
    pub(crate) fn keywords() -> Vec<String> {
        let known: Value = serde_json::from_str(COMMON).unwrap();
        let others = ["$recursiveAnchor", "$dynamicRef", "$dynamicAnchor", "prefixItems", "additionalItems"];
        let further = ["default", "const", "unknown", "id"];
        let common = known["properties"].as_object().unwrap().keys().cloned();
        common.chain(others.into_iter().chain(further).map(str::to_owned)).collect()
    }

    /// Values that are right for some of them.
    pub(crate) fn values() -> Vec<Value> {
        vec![
            json!(null),
            json!(true),
            json!(0),
            json!(1),
            json!(-1),
            json!(1.5),
            json!(2.0),
            json!(""),
            json!("string"),
            json!("a b"),
            json!("_a:"),
            json!("a.b"),
            json!("#a"),
            json!("#/$defs/a"),
            json!("a b#c#d"),
            json!([1, 1]),
            json!(["a", "a"]),
            json!("https://x/y#"),
            json!([]),
            json!(["string"]),
            json!(["string", "string"]),
            json!([{}]),
            json!([{"type": 1}]),
            json!([1]),
            json!({}),
            json!({"a": {}}),
            json!({"a": true}),
            json!({"a": ["b"]}),
            json!({"a": ["b", "b"]}),
            json!({"a": {"type": 1}}),
            json!({"type": "strin"}),
            json!({"items": [{}]}),
        ]
    }

    #[test]
    fn each_keyword_takes_what_the_published_meta_schema_takes() {
        let mut told = 0;
        for keyword in keywords() {
            for value in &values() {
                for schema in [json!({&keyword: value}), json!({"properties": {"p": {&keyword: value}}})] {
                    for draft in DRAFTS {
                        let flat = validator(draft).unwrap().is_valid(&schema);
                        assert_eq!(flat, published(draft, &schema), "{draft:?}: {schema}");
                        told += usize::from(!flat);
                    }
                }
            }
        }
        assert!(told > 1_000, "wrong ones are told: {told}");
    }

    proptest! {
        #[test]
        fn both_judge_alike(
            members in prop::collection::vec(
                (prop::sample::select(vec!["items", "anyOf", "properties", "not", "$defs", "dependencies"]), 0..6_usize),
                1..6,
            )
        ) {
            let mut schema = json!({"type": "string"});
            for (keyword, shape) in members {
                schema = match shape {
                    0 => json!({keyword: schema}),
                    1 => json!({keyword: [schema]}),
                    2 => json!({keyword: {"a": schema}}),
                    3 => json!({keyword: {"a": ["x"], "b": schema}}),
                    4 => json!({keyword: [true, schema]}),
                    _ => json!({keyword: {"a": schema, "type": "object"}, "type": "array"}),
                };
            }
            for draft in DRAFTS {
                prop_assert_eq!(validator(draft).unwrap().is_valid(&schema), published(draft, &schema));
            }
        }
    }
}
