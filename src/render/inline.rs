//! References replaced by what they point to.

mod cycle;

use std::collections::{HashMap, HashSet};

use super::merge::merge;
use crate::core::schema::{
    self,
    refs::Targets,
    tree::{Json, Object, Text},
    walk::{Path, Slot, own_size},
};

/// Most values of a schema once all its references are replaced.
pub(super) const MAX_NODES: usize = 10_000;
/// Most bytes of a schema once all its references are replaced: few values can be long texts, which references repeat.
pub(super) const MAX_BYTES: usize = 4 * schema::MAX_BYTES;
/// Most levels of schemas inside each other once all references are replaced.
const MAX_LEVELS: usize = 64;
/// Most references that lead to one another before there is a schema: each is a step deeper into the stack.
const MAX_STEPS: usize = 256;
/// Most values that are copied to find out whether what stands beside a reference can be merged with its target.
const MAX_COPIED: usize = 5 * MAX_NODES;

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
/// A reference that leads back to itself, if there is one; else the first that can't be replaced.
pub(super) fn inlined<'a>(root: &Json<'a>) -> Result<Json<'a>, Stuck> {
    let mut targets = Targets::of(root);
    if let Some(at) = cycle::find(root, &mut targets) {
        return Err(Stuck::Recursive(at));
    }
    let mut inliner = Inliner::of(targets);
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
    let mut known = HashSet::new();
    loop {
        let Some(reference) =
            root.object().and_then(|o| o.get("$ref")).and_then(Json::str).map(str::to_owned)
        else {
            return Ok(lost);
        };
        let target = Targets::of(root).find(&reference).cloned();
        let Some(Json::Object(target)) = target else { return Err(Stuck::Dangling("/$ref".to_owned())) };
        if reference == "#" || !known.insert(reference) {
            return Err(Stuck::Recursive("/$ref".to_owned()));
        }
        if known.len() > MAX_STEPS {
            return Err(Stuck::TooLarge("/$ref".to_owned()));
        }
        if let Some(object) = root.object_mut() {
            object.remove("$ref");
            lost.get_or_insert_default().extend(merge(object, target));
        }
    }
}

struct Inliner<'t, 'a> {
    targets: Targets<'t, 'a>,
    /// How many values stand at least for a target in place of its reference; none while that is being counted.
    least: HashMap<*const Json<'a>, Option<usize>>,
    /// How many references are being replaced inside each other.
    open: usize,
    nodes: usize,
    bytes: usize,
    levels: usize,
    copied: usize,
}

impl<'t, 'a> Inliner<'t, 'a> {
    fn of(targets: Targets<'t, 'a>) -> Self {
        Self { targets, least: HashMap::new(), open: 0, nodes: 0, bytes: 0, levels: 0, copied: 0 }
    }

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
                self.open -= 1;
                Some(target)
            }
            None => None,
        };
        // What is inside of this schema is counted when it is reached.
        let (nodes, bytes) = own_size(&object);
        self.nodes += nodes;
        self.bytes += bytes;
        self.levels += 1;
        if self.nodes > MAX_NODES || self.bytes > MAX_BYTES || self.levels > MAX_LEVELS {
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
            Some(Json::Object(target)) => self.join(&mut object, target, path)?,
            Some(target) if target.is("false") => {
                object = Object(vec![(Text::new("not"), Json::Object(Object::default()))]);
            }
            _ => {}
        }
        Ok(Json::Object(object))
    }

    fn target(&mut self, reference: &Json<'_>, path: &Path) -> Result<Json<'a>, Stuck> {
        let reference = reference.str().ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        let found = self.targets.find(reference).filter(|_| !self.targets.nested_ids);
        let target = found.ok_or_else(|| Stuck::Dangling(path.at("$ref")))?;
        // What would grow over the bound is not begun.
        if self.open >= MAX_STEPS || self.nodes + self.least_of(target, 0).unwrap_or(1) > MAX_NODES {
            return Err(Stuck::TooLarge(path.at("$ref")));
        }
        self.open += 1;
        Ok(target.clone())
    }

    /// Merges; what can't be merged stays side by side in an `allOf`.
    fn join(&mut self, object: &mut Object<'a>, target: Object<'a>, path: &Path) -> Result<(), Stuck> {
        if object.0.is_empty() {
            *object = target;
            return Ok(());
        }
        // Remarks alone never fail to merge.
        if object.0.iter().all(|(key, _)| REMARKS.contains(&key.value())) {
            merge(object, target);
            return Ok(());
        }
        let nodes =
            |object: &Object<'_>| object.0.iter().map(|(_, value)| value.nodes(MAX_NODES)).sum::<usize>();
        self.copied += nodes(object) + nodes(&target);
        if self.copied > MAX_COPIED {
            return Err(Stuck::TooLarge(path.at("$ref")));
        }
        let mut merged = object.clone();
        if merge(&mut merged, target.clone()).is_empty() {
            *object = merged;
            return Ok(());
        }
        match object.get_mut("allOf") {
            Some(Json::Array(all)) => all.push(Json::Object(target)),
            _ => object.set("allOf", Json::Array(vec![Json::Object(target)])),
        }
        Ok(())
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
            return match self.targets.find(reference) {
                Some(target) if alone => self.least_of(target, level),
                _ => Some(1),
            };
        }
        let mut count = own_size(object).0;
        for slot in Slot::of(object) {
            // Booleans are values of the schema around them.
            if let Some(inner @ Json::Object(_)) = slot.get(object) {
                count += self.least(inner, level + 1)?;
            }
            if count > MAX_NODES {
                break;
            }
        }
        Some(count)
    }

    fn least_of(&mut self, target: &'t Json<'a>, level: usize) -> Option<usize> {
        let place = std::ptr::from_ref(target);
        if let Some(known) = self.least.get(&place) {
            return *known;
        }
        self.least.insert(place, None);
        let count = self.least(target, level + 1);
        self.least.insert(place, count);
        count
    }
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
            let mut inliner = Inliner::of(Targets::of(&json));
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

    #[test]
    fn a_recursion_is_named_however_large_the_rest_is() {
        let joined =
            |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(",");
        let refer = |to: usize| format!(r##"{{"$ref":"#/$defs/d{to}"}}"##);
        let wide = |i: usize| joined(20, &|j| format!(r#""p{j}":{}"#, refer((i + j + 1) % 200)));
        let mutual = joined(200, &|i| format!(r#""d{i}":{{"properties":{{{}}}}}"#, wide(i)));
        // Far longer than a stack of calls could be, and the recursion is at its end.
        let long = joined(4_900, &|i| format!(r#""d{i}":{}"#, refer((i + 1).min(4_899))));
        let bomb = r##"{"properties":{"a":{"$ref":"#/$defs/e1"},"b":{"$ref":"#/$defs/e1"}}}"##;
        for (what, properties, defs, recursive) in [
            ("wide", r##""a":{"$ref":"#/$defs/d0"}"##, mutual.as_str(), true),
            ("long", r##""a":{"$ref":"#/$defs/d0"}"##, long.as_str(), true),
            ("the whole", r##""a":{"$ref":"#/$defs/d0"}"##, r##""d0":{"items":{"$ref":"#"}}"##, true),
            ("around it", r##""a":{"items":{"$ref":"#/properties/a"}}"##, "", true),
            (
                "behind a bomb",
                r##""a":{"$ref":"#/$defs/e0"},"b":{"$ref":"#/$defs/d"}"##,
                &format!(
                    r##""e0":{bomb},"e1":{},"d":{{"items":{{"$ref":"#/$defs/d"}}}}"##,
                    doubling(20, "").replace("#/$defs", "#/$defs/e1/$defs")
                ),
                true,
            ),
            (
                "not used",
                r##""a":{"$ref":"#/$defs/A"}"##,
                r##""A":{},"d":{"items":{"$ref":"#/$defs/d"}}"##,
                false,
            ),
            (
                "twice is no recursion",
                r##""a":{"$ref":"#/$defs/A"},"b":{"$ref":"#/$defs/A"}"##,
                r##""A":{"items":{"$ref":"#/$defs/B"}},"B":{}"##,
                false,
            ),
        ] {
            let found = stuck(&format!(r#"{{"properties":{{{properties}}},"$defs":{{{defs}}}}}"#));
            assert_eq!(matches!(found, Some(Stuck::Recursive(_))), recursive, "{what}: {found:?}");
            assert!(recursive || found.is_none(), "{what}: {found:?}");
        }
        // As long, with an end: no recursion, and still no stack that overflows.
        let ends =
            format!(r##"{{"properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{long},"d4899":{{}}}}}}"##)
                .replace(r##""d4899":{"$ref":"#/$defs/d4899"},"##, "");
        assert!(matches!(stuck(&ends), Some(Stuck::TooLarge(_))));
    }
}
