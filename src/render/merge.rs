//! Two schemas that must both hold, as one.

use std::collections::HashSet;

use crate::core::schema::tree::{Json, Object};

/// Keywords that tell something and demand nothing: where both have one, the outer one stays.
const ANNOTATIONS: [&str; 12] = [
    "$anchor",
    "$comment",
    "$id",
    "$schema",
    "default",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// Adds the members of `from` to those of `into`. Gives the keywords whose two values can't be made one; the value of
/// `into` stays.
pub(super) fn merge<'a>(into: &mut Object<'a>, from: Object<'a>) -> Vec<String> {
    let mut lost = Vec::new();
    let closed = |o: &Object<'_>| o.get("additionalProperties").is_some_and(|more| !more.is("true"));
    if (closed(into) || closed(&from)) && into.has("properties") && from.has("properties") {
        lost.push("additionalProperties".to_owned());
    }
    for (key, value) in from.0 {
        let Some(there) = into.get_mut(key.value()) else {
            into.0.push((key, value));
            continue;
        };
        if *there == value || ANNOTATIONS.contains(&key.value()) {
            continue;
        }
        if !both(key.value(), there, value) && !lost.iter().any(|l| l == key.value()) {
            lost.push(key.value().to_owned());
        }
    }
    lost
}

/// Makes two values of a keyword one; false if that can't be.
fn both<'a>(keyword: &str, there: &mut Json<'a>, value: Json<'a>) -> bool {
    match (keyword, there, value) {
        ("required", Json::Array(names), Json::Array(more)) => {
            let known: HashSet<String> = names.iter().filter_map(Json::str).map(str::to_owned).collect();
            names.extend(more.into_iter().filter(|name| name.str().is_none_or(|n| !known.contains(n))));
            true
        }
        ("properties" | "$defs" | "definitions", Json::Object(known), Json::Object(more)) => {
            let mut whole = true;
            for (name, schema) in more.0 {
                match known.get_mut(name.value()) {
                    None => known.0.push((name, schema)),
                    Some(same) if *same == schema => {}
                    Some(Json::Object(own)) => match schema {
                        Json::Object(other) => whole &= merge(own, other).is_empty(),
                        _ => whole = false,
                    },
                    Some(_) => whole = false,
                }
            }
            whole
        }
        ("enum", Json::Array(values), Json::Array(others)) => {
            // Both lists come from one bounded text, so that this stays small enough.
            let shared: Vec<_> = values.iter().filter(|value| others.contains(value)).cloned().collect();
            let some = !shared.is_empty();
            if some {
                *values = shared;
            }
            some
        }
        ("minimum" | "exclusiveMinimum" | "minItems" | "minLength" | "minProperties", there, value) => {
            bound(there, value, |there, value| value > there)
        }
        ("maximum" | "exclusiveMaximum" | "maxItems" | "maxLength" | "maxProperties", there, value) => {
            bound(there, value, |there, value| value < there)
        }
        _ => false,
    }
}

/// The narrower one of two bounds.
fn bound<'a>(there: &mut Json<'a>, value: Json<'a>, narrower: fn(f64, f64) -> bool) -> bool {
    let number = |json: &Json<'_>| if let Json::Literal(n) = json { n.parse::<f64>().ok() } else { None };
    match (number(there), number(&value)) {
        (Some(a), Some(b)) => {
            if narrower(a, b) {
                *there = value;
            }
            true
        }
        _ => false,
    }
}
