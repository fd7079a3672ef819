//! Texts as Python prints them: the seeds' log lines hold lists as `repr` writes them, and a gateway's status is read by
//! models as `json.dumps` writes it. People compare the two systems' output, so it has to be the same to the byte.

use std::fmt::Write as _;

/// `repr(text)` of a string.
pub fn repr(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_repr(&mut out, text);
    out
}

/// `repr(texts)` of a list of strings: `['a', 'b']`.
pub fn repr_list<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> String {
    let mut out = String::from("[");
    for (i, text) in texts.into_iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        push_repr(&mut out, text.as_ref());
    }
    out.push(']');
    out
}

/// As [`repr_list`], but after `max` texts only their number follows, so that one log line stays a line.
pub fn repr_list_bounded<S: AsRef<str>>(texts: &[S], max: usize) -> String {
    let (shown, more) = texts.split_at(texts.len().min(max));
    let list = repr_list(shown);
    if more.is_empty() { list } else { format!("{list} and {} more", more.len()) }
}

/// `text.strip()`. Python's white space is Unicode's and the four separators U+001C to U+001F.
pub fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

/// `str(bool)`.
pub fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Appends `json.dumps(text)`: ASCII only, the rest as UTF-16 escapes.
pub fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    push_hex(out, "\\u", 4, u32::from(*unit));
                }
            }
        }
    }
    out.push('"');
}

fn push_repr(out: &mut String, text: &str) {
    // Python prefers single quotes, and takes double ones where that saves escapes.
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => match u32::from(c) {
                code @ ..=0xff => push_hex(out, "\\x", 2, code),
                code @ ..=0xffff => push_hex(out, "\\u", 4, code),
                code => push_hex(out, "\\U", 8, code),
            },
        }
    }
    out.push(quote);
}

/// `c.isprintable()`. The standard library decides by the same Unicode categories when it escapes for `Debug`; a letter in
/// front keeps it from escaping combining marks too, which Python prints.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut two = String::from("a");
    two.push(c);
    two.escape_debug().nth(1) == Some(c)
}

fn push_hex(out: &mut String, prefix: &str, width: usize, code: u32) {
    // Writing to a String can't fail.
    let _ = write!(out, "{prefix}{code:0width$x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    // The right sides come from CPython 3.11.

    #[test]
    fn repr_is_pythons() {
        for (text, expected) in [
            ("", "''"),
            ("nope", "'nope'"),
            ("it's", "\"it's\""),
            ("say \"hi\"", "'say \"hi\"'"),
            ("it's \"hi\"", r#"'it\'s "hi"'"#),
            (r"back\slash", r"'back\\slash'"),
            ("tab\tnew\nline\r", r"'tab\tnew\nline\r'"),
            ("\0\u{1b}[31m\u{7f}", r"'\x00\x1b[31m\x7f'"),
            ("caf\u{e9} \u{85}\u{a0}\u{ad}", "'caf\u{e9} \\x85\\xa0\\xad'"),
            ("e\u{301}", "'e\u{301}'"),
            ("\u{301}", "'\u{301}'"),
            ("\u{200b}\u{2028}\u{3000}\u{feff}", r"'\u200b\u2028\u3000\ufeff'"),
            ("\u{1f600}\u{e0001}\u{e000}", "'\u{1f600}\\U000e0001\\ue000'"),
        ] {
            assert_eq!(repr(text), expected);
        }
    }

    #[test]
    fn lists_are_pythons() {
        assert_eq!(repr_list(Vec::<String>::new()), "[]");
        assert_eq!(repr_list(["a"]), "['a']");
        assert_eq!(repr_list(["a", "b'c"]), "['a', \"b'c\"]");
        assert_eq!(repr_list_bounded(&["a", "b", "c"], 3), "['a', 'b', 'c']");
        assert_eq!(repr_list_bounded(&["a", "b", "c"], 1), "['a'] and 2 more");
    }

    #[test]
    fn json_is_pythons() {
        for (text, expected) in [
            ("", r#""""#),
            ("a/b", r#""a/b""#),
            ("\"\\\n\r\t\u{8}\u{c}", r#""\"\\\n\r\t\b\f""#),
            ("\0\u{1f}\u{7f}", r#""\u0000\u001f\u007f""#),
            ("caf\u{e9}\u{2028}", r#""caf\u00e9\u2028""#),
            ("\u{1f600}", r#""\ud83d\ude00""#),
        ] {
            let mut out = String::new();
            push_json(&mut out, text);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn strip_is_pythons() {
        assert_eq!(strip("\u{a0}\t a b\u{3000}\n\u{1c}\u{1f}\u{85}\u{2028}"), "a b");
        // Not white space to Python either.
        for c in ['\u{200b}', '\u{feff}', '\u{180e}', '\0'] {
            assert_eq!(strip(&c.to_string()), c.to_string());
        }
    }
}
