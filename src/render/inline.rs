//! References replaced by what they point to.

use std::collections::HashMap;

use super::merge::merge;
use crate::core::schema::{
    refs::Targets,
    tree::{Json, Object},
    walk::{Path, Slot},
};

/// Most values of a schema once all its references are replaced.
pub(super) const MAX_NODES: usize = 10_000;
/// Most levels of schemas inside each other once all references are replaced.
const MAX_LEVELS: usize = 64;

/// Keywords beside a reference that take nothing away from what it points to.
const REMARKS: [&str; 4] = ["$comment", "$ref", "description", "title"];

/// Why a reference can't be replaced, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// It leads back to where it is.
    Recursive(String),
    /// The whole would grow over the bound.
    TooLarge(String),
    /// It points to nothing that is known.
    Dangling(String),
}

/// Whether there is a reference at all.
pub(super) fn has_references(schema: &Json<'_>) -> bool {
    let Some(object) = schema.object() else { return false };
    ["$ref", "$dynamicRef", "$recursiveRef"].iter().any(|keyword| object.has(keyword))
        || Slot::of(object).into_iter().filter_map(|slot| slot.get(object)).any(has_references)
}

/// The schema without references. Its definitions stay; they may hold some that nothing uses.
///
/// # Errors
/// The first reference that can't be replaced.
pub(super) fn inlined<'a>(root: &Json<'a>) -> Result<Json<'a>, Stuck> {
    let mut inliner =
        Inliner { targets: Targets::of(root), least: HashMap::new(), open: Vec::new(), nodes: 0, levels: 0 };
    let mut whole = root.clone();
    if let Json::Object(object) = &mut whole {
        object.remove("$defs");
        object.remove("definitions");
    }
    inliner.schema(whole, &mut Path::default())
}

/// Replaces the reference at the root, and leaves all others. Gives the keywords that could not be merged, or nothing if
/// there is no reference.
///
/// # Errors
/// The reference can't be replaced.
pub(super) fn inline_root(root: &mut Json<'_>) -> Result<Option<Vec<String>>, Stuck> {
    let mut lost: Option<Vec<String>> = None;
    let mut known = Vec::new();
    loop {
        let Some(reference) =
            root.object().and_then(|o| o.get("$ref")).and_then(Json::str).map(str::to_owned)
        else {
            return Ok(lost);
        };
        let target = Targets::of(root).find(&reference).cloned();
        let Some(Json::Object(target)) = target else { return Err(Stuck::Dangling("/$ref".to_owned())) };
        if known.contains(&reference) || reference == "#" {
            return Err(Stuck::Recursive("/$ref".to_owned()));
        }
        known.push(reference);
        if let Some(object) = root.object_mut() {
            object.remove("$ref");
            lost.get_or_insert_default().extend(merge(object, target));
        }
    }
}

struct Inliner<'t, 'a> {
    targets: Targets<'t, 'a>,
    /// How many values stand at least for a reference once it is replaced; none while that is being counted.
    least: HashMap<&'t str, Option<usize>>,
    /// The references that are being replaced, outer ones first.
    open: Vec<String>,
    nodes: usize,
    levels: usize,
}

impl<'t, 'a> Inliner<'t, 'a> {
    fn schema(&mut self, schema: Json<'a>, path: &mut Path) -> Result<Json<'a>, Stuck> {
        let Json::Object(mut object) = schema else { return Ok(schema) };
        if object.has("$dynamicRef") || object.has("$recursiveRef") {
            return Err(Stuck::Recursive(path.shown()));
        }
        let target = match object.remove("$ref") {
            Some(reference) => {
                let target = self.target(&reference, path)?;
                let target = self.schema(target, path)?;
                // What stands beside the reference is not part of what it points to, and may use it once more.
                self.open.pop();
                Some(target)
            }
            None => None,
        };
        // What is inside of this schema is counted when it is reached.
        self.nodes += own_nodes(&object);
        self.levels += 1;
        if self.nodes > MAX_NODES || self.levels > MAX_LEVELS {
            return Err(Stuck::TooLarge(path.shown()));
        }
        for slot in Slot::of(&object) {
            let mark = path.mark();
            slot.enter(&object, path);
            if let Some(inner) = slot.get_mut(&mut object) {
                let taken = std::mem::replace(inner, Json::literal("true"));
                *inner = self.schema(taken, path)?;
            }
            path.back_to(mark);
        }
        self.levels -= 1;
        match target {
            // What the annotations of both say apart, the place itself knows better; the rest must hold together.
            Some(Json::Object(target)) => merge_or_all_of(&mut object, target),
            Some(target) if target.is("false") => {
                object = Object(vec![(
                    crate::core::schema::tree::Text::new("not"),
                    Json::Object(Object::default()),
                )]);
            }
            _ => {}
        }
        Ok(Json::Object(object))
    }

    fn target(&mut self, reference: &Json<'_>, path: &Path) -> Result<Json<'a>, Stuck> {
        let reference = reference.str().ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        if self.open.iter().any(|open| open == reference) || reference == "#" {
            return Err(Stuck::Recursive(path.at("$ref")));
        }
        let found = self.targets.find(reference).filter(|_| !self.targets.nested_ids);
        let target = found.ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        // What would grow over the bound is not begun.
        if self.nodes + self.least(target, 0).unwrap_or(1) > MAX_NODES {
            return Err(Stuck::TooLarge(path.at("$ref")));
        }
        self.open.push(reference.to_owned());
        Ok(target.clone())
    }

    /// How many values a schema has at least once it is inlined; each definition is counted once. None: there is a reference
    /// that leads back to where it is.
    fn least(&mut self, schema: &'t Json<'a>, level: usize) -> Option<usize> {
        let Some(object) = schema.object() else { return Some(1) };
        if level > MAX_LEVELS {
            return Some(1);
        }
        if let Some(reference) = object.get("$ref").and_then(Json::str) {
            // Beside others, a reference is merged with them, and some of what it points to may go.
            let alone = object.0.iter().all(|(key, _)| REMARKS.contains(&key.value()));
            return if alone { self.least_of(reference, level) } else { Some(1) };
        }
        let mut count = own_nodes(object);
        for slot in Slot::of(object) {
            if let Some(inner) = slot.get(object) {
                count += self.least(inner, level + 1)?;
            }
            if count > MAX_NODES {
                break;
            }
        }
        Some(count)
    }

    fn least_of(&mut self, reference: &'t str, level: usize) -> Option<usize> {
        if let Some(known) = self.least.get(reference) {
            return *known;
        }
        let Some(target) = self.targets.find(reference) else { return Some(1) };
        self.least.insert(reference, None);
        let count = self.least(target, level + 1);
        self.least.insert(reference, count);
        count
    }
}

/// Merges; what can't be merged stays side by side in an `allOf`.
fn merge_or_all_of<'a>(object: &mut Object<'a>, target: Object<'a>) {
    if object.0.is_empty() {
        *object = target;
        return;
    }
    let mut merged = object.clone();
    if merge(&mut merged, target.clone()).is_empty() {
        *object = merged;
        return;
    }
    match object.get_mut("allOf") {
        Some(Json::Array(all)) => all.push(Json::Object(target)),
        _ => object.set("allOf", Json::Array(vec![Json::Object(target)])),
    }
}

/// The values of a schema that are in no schema inside it.
fn own_nodes(object: &Object<'_>) -> usize {
    let inside: usize =
        Slot::of(object).into_iter().filter_map(|s| s.get(object)).map(|s| s.nodes(MAX_NODES)).sum();
    object.0.iter().map(|(_, v)| v.nodes(MAX_NODES)).sum::<usize>().saturating_sub(inside) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stuck(text: &str) -> Option<Stuck> {
        inlined(&Json::parse(text).unwrap()).err()
    }

    /// Each definition holds the next one twice.
    fn doubling(levels: usize, remark: &str) -> String {
        let mut defs = format!(r#""d{levels}":{{"type":"string"}}"#);
        for level in 0..levels {
            let one = format!(r##"{{"$ref":"#/$defs/d{}"{remark}}}"##, level + 1);
            defs.push_str(&format!(r#","d{level}":{{"properties":{{"a":{one},"b":{one}}}}}"#));
        }
        format!(
            r##"{{"properties":{{"x":{{"type":"string"}},"y":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{defs}}}}}"##
        )
    }

    #[test]
    fn what_would_grow_over_the_bound_is_not_begun() {
        for remark in ["", r#","title":"t""#] {
            // 2 ^ 11 texts and as many schemas above them, each with an object for its properties and a type.
            assert_eq!(stuck(&doubling(10, remark)), None, "{remark}");
            assert_eq!(stuck(&doubling(14, remark)), Some(Stuck::TooLarge("/properties/y/$ref".to_owned())));
            assert_eq!(stuck(&doubling(60, remark)), Some(Stuck::TooLarge("/properties/y/$ref".to_owned())));
        }
        // Merged with others, it is only found out on the way; and still is.
        assert!(matches!(stuck(&doubling(40, r#","minLength":1"#)), Some(Stuck::TooLarge(_))));
    }

    #[test]
    fn the_least_count_is_never_above_what_there_is() {
        for text in [
            r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"},"c":{"$ref":"#/$defs/b","title":"c"}}},"b":{"enum":[1,[2,3]]}}}"##,
            r##"{"properties":{"a":{"$ref":"#/$defs/a","type":"string"}},"$defs":{"a":{"type":"string","title":"x"}}}"##,
            r##"{"properties":{"a":{"$ref":"#/$defs/a","description":"x"}},"$defs":{"a":{"description":"y","allOf":[true,{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/c"},"c":false}}"##,
        ] {
            let json = Json::parse(text).unwrap();
            let mut inliner = Inliner {
                targets: Targets::of(&json),
                least: HashMap::new(),
                open: Vec::new(),
                nodes: 0,
                levels: 0,
            };
            let a = inliner.targets.find("#/properties/a").unwrap();
            let least = inliner.least(a, 0).unwrap();
            let whole = inlined(&json).unwrap();
            let there = Targets::of(&whole).find("#/properties/a").unwrap().nodes(MAX_NODES);
            assert!((1..=there).contains(&least), "{least} of {there}: {text}");
        }
    }

    #[test]
    fn references_that_lead_back_are_told_apart_from_large_ones() {
        let text = r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"items":{"$ref":"#/$defs/a"}}}}"##;
        assert_eq!(stuck(text), Some(Stuck::Recursive("/properties/a/items/items/$ref".to_owned())));
        assert_eq!(stuck(r##"{"items":{"$ref":"#/x"}}"##), Some(Stuck::Dangling("/items/$ref".to_owned())));
    }
}
