//! Rules about what a single value may be.

use std::collections::HashSet;

use super::{tell, told};
use crate::core::schema::{
    lint,
    tree::{Json, Object, Text},
    walk::{Path, Slot, each},
};
use crate::render::rule::{FLAGS, Place};

/// Most values of a schema in which values of any kind are written out.
pub(super) const MAX_NODES: usize = 10_000;

/// A text, a number or a boolean: the kinds of values that can be said without more.
pub(super) fn scalar<'a>() -> Object<'a> {
    let branch = |name| Json::Object(Object(vec![(Text::new("type"), Json::text(name))]));
    Object(vec![(Text::new("anyOf"), Json::Array(["string", "number", "boolean"].map(branch).into()))])
}

pub(super) fn constant(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(value) = object.remove("const") else { return };
    let alone = object.get("enum").and_then(Json::array).is_none_or(|all| all.contains(&value));
    object.set("enum", Json::Array(vec![value]));
    if alone {
        place.hit_at("const", "written as enum")
    } else {
        place.lost_at("enum", "const says otherwise")
    }
}

/// `null` among the values of an enum.
pub(super) fn null_value(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(Json::Array(values)) = object.get_mut("enum") else { return };
    let before = values.len();
    values.retain(|value| !value.is("null"));
    if values.is_empty() {
        // Null alone, or no value at all: no text could be told instead.
        object.remove("enum");
        object.remove("anyOf");
        object.set("type", Json::text("null"));
        place.hit_at("enum", "no value but null");
        return;
    }
    if values.len() == before {
        return;
    }
    object.set("nullable", Json::literal("true"));
    place.hit_at("enum", "null written as nullable");
}

pub(super) fn enum_of_texts(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(all @ Json::Array(values)) = object.get("enum") else { return };
    let text = |value: &Json<'_>| value.str().is_some_and(|text| !text.is_empty());
    if values.iter().all(text) && !values.is_empty() {
        return;
    }
    let told = told("enum", all);
    let kept: Vec<Json<'_>> = values.iter().filter(|value| text(value)).cloned().collect();
    let first = values.first().map(kind);
    let kind = first.filter(|first| values.iter().all(|value| kind(value) == *first));
    // An enum that lost values would forbid them; where texts are left, the others are what a caller can do without.
    if kept.is_empty() {
        if let (false, Some(kind)) = (object.has("type"), kind) {
            object.set("type", Json::text(kind.to_owned()));
        }
        object.remove("enum");
    } else {
        object.set("enum", Json::Array(kept));
        object.set("type", Json::text("string"));
    }
    if let Some(object) = place.object() {
        tell(object, told);
    }
    place.hit_at("enum", "an enum of this format holds texts alone, and no empty ones");
}

/// The type that a value has.
fn kind(value: &Json<'_>) -> &'static str {
    match value {
        Json::Literal(literal) => match &**literal {
            "null" => "null",
            "true" | "false" => "boolean",
            number if number.bytes().all(|b| b.is_ascii_digit() || b == b'-') => "integer",
            _ => "number",
        },
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// A type that other keywords make plain.
pub(super) fn implied_type(place: &mut Place<'_, '_>) {
    const IMPLIED: [(&str, &str); 12] = [
        ("enum", "string"),
        ("properties", "object"),
        ("items", "array"),
        ("prefixItems", "array"),
        ("minItems", "array"),
        ("pattern", "string"),
        ("minLength", "string"),
        ("maxLength", "string"),
        ("minimum", "number"),
        ("maximum", "number"),
        ("exclusiveMinimum", "number"),
        ("exclusiveMaximum", "number"),
    ];
    let Some(object) = place.object() else { return };
    if object.has("type") || object.has("anyOf") {
        return;
    }
    let implied = IMPLIED.iter().find(|(keyword, _)| object.has(keyword));
    if let Some((keyword, name)) = implied {
        object.prepend("type", Json::text(*name));
        place.hit_at("type", format_args!("added, as {keyword} is about values of type {name}"));
    }
}

pub(super) fn tuple(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let Some(Json::Array(places)) = object.remove("prefixItems") else { return };
    let rest = object.remove("items").filter(|rest| rest.object().is_some());
    let mut seen = HashSet::new();
    let mut kinds: Vec<Json<'_>> = places;
    kinds.extend(rest);
    kinds.retain(|one| seen.insert(one.to_text()));
    let items = match kinds.len() {
        1 => kinds.remove(0),
        _ => Json::Object(Object(vec![(Text::new("anyOf"), Json::Array(kinds))])),
    };
    object.set("items", items);
    place.hit_at("prefixItems", "this format has no tuples: any place may hold what one of them may");
}

pub(super) fn array_items(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    if object.get("type").and_then(Json::str) == Some("array") && !object.has("items") {
        object.set("items", Json::Object(scalar()));
        place.hit_at("items", "added: texts, numbers or booleans");
    }
}

/// Whether a schema says nothing of the type.
fn says_nothing(schema: &Json<'_>) -> bool {
    match schema {
        Json::Object(object) => !object.has("type") && !object.has("anyOf"),
        schema => schema.is("true"),
    }
}

/// Too many values of any kind: each becomes a union of several schemas.
pub(super) fn expansion(place: &mut Place<'_, '_>) {
    let each_adds = Json::Object(scalar()).nodes(MAX_NODES) - 1;
    let mut added = 0;
    each(place.schema, &mut Path::default(), &mut |schema, _| {
        let Some(object) = schema.object() else { return };
        let open_array = object.get("type").and_then(Json::str) == Some("array") && !object.has("items");
        let own = |slot: &Slot| !FLAGS.contains(&slot.keyword(object));
        let inside = Slot::of(object).into_iter().filter(own).filter_map(|slot| slot.get(object));
        added += each_adds * (inside.filter(|inner| says_nothing(inner)).count() + usize::from(open_array));
    });
    if added > 0 && place.schema.nodes(MAX_NODES + 1) + added > MAX_NODES {
        place.hit(format_args!(
            "the schema would hold more than {MAX_NODES} values, as this format says a value of any kind as a union"
        ));
    }
}

/// A schema that says nothing of the type.
pub(super) fn any_value(place: &mut Place<'_, '_>) {
    if place.is_root() {
        return;
    }
    let any = says_nothing(place.schema);
    // `additionalProperties` and its like are no values of their own.
    if !any || place.is_flag() {
        return;
    }
    match place.object() {
        Some(object) => object.0.extend(scalar().0),
        None => *place.schema = Json::Object(scalar()),
    }
    place.hit("a value of any kind: this format can say texts, numbers and booleans");
}

pub(super) fn exclusive_bound(place: &mut Place<'_, '_>) {
    for (exclusive, inclusive, step) in
        [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)]
    {
        let Some(object) = place.object() else { return };
        let whole = object.get("type").and_then(Json::str) == Some("integer");
        let Some(bound) = object.remove(exclusive) else { continue };
        let next = match &bound {
            Json::Literal(n) if whole => n.parse::<i64>().ok().and_then(|n| n.checked_add(step)),
            _ => None,
        };
        match (next, object.has(inclusive)) {
            (Some(next), false) => {
                object.set(inclusive, Json::literal(next.to_string()));
                place.hit_at(exclusive, format_args!("written as {inclusive}"));
            }
            (_, has) => {
                tell(object, told(exclusive, &bound));
                if !has {
                    object.set(inclusive, bound);
                }
                place.lost_at(exclusive, format_args!("this format has {inclusive} alone"));
            }
        }
    }
}

pub(super) fn text_format(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    let known: &[&str] = match object.get("type").and_then(Json::str) {
        Some("string") if object.has("enum") => &["enum", "date-time"],
        Some("string") => &["date-time"],
        Some("number") => &["float", "double"],
        Some("integer") => &["int32", "int64"],
        _ => &[],
    };
    if object.get("format").is_some_and(|format| format.str().is_none_or(|f| !known.contains(&f)))
        && let Some(format) = object.remove("format")
    {
        tell(object, told("format", &format));
        place.hit_at(
            "format",
            format_args!(
                "this format knows {} here",
                if known.is_empty() { "none".to_owned() } else { known.join(" and ") }
            ),
        );
    }
}

/// Keywords about values of another type than the one here, and counts that are no int64.
pub(super) fn of_its_type(place: &mut Place<'_, '_>) {
    const TOO_MANY: f64 = 9_223_372_036_854_775_808.0;
    let Some(object) = place.object() else { return };
    let named = object.get("type").and_then(Json::str);
    let Some(own) = lint::TYPES.into_iter().find(|name| named == Some(name)) else { return };
    let about = |keyword: &str| -> &[&str] {
        match keyword {
            "enum" | "maxLength" | "minLength" | "pattern" => &["string"],
            "items" | "maxItems" | "minItems" => &["array"],
            "maxProperties" | "minProperties" | "properties" | "required" => &["object"],
            "maximum" | "minimum" => &["integer", "number"],
            _ => &[],
        }
    };
    let (mut strange, mut vast) = (Vec::new(), Vec::new());
    object.0.retain(|(key, value)| {
        let keyword = key.value();
        let types = about(keyword);
        let count = matches!(
            keyword,
            "maxItems" | "maxLength" | "maxProperties" | "minItems" | "minLength" | "minProperties"
        );
        if !types.is_empty() && !types.contains(&own) {
            strange.push(keyword.to_owned());
        } else if count && matches!(value, Json::Literal(n) if n.parse::<f64>().is_ok_and(|n| n >= TOO_MANY))
        {
            vast.push(keyword.to_owned());
        } else {
            return true;
        }
        false
    });
    for keyword in strange {
        place
            .hit_at(&keyword, format_args!("says nothing of values of type {own}, and is refused beside it"));
    }
    for keyword in vast {
        place.hit_at(&keyword, "this format counts no further than an int64");
    }
}

pub(super) fn open_or_closed(place: &mut Place<'_, '_>) {
    for keyword in ["additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems"] {
        let Some(object) = place.object() else { return };
        match object.remove(keyword) {
            None => {}
            Some(Json::Object(of)) if !of.0.is_empty() => {
                place.lost_at(keyword, "this format can't say what further members are like");
            }
            Some(_) => place.hit_at(keyword, "left out"),
        }
    }
}

/// Names that are required and are no properties.
pub(super) fn required_unknown(place: &mut Place<'_, '_>) {
    let Some(object) = place.object() else { return };
    if !object.has("required") {
        return;
    }
    let known: HashSet<String> = object
        .get("properties")
        .and_then(Json::object)
        .map(|named| named.0.iter().map(|(name, _)| name.value().to_owned()).collect())
        .unwrap_or_default();
    let Some(Json::Array(names)) = object.get_mut("required") else { return };
    let before = names.len();
    let mut seen = HashSet::new();
    names.retain(|name| name.str().is_none_or(|name| seen.insert(name.to_owned())));
    let twice = names.len() < before;
    let single = names.len();
    names.retain(|name| name.str().is_some_and(|name| known.contains(name)));
    let unknown = names.len() < single;
    if names.is_empty() && (twice || unknown) {
        object.remove("required");
    }
    if unknown {
        place.hit_at("required", "names that no property has are left out");
    }
}
