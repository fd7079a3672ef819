//! Two schemas that must both hold, as one.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use crate::core::schema::tree::{Json, Object, Text};

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

/// Keywords that name schemas.
const MAPS: [&str; 3] = ["$defs", "definitions", "properties"];

/// Objects with more members than this get an index.
const WIDE: usize = 8;

/// Adds the members of all `branches` to those of `into`, in their order. Neighbours are merged first, so that thousands of
/// branches never meet a list that holds all before them. Gives the keywords that can't be made one, each once.
pub(super) fn merge_all<'a>(into: &mut Object<'a>, mut branches: Vec<Object<'a>>) -> Vec<String> {
    let mut lost = Vec::new();
    // Maps of all branches together become one at once; meanwhile each has an empty one.
    let maps: Vec<(&str, Vec<Object<'a>>)> = match branches.len() {
        0 | 1 => Vec::new(),
        _ => MAPS.iter().map(|keyword| (*keyword, take_maps(into, &mut branches, keyword))).collect(),
    };
    while branches.len() > 1 {
        let mut halved = Vec::with_capacity(branches.len().div_ceil(2));
        let mut all = branches.into_iter();
        while let Some(mut one) = all.next() {
            if let Some(next) = all.next() {
                lost.extend(merge(&mut one, next));
            }
            halved.push(one);
        }
        branches = halved;
    }
    if let Some(whole) = branches.pop() {
        lost.extend(merge(into, whole));
    }
    for (keyword, maps) in maps {
        if !maps.is_empty() {
            let (whole, complete) = union(maps);
            if let Some(there) = into.get_mut(keyword) {
                *there = Json::Object(whole);
            }
            if !complete {
                lost.push(keyword.to_owned());
            }
        }
    }
    lost.sort_unstable();
    lost.dedup();
    lost
}

/// Takes the maps at a keyword out of all objects, if all that have it have a map there.
fn take_maps<'a>(into: &mut Object<'a>, branches: &mut [Object<'a>], keyword: &str) -> Vec<Object<'a>> {
    let all = || std::iter::once(&*into).chain(branches.iter());
    if all().any(|object| object.get(keyword).is_some_and(|value| value.object().is_none())) {
        return Vec::new();
    }
    let all = std::iter::once(into).chain(branches.iter_mut());
    all.filter_map(|object| object.get_mut(keyword)?.object_mut().map(std::mem::take)).collect()
}

/// The members of all maps, in their order; false if some schemas of one name can't be made one.
fn union<'a>(maps: Vec<Object<'a>>) -> (Object<'a>, bool) {
    let mut complete = true;
    let mut whole: Vec<(Text<'a>, Json<'a>)> = Vec::new();
    let mut further: HashMap<usize, Vec<Object<'a>>> = HashMap::new();
    let mut index: HashMap<Cow<'a, str>, usize> = HashMap::new();
    for (name, schema) in maps.into_iter().flat_map(|map| map.0) {
        let at = *index.entry(name.name()).or_insert(whole.len());
        match (whole.get(at).map(|(_, first)| first), schema) {
            (None, schema) => whole.push((name, schema)),
            (Some(first), schema) if *first == schema => {}
            (Some(Json::Object(_)), Json::Object(other)) => further.entry(at).or_default().push(other),
            _ => complete = false,
        }
    }
    for (at, others) in further {
        if let Some((_, Json::Object(first))) = whole.get_mut(at) {
            complete &= merge_all(first, others).is_empty();
        }
    }
    (Object(whole), complete)
}

/// Adds the members of `from` to those of `into`. Gives the keywords whose two values can't be made one; the value of
/// `into` stays.
pub(super) fn merge<'a>(into: &mut Object<'a>, from: Object<'a>) -> Vec<String> {
    let mut lost = Vec::new();
    let closed = |o: &Object<'_>| o.get("additionalProperties").is_some_and(|more| !more.is("true"));
    if (closed(into) || closed(&from)) && into.has("properties") && from.has("properties") {
        lost.push("additionalProperties".to_owned());
    }
    let places = places(into, &from);
    for ((key, value), place) in from.0.into_iter().zip(places) {
        let Some(at) = place else {
            into.0.push((key, value));
            continue;
        };
        let there = &mut into.0[at].1;
        if *there == value || ANNOTATIONS.contains(&key.value()) {
            continue;
        }
        if !both(key.value(), there, value) && !lost.iter().any(|l| l == key.value()) {
            lost.push(key.value().to_owned());
        }
    }
    lost
}

/// Where `into` has the keys of `from`.
fn places(into: &Object<'_>, from: &Object<'_>) -> Vec<Option<usize>> {
    if from.0.len() <= WIDE {
        let place = |key: &str| into.0.iter().position(|(k, _)| k.value() == key);
        return from.0.iter().map(|(key, _)| place(key.value())).collect();
    }
    let index: HashMap<&str, usize> =
        into.0.iter().enumerate().rev().map(|(at, (key, _))| (key.value(), at)).collect();
    from.0.iter().map(|(key, _)| index.get(key.value()).copied()).collect()
}

/// Makes two values of a keyword one; false if that can't be.
fn both<'a>(keyword: &str, there: &mut Json<'a>, value: Json<'a>) -> bool {
    match (keyword, there, value) {
        ("required", Json::Array(names), Json::Array(more)) => {
            let known: HashSet<&str> = names.iter().filter_map(Json::str).collect();
            let is_new = |name: &Json<'_>| name.str().is_none_or(|n| !known.contains(n));
            let more: Vec<_> = more.into_iter().filter(is_new).collect();
            names.extend(more);
            true
        }
        ("properties" | "$defs" | "definitions", Json::Object(known), Json::Object(more)) => {
            let mut whole = true;
            let places = places(known, &more);
            for ((name, schema), place) in more.0.into_iter().zip(places) {
                match place.map(|at| &mut known.0[at].1) {
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
            let others: HashSet<String> = others.iter().map(Json::to_text).collect();
            let shared: Vec<_> =
                values.iter().filter(|value| others.contains(&value.to_text())).cloned().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object<'_> {
        Json::parse(text).unwrap().object().unwrap().clone()
    }

    #[test]
    fn many_merge_as_one_after_the_other() {
        for count in [0, 1, 2, 3, 7, 100] {
            let texts: Vec<String> = (0..count)
                .map(|i| {
                    let (min, wide) = (i % 5, if i == 6 { ",\"w\":{}" } else { "" });
                    format!(
                        r#"{{"title":"{i}","minProperties":{min},"properties":{{"p{}":{{"type":"string"}},"q{i}":{{}}{wide}}},"required":["q{i}","p0"]}}"#,
                        i % 3
                    )
                })
                .collect();
            let root = r#"{"type":"object","properties":{"p1":{"type":"string","title":"mine"},"a":{}}}"#;
            let mut one_by_one = object(root);
            let mut lost: Vec<String> =
                texts.iter().flat_map(|text| merge(&mut one_by_one, object(text))).collect();
            lost.sort();
            lost.dedup();
            let mut together = object(root);
            assert_eq!(merge_all(&mut together, texts.iter().map(|text| object(text)).collect()), lost);
            assert_eq!(together, one_by_one, "{count}");
        }
    }

    #[test]
    fn what_differs_is_lost_and_the_first_one_stays() {
        let mut into = object(r#"{"type":"object"}"#);
        let branches = [r#"{"format":"a"}"#, r#"{"format":"b","type":"string"}"#, r#"{"format":"c"}"#];
        let lost = merge_all(&mut into, branches.into_iter().map(object).collect());
        assert_eq!(lost, ["format", "type"]);
        assert_eq!(Json::Object(into).to_text(), r#"{"type":"object","format":"a"}"#);
    }
}
