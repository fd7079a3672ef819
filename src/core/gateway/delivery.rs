//! The one part of a status that is JSON of the gateway's own making: checked when it comes, printed anew for the model.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::core::python;

/// Deepest nesting. It bounds the work too: each level is read once more.
const MAX_DEPTH: usize = 64;

/// What is wrong with a JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonFault {
    /// JSON pointer to the place; empty for the whole.
    pub(super) pointer: String,
    pub(super) message: String,
}

/// Checks that the text is one JSON object, without duplicate keys.
pub(super) fn check(text: &str) -> Result<(), JsonFault> {
    parse(text).map(drop)
}

/// Appends the object as `json.dumps(..., sort_keys=True)` prints it, with its number literals kept: Python would print
/// `1e2` as `100.0`, but what a gateway sends is for the model, not for us to round.
pub(super) fn push(out: &mut String, text: &str) {
    match parse(text) {
        Ok(object) => object.push(out),
        // Can't be: it was checked when it came. An empty object claims nothing.
        Err(_) => out.push_str("{}"),
    }
}

fn parse(text: &str) -> Result<Json, JsonFault> {
    let fault = |message| JsonFault { pointer: String::new(), message };
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| fault(format!("is not valid JSON: {error}")))?;
    if !raw.get().starts_with('{') {
        return Err(fault("must be a JSON object".to_owned()));
    }
    read(raw.get(), &mut String::new(), 1)
}

/// A JSON value whose numbers are as they were written.
enum Json {
    /// A number, `true`, `false` or `null`.
    Literal(Box<str>),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    fn push(&self, out: &mut String) {
        let comma = |out: &mut String, i: usize| {
            if i > 0 {
                out.push_str(", ");
            }
        };
        match self {
            Self::Literal(literal) => out.push_str(literal),
            Self::Text(text) => python::push_json(out, text),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    comma(out, i);
                    item.push(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    comma(out, i);
                    python::push_json(out, key);
                    out.push_str(": ");
                    value.push(out);
                }
                out.push('}');
            }
        }
    }
}

/// Reads a value of known good grammar. What can still be wrong: escapes that make no text, duplicate keys, the depth.
fn read(raw: &str, pointer: &mut String, depth: usize) -> Result<Json, JsonFault> {
    let fault = |pointer: &str, message: String| JsonFault { pointer: pointer.to_owned(), message };
    let invalid =
        |pointer: &str, error: &serde_json::Error| fault(pointer, format!("is not valid JSON: {error}"));
    let first = raw.as_bytes().first();
    if matches!(first, Some(b'{' | b'[')) && depth > MAX_DEPTH {
        return Err(fault("", format!("nests deeper than {MAX_DEPTH}")));
    }
    let outer = pointer.len();
    match first {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(raw).map_err(|error| invalid(pointer, &error))?;
            let mut object = BTreeMap::new();
            for (key, value) in members {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                if object.contains_key(&key) {
                    return Err(fault(pointer, "is there twice".to_owned()));
                }
                let value = read(value.get(), pointer, depth + 1)?;
                pointer.truncate(outer);
                object.insert(key, value);
            }
            Ok(Json::Object(object))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> =
                serde_json::from_str(raw).map_err(|error| invalid(pointer, &error))?;
            let mut array = Vec::with_capacity(items.len());
            for (i, item) in items.into_iter().enumerate() {
                pointer.push('/');
                pointer.push_str(&i.to_string());
                array.push(read(item.get(), pointer, depth + 1)?);
                pointer.truncate(outer);
            }
            Ok(Json::Array(array))
        }
        Some(b'"') => serde_json::from_str(raw).map(Json::Text).map_err(|error| invalid(pointer, &error)),
        // Readers would turn it into infinity, which no JSON can say.
        _ if raw.parse::<f64>().is_ok_and(f64::is_infinite) => {
            Err(fault(pointer, "is a number beyond the range of a double".to_owned()))
        }
        _ => Ok(Json::Literal(raw.into())),
    }
}

/// An object's members in their order, duplicates included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
