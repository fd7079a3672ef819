//! Whether a text is a schema of its own dialect, judged by the dialect's meta-schema, and whether it can be compiled.
//! Nothing is ever fetched.

mod flat;
mod plain;

use jsonschema::{Draft, ValidationError, Validator};
use serde_json::{Map, Number, Value};

use super::{
    tree::{Json, Object},
    walk::Path,
};
use crate::core::{name::clean, schema::JsonFault};

/// Longest text of a fault, in characters.
const MAX_MESSAGE: usize = 256;
/// Most faults of one schema that are told.
const MAX_FAULTS: usize = 64;

/// The dialects that are known, by their `$schema` without scheme and `#`.
const DIALECTS: [(&str, Draft); 5] = [
    ("json-schema.org/draft-04/schema", Draft::Draft4),
    ("json-schema.org/draft-06/schema", Draft::Draft6),
    ("json-schema.org/draft-07/schema", Draft::Draft7),
    ("json-schema.org/draft/2019-09/schema", Draft::Draft201909),
    ("json-schema.org/draft/2020-12/schema", Draft::Draft202012),
];

/// The dialect that a schema declares; 2020-12 if it declares none.
///
/// # Errors
/// It declares another one.
pub fn dialect(schema: &Object<'_>) -> Result<Draft, JsonFault> {
    let Some(declared) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let known = declared.str().and_then(|uri| {
        let uri = uri.strip_suffix('#').unwrap_or(uri);
        let name = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"))?;
        DIALECTS.iter().find(|(known, _)| *known == name)
    });
    known.map(|(_, draft)| *draft).ok_or_else(|| JsonFault {
        pointer: "/$schema".to_owned(),
        message: format!(
            "unsupported dialect {}; draft-04, -06, -07, 2019-09 and 2020-12 are supported",
            clean(&declared.to_text(), 80)
        ),
    })
}

/// All that the dialect's meta-schema finds wrong.
pub fn check(schema: &Json<'_>, draft: Draft) -> Vec<JsonFault> {
    let Some(value) = plain::doubtful(schema, draft) else { return Vec::new() };
    if let Some(validator) = flat::validator(draft) {
        if validator.is_valid(&value) {
            return Vec::new();
        }
        return told(schema, validator.iter_errors(&value));
    }
    let validator = match draft {
        Draft::Draft4 => jsonschema::draft4::meta::validator(),
        Draft::Draft6 => jsonschema::draft6::meta::validator(),
        Draft::Draft7 => jsonschema::draft7::meta::validator(),
        Draft::Draft201909 => jsonschema::draft201909::meta::validator(),
        _ => jsonschema::draft202012::meta::validator(),
    };
    if validator.is_valid(&value) {
        return Vec::new();
    }
    told(schema, validator.iter_errors(&value))
}

fn told<'v>(schema: &Json<'_>, errors: impl Iterator<Item = ValidationError<'v>>) -> Vec<JsonFault> {
    let fault = |error: ValidationError<'_>| JsonFault {
        pointer: in_schema(schema, error.instance_path().as_str()),
        message: clean(&error.to_string(), MAX_MESSAGE),
    };
    errors.take(MAX_FAULTS).map(fault).collect()
}

/// Why a schema that its meta-schema admits can't be compiled.
pub fn compile(schema: &Json<'_>, draft: Draft) -> Option<String> {
    let built: Result<Validator, _> =
        jsonschema::options().with_draft(draft).offline().build(&judged(schema));
    built.err().map(|error| clean(&error.to_string(), MAX_MESSAGE))
}

/// The value that is judged: the schema, but for what costs more than it tells. Patterns are not compiled (one of 30 bytes
/// can take seconds, and each provider has its own kind); names that `required` has twice are told by `lint`, one by one.
fn judged(schema: &Json<'_>) -> Value {
    match schema {
        Json::Literal(literal) => match &**literal {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            number => number.parse::<Number>().map_or(Value::Null, Value::Number),
        },
        Json::String(text) => text.value().into(),
        Json::Array(items) => items.iter().map(judged).collect(),
        Json::Object(object) => {
            let members =
                object.0.iter().map(|(key, value)| (key.value().to_owned(), member(key.value(), value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn member(keyword: &str, value: &Json<'_>) -> Value {
    match (keyword, value) {
        ("pattern", Json::String(_)) => Value::from(""),
        ("required", Json::Array(names)) => without_twins(names),
        ("patternProperties", Json::Object(named)) => {
            let numbered = named.0.iter().enumerate();
            numbered.map(|(i, (_, value))| (i.to_string(), judged(value))).collect()
        }
        _ => judged(value),
    }
}

fn without_twins(names: &[Json<'_>]) -> Value {
    let mut seen = std::collections::HashSet::new();
    names.iter().filter(|name| name.str().is_none_or(|name| seen.insert(name))).map(judged).collect()
}

/// A pointer into the judged value as one into the schema: patterns have their names again.
fn in_schema(schema: &Json<'_>, pointer: &str) -> String {
    let (mut at, mut of_patterns) = (Some(schema), false);
    let mut path = Path::default();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let (name, inner) = match at {
            Some(Json::Object(object)) if of_patterns => {
                match step.parse().ok().and_then(|i: usize| object.0.get(i)) {
                    Some((pattern, value)) => (pattern.value().to_owned(), Some(value)),
                    None => (step, None),
                }
            }
            Some(Json::Object(object)) => {
                let inner = object.get(&step);
                (step, inner)
            }
            Some(Json::Array(items)) => {
                let inner = step.parse().ok().and_then(|i: usize| items.get(i));
                (step, inner)
            }
            _ => (step, None),
        };
        of_patterns = !of_patterns && name == "patternProperties" && !matches!(at, Some(Json::Array(_)));
        path.push(&name);
        at = inner;
    }
    path.shown()
}
