//! JSON texts of a tool: judged strictly once, then kept as texts, so that property order and number literals survive.

pub mod lint;
pub mod meta;
pub mod refs;
pub mod tree;
pub mod walk;

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::name::{clean, quote};

/// Most bytes in all JSON texts of one tool (the largest of about a thousand real tools has 77 KiB).
pub const MAX_BYTES: usize = 192 * 1024;
/// Most levels of arrays and objects inside each other. Below the 128 at which serde_json itself gives up.
pub const MAX_DEPTH: usize = 64;
/// Most values in all JSON texts of one tool.
pub const MAX_NODES: usize = 10_000;
/// Longest JSON pointer in a fault, in characters.
const MAX_POINTER: usize = 256;
/// The input schema of a tool that gives none.
pub const EMPTY_INPUT: &str = r#"{"type":"object","properties":{}}"#;

/// How many values the texts of one tool may still have.
#[derive(Debug)]
pub struct Budget {
    nodes: usize,
    overdrawn: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: MAX_NODES, overdrawn: false }
    }
}

impl Budget {
    /// Whether a text asked for more than was left, so that a further one can't be judged.
    pub fn is_overdrawn(&self) -> bool {
        self.overdrawn
    }
}

/// What a JSON text holds at its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// What is wrong with a JSON text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    /// JSON pointer to the value; empty for the root.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

/// Something in a schema that is allowed and still worth telling its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// JSON pointer to the value; empty for the root.
    pub pointer: String,
    /// UPPER_SNAKE.
    pub code: &'static str,
    /// What is odd.
    pub message: String,
}

/// Judges one text: a single JSON value, no object with a key twice, no deeper than [`MAX_DEPTH`], within the budget.
///
/// Numbers beyond the range of a double are refused: readers would turn them into infinity, which no JSON can say.
///
/// # Errors
/// The first fault; what follows it can't be judged.
pub fn check(text: &str, budget: &mut Budget) -> Result<Kind, JsonFault> {
    let mut walk = Walk { budget, path: Vec::new(), fault: None };
    let mut json = serde_json::Deserializer::from_str(text);
    let judged = Node { walk: &mut walk, depth: 0 }.deserialize(&mut json).and_then(|kind| {
        json.end()?;
        Ok(kind)
    });
    // On an error the path still leads to where it happened.
    judged.map_err(|e| JsonFault {
        pointer: pointer(&walk.path),
        message: walk.fault.take().unwrap_or_else(|| syntax(&e)),
    })
}

/// Removes the white space outside strings. Number literals and escapes stay as they are.
pub fn minify(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

/// A text as a JSON string.
pub fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// One member of an object, as slices of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, decoded.
    pub key: String,
    /// The key as it is written, with its quotes.
    pub key_text: &'a str,
    /// The value as it is written.
    pub value: &'a str,
}

/// The members at the root of an object, in its order; none of anything else.
pub fn members(json: &str) -> Vec<Member<'_>> {
    struct Root;
    impl<'de> Visitor<'de> for Root {
        type Value = Vec<Member<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some((key, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                let key_text = key.get();
                let key = serde_json::from_str(key_text).map_err(A::Error::custom)?;
                all.push(Member { key, key_text, value: value.get() });
            }
            Ok(all)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_map(Root).unwrap_or_default()
}

/// Where the walk is, and what it met.
struct Walk<'b, 'de> {
    budget: &'b mut Budget,
    path: Vec<Step<'de>>,
    /// A fault that serde_json doesn't know of.
    fault: Option<String>,
}

enum Step<'de> {
    Key(Cow<'de, str>),
    Index(usize),
}

impl Walk<'_, '_> {
    fn refuse<E: serde::de::Error>(&mut self, message: String) -> E {
        let error = E::custom(&message);
        self.fault = Some(message);
        error
    }
}

/// One value, `depth` levels below the root.
struct Node<'w, 'b, 'de> {
    walk: &'w mut Walk<'b, 'de>,
    depth: usize,
}

/// Objects with more members than this get an index.
const WIDE: usize = 16;

/// The keys of one object so far.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    /// False if it is there already.
    fn add(&mut self, key: Cow<'de, str>) -> bool {
        if self.few.len() < WIDE {
            let new = !self.few.contains(&key);
            self.few.push(key);
            return new;
        }
        if self.many.is_empty() {
            self.many.extend(self.few.iter().cloned());
        }
        self.many.insert(key)
    }
}

/// A key, as a slice of the text where it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl Node<'_, '_, '_> {
    /// Steps into an array or object.
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.walk.refuse(format!("nests deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_, 'de> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Kind, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_, 'de> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Kind, E> {
        self.count(Kind::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Kind, E> {
        self.count(Kind::Bool)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Kind, E> {
        self.count(Kind::Number)
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Kind, E> {
        self.count(Kind::Number)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Kind, E> {
        self.count(Kind::Number)
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Kind, E> {
        self.count(Kind::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Kind, A::Error> {
        self.enter()?;
        for index in 0.. {
            self.walk.path.push(Step::Index(index));
            let item = Node { walk: self.walk, depth: self.depth };
            if items.next_element_seed(item)?.is_none() {
                break;
            }
            self.walk.path.pop();
        }
        self.walk.path.pop();
        self.count(Kind::Array)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Kind, A::Error> {
        self.enter()?;
        let mut keys = Keys::default();
        while let Some(key) = map.next_key_seed(Key)? {
            self.walk.path.push(Step::Key(key.clone()));
            if !keys.add(key.clone()) {
                return Err(self.walk.refuse(format!("the object has the key {} twice", quote(&key))));
            }
            map.next_value_seed(Node { walk: self.walk, depth: self.depth })?;
            self.walk.path.pop();
        }
        self.count(Kind::Object)
    }
}

impl Node<'_, '_, '_> {
    fn count<E: serde::de::Error>(self, kind: Kind) -> Result<Kind, E> {
        match self.walk.budget.nodes.checked_sub(1) {
            Some(left) => {
                self.walk.budget.nodes = left;
                Ok(kind)
            }
            None => {
                self.walk.budget.overdrawn = true;
                let message =
                    format!("the JSON of one tool holds more than {MAX_NODES} values in all its fields");
                Err(self.walk.refuse(message))
            }
        }
    }
}

/// What serde_json says, with its line and column.
fn syntax(error: &serde_json::Error) -> String {
    format!("is not JSON: {error}")
}

/// The path as a JSON pointer, fit for an error: keys can be as long as the text and hold anything.
fn pointer(path: &[Step<'_>]) -> String {
    let whole = path.iter().fold(String::new(), |pointer, step| match step {
        Step::Key(key) => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
        Step::Index(index) => format!("{pointer}/{index}"),
    });
    shown(&whole)
}

/// A pointer, cut and cleaned.
fn shown(whole: &str) -> String {
    let mut shown = clean(whole, MAX_POINTER);
    if whole.chars().nth(MAX_POINTER).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn judge(text: &str) -> Result<Kind, JsonFault> {
        check(text, &mut Budget::default())
    }

    #[test]
    fn every_kind_of_value_is_told_apart() {
        for (text, kind) in [
            ("null", Kind::Null),
            ("true", Kind::Bool),
            (" -0.5e-3 ", Kind::Number),
            ("123456789012345678901234567890", Kind::Number),
            (r#""a\u00e9\ud83d\ude00""#, Kind::String),
            ("[]", Kind::Array),
            (r#"{"a":[1,{"a":null}],"b":{}}"#, Kind::Object),
        ] {
            assert_eq!(judge(text), Ok(kind), "{text}");
        }
    }

    #[test]
    fn what_is_not_strict_json_is_refused_with_its_place() {
        for (text, pointer, message) in [
            ("", "", "is not JSON: EOF while parsing a value at line 1 column 0"),
            ("{} {}", "", "is not JSON: trailing characters at line 1 column 4"),
            ("{\"a\":\n[1,2,]}", "/a/2", "is not JSON: trailing comma at line 2 column 6"),
            ("{\"a\":1,}", "", "is not JSON: trailing comma at line 1 column 8"),
            ("{\"a\":{\"b\":NaN}}", "/a/b", "is not JSON: expected value at line 1 column 11"),
            ("[Infinity]", "/0", "is not JSON: expected value at line 1 column 2"),
            ("[1e999]", "/0", "is not JSON: number out of range at line 1 column 6"),
            ("[01]", "/0", "is not JSON: invalid number at line 1 column 3"),
            (r#"{'a':1}"#, "", "is not JSON: key must be a string at line 1 column 2"),
            (r#"{"a":"\ud800"}"#, "/a", "is not JSON: unexpected end of hex escape at line 1 column 13"),
            ("\u{feff}{}", "", "is not JSON: expected value at line 1 column 1"),
            (r#"{"a":1,"a":2}"#, "/a", "the object has the key 'a' twice"),
            (r#"{"a":1,"\u0061":2}"#, "/a", "the object has the key 'a' twice"),
            (r#"{"p":[{"x/~y":1,"x/~y":2}]}"#, "/p/0/x~1~0y", "the object has the key 'x/~y' twice"),
        ] {
            let fault = judge(text).unwrap_err();
            assert_eq!((fault.pointer.as_str(), fault.message.as_str()), (pointer, message), "{text}");
        }
    }

    #[test]
    fn pointers_are_fit_for_an_error() {
        let long = format!(r#"{{"a\nb":{{"{}":{{"x":1,"x":2}}}}}}"#, "k".repeat(100_000));
        assert_eq!(judge(&long).unwrap_err().pointer, format!("/ab/{}...", "k".repeat(MAX_POINTER - 4)));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(judge(&nested(MAX_DEPTH)), Ok(Kind::Array));
        for n in [MAX_DEPTH + 1, 2_000, 100_000] {
            let fault = judge(&nested(n)).unwrap_err();
            assert_eq!(fault.message, "nests deeper than 64 levels", "{n}");
            assert_eq!(fault.pointer, "/0".repeat(MAX_DEPTH));
        }
        let objects = format!("{}1{}", "{\"a\":".repeat(2_000), "}".repeat(2_000));
        assert_eq!(judge(&objects).unwrap_err().pointer, "/a".repeat(MAX_DEPTH));
    }

    #[test]
    fn values_are_counted_over_all_texts() {
        let zeros = |n: usize| format!("[{}]", vec!["0"; n - 1].join(","));
        assert_eq!(judge(&zeros(MAX_NODES)), Ok(Kind::Array));
        judge(&zeros(MAX_NODES + 1)).unwrap_err();

        let mut budget = Budget::default();
        check(&zeros(MAX_NODES - 1), &mut budget).unwrap();
        check("1", &mut budget).unwrap();
        assert!(!budget.is_overdrawn());
        let fault = check("1", &mut budget).unwrap_err();
        assert_eq!(fault.message, "the JSON of one tool holds more than 10000 values in all its fields");
        assert!(budget.is_overdrawn());
    }

    #[test]
    fn minify_keeps_literals_and_strings() {
        for (text, minified) in [
            (
                " { \"a b\" : [ 1e2 , 1.0,\t100000000000000000000 ]\r\n}",
                r#"{"a b":[1e2,1.0,100000000000000000000]}"#,
            ),
            (r#"{ "\" : " : " \\" , "é" : "\u00e9 /" }"#, r#"{"\" : ":" \\","é":"\u00e9 /"}"#),
        ] {
            assert_eq!(minify(text), minified);
        }
    }

    #[test]
    fn members_are_slices_of_the_text() {
        let text = r#"{"\u0061":1e2,"b":{"c":[1,2]}}"#;
        let found = members(text);
        let shown: Vec<_> = found.iter().map(|m| (m.key.as_str(), m.key_text, m.value)).collect();
        assert_eq!(shown, [("a", r#""\u0061""#, "1e2"), ("b", r#""b""#, r#"{"c":[1,2]}"#)]);
        assert_eq!(members("[1]"), []);
        assert_eq!(members(""), []);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn minify_changes_no_value_and_no_string(value in json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let minified = minify(&pretty);
            // serde_json's compact form has the same order and literals, and no white space.
            prop_assert_eq!(&minified, &value.to_string());
            let again = minify(&minified);
            prop_assert_eq!(again, minified);
            prop_assert!(judge(&pretty).is_ok());
        }

        #[test]
        fn check_agrees_with_serde_json_and_never_panics(text in r#"[\[\]{}",:0-9a\\eE+. -]{0,24}|\PC{0,24}"#) {
            let parsed = serde_json::from_str::<Value>(&text);
            match judge(&text) {
                Ok(_) => prop_assert!(parsed.is_ok()),
                Err(fault) => prop_assert!(parsed.is_err() || fault.message.ends_with("twice"), "{:?}", fault),
            }
        }
    }
}
