//! Schemas that are within the bounds of registration.

use std::fmt::Write as _;

use super::{MAX_BYTES, MAX_NODES};

/// One schema.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) schema: String,
}

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let case = |name, schema| Case { name, schema };
    vec![
        case("ordinary tool", ordinary()),
        case("$ref bomb, doubling", bomb(18, 2)),
        case("$ref bomb, tenfold", bomb(9, 10)),
        case("$ref bomb in allOf", all_of_bomb(30)),
        case("$ref bomb in anyOf", any_of_bomb(500)),
        case("$ref bomb beside a union", bomb_beside_union()),
        case("$ref to a wide definition", wide_target()),
        case("$ref to booleans", to_booleans()),
        case("$ref to a long text", to_text()),
        case("1,600 $ref to their own", one_each(1_600)),
        case("chain of 60 $ref", chain(60)),
        case("chain of 1,900 $ref", chain(1_900)),
        case("chain to a wide definition", wide_chain()),
        case("anyOf to the bound", union("anyOf", |i| format!(r#"{{"type":"string","const":"v{i}"}}"#), 3)),
        case("anyOf of empty branches", union("anyOf", |_| "{}".to_owned(), 1)),
        case("oneOf to the bound", union("oneOf", |i| format!(r#"{{"properties":{{"p{i}":{{}}}}}}"#), 3)),
        case("anyOf of anyOf", nested_unions()),
        case("anyOf beside a long text", beside_text()),
        case("anyOf beside texts", beside_texts()),
        case("anyOf of one, 28 levels", only_branches()),
        case("tuple to the bound", inside(&union("prefixItems", |i| format!(r#"{{"const":{i}}}"#), 2))),
        case("unknown keywords", unknown()),
        case("patterns that explode", patterns()),
        case("allOf to the bound", union("allOf", |i| format!(r#"{{"properties":{{"p{i}":{{}}}}}}"#), 3)),
        case(
            "allOf inside a property",
            inside(&union("allOf", |i| format!(r#"{{"required":["p{i}"]}}"#), 3)),
        ),
        case("root anyOf of wide objects", root_union()),
        case("recursive", RECURSIVE.to_owned()),
        case("mutually recursive, wide", mutual(200)),
        case("enum to the bound", list("enum", |i| format!(r#""value {i}""#))),
        case("enum of numbers", list("enum", |i| i.to_string())),
        case("enum of objects", objects()),
        case("required to the bound", required()),
        case("required, none there", required_elsewhere()),
        case("properties to the bound", properties(MAX_NODES / 2 - 10, "")),
        case("192 KiB of properties", properties(1_700, &"d".repeat(70))),
        case("192 KiB of description", properties(1, &"d".repeat(MAX_BYTES - 200))),
        case("60 levels deep", deep(29)),
        case("60 levels deep and wide", deep_and_wide()),
    ]
}

const RECURSIVE: &str = r##"{"type":"object","properties":{"filter":{"$ref":"#/$defs/filter"}},"$defs":{"filter":{"type":"object","properties":{"and":{"type":"array","items":{"$ref":"#/$defs/filter"}},"not":{"$ref":"#/$defs/filter"},"field":{"type":"string"}}}}}"##;

fn object(properties: &str) -> String {
    format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
}

fn joined(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

/// Some 1.5 KB, like most.
fn ordinary() -> String {
    let properties = joined(12, |i| match i % 3 {
        0 => format!(
            r#""text_{i}":{{"type":"string","description":"What the documents should hold, number {i}.","minLength":1}}"#
        ),
        1 => format!(
            r#""count_{i}":{{"type":["integer","null"],"minimum":0,"default":10,"description":"How many, number {i}."}}"#
        ),
        _ => format!(
            r#""kinds_{i}":{{"type":"array","items":{{"enum":["mail","page","ticket"]}},"description":"Of which kind."}}"#
        ),
    });
    format!(
        r#"{{"type":"object","properties":{{{properties}}},"required":["text_0","text_3"],"additionalProperties":false}}"#
    )
}

/// Written out, it has `fan` to the power of `levels` values.
fn bomb(levels: usize, fan: usize) -> String {
    let mut defs = format!(r#""d{levels}":{{"type":"string"}}"#);
    for level in 0..levels {
        let inside = joined(fan, |i| format!(r##""p{i}":{{"$ref":"#/$defs/d{}"}}"##, level + 1));
        let _ = write!(defs, r#","d{level}":{}"#, object(&inside));
    }
    format!(r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs}}}}}"##)
}

fn all_of_bomb(levels: usize) -> String {
    let mut defs = format!(r#""d{levels}":{{"type":"string"}}"#);
    for level in 0..levels {
        let next = level + 1;
        let _ = write!(
            defs,
            r##","d{level}":{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##
        );
    }
    format!(r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs}}}}}"##)
}

fn any_of_bomb(levels: usize) -> String {
    let defs = joined(levels, |i| {
        let inner = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, i + 1);
        format!(r#""d{i}":{{"anyOf":[{inner},{inner}]}}"#)
    });
    format!(
        r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs},"d{levels}":{{"type":"string"}}}}}}"##
    )
}

/// 12 doublings, which fit, and then a union that does not.
fn bomb_beside_union() -> String {
    let branches = joined(1_500, |i| format!(r##"{{"$ref":"#/$defs/s","title":"t{i}"}}"##));
    format!(
        r##"{{"type":"object","properties":{{"a":{{"anyOf":[{branches}]}}}},"$defs":{{"s":{{"type":"object","properties":{{"x":{{"type":"string"}},"y":{{"type":"string"}}}}}}}}}}"##
    )
}

/// The same 900 properties again and again.
fn wide_target() -> String {
    let wide = joined(900, |i| format!(r#""w{i}":{{"type":"string"}}"#));
    let refs = joined(1_000, |i| format!(r##""r{i}":{{"$ref":"#/$defs/wide","description":"one"}}"##));
    format!(r##"{{"type":"object","properties":{{{refs}}},"$defs":{{"wide":{}}}}}"##, object(&wide))
}

fn one_each(count: usize) -> String {
    let refs = joined(count, |i| format!(r##""r{i}":{{"$ref":"#/$defs/d{i}"}}"##));
    let defs = joined(count, |i| format!(r#""d{i}":{{"type":"string"}}"#));
    format!(r#"{{"type":"object","properties":{{{refs}}},"$defs":{{{defs}}}}}"#)
}

fn chain(count: usize) -> String {
    let defs = joined(count, |i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}","title":"{i}"}}"##, i + 1));
    format!(
        r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs},"d{count}":{{"type":"string"}}}}}}"##
    )
}

/// Each reference is merged with what stands beside it, and 4,000 booleans are few schemas.
fn to_booleans() -> String {
    let wide = joined(4_000, |i| format!(r#""w{i}":true"#));
    let refs = joined(1_900, |i| format!(r##""r{i}":{{"$ref":"#/$defs/wide","type":"object"}}"##));
    format!(r##"{{"type":"object","properties":{{{refs}}},"$defs":{{"wide":{}}}}}"##, object(&wide))
}

fn to_text() -> String {
    let refs = joined(2_400, |i| format!(r##""r{i}":{{"$ref":"#/$defs/long"}}"##));
    let long = "d".repeat(100_000);
    format!(
        r##"{{"type":"object","properties":{{{refs}}},"$defs":{{"long":{{"type":"string","description":"{long}"}}}}}}"##
    )
}

/// 28 references inside each other, each merged with what stands beside it, and a wide schema at their end.
fn wide_chain() -> String {
    let wide = joined(3_000, |i| format!(r#""w{i}":{{"type":"string"}}"#));
    let defs = joined(28, |i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}","minProperties":{i}}}"##, i + 1));
    format!(
        r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs},"d28":{}}}}}"##,
        object(&wide)
    )
}

/// A root with as many branches as fit, of `values` values each.
fn union(keyword: &str, branch: impl Fn(usize) -> String, values: usize) -> String {
    format!(r#"{{"type":"object","{keyword}":[{}]}}"#, joined((MAX_NODES - 10) / values, branch))
}

fn inside(schema: &str) -> String {
    object(&format!(r#""inside":{schema}"#))
}

fn nested_unions() -> String {
    let inner = joined(60, |i| format!(r#"{{"type":"integer","minimum":{i}}}"#));
    let outer = joined(50, |_| format!(r#"{{"anyOf":[{inner}]}}"#));
    object(&format!(r#""a":{{"anyOf":[{outer}]}}"#))
}

fn beside_text() -> String {
    let branches = joined(1_900, |i| format!(r#"{{"type":"string","title":"{i}"}}"#));
    object(&format!(r#""a":{{"description":"{}","anyOf":[{branches}]}}"#, "d".repeat(100_000)))
}

fn beside_texts() -> String {
    let branches = joined(20, |i| format!(r#"{{"type":"string","title":"{i}"}}"#));
    let text = "d".repeat(800);
    object(&joined(130, |i| format!(r#""p{i}":{{"description":"{text}","anyOf":[{branches}]}}"#)))
}

fn only_branches() -> String {
    let wide = object(&joined(3_000, |i| format!(r#""w{i}":{{"type":"string"}}"#)));
    inside(&(0..28).fold(wide, |inner, i| format!(r#"{{"title":"{i}","anyOf":[{inner}]}}"#)))
}

fn unknown() -> String {
    object(&format!(r#""a":{{"type":"string",{}}}"#, joined(9_900, |i| format!(r#""k{i}":{i}"#))))
}

fn patterns() -> String {
    object(&joined(3_000, |i| format!(r#""p{i}":{{"pattern":"(?:a{{1000}}){{1000}}"}}"#)))
}

fn root_union() -> String {
    let branch = |b: usize| object(&joined(98, |i| format!(r#""p{b}_{i}":{{}}"#)));
    format!(r#"{{"type":"object","anyOf":[{}]}}"#, joined(97, branch))
}

fn mutual(count: usize) -> String {
    let defs = joined(count, |i| {
        let all = joined(20, |j| format!(r##""p{j}":{{"$ref":"#/$defs/d{}"}}"##, (i + j + 1) % count));
        format!(r#""d{i}":{}"#, object(&all))
    });
    format!(r##"{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs}}}}}"##)
}

fn list(keyword: &str, value: impl Fn(usize) -> String) -> String {
    object(&format!(r#""a":{{"{keyword}":[{}]}}"#, joined(MAX_NODES - 10, value)))
}

fn objects() -> String {
    object(&format!(r#""a":{{"enum":[{}]}}"#, joined(3_300, |i| format!(r#"{{"k":{i},"same":1}}"#))))
}

fn required() -> String {
    let properties = joined(4_990, |i| format!(r#""p{i}":{{}}"#));
    let names = joined(4_990, |i| format!(r#""p{i}""#));
    format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{names}]}}"#)
}

fn required_elsewhere() -> String {
    let properties = joined(3_000, |i| format!(r#""p{i}":{{"type":"string"}}"#));
    let names = joined(3_000, |i| format!(r#""q{i}""#));
    format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{names}]}}"#)
}

fn properties(count: usize, description: &str) -> String {
    let description =
        if description.is_empty() { String::new() } else { format!(r#","description":"{description}""#) };
    object(&joined(count, |i| format!(r#""p{i}":{{"type":"string"{description}}}"#)))
}

fn deep(levels: usize) -> String {
    (0..levels).fold(r#"{"type":"string"}"#.to_owned(), |inner, _| object(&format!(r#""a":{inner}"#)))
}

fn deep_and_wide() -> String {
    let beside = joined(150, |i| format!(r#""b{i}":{{}}"#));
    (0..29).fold(r#"{"type":"string"}"#.to_owned(), |inner, _| object(&format!(r#"{beside},"a":{inner}"#)))
}
