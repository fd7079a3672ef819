//! References replaced by what they point to.

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
    let mut inliner = Inliner { targets: Targets::of(root), open: Vec::new(), nodes: 0, levels: 0 };
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
    /// The references that are being replaced, outer ones first.
    open: Vec<String>,
    nodes: usize,
    levels: usize,
}

impl<'a> Inliner<'_, 'a> {
    fn schema(&mut self, schema: Json<'a>, path: &mut Path) -> Result<Json<'a>, Stuck> {
        let Json::Object(mut object) = schema else { return Ok(schema) };
        if object.has("$dynamicRef") || object.has("$recursiveRef") {
            return Err(Stuck::Recursive(path.shown()));
        }
        let opened = self.open.len();
        while let Some(reference) = object.remove("$ref") {
            let target = self.target(&reference, path)?;
            if let Json::Object(target) = target {
                // What the annotations of both say apart, the place itself knows better; the rest must hold together.
                merge_or_all_of(&mut object, target);
            } else if target.is("false") {
                object = Object(vec![(
                    crate::core::schema::tree::Text::new("not"),
                    Json::Object(Object::default()),
                )]);
            }
        }
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
        self.open.truncate(opened);
        Ok(Json::Object(object))
    }

    fn target(&mut self, reference: &Json<'_>, path: &Path) -> Result<Json<'a>, Stuck> {
        let reference = reference.str().ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        if self.open.iter().any(|open| open == reference) || reference == "#" {
            return Err(Stuck::Recursive(path.at("$ref")));
        }
        let found = self.targets.find(reference).filter(|_| !self.targets.nested_ids);
        let target = found.ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        if self.nodes + target.nodes(MAX_NODES) > MAX_NODES {
            return Err(Stuck::TooLarge(path.at("$ref")));
        }
        self.open.push(reference.to_owned());
        Ok(target.clone())
    }
}

/// Merges; what can't be merged stays side by side in an `allOf`.
fn merge_or_all_of<'a>(object: &mut Object<'a>, target: Object<'a>) {
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
