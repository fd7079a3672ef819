//! How the demo speaks: chapters, explanations, and events with the time at which they were seen.

use tokio::time::Instant;

use super::super::{Failure, print};
use crate::core::name::clean;

/// Columns of explanations and events.
const WIDTH: usize = 96;
/// Columns of an event's time.
const STAMP: usize = 9;
/// In front of explanations and events.
const INDENT: &str = "   ";

/// Tells, on stdout.
#[derive(Debug)]
pub(super) struct Narrator {
    start: Instant,
}

impl Narrator {
    /// Times count from now.
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// A headline, and what there is to see.
    pub(super) fn chapter(&self, title: &str, explanation: &str) -> Result<(), Failure> {
        print::line(&format!("\n{title}"))?;
        self.explain(explanation)
    }

    /// A text for the reader, broken into lines.
    pub(super) fn explain(&self, text: &str) -> Result<(), Failure> {
        wrap(text, WIDTH).iter().try_for_each(|line| print::line(&format!("{INDENT}{line}")))
    }

    /// Something that was seen just now.
    pub(super) fn event(&self, text: &str) -> Result<(), Failure> {
        let mut stamp = format!("+{:.1} s", self.start.elapsed().as_secs_f64());
        for line in wrap(&clean(text, usize::MAX), WIDTH - STAMP) {
            print::line(&format!("{INDENT}{stamp:<STAMP$}{line}"))?;
            stamp.clear();
        }
        Ok(())
    }

    /// A text as it is: JSON, a command.
    pub(super) fn verbatim(&self, text: &str) -> Result<(), Failure> {
        text.lines().try_for_each(|line| print::line(&format!("{INDENT}  {line}")))
    }
}

/// Lines of at most `width` characters, unless a word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn texts_are_wrapped_at_spaces() {
        for (text, lines) in [
            ("", &[][..]),
            ("a b\n c", &["a b c"]),
            ("abc def", &["abc", "def"]),
            ("a longer word", &["a", "longer", "word"]),
            ("äö ü xyz", &["äö ü", "xyz"]),
        ] {
            assert_eq!(wrap(text, 5), lines, "{text:?}");
        }
    }
}
