use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    core::name::{Namespace, ToolName},
    proto::v1,
    service::convert,
};

fn key(namespace: &str, name: &str) -> ToolKey {
    ToolKey { namespace: Namespace::parse(namespace).unwrap(), name: ToolName::parse(name).unwrap() }
}

fn render(format: Format, pb: v1::ToolSpec) -> String {
    match rendered(format, pb) {
        Rendered::Ok { json, .. } => json,
        omitted => panic!("{omitted:?}"),
    }
}

fn rendered(format: Format, pb: v1::ToolSpec) -> Rendered {
    let spec = convert::tool_spec(pb).unwrap();
    format.render(&ToolKey { namespace: Namespace::default(), name: spec.name.clone() }, &spec)
}

fn pb(input: &str) -> v1::ToolSpec {
    v1::ToolSpec { name: "t".to_owned(), input_schema_json: input.to_owned(), ..Default::default() }
}

#[test]
fn mcp_leaves_out_what_is_empty() {
    let expected = r#"{"name":"t","inputSchema":{"type":"object","properties":{}}}"#;
    assert_eq!(render(Format::Mcp, pb("")), expected);
    assert_eq!(render(Format::Mcp, v1::ToolSpec { extra_json: " { } ".to_owned(), ..pb("") }), expected);
}

#[test]
fn mcp_holds_every_field_in_order() {
    let spec = v1::ToolSpec {
        title: "Täglich \"x\"".to_owned(),
        description: "line\nnext \u{1}".to_owned(),
        output_schema_json: r#"{ "type" : "array" }"#.to_owned(),
        annotations_json: r#"{"readOnlyHint": true}"#.to_owned(),
        extra_json: r#" { "_meta": {"n": 1.0}, "\u0069cons" : [ ] } "#.to_owned(),
        ..pb(r#"{"type": "object", "properties": {"z": {"maximum": 1e2}, "a": {"default": "a  b"}}}"#)
    };
    assert_eq!(
        render(Format::Mcp, spec),
        r#"{"name":"t","title":"Täglich \"x\"","description":"line\nnext \u0001","#.to_owned()
            + r#""inputSchema":{"type":"object","properties":{"z":{"maximum":1e2},"a":{"default":"a  b"}}},"#
            + r#""outputSchema":{"type":"array"},"annotations":{"readOnlyHint":true},"#
            + r#""_meta":{"n":1.0},"\u0069cons":[]}"#
    );
}

#[test]
fn pointers_lead_into_what_the_owner_wrote() {
    for (schema, pointer) in [
        (r#"{"type":"array","items":{"oneOf":[{"type":"object"},{"type":"string"}]}}"#, "/items/oneOf"),
        (r#"{"anyOf":[{"type":"null"},{"type":"integer","multipleOf":2}]}"#, "/anyOf/1/multipleOf"),
        (r#"{"type":["integer","string"],"multipleOf":2}"#, "/multipleOf"),
        (r#"{"allOf":[{"type":"integer"},{"multipleOf":2}]}"#, "/allOf/1/multipleOf"),
        (r##"{"$ref":"#/$defs/A"}"##, "/multipleOf"),
        (r#"{"type":"array","items":[{"type":"integer","multipleOf":2}]}"#, "/items"),
    ] {
        let draft = if schema.contains("items\":[") { "draft-07/schema#" } else { "draft/2020-12/schema" };
        let input = format!(
            r#"{{"$schema":"http://json-schema.org/{draft}","type":"object","properties":{{"a":{schema}}},"$defs":{{"A":{{"type":"integer","multipleOf":2}}}}}}"#
        );
        let Rendered::Ok { losses, json, .. } = rendered(Format::GeminiOpenApi, pb(&input)) else {
            panic!("{schema}")
        };
        let pointers: Vec<_> = losses.iter().map(|l| l.pointer.as_str()).collect();
        assert!(
            pointers.contains(&format!("/properties/a{pointer}").as_str()),
            "{schema}: {losses:?} {json}"
        );
    }
}

#[test]
fn an_id_that_was_an_anchor_is_one() {
    let input = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#x"}},"definitions":{"A":{"$id":"#x","type":"string"}}}"##;
    for format in [Format::OpenAiChat, Format::Anthropic, Format::Gemini] {
        let json = render(format, pb(input));
        assert!(json.contains(r##""A":{"$anchor":"x","type":"string"}"##), "{format:?}: {json}");
    }
}

#[test]
fn what_older_drafts_ignore_beside_a_reference_stays_ignored() {
    for (draft, kept) in [("draft-07/schema#", false), ("draft/2019-09/schema", true)] {
        let input = format!(
            r##"{{"$schema":"http://json-schema.org/{draft}","type":"object","properties":{{"a":{{"$ref":"#/definitions/A","minLength":9,"description":"x"}}}},"definitions":{{"A":{{"type":"string"}}}}}}"##
        );
        for format in Format::ALL {
            let json = render(format, pb(&input));
            assert_eq!(json.contains("minLength"), kept || format == Format::Mcp, "{format:?}: {json}");
            assert!(json.contains(r#""description":"x""#), "{format:?}: {json}");
        }
    }
}

#[test]
fn openai_gets_what_it_demands_at_the_root() {
    for (input, parameters) in [
        ("", r#"{"type":"object","properties":{}}"#),
        (r#"{"type": "object"}"#, r#"{"type":"object","properties":{}}"#),
        (
            r#"{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"$schema": {"type": "string"}}, "type": "object"}"#,
            r#"{"properties":{"$schema":{"type":"string"}},"type":"object"}"#,
        ),
        (
            r#"{"type":"object","properties":{"z":{"enum":[1e2,1.0,123456789012345678901234567890]},"\u00e9":{}}}"#,
            r#"{"type":"object","properties":{"z":{"enum":[1e2,1.0,123456789012345678901234567890]},"\u00e9":{}}}"#,
        ),
        (r#"{"\u0074ype":"object"}"#, r#"{"\u0074ype":"object","properties":{}}"#),
    ] {
        let expected =
            format!(r#"{{"type":"function","function":{{"name":"t","parameters":{parameters}}}}}"#);
        assert_eq!(render(Format::OpenAiChat, pb(input)), expected, "{input}");
    }
    let described = v1::ToolSpec { description: "does \\ it".to_owned(), ..pb("") };
    assert!(
        render(Format::OpenAiChat, described)
            .contains(r#""name":"t","description":"does \\ it","parameters""#)
    );
}

#[test]
fn names_are_mapped_only_where_they_must() {
    let long = "x".repeat(65);
    for (name, prefix) in [
        ("a", None),
        ("Get-Issue_9", None),
        (&long[..64], None),
        ("fs.read", Some("fs_read_")),
        (&long, Some(&*format!("{}_", &long[..55]))),
    ] {
        let key = key("default", name);
        assert_eq!(Format::Mcp.mapped_name(&key), None);
        assert_eq!(Format::Mcp.exposed_name(&key), name);
        let mapped = Format::OpenAiChat.mapped_name(&key);
        assert_eq!(mapped.is_some(), prefix.is_some(), "{name}");
        match (mapped, prefix) {
            (Some(mapped), Some(prefix)) => {
                assert!(mapped.starts_with(prefix), "{mapped}");
                assert_eq!(mapped.len(), prefix.len() + 8);
                assert_eq!(Format::OpenAiChat.exposed_name(&key), mapped);
            }
            _ => assert_eq!(Format::OpenAiChat.exposed_name(&key), name),
        }
    }
}

#[test]
fn mapped_names_stay_the_same_for_ever() {
    let mapped = |namespace: &str, name: &str| Format::OpenAiChat.mapped_name(&key(namespace, name)).unwrap();
    assert_eq!(mapped("default", "fs.read"), "fs_read_fed343bd");
    assert_ne!(mapped("default", "fs.read"), mapped("other", "fs.read"));
    // The same first characters once mapped, and still different names.
    assert_ne!(mapped("default", "a.b-c"), mapped("default", "a-b.c"));
}

proptest! {
    #[test]
    fn definitions_parse_and_mcp_loses_nothing(
        name in "[A-Za-z0-9_.-]{1,128}",
        title in "[^\0]{0,20}",
        description in "[^\0]{0,40}",
        members in prop::collection::hash_map("\\PC{0,8}", any::<i64>(), 0..6),
        pretty in any::<bool>(),
    ) {
        let write = |prefix: &str| {
            let mut object: HashMap<String, Value> =
                members.iter().map(|(k, v)| (format!("{prefix}{k}"), Value::from(*v))).collect();
            if prefix == "x-" {
                object.insert("type".to_owned(), "object".into());
            }
            if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) }.unwrap()
        };
        let sent = v1::ToolSpec {
            name: name.clone(),
            title: title.clone(),
            description: description.clone(),
            input_schema_json: write("x-"),
            output_schema_json: write("y-"),
            annotations_json: write(""),
            extra_json: write("x-"),
            ..Default::default()
        };
        let mcp: Value = serde_json::from_str(&render(Format::Mcp, sent.clone())).unwrap();
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        prop_assert_eq!(&mcp["name"], &name);
        for (key, text) in [("title", &title), ("description", &description)] {
            prop_assert_eq!(mcp.get(key).and_then(Value::as_str).unwrap_or_default(), text);
        }
        prop_assert_eq!(&mcp["inputSchema"], &json(&sent.input_schema_json));
        prop_assert_eq!(&mcp["outputSchema"], &json(&sent.output_schema_json));
        prop_assert_eq!(&mcp["annotations"], &json(&sent.annotations_json));
        for (key, value) in json(&sent.extra_json).as_object().unwrap() {
            prop_assert_eq!(&mcp[key], value);
        }

        let openai: Value = serde_json::from_str(&render(Format::OpenAiChat, sent.clone())).unwrap();
        prop_assert_eq!(&openai["function"]["parameters"]["type"], "object");
        let exposed = openai["function"]["name"].as_str().unwrap();
        prop_assert!((1..=64).contains(&exposed.len()) && exposed.bytes().all(is_plain));
        for text in [render(Format::Mcp, sent.clone()), render(Format::OpenAiChat, sent)] {
            prop_assert_eq!(schema::minify(&text), text);
        }
    }
}

/// JSON that looks like schemas, right and wrong ones.
fn schemas() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "string",
        "object",
        "array",
        "integer",
        "null",
        "#",
        "#/$defs/a",
        "#a",
        "a",
        "",
        "é/~",
        "http://json-schema.org/draft-07/schema#",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "enum",
        "const",
        "required",
        "$ref",
        "$defs",
        "definitions",
        "prefixItems",
        "additionalProperties",
        "additionalItems",
        "minimum",
        "exclusiveMinimum",
        "format",
        "description",
        "default",
        "pattern",
        "patternProperties",
        "dependencies",
        "nullable",
        "id",
        "$id",
        "$schema",
        "x-mcp-header",
        "if",
        "then",
        "a",
        "b c",
        "$anchor",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            3 => prop::collection::vec((keys.clone(), inner), 0..6).prop_map(|members| {
                Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// What Gemini's `parameters` may hold, told apart from the rules that make it.
fn assert_openapi(schema: &Value) {
    const FIELDS: [&str; 21] = [
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
    let object = schema.as_object().unwrap_or_else(|| panic!("no object: {schema}"));
    for key in object.keys() {
        assert!(FIELDS.contains(&key.as_str()), "{key} in {schema}");
    }
    match object.get("anyOf") {
        Some(Value::Array(branches)) => {
            assert_eq!(object.len(), 1, "{schema}");
            branches.iter().for_each(assert_openapi);
            return;
        }
        Some(other) => panic!("anyOf: {other}"),
        None => assert!(object.get("type").is_some_and(Value::is_string), "{schema}"),
    }
    if let Some(values) = object.get("enum") {
        let texts = values.as_array().unwrap();
        assert!(
            !texts.is_empty() && texts.iter().all(|v| v.as_str().is_some_and(|t| !t.is_empty())),
            "{schema}"
        );
    }
    for (keyword, types) in [
        ("enum", &["string"][..]),
        ("items", &["array"]),
        ("properties", &["object"]),
        ("required", &["object"]),
        ("minLength", &["string"]),
        ("minItems", &["array"]),
        ("minimum", &["integer", "number"]),
    ] {
        let fits = types.iter().any(|name| object["type"] == *name);
        assert!(fits || !object.contains_key(keyword), "{keyword} in {schema}");
    }
    if object["type"] == "object" {
        let properties = object["properties"].as_object().unwrap();
        assert!(!properties.is_empty(), "{schema}");
        properties.values().for_each(assert_openapi);
        let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        assert!(required.iter().all(|name| properties.contains_key(name.as_str().unwrap())), "{schema}");
    }
    if object["type"] == "array" {
        assert_openapi(&object["items"]);
    }
}

proptest! {
    #[test]
    fn whatever_was_stored_is_rendered_or_left_out(schema in schemas()) {
        let mut spec = convert::tool_spec(pb("")).unwrap();
        spec.input_schema = schema.to_string();
        for format in Format::ALL {
            if let Rendered::Ok { json, .. } = format.render(&key("default", "t"), &spec) {
                let list: Result<Value, _> = serde_json::from_str(&json);
                prop_assert!(list.is_ok(), "{format:?}: {json}");
            }
        }
    }

    #[test]
    fn what_is_registered_fits_where_it_is_shown(schema in schemas()) {
        let mut schema = schema;
        if let Value::Object(members) = &mut schema {
            members.insert("type".to_owned(), "object".into());
        }
        let Ok(spec) = convert::tool_spec(pb(&schema.to_string())) else { return Ok(()) };
        let key = key("default", "t");
        for format in Format::ALL {
            let Rendered::Ok { json, losses, converted } = format.render(&key, &spec) else { continue };
            prop_assert!(converted || losses.is_empty());
            let definition: Value = serde_json::from_str(&json).unwrap();
            match format {
                Format::Mcp => prop_assert_eq!(&definition["inputSchema"], &schema),
                Format::GeminiOpenApi => {
                    if let Some(parameters) = definition.get("parameters") {
                        assert_openapi(parameters);
                    }
                }
                Format::Gemini => {
                    let parameters = definition.get("parametersJsonSchema");
                    prop_assert!(parameters.is_none_or(|p| p["type"] == "object" && p.get("$schema").is_none()));
                }
                Format::Anthropic | Format::Bedrock | Format::OpenAiChat | Format::OpenAiResponses => {
                    let schema = definition
                        .pointer("/input_schema")
                        .or_else(|| definition.pointer("/toolSpec/inputSchema/json"))
                        .or_else(|| definition.pointer("/function/parameters"))
                        .unwrap_or_else(|| &definition["parameters"]);
                    prop_assert_eq!(&schema["type"], "object");
                    for refused in ["anyOf", "oneOf", "allOf", "$ref", "$schema"] {
                        prop_assert!(schema.get(refused).is_none(), "{format:?} {refused}: {schema}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_stay_apart_in_every_format(names in prop::collection::hash_set("[0-9a-c._-]{1,4}|[a.]{60,70}", 1..20)) {
        for format in Format::ALL {
            let shown: std::collections::HashSet<_> =
                names.iter().map(|name| format.exposed_name(&key("default", name)).into_owned()).collect();
            prop_assert_eq!(shown.len(), names.len());
            for name in shown {
                let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
                let gemini = matches!(format, Format::Gemini | Format::GeminiOpenApi);
                let dots = matches!(format, Format::Mcp) || gemini;
                let longest = if format == Format::Mcp { 128 } else { 64 };
                prop_assert!(name.len() <= longest);
                prop_assert!(!gemini || name.starts_with(begins), "{name}");
                prop_assert!(name.bytes().all(|b| is_plain(b) || dots && b == b'.'), "{name}");
            }
        }
    }
}
