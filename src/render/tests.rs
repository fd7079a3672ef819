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
