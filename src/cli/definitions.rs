//! Files of tools for `tools register`: a manifest, or what an MCP server answers to tools/list.
//!
//! MCP's fields are taken byte by byte; those without a field of their own go to `extra_json`.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    manifest::{Defaults, Manifest},
    proto::v1::ToolSpec,
};

/// Fields that only a manifest's tool has.
const MANIFEST_FIELDS: [&str; 11] = [
    "namespace",
    "input_schema",
    "output_schema",
    "extra",
    "endpoint",
    "labels",
    "probes",
    "interval",
    "timeout",
    "ttl",
    "grace",
];

/// The members of a JSON object, in their order, their values untouched.
#[derive(Debug)]
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((key, value)) = map.next_entry()? {
                    if members.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom(format_args!("the key '{key}' is there twice")));
                    }
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Members {
    fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
    }
}

/// Parses a text; `name` stands for it in errors.
pub(super) fn parse(name: &str, text: &str, defaults: Defaults<'_>) -> Result<Manifest, String> {
    let start = text.trim_start();
    let list = if start.starts_with('[') {
        Some(serde_json::from_str(text).map_err(|e| format!("{name}: {e}"))?)
    } else if start.starts_with('{') {
        mcp_list(text)
    } else {
        None
    };
    let Some(list) = list else { return Manifest::parse(name, text, defaults).map_err(|e| e.to_string()) };
    let tools = list.iter().enumerate().map(|(index, tool): (usize, &Members)| match spec(tool) {
        Ok(spec) => Ok((defaults.namespace.to_owned(), spec)),
        Err(what) => Err(format!("{name}: tools[{index}]{what}")),
    });
    let tools = tools.collect::<Result<_, _>>()?;
    Ok(Manifest { owner: defaults.owner.to_owned(), tools, lines: Vec::new() })
}

/// The tools of a tools/list result, or of the JSON-RPC response around it. None: it is a manifest, or broken; then
/// the manifest's parser says what is wrong.
fn mcp_list(text: &str) -> Option<Vec<Members>> {
    let mut top: Members = serde_json::from_str(text).ok()?;
    if let (Some(_), Some(result)) = (top.get("jsonrpc"), top.get("result")) {
        top = serde_json::from_str(result.get()).ok()?;
    }
    if top.get("owner").is_some() || top.get("namespace").is_some() {
        return None;
    }
    let tools: Vec<Members> = serde_json::from_str(top.get("tools")?.get()).ok()?;
    let any_has = |field: &str| tools.iter().any(|tool| tool.get(field).is_some());
    let of_manifest = !any_has("inputSchema") && MANIFEST_FIELDS.iter().any(|field| any_has(field));
    (!of_manifest).then_some(tools)
}

fn spec(tool: &Members) -> Result<ToolSpec, String> {
    let mut spec = ToolSpec::default();
    let mut extra = Vec::new();
    for (key, value) in &tool.0 {
        let json = value.get();
        match key.as_str() {
            "name" => spec.name = text(key, json)?,
            "title" => spec.title = text(key, json)?,
            "description" => spec.description = text(key, json)?,
            "inputSchema" => spec.input_schema_json = json.to_owned(),
            "outputSchema" => spec.output_schema_json = json.to_owned(),
            "annotations" => spec.annotations_json = json.to_owned(),
            _ => extra.push(format!("{}:{json}", serde_json::Value::from(key.as_str()))),
        }
    }
    if !extra.is_empty() {
        spec.extra_json = format!("{{{}}}", extra.join(","));
    }
    Ok(spec)
}

fn text(key: &str, json: &str) -> Result<String, String> {
    serde_json::from_str(json).map_err(|_| format!(".{key} must be a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults<'static> = Defaults { owner: "me", namespace: "prod" };

    #[test]
    fn mcp_fields_are_taken_verbatim() {
        let tool = r#"{"name":"a","title":"A","description":"\u00e9","inputSchema":{ "z":1.0, "a":1e2 },
            "outputSchema":{},"annotations":{"x": [ ]},"icons":[ {"src":"i"} ],"_meta":{"k":1.50}}"#;
        let forms = [
            format!("[{tool}]"),
            format!(r#"{{"tools":[{tool}],"nextCursor":"x"}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tool}]}}}}"#),
        ];
        for form in forms {
            let manifest = parse("x.json", &form, DEFAULTS).unwrap();
            assert_eq!(manifest.owner, "me");
            let [(namespace, spec)] = manifest.tools.as_slice() else { panic!("{form}") };
            assert_eq!((namespace.as_str(), spec.name.as_str(), spec.title.as_str()), ("prod", "a", "A"));
            assert_eq!(spec.description, "é");
            assert_eq!(spec.input_schema_json, r#"{ "z":1.0, "a":1e2 }"#);
            assert_eq!(
                (spec.output_schema_json.as_str(), spec.annotations_json.as_str()),
                ("{}", r#"{"x": [ ]}"#)
            );
            assert_eq!(spec.extra_json, r#"{"icons":[ {"src":"i"} ],"_meta":{"k":1.50}}"#);
        }
    }

    #[test]
    fn manifests_are_told_apart() {
        for text in [
            r#"{"tools": [{"name": "a", "probes": [{"report": {}}]}]}"#,
            r#"{"owner": "o", "tools": [{"name": "a"}]}"#,
            "tools: [{name: a}]",
        ] {
            let manifest = parse("x", text, DEFAULTS).unwrap();
            assert_eq!(
                (manifest.tools[0].0.as_str(), manifest.tools[0].1.name.as_str()),
                ("prod", "a"),
                "{text}"
            );
        }
    }

    #[test]
    fn errors() {
        for (text, what) in [
            ("[{\"name\": \"a\"},\n{\"name\": 1}]", "x: tools[1].name must be a text"),
            ("[{\"name\": \"a\",\n\"name\": \"b\"}]", "the key 'name' is there twice at line 2"),
            ("[1]", "x: invalid type: integer `1`, expected an object at line 1"),
            (
                "{\"tools\": [\n{\"name\": \"a\", \"probe\": 1, \"ttl\": \"1s\"}]}",
                "x line 2: unknown field `probe`",
            ),
            ("{", "x line 1: "),
            ("", "x line 1: "),
        ] {
            let error = parse("x", text, DEFAULTS).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
