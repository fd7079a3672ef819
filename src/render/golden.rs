//! Whoever stores a verdict stores the version of the rules with it. So no rule may come to say something else while the
//! version stays: a hash over what all formats make of some schemas stands beside the version.

use std::fmt::Write as _;

use super::{Format, RULES_VERSION, Rendered};
use crate::{
    core::{
        hash::{ContentHash, hex},
        name::{Namespace, ToolKey},
    },
    proto::v1,
    service::convert,
};

/// The version, and the hash that belongs to it.
const GOLDEN: (u32, &str) = (2, "5fd47ba9bff663fe740f796e4b289add6a84e3501b69beba61a33e54d07f81a3");

/// Each for some rules. Adding one changes the hash, too: that alone needs no new version.
pub(super) const SCHEMAS: [&str; 22] = [
    "",
    r#"{"type":"object"}"#,
    r#"{"type":"object","properties":{"q":{"type":"string","minLength":1},"n":{"type":"integer","exclusiveMinimum":0,"multipleOf":5,"format":"int8"}},"required":["q","x"],"additionalProperties":false}"#,
    r#"{"type":"object","properties":{"a":{},"b":true,"c":{"description":"any"},"d":{"type":"array"},"e":{"type":"array","items":{}}}}"#,
    r#"{"type":"object","properties":{"a":{"type":["string","null","integer"],"maxLength":3,"minimum":1},"b":{"anyOf":[{"type":"null"},{"type":"number"}],"description":"x","default":1}}}"#,
    r#"{"type":"object","properties":{"a":{"enum":["x",1,null]},"b":{"const":"c"},"c":{"enum":[1,2]},"d":{"type":"string","enum":[""]}}}"#,
    r#"{"type":"object","properties":{"a":{"allOf":[{"type":"object","properties":{"x":{"type":"string"}}},{"required":["x"],"properties":{"y":{"type":"integer"}}}]},"b":{"oneOf":[{"type":"string"},{"type":"boolean"}],"title":"t"}}}"#,
    r#"{"type":"object","properties":{"a":{"type":"object"},"b":{"type":"object","properties":{"c":{"type":"null"}}},"d":{"not":{"type":"string"}}}}"#,
    r#"{"type":"object","properties":{"m":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"},"patternProperties":{"^x":{}}},"t":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false}}}"#,
    r#"{"type":"object","anyOf":[{"required":["a"]},{"properties":{"b":{"type":"string"}}}],"properties":{"a":{"type":"string"}}}"#,
    r#"{"type":"object","oneOf":[{"properties":{"b":{"type":"string"}}}],"allOf":[{"properties":{"c":{"type":"string"}},"required":["c"]}],"not":{"required":["d"]}}"#,
    r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/A","description":"here"},"b":{"$ref":"#/$defs/A","maxLength":2}},"$defs":{"A":{"type":"string","description":"there","maxLength":4}}}"##,
    r##"{"type":"object","$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"x":{"type":"string"}}}}}"##,
    r##"{"type":"object","$ref":"#"}"##,
    r##"{"type":"object","properties":{"n":{"$ref":"#/$defs/N"}},"$defs":{"N":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/N"}}}}}}"##,
    r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/A","minLength":9},"t":{"type":"array","items":[{"type":"string"}],"additionalItems":false}},"definitions":{"A":{"$id":"#x","type":"string"}},"dependencies":{"a":["t"]}}"##,
    r#"{"$schema":"http://json-schema.org/draft-04/schema#","id":"https://x/y","type":"object","properties":{"a":{"type":"number","minimum":1,"exclusiveMinimum":true}}}"#,
    r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"type":"object","properties":{"n":{"$recursiveRef":"#"}}}"##,
    r#"{"type":"object","properties":{"a b":{"type":"string"},"ok":{"type":"string"}}}"#,
    r#"{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-unknown":1,"examples":["e"],"readOnly":true,"$comment":"c"}}}"#,
    r#"{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#,
    r#"{"type":"object","properties":{"a":{"type":"string","enum":[1]},"b":{"type":"string","enum":["x",1],"format":"uri","minItems":1}}}"#,
];

#[test]
fn what_is_rendered_changes_with_the_version_alone() {
    let mut whole = ContentHash::new("toolpulse golden 1");
    let mut shown = String::new();
    let joined = |count: usize, one: &str| {
        let one = |i: usize| format!(r#""p{i}":{one}"#);
        format!(r#""properties":{{{}}}"#, (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    // What is too large.
    let any = format!(r#"{{"type":"object",{}}}"#, joined(2_000, "{}"));
    let wide = joined(200, r#"{"type":"string"}"#);
    let defs = format!(r#""$defs":{{"A":{{"type":"object",{wide}}}}}"#);
    let bomb = format!(r#"{{"type":"object",{},{defs}}}"#, joined(200, r##"{"$ref":"#/$defs/A"}"##));
    let schemas = SCHEMAS.into_iter().chain([&*any, &*bomb]);
    for (i, schema) in schemas.enumerate() {
        let pb = v1::ToolSpec {
            name: "fs.read".to_owned(),
            description: if i % 2 == 0 { "Reads.".to_owned() } else { String::new() },
            input_schema_json: schema.to_owned(),
            ..Default::default()
        };
        let spec = convert::tool_spec(pb).unwrap_or_else(|faults| panic!("{schema}: {faults:?}"));
        let key = ToolKey { namespace: Namespace::default(), name: spec.name.clone() };
        for format in Format::ALL {
            // Texts for people may change as they like; what a program reads may not.
            let told = match format.render(&key, &spec) {
                Rendered::Omitted(omission) => format!("omitted {} {}", omission.reason, omission.pointer),
                Rendered::Ok { json, losses, converted } => {
                    let pointers: Vec<&str> = losses.iter().map(|loss| loss.pointer.as_str()).collect();
                    format!("{json} {converted} {}", pointers.join(" "))
                }
            };
            whole.text(format.label()).text(&told);
            let _ = writeln!(shown, "{:16} {told}", format.label());
        }
    }
    let found = (RULES_VERSION, &*hex(&whole.finish()));
    if found == GOLDEN {
        return;
    }
    let advice = if found.0 == GOLDEN.0 {
        "what providers get has changed: raise RULES_VERSION in src/render.rs by one, and then set"
    } else {
        "the rules have a new version: set"
    };
    panic!("{shown}\n{advice} GOLDEN here to {found:?}");
}
