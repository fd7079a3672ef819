//! JSON as a tree that keeps what serde_json's loses: number literals, escapes and the order of keys.

use std::borrow::Cow;

/// Levels that are read: a little above what registration admits, so that nothing stored is ever refused here.
const MAX_LEVELS: usize = 2 * super::MAX_DEPTH;

/// One JSON value, mostly as slices of the text that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`, `true`, `false` or a number, as it is written.
    Literal(Cow<'a, str>),
    /// A string.
    String(Text<'a>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Object<'a>),
}

/// A string, as it is written and what it says. Small, as a schema has thousands of them. Two are equal if they are written
/// alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(Kind<'a>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind<'a> {
    /// Between its quotes it is written as what it says.
    Plain(Cow<'a, str>),
    /// It has escapes: as it is written, and what it says.
    Escaped(Box<(Cow<'a, str>, String)>),
}

/// The members of an object, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object<'a>(pub Vec<(Text<'a>, Json<'a>)>);

impl<'a> Json<'a> {
    /// Reads a text that [`super::check`] found right; none for many others.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        (reader.at == text.len()).then_some(value)
    }

    /// A new string.
    pub fn text(value: impl Into<Cow<'a, str>>) -> Self {
        Self::String(Text::new(value))
    }

    /// A new `true`, `false`, `null` or number.
    pub fn literal(literal: impl Into<Cow<'a, str>>) -> Self {
        Self::Literal(literal.into())
    }

    /// The members, if it is an object.
    pub fn object(&self) -> Option<&Object<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// The members, if it is an object.
    pub fn object_mut(&mut self) -> Option<&mut Object<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// The items, if it is an array.
    pub fn array(&self) -> Option<&[Json<'a>]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    /// What it says, if it is a string.
    pub fn str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text.value()) } else { None }
    }

    /// Whether it is this literal.
    pub fn is(&self, literal: &str) -> bool {
        matches!(self, Self::Literal(own) if own == literal)
    }

    /// Writes it without insignificant white space.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Literal(literal) => out.push_str(literal),
            Self::String(text) => text.write(out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(object) => object.write(out),
        }
    }

    /// The text without insignificant white space.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// How many bytes it is when written; counts no further than a little over `most`.
    pub fn bytes(&self, most: usize) -> usize {
        match self {
            Self::Literal(literal) => literal.len(),
            Self::String(text) => text.bytes(),
            Self::Array(items) => {
                let mut count = 2;
                for item in items {
                    if count > most {
                        break;
                    }
                    count += item.bytes(most - count) + 1;
                }
                count
            }
            Self::Object(object) => {
                let mut count = 2;
                for (key, value) in &object.0 {
                    if count > most {
                        break;
                    }
                    count += key.bytes() + 2;
                    count += value.bytes(most.saturating_sub(count));
                }
                count
            }
        }
    }

    /// How many values it holds, itself included; counts no further than `most`.
    pub fn nodes(&self, most: usize) -> usize {
        let mut count = 1;
        let parts: &mut dyn Iterator<Item = &Json<'a>> = match self {
            Self::Array(items) => &mut items.iter(),
            Self::Object(object) => &mut object.0.iter().map(|(_, value)| value),
            Self::Literal(_) | Self::String(_) => return 1,
        };
        while count < most
            && let Some(part) = parts.next()
        {
            count += part.nodes(most - count);
        }
        count
    }
}

impl<'a> Text<'a> {
    /// A text, written as JSON needs it.
    pub fn new(value: impl Into<Cow<'a, str>>) -> Self {
        let value = value.into();
        // What JSON has to escape.
        if !value.bytes().any(|b| b < 0x20 || b == b'"' || b == b'\\') {
            return Self(Kind::Plain(value));
        }
        let mut raw = super::string(&value);
        raw.pop();
        raw.remove(0);
        Self(Kind::Escaped(Box::new((raw.into(), value.into_owned()))))
    }

    /// What it says.
    pub fn value(&self) -> &str {
        match &self.0 {
            Kind::Plain(text) => text,
            Kind::Escaped(texts) => &texts.1,
        }
    }

    /// What it says, apart from the text itself.
    pub fn name(&self) -> Cow<'a, str> {
        match &self.0 {
            Kind::Plain(text) => text.clone(),
            Kind::Escaped(texts) => Cow::Owned(texts.1.clone()),
        }
    }

    /// As it is written, without its quotes.
    fn raw(&self) -> &str {
        match &self.0 {
            Kind::Plain(text) => text,
            Kind::Escaped(texts) => &texts.0,
        }
    }

    /// How many bytes it is when written.
    pub fn bytes(&self) -> usize {
        self.raw().len() + 2
    }

    fn write(&self, out: &mut String) {
        out.push('"');
        out.push_str(self.raw());
        out.push('"');
    }
}

impl<'a> Object<'a> {
    /// The value at a key.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        self.0.iter().find(|(k, _)| k.value() == key).map(|(_, value)| value)
    }

    /// The value at a key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json<'a>> {
        self.0.iter_mut().find(|(k, _)| k.value() == key).map(|(_, value)| value)
    }

    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Takes a member out.
    pub fn remove(&mut self, key: &str) -> Option<Json<'a>> {
        let at = self.0.iter().position(|(k, _)| k.value() == key)?;
        Some(self.0.remove(at).1)
    }

    /// Puts a value where the key is, or at the end.
    pub fn set(&mut self, key: &'static str, value: Json<'a>) {
        match self.get_mut(key) {
            Some(there) => *there = value,
            None => self.0.push((Text::new(key), value)),
        }
    }

    /// Puts a member in front of all others.
    pub fn prepend(&mut self, key: &'static str, value: Json<'a>) {
        self.0.insert(0, (Text::new(key), value));
    }

    /// Renames a member; it stays where it is.
    pub fn rename(&mut self, from: &str, to: &'static str) {
        if let Some((key, _)) = self.0.iter_mut().find(|(k, _)| k.value() == from) {
            *key = Text::new(to);
        }
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (i, (key, value)) in self.0.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            key.write(out);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }
}

/// Reads on from `at`.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over `b`, if that comes next.
    fn eat(&mut self, b: u8) -> bool {
        self.space();
        let there = self.peek() == Some(b);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, level: usize) -> Option<Json<'a>> {
        self.space();
        match self.peek()? {
            b'{' if level < MAX_LEVELS => self.object(level + 1).map(Json::Object),
            b'[' if level < MAX_LEVELS => self.array(level + 1),
            b'"' => self.string().map(Json::String),
            _ => self.literal(),
        }
    }

    fn object(&mut self, level: usize) -> Option<Object<'a>> {
        self.at += 1;
        let mut members = Vec::new();
        if self.eat(b'}') {
            return Some(Object(members));
        }
        loop {
            self.space();
            let key = self.string()?;
            if !self.eat(b':') {
                return None;
            }
            members.push((key, self.value(level)?));
            if self.eat(b'}') {
                return Some(Object(members));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn array(&mut self, level: usize) -> Option<Json<'a>> {
        self.at += 1;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.value(level)?);
            if self.eat(b']') {
                return Some(Json::Array(items));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<Text<'a>> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return None;
        }
        let (mut escaped, mut plain) = (false, true);
        loop {
            self.at += 1;
            match self.peek()? {
                _ if escaped => escaped = false,
                b'\\' => (escaped, plain) = (true, false),
                b'"' => break,
                _ => {}
            }
        }
        self.at += 1;
        let quoted = &self.text[start..self.at];
        let raw = Cow::Borrowed(&quoted[1..quoted.len() - 1]);
        Some(Text(if plain {
            Kind::Plain(raw)
        } else {
            Kind::Escaped(Box::new((raw, serde_json::from_str(quoted).ok()?)))
        }))
    }

    fn literal(&mut self) -> Option<Json<'a>> {
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(&b)));
        let literal = &rest[..end.unwrap_or(rest.len())];
        self.at += literal.len();
        (!literal.is_empty()).then(|| Json::Literal(literal.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_come_back_compact_and_otherwise_as_they_were() {
        for text in [
            "null",
            " [ 1e2 , 1.0,-0.5E+3 , 123456789012345678901234567890 ] ",
            r#"{ "z" : { } , "\u0061" : [ ] , "a b" : "\u00e9 \" \\" , "t":true }"#,
        ] {
            assert_eq!(Json::parse(text).unwrap().to_text(), super::super::minify(text));
        }
        for broken in ["", "{", "[1", "{\"a\"}", "[1 2]", "\"", "{a:1}", "1 2", "[,]"] {
            assert_eq!(Json::parse(broken), None, "{broken}");
        }
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Json::parse(&deep(MAX_LEVELS)).is_some());
        assert_eq!(Json::parse(&deep(100_000)), None);
    }

    #[test]
    fn members_are_found_by_what_their_keys_say() {
        let mut json = Json::parse(r#"{"\u0061":1,"b":2,"c":[3,[4]]}"#).unwrap();
        assert_eq!(json.nodes(100), 7);
        assert_eq!(json.nodes(4), 4);
        let object = json.object_mut().unwrap();
        assert!(object.get("a").unwrap().is("1"));
        object.set("b", Json::text("ü\n"));
        object.set("d", Json::literal("1.0"));
        object.rename("c", "e");
        object.remove("a").unwrap();
        assert_eq!(json.to_text(), r#"{"b":"ü\n","e":[3,[4]],"d":1.0}"#);
    }

    proptest! {
        #[test]
        fn any_text_that_is_json_is_read_and_none_panics(text in r#"[\[\]{}",:0-9a\\truefalsn. -]{0,24}|\PC{0,24}"#) {
            let read = Json::parse(&text);
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert_eq!(read.unwrap().to_text(), super::super::minify(&text));
            }
        }
    }
}
