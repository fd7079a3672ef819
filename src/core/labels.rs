//! Label selectors, as in Kubernetes: `team=search,tier!=beta,region in (eu,us),!internal`. All requirements must hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::name::quote;

/// Label of a tool that decides what a budget cuts: an integer, higher stays longer.
pub const PRIORITY: &str = "priority";
/// Longest selector, in bytes.
const MAX_BYTES: usize = 4_096;
/// Longest key or value.
const MAX_WORD: usize = 63;

/// What a tool's labels say of its priority; none if that is nothing, or no integer.
pub fn priority(labels: &BTreeMap<String, String>) -> Option<i64> {
    labels.get(PRIORITY)?.parse().ok()
}

/// A valid selector in its canonical form: requirements sorted, each once. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector(BTreeSet<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    /// The label is there.
    Exists,
    /// It is not.
    Absent,
    /// It has one of these values.
    In(BTreeSet<String>),
    /// It has none of these values, or is not there.
    NotIn(BTreeSet<String>),
}

impl Selector {
    /// Parses a selector; an empty text selects everything.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("label selector has {} bytes; at most {MAX_BYTES}", text.len()));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        split(text)?.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all requirements hold.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|r| r.holds(labels))
    }

    /// The first requirement that does not hold, as text.
    pub fn unmet(&self, labels: &BTreeMap<String, String>) -> Option<String> {
        self.0.iter().find(|r| !r.holds(labels)).map(ToString::to_string)
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|v| values.contains(v)),
            Test::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
        }
    }
}

impl TryFrom<String> for Selector {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, test } = self;
        let (operator, values) = match test {
            Test::Exists => return f.write_str(key),
            Test::Absent => return write!(f, "!{key}"),
            Test::In(values) => ("in", values),
            Test::NotIn(values) => ("notin", values),
        };
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        match (operator, values.as_slice()) {
            ("in", [one]) => write!(f, "{key}={one}"),
            ("notin", [one]) => write!(f, "{key}!={one}"),
            (operator, values) => write!(f, "{key} {operator} ({})", values.join(",")),
        }
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let (mut start, mut open) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !open => open = true,
            ')' if open => open = false,
            '(' | ')' => return Err(format!("label selector {} has a stray '{c}'", quote(text))),
            ',' if !open => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(format!("label selector {} has no closing ')'", quote(text)));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let wrong = |why: &str| {
        format!(
            "label selector term {} {why}; write key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)",
            quote(text.trim())
        )
    };
    let text = text.trim();
    let made = |key: &str, test| {
        let key = key.trim();
        if word(key) { Ok(Requirement { key: key.to_owned(), test }) } else { Err(wrong("has no valid key")) }
    };
    if text.is_empty() {
        return Err(wrong("is empty"));
    }
    if let Some(key) = text.strip_prefix('!')
        && !key.contains('=')
    {
        return made(key, Test::Absent);
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, values) = list.split_once('(').ok_or_else(|| wrong("has a stray ')'"))?;
        let values: BTreeSet<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        if values.iter().any(|v| !v.is_empty() && !word(v)) {
            return Err(wrong("has an invalid value"));
        }
        let (key, operator) =
            head.trim().rsplit_once(char::is_whitespace).ok_or_else(|| wrong("has no operator"))?;
        return match operator {
            "in" => made(key, Test::In(values)),
            "notin" => made(key, Test::NotIn(values)),
            _ => Err(wrong("has an unknown operator")),
        };
    }
    let pair = [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find_map(|(operator, equal)| text.split_once(operator).map(|(k, v)| (k, v.trim(), equal)));
    let Some((key, value, equal)) = pair else { return made(text, Test::Exists) };
    if !value.is_empty() && !word(value) {
        return Err(wrong("has an invalid value"));
    }
    let values = BTreeSet::from([value.to_owned()]);
    made(key, if equal { Test::In(values) } else { Test::NotIn(values) })
}

fn word(text: &str) -> bool {
    (1..=MAX_WORD).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn selectors_as_in_kubernetes() {
        let all = labels(&[("team", "search"), ("tier", "prod"), ("region", "eu")]);
        for (text, expected) in [
            ("", true),
            ("team=search", true),
            ("team==search", true),
            ("team = search , tier != beta", true),
            ("team!=search", false),
            ("absent!=x", true),
            ("region in (eu, us)", true),
            ("region in (us)", false),
            ("region notin (us,ap)", true),
            ("absent notin (x)", true),
            ("!internal", true),
            ("!team", false),
            ("team", true),
            ("internal", false),
            ("team=search,tier!=beta,region in (eu,us),!internal", true),
            ("team=Search", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(&all), expected, "{text}");
        }
    }

    #[test]
    fn ill_formed_selectors_say_what_would_be_right() {
        for text in [
            ",",
            "a,",
            "=x",
            "a in",
            "a in (",
            "a in x)",
            "a near (b)",
            "a(b)",
            "a=b c",
            "!a=b",
            "a((b))",
            "a b",
            "(a)",
        ] {
            let error = Selector::parse(text).expect_err(text);
            assert!(error.contains("label selector"), "{text}: {error}");
        }
        assert!(Selector::parse(&"a,".repeat(5_000)).unwrap_err().contains("at most 4096"));
    }

    #[test]
    fn the_unmet_requirement_is_named() {
        let selector = Selector::parse("team=search,region in (eu,us)").unwrap();
        assert_eq!(selector.unmet(&labels(&[("team", "search")])).as_deref(), Some("region in (eu,us)"));
        assert_eq!(selector.unmet(&labels(&[("team", "search"), ("region", "us")])), None);
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same(text in "[a-c!=(), in]{0,24}", l in prop::collection::btree_map("[a-c]", "[a-c]", 0..3)) {
            if let Ok(selector) = Selector::parse(&text) {
                let again = Selector::parse(&selector.to_string()).unwrap();
                prop_assert_eq!(&again, &selector);
                prop_assert_eq!(again.matches(&l), selector.matches(&l));
                prop_assert_eq!(selector.matches(&l), selector.unmet(&l).is_none());
            }
        }
    }
}
