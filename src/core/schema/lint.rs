//! What no meta-schema sees: references into nothing, and schemas that are right and still not what anybody meant.

use std::collections::HashSet;

use super::{
    JsonFault, Warning, meta,
    refs::Targets,
    tree::{Json, Object},
    walk::{Path, each},
};
use crate::core::name::quote;

/// Most warnings of one schema.
const MAX_WARNINGS: usize = 100;
/// Most references of a schema that is compiled: each costs a lookup of its own there.
const MAX_COMPILED: usize = 256;
/// Most values of a schema that is compiled.
const MAX_COMPILED_VALUES: usize = 4_000;
/// The types of JSON Schema.
pub const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// What others call those types.
const MISNAMED: [(&str, &str); 13] = [
    ("any", "no type at all"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("double", "number"),
    ("float", "number"),
    ("hashmap", "object"),
    ("int", "integer"),
    ("list", "array"),
    ("long", "integer"),
    ("map", "object"),
    ("none", "null"),
    ("str", "string"),
    ("tuple", "array"),
];

/// What a schema is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A tool's arguments: must be an object.
    Input,
    /// A tool's result.
    Output,
}

/// All that is wrong with a schema, each place once.
pub fn faults(schema: &Json<'_>, role: Role) -> Vec<JsonFault> {
    let Json::Object(root) = schema else { return Vec::new() };
    let mut faults = types(schema, role);
    faults.extend(required_twice(schema));
    let mut places: HashSet<String> = faults.iter().map(|f| f.pointer.clone()).collect();
    match meta::dialect(root) {
        Err(unsupported) => faults.push(unsupported),
        Ok(draft) => {
            let found = meta::check(schema, draft);
            let lawful = found.is_empty() && faults.is_empty();
            // A keyword of the wrong type is told by several rules of the meta-schema.
            faults.extend(found.into_iter().filter(|fault| places.insert(fault.pointer.clone())));
            let (dangling, needs_compiling) = references(schema);
            let resolved = dangling.is_empty();
            faults.extend(dangling);
            if lawful
                && resolved
                && needs_compiling
                && let Some(message) = meta::compile(schema, draft)
            {
                faults.push(JsonFault { pointer: String::new(), message });
            }
        }
    }
    faults
}

/// `type` in our own words: what meta-schemas say about it helps nobody.
fn types(schema: &Json<'_>, role: Role) -> Vec<JsonFault> {
    let mut faults = Vec::new();
    each(schema, &mut Path::default(), &mut |schema, path| {
        let Some(given) = schema.object().and_then(|o| o.get("type")) else { return };
        let wrong = match given {
            Json::Array(all) => all.iter().find(|one| one.str().is_none_or(|t| !TYPES.contains(&t))),
            one => one.str().is_none_or(|t| !TYPES.contains(&t)).then_some(one),
        };
        let Some(wrong) = wrong.filter(|_| faults.len() < MAX_WARNINGS) else { return };
        let name = wrong.str().unwrap_or_default().to_ascii_lowercase();
        let hint = MISNAMED.iter().find(|(known, _)| *known == name);
        let hint = hint.map(|(_, right)| format!("; JSON Schema's word is {right}")).unwrap_or_default();
        let given = quote(wrong.str().map_or_else(|| wrong.to_text(), str::to_owned).as_str());
        let message = format!("{given} is not one of {}{hint}", TYPES.join(", "));
        faults.push(JsonFault { pointer: path.at("type"), message });
    });
    let root_type = schema.object().and_then(|o| o.get("type"));
    if role == Role::Input && root_type.and_then(Json::str) != Some("object") {
        let given = root_type.map_or_else(|| "absent".to_owned(), |t| quote(&t.to_text()));
        faults.retain(|fault| fault.pointer != "/type");
        let message = format!("must be \"object\", not {given}: the arguments of a tool are an object");
        faults.insert(0, JsonFault { pointer: "/type".to_owned(), message });
    }
    faults
}

/// Names that `required` has twice. Meta-schemas admit none of them, but point at the list, not at the name.
fn required_twice(schema: &Json<'_>) -> Vec<JsonFault> {
    let mut faults = Vec::new();
    each(schema, &mut Path::default(), &mut |schema, path| {
        let Some(names) = schema.object().and_then(|o| o.get("required")).and_then(Json::array) else {
            return;
        };
        let mut seen = HashSet::new();
        for (i, name) in names.iter().enumerate() {
            let Some(name) = name.str() else { continue };
            if seen.insert(name) || faults.len() >= MAX_WARNINGS {
                continue;
            }
            let mark = path.mark();
            path.push("required");
            let pointer = path.at(&i.to_string());
            path.back_to(mark);
            faults.push(JsonFault { pointer, message: format!("{} is required twice", quote(name)) });
        }
    });
    faults
}

/// References that lead nowhere, and whether some can be judged by compiling alone.
fn references(schema: &Json<'_>) -> (Vec<JsonFault>, bool) {
    let mut faults = Vec::new();
    let (mut count, mut dynamic) = (0, false);
    each(schema, &mut Path::default(), &mut |schema, _| {
        let Some(object) = schema.object() else { return };
        count += usize::from(object.get("$ref").is_some_and(|reference| reference.str().is_some()));
        dynamic |= object.has("$dynamicRef") || object.has("$recursiveRef");
    });
    if count == 0 && !dynamic {
        return (faults, false);
    }
    let mut targets = Targets::of(schema);
    let values = schema.nodes(MAX_COMPILED_VALUES + 1);
    let many = count > MAX_COMPILED || values > MAX_COMPILED_VALUES;
    if many && (targets.nested_ids || dynamic) {
        let message = if count > MAX_COMPILED {
            format!(
                "has {count} references; beside $dynamicRef, and schemas with ids of their own, at most {MAX_COMPILED} are allowed",
            )
        } else {
            format!(
                "has more than {MAX_COMPILED_VALUES} values; with $dynamicRef, or schemas with ids of their own, no more are allowed",
            )
        };
        return (vec![JsonFault { pointer: String::new(), message }], false);
    }
    each(schema, &mut Path::default(), &mut |schema, path| {
        let given = schema.object().and_then(|object| object.get("$ref")).and_then(Json::str);
        let Some(reference) = given else { return };
        let external = !reference.starts_with('#');
        let found = targets.find(reference).is_some_and(|t| matches!(t, Json::Object(_) | Json::Literal(_)));
        // With schemas inside that have ids of their own, only compiling tells what a reference is relative to.
        if found || targets.nested_ids || faults.len() >= MAX_WARNINGS {
            return;
        }
        let message = if external {
            format!(
                "{} is outside this schema; nothing is ever fetched, so put it into $defs",
                quote(reference)
            )
        } else {
            format!("{} points to nothing in this schema", quote(reference))
        };
        faults.push(JsonFault { pointer: path.at("$ref"), message });
    });
    // All references into the document itself are resolved by now.
    (faults, !many)
}

/// What is allowed and still worth telling.
pub fn warnings(schema: &Json<'_>) -> Vec<Warning> {
    let mut found = Vec::new();
    each(schema, &mut Path::default(), &mut |schema, path| {
        let Json::Object(object) = schema else { return };
        if found.len() < MAX_WARNINGS {
            required(object, path, &mut found);
            values(object, path, &mut found);
            arrays(object, path, &mut found);
            patterns(object, path, &mut found);
        }
    });
    found.truncate(MAX_WARNINGS);
    found
}

fn warn(found: &mut Vec<Warning>, pointer: String, code: &'static str, message: String) {
    found.push(Warning { pointer, code, message });
}

fn required(schema: &Object<'_>, path: &mut Path, found: &mut Vec<Warning>) {
    let Some(names) = schema.get("required").and_then(Json::array) else { return };
    // Beside combinators and references the names may be those of properties elsewhere.
    let here = schema.get("properties").and_then(Json::object);
    let elsewhere = ["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "patternProperties"];
    let complete = !elsewhere.iter().any(|keyword| schema.has(keyword)) && schema.has("type");
    let known: HashSet<&str> = here.into_iter().flat_map(|o| o.0.iter().map(|(k, _)| k.value())).collect();
    if !complete {
        return;
    }
    for (i, name) in names.iter().enumerate() {
        let Some(name) = name.str().filter(|name| !known.contains(name)) else { continue };
        let message = format!("{} is required, but no property has that name", quote(name));
        let mark = path.mark();
        path.push("required");
        warn(found, path.at(&i.to_string()), "REQUIRED_UNKNOWN", message);
        path.back_to(mark);
        if found.len() >= MAX_WARNINGS {
            return;
        }
    }
}

fn values(schema: &Object<'_>, path: &mut Path, found: &mut Vec<Warning>) {
    let allowed = allowed_types(schema);
    if allowed.is_empty() {
        return;
    }
    let given = allowed.join(" or ");
    if let Some(values) = schema.get("enum").and_then(Json::array) {
        let outside = values.iter().filter(|value| !fits(value, &allowed)).count();
        if outside > 0 {
            let message = format!("{outside} of its {} values are not of type {given}", values.len());
            warn(found, path.at("enum"), "ENUM_OUTSIDE_TYPE", message);
        }
    }
    if schema.get("const").is_some_and(|value| !fits(value, &allowed)) {
        warn(found, path.at("const"), "CONST_OUTSIDE_TYPE", format!("the value is not of type {given}"));
    }
}

fn arrays(schema: &Object<'_>, path: &mut Path, found: &mut Vec<Warning>) {
    let listed = ["items", "prefixItems", "$ref"].iter().any(|keyword| schema.has(keyword));
    if !listed && allowed_types(schema).contains(&"array") {
        let message = "an array without items: some providers refuse it, others get items of any kind";
        warn(found, path.shown(), "ARRAY_WITHOUT_ITEMS", message.to_owned());
    }
}

fn patterns(schema: &Object<'_>, path: &mut Path, found: &mut Vec<Warning>) {
    let message = "looks ahead or behind, which some providers refuse";
    let looks = |pattern: &str| ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| pattern.contains(look));
    if schema.get("pattern").and_then(Json::str).is_some_and(looks) {
        warn(found, path.at("pattern"), "PATTERN_LOOKAROUND", message.to_owned());
    }
    let named = schema.get("patternProperties").and_then(Json::object);
    if named.is_some_and(|named| named.0.iter().any(|(pattern, _)| looks(pattern.value()))) {
        warn(found, path.at("patternProperties"), "PATTERN_LOOKAROUND", message.to_owned());
    }
}

/// The types that a schema names; none if it names none.
pub fn allowed_types<'t>(schema: &'t Object<'_>) -> Vec<&'t str> {
    match schema.get("type") {
        Some(Json::Array(types)) => types.iter().filter_map(Json::str).collect(),
        Some(one) => one.str().into_iter().collect(),
        None => Vec::new(),
    }
}

/// Whether a value is of one of some types.
pub fn fits(value: &Json<'_>, types: &[&str]) -> bool {
    let own: &[&str] = match value {
        Json::Literal(literal) => match &**literal {
            "null" => &["null"],
            "true" | "false" => &["boolean"],
            number if is_integer(number) => &["integer", "number"],
            _ => &["number"],
        },
        Json::String(_) => &["string"],
        Json::Array(_) => &["array"],
        Json::Object(_) => &["object"],
    };
    own.iter().any(|own| types.contains(own))
}

/// `1`, `1.0` and `1e2` are integers, as JSON Schema counts since draft-06.
fn is_integer(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(|n| n.fract() == 0.0)
}
