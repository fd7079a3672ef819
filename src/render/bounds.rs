//! What hostile schemas may cost, in counts: schemas that rules look at, bytes that come out. `cargo bench --bench schemas`
//! has the times of the same schemas.

use super::{Format, Rendered, golden, rule};
use crate::{
    core::{
        name::{Namespace, ToolKey},
        schema::{MAX_BYTES, MAX_NODES, tree::Json},
    },
    proto::v1,
    service::convert,
};

#[path = "../../benches/schemas/cases.rs"]
mod cases;

/// Values of a schema for each rule: what was registered, and what converting may add.
const MAX_SEEN_BY_EACH: usize = 3 * MAX_NODES;

#[test]
fn hostile_schemas_cost_little() {
    for case in cases::all() {
        let what = case.name;
        let pb = v1::ToolSpec {
            name: "t".to_owned(),
            input_schema_json: case.schema.clone(),
            ..Default::default()
        };
        let spec = match convert::tool_spec(pb) {
            Ok(spec) => spec,
            Err(faults) => panic!("{what} is within the bounds of registration: {faults:?}"),
        };
        let key = ToolKey { namespace: Namespace::default(), name: spec.name.clone() };
        // One for each table of rules.
        for format in
            [Format::Mcp, Format::OpenAiChat, Format::Anthropic, Format::Gemini, Format::GeminiOpenApi]
        {
            let mut schema = Json::parse(&case.schema).unwrap();
            let mut report = rule::Report::default();
            let omitted = report.apply(format.rules(), &mut schema, &case.schema).err();
            let most = format.rules().len() * MAX_SEEN_BY_EACH;
            assert!(report.seen <= most, "{what} {format:?}: {} schemas were looked at", report.seen);
            match format.render(&key, &spec) {
                Rendered::Omitted(omission) => assert_eq!(Some(omission), omitted, "{what}"),
                Rendered::Ok { json, losses, .. } => {
                    assert!(json.len() <= 4 * MAX_BYTES, "{what} {format:?}: {} bytes", json.len());
                    assert!(losses.len() <= 100, "{what}");
                }
            }
        }
    }
}

/// A rule that is passed over, as no schema has its keywords, would have found nothing.
#[test]
fn rules_name_the_keywords_that_they_are_about() {
    let hostile: Vec<String> = cases::all().into_iter().map(|case| case.schema).collect();
    let small = golden::SCHEMAS.into_iter().filter(|schema| !schema.is_empty());
    for text in hostile.iter().map(String::as_str).chain(small) {
        for format in Format::ALL {
            let everywhere = |rule: &rule::Rule| match rule.at {
                rule::At::With(_) => rule::Rule { at: rule::At::Each, ..*rule },
                _ => *rule,
            };
            let all: Vec<rule::Rule> = format.rules().iter().map(everywhere).collect();
            let outcome = |rules: &[rule::Rule]| {
                let mut schema = Json::parse(text).unwrap();
                let mut report = rule::Report::default();
                let omitted = report.apply(rules, &mut schema, text).err();
                (schema.to_text(), omitted, report.converted, report.losses, report.seen)
            };
            let (passing, whole) = (outcome(format.rules()), outcome(&all));
            assert!(passing.4 <= whole.4);
            assert_eq!(
                (passing.0, passing.1, passing.2, passing.3),
                (whole.0, whole.1, whole.2, whole.3),
                "{format:?} {text:.200}"
            );
        }
    }
}

/// What becomes of schemas just under and over a bound: one is not refused before its time.
#[test]
fn what_is_too_large_is_named() {
    let joined =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(",");
    let any = |count| joined(count, &|i| format!(r#""p{i}":{{}}"#));
    let open = |count| {
        joined(count, &|i| {
            format!(
                r#""p{i}":{{"type":"object","additionalProperties":{{}},"properties":{{"a":{{"type":"string"}}}}}}"#
            )
        })
    };
    let refs =
        |count, beside: &str| joined(count, &|i| format!(r##""p{i}":{{"$ref":"#/$defs/A"{beside}}}"##));
    let long =
        |bytes| format!(r#","$defs":{{"A":{{"type":"string","description":"{}"}}}}"#, "d".repeat(bytes));
    let flags = |count| {
        let flags = joined(count, &|i| format!(r#""f{i}":true"#));
        format!(r#","$defs":{{"A":{{"type":"object","properties":{{{flags}}}}}}}"#)
    };
    for (what, properties, rest, reason) in [
        ("values of any kind", any(1_240), String::new(), None),
        ("too many values of any kind", any(1_260), String::new(), Some("EXPANSION_LIMIT")),
        ("open objects", open(1_600), String::new(), None),
        ("a long text", refs(7, ""), long(100_000), None),
        ("a long text too often", refs(8, ""), long(100_000), Some("REF_EXPANSION_LIMIT")),
        ("booleans", refs(2, r#","type":"object""#), flags(600), None),
        ("booleans too often", refs(20, r#","type":"object""#), flags(600), Some("REF_EXPANSION_LIMIT")),
    ] {
        let schema = format!(r#"{{"type":"object","properties":{{{properties}}}{rest}}}"#);
        let pb = v1::ToolSpec { name: "t".to_owned(), input_schema_json: schema, ..Default::default() };
        let spec = convert::tool_spec(pb).unwrap();
        let key = ToolKey { namespace: Namespace::default(), name: spec.name.clone() };
        let found = match Format::GeminiOpenApi.render(&key, &spec) {
            Rendered::Omitted(omission) => Some(omission.reason),
            Rendered::Ok { .. } => None,
        };
        assert_eq!(found, reason, "{what}");
    }
}
