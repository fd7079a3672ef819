//! What the rules of several providers do.

use super::{
    inline::{Stuck, inline_root},
    merge::merge_all,
    rule::{FLAGS, MAX_LOSSES, Place},
};
use crate::core::schema::{
    lint::{allowed_types, fits},
    tree::{Json, Object, Text},
    walk::Slot,
};

/// Longest name of a parameter.
const MAX_PARAMETER: usize = 64;

/// Keywords that older drafts write differently.
pub(super) const OLDER: &[&str] =
    &["$id", "dependencies", "exclusiveMaximum", "exclusiveMinimum", "id", "items"];

/// What older drafts write differently, as 2020-12 writes it.
pub(super) fn modernise(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let mut changed = Vec::new();
    // A tuple was `items` with a list, and what comes after it was `additionalItems`.
    if matches!(object.get("items"), Some(Json::Array(_))) {
        object.rename("items", "prefixItems");
        object.rename("additionalItems", "items");
        changed.push("items");
    }
    // Draft-04 had a flag beside the bound.
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match object.get(flag) {
            Some(set) if set.is("true") => {
                object.remove(flag);
                if object.has(bound) {
                    object.rename(bound, flag);
                }
                changed.push(flag);
            }
            Some(set) if set.is("false") => {
                object.remove(flag);
                changed.push(flag);
            }
            _ => {}
        }
    }
    if object.get("id").is_some_and(|id| id.str().is_some()) && !object.has("$id") {
        // Draft-04's `id`; an anchor was an id that begins with `#`.
        let anchor =
            object.get("id").and_then(Json::str).and_then(|id| id.strip_prefix('#')).map(str::to_owned);
        match anchor {
            Some(anchor) => {
                object.set("id", Json::text(anchor));
                object.rename("id", "$anchor");
            }
            None => object.rename("id", "$id"),
        }
        changed.push("id");
    }
    // So it was in draft-06 and draft-07; in 2020-12 no `$id` may hold a fragment.
    let anchor = object.get("$id").and_then(Json::str).and_then(|id| id.strip_prefix('#')).map(str::to_owned);
    if let Some(anchor) = anchor.filter(|anchor| !anchor.is_empty() && !object.has("$anchor")) {
        object.set("$id", Json::text(anchor));
        object.rename("$id", "$anchor");
        changed.push("$id");
    }
    if matches!(object.get("dependencies"), Some(Json::Object(_)))
        && let Some(Json::Object(all)) = object.remove("dependencies")
    {
        let (names, schemas): (Vec<_>, Vec<_>) =
            all.0.into_iter().partition(|(_, value)| matches!(value, Json::Array(_)));
        for (keyword, part) in [("dependentRequired", names), ("dependentSchemas", schemas)] {
            if !part.is_empty() {
                object.set(keyword, Json::Object(Object(part)));
            }
        }
        changed.push("dependencies");
    }
    for keyword in changed {
        place.hit_at(keyword, "written as JSON Schema 2020-12 has it");
    }
}

/// A root that is a reference becomes what it points to.
pub(super) fn root_reference(place: &mut Place<'_, '_>) {
    if let Ok(Some(lost)) = inline_root(place.schema) {
        place.hit_at("$ref", "replaced by what it points to");
        for keyword in lost {
            place.lost_at(&keyword, "what stands beside $ref stays, what $ref points to does not");
        }
    }
}

/// A root that is a reference to nowhere, or to itself.
pub(super) fn root_reference_stuck(place: &mut Place<'_, '_>) {
    if place.object().is_none_or(|object| !object.has("$ref")) {
        return;
    }
    match inline_root(&mut place.schema.clone()) {
        Ok(_) => {}
        Err(Stuck::Dangling(at)) => place.hit_pointer(at, "the reference points to nothing in this schema"),
        Err(Stuck::Recursive(at) | Stuck::TooLarge(at)) => {
            place.hit_pointer(at, "the schema of the arguments is a reference to itself");
        }
    }
}

/// The arguments are an object, and that has to be said.
pub(super) fn root_type(place: &mut Place<'_, '_>) {
    if let Some(object) = place.object()
        && object.get("type").and_then(Json::str) != Some("object")
    {
        object.remove("type");
        object.prepend("type", Json::text("object"));
        place.hit_at("type", "added");
    }
}

/// `properties` has to be there, even if it is empty.
pub(super) fn root_properties(place: &mut Place<'_, '_>) {
    if let Some(object) = place.object()
        && !object.has("properties")
    {
        object.set("properties", Json::Object(Object::default()));
        place.hit_at("properties", "added");
    }
}

/// Combinators of the root, for providers that refuse them all.
pub(super) fn root_combinators(place: &mut Place<'_, '_>) {
    flatten(place, &["allOf", "anyOf", "oneOf", "not", "enum", "const"]);
}

/// Combinators of the root, for providers that refuse those three.
pub(super) fn root_unions(place: &mut Place<'_, '_>) {
    flatten(place, &["allOf", "anyOf", "oneOf"]);
}

/// Takes combinators from the root. The properties of their branches become properties of the root; they are required only
/// where an `allOf` requires them.
fn flatten(place: &mut Place<'_, '_>, keywords: &[&str]) {
    for keyword in keywords {
        let Some(object) = place.object() else { return };
        let Some(taken) = object.remove(keyword) else { continue };
        let all = *keyword == "allOf";
        let mut kept = all;
        let Json::Array(branches) = taken else {
            place.lost_at(keyword, "can't be said at the top; left out");
            continue;
        };
        let mut schemas = Vec::with_capacity(branches.len());
        for branch in branches {
            let Json::Object(mut branch) = branch else {
                kept &= branch.is("true");
                continue;
            };
            if !all {
                branch.0.retain(|(key, _)| key.value() == "properties");
            } else if branch.has("$ref") {
                kept = false;
                continue;
            }
            schemas.push(branch);
        }
        kept &= merge_all(object, schemas).is_empty();
        match (kept, all) {
            (true, _) => place.hit_at(keyword, "its branches became one"),
            (false, true) => {
                place.lost_at(keyword, "can't be said at the top; what could be merged was merged")
            }
            (false, false) => place.lost_at(
                keyword,
                "can't be said at the top; the properties of its branches became optional ones",
            ),
        }
    }
}

/// `true` and `false` as schemas of a value; where they close or open an object or array, they stay.
pub(super) fn boolean_schemas(place: &mut Place<'_, '_>) {
    let mut changed = Vec::new();
    let Some(object) = place.object() else { return };
    for slot in Slot::of(object) {
        if !matches!(slot.get(object), Some(Json::Literal(_))) || FLAGS.contains(&slot.keyword(object)) {
            continue;
        }
        let keyword = slot.keyword(object).to_owned();
        let Some(inner) = slot.get_mut(object) else { continue };
        *inner = Json::Object(if inner.is("false") {
            Object(vec![(Text::new("not"), Json::Object(Object::default()))])
        } else {
            Object::default()
        });
        // One hit for each place, but no more than are told.
        if changed.len() <= MAX_LOSSES {
            changed.push(keyword);
        }
    }
    for keyword in changed {
        place.hit_at(&keyword, "true and false written as schemas");
    }
}

/// An array says what it holds, if only `{}`.
pub(super) fn array_items(place: &mut Place<'_, '_>) {
    if let Some(object) = place.object()
        && object.has("type")
        && !object.has("items")
        && allowed_types(object).contains(&"array")
    {
        object.set("items", Json::Object(Object::default()));
        place.hit_at("items", "added");
    }
}

/// An enum none of whose values fits the type: no argument would be right.
pub(super) fn enum_without_fit(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(values) = object.get("enum").and_then(Json::array) else { return };
    let types = allowed_types(object);
    if !types.is_empty() && !values.iter().any(|value| fits(value, &types)) {
        place.hit_at("enum", "none of its values is of the type that stands beside it");
    }
}

/// Values of an enum that no argument can have, as the type rules them out.
pub(super) fn enum_outside_type(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    if !object.has("enum") {
        return;
    }
    let types: Vec<String> = allowed_types(object).into_iter().map(str::to_owned).collect();
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let Some(Json::Array(values)) = object.get_mut("enum") else { return };
    let before = values.len();
    if !types.is_empty() {
        values.retain(|value| fits(value, &types));
    }
    if values.len() < before {
        place.hit_at("enum", "values that the type rules out are left out");
    }
}

/// A keyword that is for MCP clients alone.
pub(super) fn drop_header_keyword(place: &mut Place<'_, '_>) {
    if place.object().is_some_and(|object| object.remove("x-mcp-header").is_some()) {
        place.hit_at("x-mcp-header", "left out");
    }
}

/// Names of the arguments themselves: `^[a-zA-Z0-9_.-]{1,64}$`.
pub(super) fn parameter_names(place: &mut Place<'_, '_>) {
    bad_names(place, "must match ^[a-zA-Z0-9_.-]{1,64}$", |name| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    });
}

/// Notes each property whose name is empty, too long, or not `admitted`.
pub(super) fn bad_names(place: &mut Place<'_, '_>, rule: &str, admitted: fn(&str) -> bool) {
    let Some(named) = place.object().and_then(|o| o.get("properties")).and_then(Json::object) else { return };
    let bad: Vec<String> = named
        .0
        .iter()
        .map(|(name, _)| name.value())
        .filter(|name| !(1..=MAX_PARAMETER).contains(&name.len()) || !admitted(name))
        .map(str::to_owned)
        .collect();
    for name in bad {
        let mut path = place.path.clone();
        path.push("properties");
        let message = format!("the name {} of an argument {rule}", crate::core::name::quote(&name));
        place.hit_pointer(path.at(&name), message);
    }
}
