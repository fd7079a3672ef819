//! Where the schemas inside a schema are.

use super::tree::{Json, Object};

/// What a keyword of JSON Schema holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// One schema; an array there is none.
    Schema,
    /// An array of schemas.
    Schemas,
    /// An object of schemas; an array in it is none.
    NamedSchemas,
}

/// All keywords that hold schemas, of all drafts. By their lengths first: this is asked more often than anything else.
pub(crate) fn holds(keyword: &str, value: &Json<'_>) -> Option<Holds> {
    let any = |known: &[&str], holds: Holds| known.contains(&keyword).then_some(holds);
    match keyword.len() {
        2 => any(&["if"], Holds::Schema),
        3 => any(&["not"], Holds::Schema),
        4 => any(&["else", "then"], Holds::Schema),
        5 => match keyword {
            "items" if matches!(value, Json::Array(_)) => Some(Holds::Schemas),
            "items" => Some(Holds::Schema),
            "$defs" => Some(Holds::NamedSchemas),
            _ => any(&["allOf", "anyOf", "oneOf"], Holds::Schemas),
        },
        8 => any(&["contains"], Holds::Schema),
        10 => any(&["properties"], Holds::NamedSchemas),
        11 => any(&["definitions"], Holds::NamedSchemas).or_else(|| any(&["prefixItems"], Holds::Schemas)),
        12 => any(&["dependencies"], Holds::NamedSchemas),
        13 => any(&["contentSchema", "propertyNames"], Holds::Schema),
        15 => any(&["additionalItems"], Holds::Schema),
        16 => any(&["unevaluatedItems"], Holds::Schema)
            .or_else(|| any(&["dependentSchemas"], Holds::NamedSchemas)),
        17 => any(&["patternProperties"], Holds::NamedSchemas),
        20 => any(&["additionalProperties"], Holds::Schema),
        21 => any(&["unevaluatedProperties"], Holds::Schema),
        _ => None,
    }
}

/// The place of one schema directly inside another.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    member: usize,
    inner: Option<usize>,
}

impl Slot {
    /// The schemas directly inside one, in its order.
    pub fn of(schema: &Object<'_>) -> Vec<Self> {
        let mut slots = Vec::new();
        for (member, (keyword, value)) in schema.0.iter().enumerate() {
            let len = match (holds(keyword.value(), value), value) {
                (Some(Holds::Schema), _) => {
                    slots.push(Self { member, inner: None });
                    continue;
                }
                (Some(Holds::Schemas), Json::Array(items)) => items.len(),
                (Some(Holds::NamedSchemas), Json::Object(named)) => named.0.len(),
                _ => continue,
            };
            slots.extend((0..len).map(|inner| Self { member, inner: Some(inner) }));
        }
        // `dependencies` may name properties instead.
        slots.retain(|slot| !matches!(slot.get(schema), Some(Json::Array(_))));
        slots
    }

    /// The schema there.
    pub fn get<'t, 'a>(self, schema: &'t Object<'a>) -> Option<&'t Json<'a>> {
        let (_, value) = schema.0.get(self.member)?;
        match (self.inner, value) {
            (None, value) => Some(value),
            (Some(i), Json::Array(items)) => items.get(i),
            (Some(i), Json::Object(named)) => named.0.get(i).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The schema there.
    pub fn get_mut<'t, 'a>(self, schema: &'t mut Object<'a>) -> Option<&'t mut Json<'a>> {
        let (_, value) = schema.0.get_mut(self.member)?;
        match (self.inner, value) {
            (None, value) => Some(value),
            (Some(i), Json::Array(items)) => items.get_mut(i),
            (Some(i), Json::Object(named)) => named.0.get_mut(i).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The keyword that holds it.
    pub fn keyword<'t>(self, schema: &'t Object<'_>) -> &'t str {
        schema.0.get(self.member).map_or("", |(keyword, _)| keyword.value())
    }

    /// Adds the steps from the schema outside to the one here.
    pub fn enter(self, schema: &Object<'_>, path: &mut Path) {
        let Some((keyword, value)) = schema.0.get(self.member) else { return };
        path.push(keyword.value());
        match (self.inner, value) {
            (Some(i), Json::Object(named)) => {
                if let Some((name, _)) = named.0.get(i) {
                    path.push(name.value());
                }
            }
            (Some(i), _) => path.index(i),
            (None, _) => {}
        }
    }
}

/// How many values of a schema are in no schema object inside it, and how many bytes those have when written.
pub fn own_size(schema: &Object<'_>) -> (usize, usize) {
    let whole = |value: &Json<'_>| (value.nodes(usize::MAX), value.bytes(usize::MAX));
    let (mut nodes, mut bytes) = (1, 2);
    let mut add = |(n, b): (usize, usize)| {
        nodes += n;
        bytes += b;
    };
    for (keyword, value) in &schema.0 {
        add((0, keyword.bytes() + 2));
        match (holds(keyword.value(), value), value) {
            (Some(Holds::Schema), Json::Object(_)) => {}
            (Some(Holds::Schemas), Json::Array(items)) => {
                add((1, 2 + items.len()));
                items.iter().filter(|item| item.object().is_none()).for_each(|item| add(whole(item)));
            }
            (Some(Holds::NamedSchemas), Json::Object(named)) => {
                add((1, 2));
                for (name, item) in &named.0 {
                    add((0, name.bytes() + 2));
                    if item.object().is_none() {
                        add(whole(item));
                    }
                }
            }
            (_, value) => add(whole(value)),
        }
    }
    (nodes, bytes)
}

/// The keywords of a schema and all in it: may name some that are not there, and leaves out none that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keywords(u64);

impl Keywords {
    /// Of a schema.
    pub(crate) fn of(schema: &Json<'_>) -> Self {
        let mut found = Self::default();
        found.collect(schema);
        found
    }

    /// Whether one of these may be among them.
    pub(crate) fn may_hold(self, any: &[&str]) -> bool {
        any.iter().any(|keyword| self.0 & Self::bit(keyword) != 0)
    }

    fn collect(&mut self, schema: &Json<'_>) {
        let Json::Object(object) = schema else { return };
        for (keyword, value) in &object.0 {
            let keyword = keyword.value();
            self.0 |= Self::bit(keyword);
            match (holds(keyword, value), value) {
                (Some(Holds::Schema), value) => self.collect(value),
                (Some(Holds::Schemas), Json::Array(items)) => {
                    items.iter().for_each(|item| self.collect(item))
                }
                (Some(Holds::NamedSchemas), Json::Object(named)) => {
                    named.0.iter().for_each(|(_, item)| self.collect(item));
                }
                _ => {}
            }
        }
    }

    /// One of 64 bits: few keywords share one.
    fn bit(keyword: &str) -> u64 {
        let bytes = keyword.as_bytes();
        let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        1 << ((bytes.len() + 7 * usize::from(first) + 3 * usize::from(last)) % 64)
    }
}

/// Calls `f` for a schema and all in it, outer ones first.
pub fn each<'t, 'a>(schema: &'t Json<'a>, path: &mut Path, f: &mut dyn FnMut(&'t Json<'a>, &mut Path)) {
    f(schema, path);
    let Json::Object(object) = schema else { return };
    for slot in Slot::of(object) {
        let mark = path.mark();
        slot.enter(object, path);
        if let Some(inner) = slot.get(object) {
            each(inner, path, f);
        }
        path.back_to(mark);
    }
}

/// A JSON pointer that grows and shrinks.
#[derive(Clone, Debug, Default)]
pub struct Path(String);

impl Path {
    /// One step further.
    pub fn push(&mut self, key: &str) {
        self.0.push('/');
        if key.bytes().any(|b| matches!(b, b'~' | b'/')) {
            self.0.push_str(&key.replace('~', "~0").replace('/', "~1"));
        } else {
            self.0.push_str(key);
        }
    }

    /// One step further, into an array.
    pub fn index(&mut self, index: usize) {
        self.0.push('/');
        let mut unit = 1;
        while index / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            // Below ten, so that nothing is lost.
            self.0.push(char::from(b'0' + (index / unit % 10) as u8));
            unit /= 10;
        }
    }

    /// Where it is now.
    pub fn mark(&self) -> usize {
        self.0.len()
    }

    /// Back to where it was.
    pub fn back_to(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    /// The pointer, fit to be shown.
    pub fn shown(&self) -> String {
        super::shown(&self.0)
    }

    /// The pointer to a member, fit to be shown.
    pub fn at(&self, key: &str) -> String {
        let mut path = self.clone();
        path.push(key);
        path.shown()
    }
}
