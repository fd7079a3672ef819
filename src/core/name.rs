//! Names that can't be wrong: namespaces, tools, and their pair.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest tool name.
pub const MAX_TOOL_NAME: usize = 128;
/// Longest namespace: a DNS label, so that it can name things in a cluster.
pub const MAX_NAMESPACE: usize = 63;
/// Longest owner.
pub const MAX_OWNER: usize = 128;
/// The namespace of those who name none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The owner of those who name none.
pub const ANONYMOUS: &str = "anonymous";

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// A namespace: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`.
    Namespace
);
name!(
    /// A tool's name: 1 to 128 of `[A-Za-z0-9_.-]`.
    ToolName
);

impl Namespace {
    /// Parses a namespace; an empty text is the default one.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
        let bytes = text.as_bytes();
        let ok = bytes.len() <= MAX_NAMESPACE
            && bytes.iter().all(|b| inner(*b))
            && edge(bytes.first())
            && edge(bytes.last());
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(format!("namespace {} must match [a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?", quote(text)))
        }
    }
}

impl Namespace {
    /// Sorts before every namespace, and is none: where a range begins.
    pub fn least() -> Self {
        Self("".into())
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(DEFAULT_NAMESPACE.into())
    }
}

impl ToolName {
    /// Sorts before every name, and is none: where a range begins.
    pub fn least() -> Self {
        Self("".into())
    }

    /// Parses a tool's name.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ok = (1..=MAX_TOOL_NAME).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(format!("name {} must be 1 to {MAX_TOOL_NAME} characters of [A-Za-z0-9_.-]", quote(text)))
        }
    }
}

/// Names one tool in the whole registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolKey {
    /// The tool's namespace.
    pub namespace: Namespace,
    /// The tool's name in it.
    pub name: ToolName,
}

impl fmt::Display for ToolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Quotes untrusted text for a message: escaped, and cut to 80 characters.
pub fn quote(text: &str) -> String {
    let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(80).is_some() { "..." } else { "" };
    format!("'{shown}{more}'")
}

/// Makes a text from elsewhere fit for a status or a log: control characters removed, those too that turn the direction of
/// what follows; cut to `max` characters.
pub fn clean(text: &str, max: usize) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !turns(*c)).take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_from_elsewhere_is_made_harmless() {
        for (given, expected) in [
            ("plain, and \u{e9}\u{1f600}", "plain, and \u{e9}\u{1f600}"),
            ("a\u{1b}[31mb\r\nc\0", "a[31mbc"),
            ("see \u{202e}gnp.exe\u{2066}", "see gnp.exe"),
        ] {
            assert_eq!(clean(given, 80), expected);
        }
        assert_eq!(clean("abcdef", 3), "abc");
    }

    #[test]
    fn names_and_namespaces_keep_their_rules() {
        for good in ["a", "a-1", "0", &"x".repeat(63)] {
            assert!(Namespace::parse(good).is_ok(), "{good}");
        }
        for bad in ["A", "-a", "a-", "a.b", "\u{e9}", &"x".repeat(64)] {
            assert!(Namespace::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "a b", "a/b", "\u{e9}", &"x".repeat(129)] {
            assert!(ToolName::parse(bad).is_err(), "{bad}");
        }
    }
}
