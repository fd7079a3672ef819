//! Pointers into what rules made of a schema, as pointers into the schema that the owner wrote.

use crate::core::schema::{refs::Targets, tree::Json, walk::Path};

/// Most schemas that are looked at for one step of a pointer.
const MAX_TRIES: usize = 1_000;
/// Most schemas that are looked at for all pointers of one tool. Further ones then lead to the whole schema.
const MAX_ALL: usize = 10_000;

/// What rules call a keyword, and what the owner may have called it.
const RENAMED: [(&str, &str); 8] = [
    ("anyOf", "oneOf"),
    ("prefixItems", "items"),
    ("items", "additionalItems"),
    ("enum", "const"),
    ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
    ("dependentRequired", "dependencies"),
    ("dependentSchemas", "dependencies"),
];

/// A schema as its owner wrote it.
pub(super) struct Owner<'t, 'a> {
    root: &'t Json<'a>,
    targets: Targets<'t, 'a>,
    tries: usize,
    all: usize,
    nulls_gone: bool,
}

impl<'t, 'a> Owner<'t, 'a> {
    pub(super) fn of(root: &'t Json<'a>) -> Self {
        Self { root, targets: Targets::of(root), tries: 0, all: 0, nulls_gone: false }
    }

    /// The owner's pointer; to the nearest place outside where there is none. `nulls_gone`: unions have lost their nulls, so
    /// that branches have moved up.
    pub(super) fn pointer(&mut self, pointer: &str, nulls_gone: bool) -> String {
        let steps: Vec<String> =
            pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        self.nulls_gone = nulls_gone;
        for len in (1..=steps.len()).rev() {
            self.tries = 0;
            let steps = steps.get(..len).unwrap_or_default();
            if let Some(found) = self.find(self.root, steps, &mut Path::default()) {
                return found;
            }
        }
        String::new()
    }

    /// Where the steps lead from a schema that is at `path`.
    fn find(&mut self, schema: &'t Json<'a>, steps: &[String], path: &mut Path) -> Option<String> {
        let [key, rest @ ..] = steps else { return Some(path.shown()) };
        self.tries += 1;
        self.all += 1;
        if self.tries > MAX_TRIES || self.all > MAX_ALL {
            return None;
        }
        let mark = path.mark();
        let object = schema.object()?;
        let others = RENAMED.iter().filter(|(made, _)| made == key).map(|(_, given)| *given);
        for name in std::iter::once(key.as_str()).chain(others) {
            let Some(value) = object.get(name) else { continue };
            path.push(name);
            if let Some(found) = self.inside(name, value, rest, path) {
                return Some(found);
            }
            path.back_to(mark);
        }
        // A list of types became branches, which the owner has not.
        if key == "anyOf" && matches!(object.get("type"), Some(Json::Array(_))) {
            match rest {
                [] | [_] => return Some(path.at("type")),
                [_, rest @ ..] => {
                    if let Some(found) = self.find(schema, rest, path) {
                        return Some(found);
                    }
                }
            }
        }
        // What was merged into this place: references are as if replaced, parts of an allOf are where they were.
        if let Some(target) = object.get("$ref").and_then(Json::str).and_then(|r| self.targets.find(r))
            && let Some(found) = self.find(target, steps, path)
        {
            return Some(found);
        }
        for (i, part) in object.get("allOf").and_then(Json::array).into_iter().flatten().enumerate() {
            path.push("allOf");
            path.index(i);
            if let Some(found) = self.find(part, steps, path) {
                return Some(found);
            }
            path.back_to(mark);
        }
        None
    }

    /// Where the steps lead from the value of a keyword.
    fn inside(
        &mut self,
        keyword: &str,
        value: &'t Json<'a>,
        steps: &[String],
        path: &mut Path,
    ) -> Option<String> {
        let [step, rest @ ..] = steps else { return Some(path.shown()) };
        match value {
            Json::Array(items) => {
                let Ok(index) = step.parse::<usize>() else {
                    // The places of a tuple became one kind of items.
                    return (keyword == "items").then(|| path.shown());
                };
                let moved = self.nulls_gone && matches!(keyword, "anyOf" | "oneOf");
                let mut left = items.iter().enumerate().filter(|(_, item)| !moved || !is_null(item));
                let (index, item) = left.nth(index)?;
                path.index(index);
                self.find(item, rest, path)
            }
            Json::Object(named) if is_map(keyword) => {
                path.push(step);
                self.find(named.get(step)?, rest, path)
            }
            Json::Object(_) => self.find(value, steps, path),
            Json::Literal(_) | Json::String(_) => None,
        }
    }
}

fn is_map(keyword: &str) -> bool {
    matches!(
        keyword,
        "$defs"
            | "definitions"
            | "dependencies"
            | "dependentRequired"
            | "dependentSchemas"
            | "patternProperties"
            | "properties"
    )
}

fn is_null(branch: &Json<'_>) -> bool {
    let Some(branch) = branch.object() else { return false };
    let list = |keyword: &str| branch.get(keyword).and_then(Json::array);
    branch.get("type").and_then(Json::str) == Some("null")
        || branch.get("const").is_some_and(|value| value.is("null"))
        || list("enum").is_some_and(|values| matches!(values, [one] if one.is("null")))
}
