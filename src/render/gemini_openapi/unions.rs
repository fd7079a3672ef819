//! Rules about unions, and about what can't be said at all.

use std::collections::HashSet;

use crate::core::schema::{
    tree::{Json, Object, Text},
    walk::Path,
};
use crate::render::{
    merge::{merge, merge_all},
    rule::Place,
};

/// Most values that a union may grow to when what stands beside it is written into each branch.
const MAX_NODES: usize = 2_000;
/// Counted no further, where the bytes of what stands beside a union are.
const MAX_BYTES: usize = crate::core::schema::MAX_BYTES;

pub(super) fn all_of(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    // Branches may hold an allOf of their own; each round takes one away.
    let (mut found, mut lost) = (false, Vec::new());
    while let Some(taken) = object.remove("allOf") {
        found = true;
        let Json::Array(branches) = taken else { break };
        let mut schemas = Vec::with_capacity(branches.len());
        for branch in branches {
            match branch {
                Json::Object(branch) => schemas.push(branch),
                other if other.is("true") => {}
                _ => lost.push("allOf".to_owned()),
            }
        }
        lost.extend(merge_all(object, schemas));
    }
    if found {
        place.hit_at("allOf", "its branches became one");
    }
    for keyword in lost {
        place.lost_at(&keyword, "the branches of allOf say different things; the first one stays");
    }
}

pub(super) fn one_of(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    if !object.has("oneOf") {
        return;
    }
    if object.has("anyOf") {
        object.remove("oneOf");
        place.hit_at("oneOf", "two unions at one place: the second one is left out");
    } else {
        object.rename("oneOf", "anyOf");
        place.hit_at("oneOf", "written as anyOf, which does not say that only one may hold");
    }
}

/// `type: [..]`: null is `nullable`; several others are branches, each with the keywords that are about it.
pub(super) fn type_list(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(Json::Array(types)) = object.get("type") else { return };
    let mut names: Vec<String> = types.iter().filter_map(Json::str).map(str::to_owned).collect();
    let all = names.len();
    names.retain(|name| name != "null");
    if names.len() < all && !names.is_empty() {
        object.set("nullable", Json::literal("true"));
    }
    match names.as_slice() {
        [] => object.set("type", Json::text("null")),
        [one] => object.set("type", Json::text(one.clone())),
        _ if object.has("anyOf") => {
            object.remove("type");
        }
        several => split(object, several),
    }
    place.hit_at("type", "one type each, and nullable");
}

/// One branch for each type.
fn split(object: &mut Object<'_>, types: &[String]) {
    let about = |key: &str| match key {
        "properties"
        | "required"
        | "additionalProperties"
        | "minProperties"
        | "maxProperties"
        | "patternProperties"
        | "propertyNames"
        | "unevaluatedProperties"
        | "dependentRequired"
        | "dependentSchemas" => Some("object"),
        "items" | "prefixItems" | "minItems" | "maxItems" | "uniqueItems" | "contains"
        | "unevaluatedItems" => Some("array"),
        "minLength" | "maxLength" | "pattern" | "format" | "contentMediaType" | "contentEncoding" => {
            Some("string")
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Some("number"),
        _ => None,
    };
    let mut branches = Vec::new();
    for name in types {
        let mut branch = Object(vec![(Text::new("type"), Json::text(name.clone()))]);
        let family = if name == "integer" { "number" } else { name };
        for (key, value) in &object.0 {
            match value {
                Json::Array(values) if key.value() == "enum" => {
                    let own = values.iter().filter(|v| crate::core::schema::lint::fits(v, &[name]));
                    branch.0.push((key.clone(), Json::Array(own.cloned().collect())));
                }
                _ if about(key.value()) == Some(family) => branch.0.push((key.clone(), value.clone())),
                _ => {}
            }
        }
        // A type that none of the values has.
        if branch.get("enum").and_then(Json::array).is_none_or(|values| !values.is_empty()) {
            branches.push(Json::Object(branch));
        }
    }
    object.0.retain(|(key, _)| !matches!(key.value(), "type" | "enum") && about(key.value()).is_none());
    object.set("anyOf", Json::Array(branches));
}

/// A branch that is null.
pub(super) fn null_branch(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(Json::Array(branches)) = object.get_mut("anyOf") else { return };
    let null = |branch: &Json<'_>| {
        let Some(branch) = branch.object() else { return false };
        branch.get("type").and_then(Json::str) == Some("null")
            || branch.get("enum").and_then(Json::array).is_some_and(|v| matches!(v, [one] if one.is("null")))
    };
    let before = branches.len();
    branches.retain(|branch| !null(branch));
    let (some, nullable) = (!branches.is_empty(), branches.len() < before);
    match (nullable, some) {
        (false, _) => return,
        (true, true) => object.set("nullable", Json::literal("true")),
        (true, false) => {
            object.remove("anyOf");
            object.set("type", Json::text("null"));
        }
    }
    place.hit_at("anyOf", "null written as nullable");
}

/// A union that only says which properties go together.
pub(super) fn condition(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(branches) = object.get("anyOf").and_then(Json::array) else { return };
    let shaped = object.has("properties") || object.has("items") || place_is_typed(object, branches);
    if shaped {
        object.remove("anyOf");
        place.hit_at("anyOf", "can't stand beside what it is about; left out");
    }
}

/// A type beside branches that have none of their own.
fn place_is_typed(object: &Object<'_>, branches: &[Json<'_>]) -> bool {
    object.has("type") && branches.iter().all(|b| b.object().is_none_or(|b| !b.has("type")))
}

/// A union is the only thing at its place.
pub(super) fn alone(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(Json::Array(branches)) = object.get_mut("anyOf") else { return };
    if let [Json::Object(only)] = branches.as_mut_slice() {
        let only = std::mem::take(only);
        object.remove("anyOf");
        let lost = merge(object, only);
        place.hit_at("anyOf", "its only branch took its place");
        for keyword in lost {
            place.lost_at(&keyword, "the union says otherwise");
        }
        // The branch may have been a union itself.
        return alone(place);
    }
    if object.0.len() == 1 {
        return;
    }
    let mut beside = std::mem::take(&mut object.0);
    let union = beside.iter().position(|(key, _)| key.value() == "anyOf").map(|at| beside.remove(at));
    let Some((key, Json::Array(mut branches))) = union else { return };
    let count = branches.len();
    let values: usize = beside.iter().map(|(_, value)| value.nodes(MAX_NODES)).sum();
    let bytes: usize = beside.iter().map(|(key, value)| key.bytes() + value.bytes(MAX_BYTES) + 2).sum();
    let (values, bytes) = (values.saturating_mul(count), bytes.saturating_mul(count));
    if values > MAX_NODES || !place.may_repeat(values, bytes) {
        if let Some(object) = place.object() {
            object.0 = vec![(key, Json::Array(branches))];
        }
        place.lost_at(
            "anyOf",
            "what stands beside a union is too large to be written into each of its branches",
        );
        return;
    }
    let mut lost = false;
    for branch in &mut branches {
        if let Json::Object(branch) = branch {
            lost |= !into_branch(branch, &beside);
        }
    }
    if let Some(object) = place.object() {
        object.0 = vec![(key, Json::Array(branches))];
    }
    if lost {
        place.lost_at("anyOf", "what stands beside a union and contradicts it is left out");
    } else {
        place.hit_at("anyOf", "what stands beside a union is written into its branches");
    }
}

/// Writes into a branch what stood beside the union; false if they contradict each other.
fn into_branch<'a>(branch: &mut Object<'a>, beside: &[(Text<'a>, Json<'a>)]) -> bool {
    let mut outer = Object(beside.to_vec());
    // Both descriptions are true: the union's first.
    if let (Some(of_union), Some(own)) =
        (outer.get("description").and_then(Json::str), branch.get("description").and_then(Json::str))
    {
        let both = if of_union == own { own.to_owned() } else { format!("{of_union} {own}") };
        branch.set("description", Json::text(both));
    }
    if branch.has("anyOf") {
        // It is spread over the branches of that one when its turn comes.
        outer.remove("type");
    }
    // A default of the union is one of one branch alone.
    let default = outer.remove("default");
    if let Some(default) = default
        && !branch.has("default")
        && crate::core::schema::lint::fits(&default, &crate::core::schema::lint::allowed_types(branch))
    {
        branch.set("default", default);
    }
    let types: Vec<String> =
        crate::core::schema::lint::allowed_types(branch).into_iter().map(str::to_owned).collect();
    let title = outer.remove("title");
    if let (Some(title), false) = (title, branch.has("title")) {
        branch.set("title", title);
    }
    let lost = merge(branch, outer);
    lost.iter().all(|keyword| keyword == "type" && types == ["integer"])
}

/// What this format can't say: objects of no known members, values that can't be, null alone.
fn is_inexpressible(schema: &Json<'_>) -> bool {
    let Json::Object(object) = schema else { return schema.is("false") };
    match object.get("type").and_then(Json::str) {
        Some("object") => {
            object.get("properties").and_then(Json::object).is_none_or(|named| named.0.is_empty())
        }
        Some("null") => true,
        Some("array") => object.get("items").is_some_and(is_inexpressible),
        _ => object.get("anyOf").and_then(Json::array).is_some_and(<[_]>::is_empty),
    }
}

/// Leaves out each optional place that can't be said, for the next rule to tell; notes each required one.
pub(super) fn inexpressible(place: &mut Place<'_, '_>) {
    let (mut gone, mut required) = (Vec::new(), Vec::new());
    prune(place.schema, true, &mut Path::default(), &mut gone, &mut required);
    place.set_left_out(gone);
    if let Some(pointer) = required.into_iter().next() {
        place.hit_pointer(
            pointer,
            "a required argument that this format can't say: an object of any members, or null",
        );
    }
}

/// Tells what the last rule left out.
pub(super) fn left_out(place: &mut Place<'_, '_>) {
    for pointer in place.left_out() {
        place.hit_pointer(pointer, "this format can't say it (an object of any members, or null); left out");
    }
}

/// Takes out what can't be said, inner places first.
fn prune(
    schema: &mut Json<'_>,
    root: bool,
    path: &mut Path,
    gone: &mut Vec<String>,
    required: &mut Vec<String>,
) {
    let Json::Object(object) = schema else { return };
    let needed: HashSet<String> = object
        .get("required")
        .and_then(Json::array)
        .map(|names| names.iter().filter_map(Json::str).map(str::to_owned).collect())
        .unwrap_or_default();
    if let Some(Json::Object(named)) = object.get_mut("properties") {
        let mark = path.mark();
        path.push("properties");
        let mut blocked = false;
        named.0.retain_mut(|(name, inner)| {
            let mark = path.mark();
            path.push(name.value());
            prune(inner, false, path, gone, required);
            let bad = is_inexpressible(inner);
            let must = needed.contains(name.value());
            if bad && must && root {
                required.push(path.shown());
            } else if bad && !must {
                gone.push(path.shown());
            }
            blocked |= bad && must;
            path.back_to(mark);
            !bad || must
        });
        // Without one of its required members an inner object can't be said either.
        if blocked && !root {
            named.0.clear();
        }
        path.back_to(mark);
    }
    if let Some(items) = object.get_mut("items") {
        let mark = path.mark();
        path.push("items");
        prune(items, false, path, gone, required);
        path.back_to(mark);
    }
    if let Some(Json::Array(branches)) = object.get_mut("anyOf") {
        let mark = path.mark();
        path.push("anyOf");
        let mut index = 0;
        branches.retain_mut(|branch| {
            let mark = path.mark();
            path.index(index);
            index += 1;
            prune(branch, false, path, gone, required);
            let bad = is_inexpressible(branch);
            if bad {
                gone.push(path.shown());
            }
            path.back_to(mark);
            !bad
        });
        path.back_to(mark);
    }
}
