//! Whether references lead back to where they are: then there is no end to replacing them.

use std::collections::HashMap;

use crate::core::schema::{
    refs::Targets,
    tree::Json,
    walk::{Path, Slot},
};

/// A schema on the way from the root.
struct Step<'t, 'a> {
    schema: &'t Json<'a>,
    slots: Vec<Slot>,
    /// How many of `slots` are done.
    done: usize,
    /// How long the path was outside of it.
    mark: usize,
}

/// Where a reference leads back to a schema around it, in the schema as if references were replaced; none if none does.
/// Looks at each schema once. Definitions count only where they are used.
///
/// With ids inside it is not known what references are relative to: then none is followed.
pub(super) fn find<'t, 'a>(root: &'t Json<'a>, targets: &mut Targets<'t, 'a>) -> Option<String> {
    let follow = !targets.nested_ids;
    let mut path = Path::default();
    // Whether the way leads through it now. A list instead of recursion: the way may be as long as there are schemas.
    let mut known = HashMap::from([(std::ptr::from_ref(root), true)]);
    let mut way = vec![step(root, true, 0)];
    // A schema is looked at before what it refers to.
    let mut fresh = true;
    while let Some(last) = way.last_mut() {
        let object = last.schema.object()?;
        if std::mem::take(&mut fresh) {
            if object.has("$dynamicRef") || object.has("$recursiveRef") {
                return Some(path.shown());
            }
            let reference = object.get("$ref").and_then(Json::str).filter(|_| follow);
            if let Some(target @ Json::Object(_)) = reference.and_then(|r| targets.find(r)) {
                match known.insert(std::ptr::from_ref(target), true) {
                    Some(true) => return Some(path.at("$ref")),
                    // It was left, and leads nowhere.
                    Some(false) => drop(known.insert(std::ptr::from_ref(target), false)),
                    None => {
                        let mark = path.mark();
                        way.push(step(target, false, mark));
                        fresh = true;
                        continue;
                    }
                }
            }
        }
        let Some(slot) = last.slots.get(last.done).copied() else {
            path.back_to(last.mark);
            known.insert(std::ptr::from_ref(last.schema), false);
            way.pop();
            continue;
        };
        last.done += 1;
        let mark = path.mark();
        let Some(inner @ Json::Object(_)) = slot.get(object) else { continue };
        if known.contains_key(&std::ptr::from_ref(inner)) {
            // Reached by a reference before: either done, or around here, which only a reference can find out.
            if known.get(&std::ptr::from_ref(inner)) == Some(&true) {
                slot.enter(object, &mut path);
                return Some(path.shown());
            }
            continue;
        }
        known.insert(std::ptr::from_ref(inner), true);
        slot.enter(object, &mut path);
        way.push(step(inner, false, mark));
        fresh = true;
    }
    None
}

/// `root`: its definitions are not part of what it says.
fn step<'t, 'a>(schema: &'t Json<'a>, root: bool, mark: usize) -> Step<'t, 'a> {
    let mut slots = schema.object().map(Slot::of).unwrap_or_default();
    if let Some(object) = schema.object().filter(|_| root) {
        slots.retain(|slot| !["$defs", "definitions"].contains(&slot.keyword(object)));
    }
    Step { schema, slots, done: 0, mark }
}
