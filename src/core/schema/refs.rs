//! What a `$ref` inside a schema points to.

use std::collections::HashMap;

use super::{
    tree::{Json, Object},
    walk::{Path, each},
};

/// Objects with more members than this get an index: a thousand references into a thousand definitions stay cheap.
const WIDE: usize = 16;

/// Finds the targets of references into one schema.
#[derive(Debug)]
pub struct Targets<'t, 'a> {
    root: &'t Json<'a>,
    anchors: HashMap<&'t str, &'t Json<'a>>,
    wide: HashMap<*const Object<'a>, HashMap<&'t str, &'t Json<'a>>>,
    /// A schema inside has an `$id` of its own, which moves what references are relative to.
    pub nested_ids: bool,
}

impl<'t, 'a> Targets<'t, 'a> {
    /// For the references in `root`.
    pub fn of(root: &'t Json<'a>) -> Self {
        let mut targets = Self { root, anchors: HashMap::new(), wide: HashMap::new(), nested_ids: false };
        each(root, &mut Path::default(), &mut |schema, path| {
            let Some(object) = schema.object() else { return };
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(anchor) = object.get(keyword).and_then(Json::str) {
                    targets.anchors.insert(anchor, schema);
                }
            }
            for id in ["$id", "id"].into_iter().filter_map(|k| object.get(k).and_then(Json::str)) {
                match id.strip_prefix('#') {
                    Some(anchor) => drop(targets.anchors.insert(anchor, schema)),
                    None => targets.nested_ids |= path.mark() > 0,
                }
            }
        });
        targets
    }

    /// The schema that a reference inside the document points to; none for others.
    pub fn find(&mut self, reference: &str) -> Option<&'t Json<'a>> {
        let fragment = self.fragment(reference)?;
        if fragment.is_empty() {
            return Some(self.root);
        }
        let fragment = percent_decoded(fragment)?;
        let Some(pointer) = fragment.strip_prefix('/') else {
            return self.anchors.get(fragment.as_str()).copied();
        };
        let mut at = self.root;
        for step in pointer.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            at = match at {
                Json::Object(object) => self.member(object, &step)?,
                Json::Array(items) => items.get(step.parse::<usize>().ok()?)?,
                Json::Literal(_) | Json::String(_) => return None,
            };
        }
        Some(at)
    }

    /// What follows the `#` of a reference into this document.
    fn fragment<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let own = |key: &str| self.root.object().and_then(|o| o.get(key)).and_then(Json::str);
        let same = |id: &str| id.trim_end_matches('#') == base;
        (base.is_empty() || own("$id").is_some_and(same) || own("id").is_some_and(same)).then_some(fragment)
    }

    fn member(&mut self, object: &'t Object<'a>, key: &str) -> Option<&'t Json<'a>> {
        if object.0.len() <= WIDE {
            return object.get(key);
        }
        let index = || object.0.iter().map(|(key, value)| (key.value(), value)).collect();
        self.wide.entry(std::ptr::from_ref(object)).or_insert_with(index).get(key).copied()
    }
}

/// A fragment of a URI; none if it is none.
fn percent_decoded(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_owned());
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(b) = rest.next() {
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        bytes.push(match b {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            b => b,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_into_the_document_are_found() {
        let text = r##"{"$id":"https://x/s.json","$defs":{"A":{"$anchor":"a","type":"string"},"a/b":[{"x":1}],"c~":{"$id":"#old"}}}"##;
        let json = Json::parse(text).unwrap();
        let mut targets = Targets::of(&json);
        for (reference, found) in [
            ("#", Some(text)),
            ("https://x/s.json", Some(text)),
            ("#/$defs/A", Some(r#"{"$anchor":"a","type":"string"}"#)),
            ("https://x/s.json#a", Some(r#"{"$anchor":"a","type":"string"}"#)),
            ("#a", Some(r#"{"$anchor":"a","type":"string"}"#)),
            ("#old", Some(r##"{"$id":"#old"}"##)),
            ("#/$defs/a~1b/0", Some(r#"{"x":1}"#)),
            ("#/%24defs/c~0", Some(r##"{"$id":"#old"}"##)),
            ("#/$defs/B", None),
            ("#/$defs/a~1b/1", None),
            ("#%zz", None),
            ("#b", None),
            ("other.json", None),
            ("https://y/s.json#/$defs/A", None),
        ] {
            assert_eq!(targets.find(reference).map(Json::to_text).as_deref(), found, "{reference}");
        }
    }
}
