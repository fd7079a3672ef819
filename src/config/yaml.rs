//! YAML with bounds and with errors of one line that say where.

use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Options};

/// Nesting of a file: a schema's 64 levels, and what a manifest puts around it.
const MAX_DEPTH: usize = 80;
/// Nodes of a file: a large manifest has some 10,000 tools of a few hundred nodes.
const MAX_NODES: usize = 4_000_000;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Line, from 1; none if it concerns the text as a whole.
    pub(crate) line: Option<u64>,
    /// What is wrong, in one line.
    pub(crate) message: String,
}

impl Fault {
    /// The fault, in the file that it was found in: `FILE line 3: ...`.
    pub(crate) fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file} line {line}: {}", self.message),
            None => format!("{file}: {}", self.message),
        }
    }
}

/// Reads YAML 1.2. A key twice is an error.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|e| fault(&e))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // YAML 1.2: `yes`, `no`, `on` and `off` are texts.
        strict_booleans: true,
        with_snippet: false,
    }
}

/// The parser's text ends in the place that we put in front, and in advice for programmers.
fn fault(error: &serde_saphyr::Error) -> Fault {
    let error = error.without_snippet();
    let location = error.location().filter(|l| l.line() > 0);
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let place = location.map(|l| format!(" at line {}, column {}", l.line(), l.column()));
    let text = place.as_deref().and_then(|place| text.strip_suffix(place)).unwrap_or(&text);
    let text = text.strip_suffix(", set DuplicateKeyPolicy in Options if acceptable").unwrap_or(text);
    Fault { line: location.map(|l| l.line()), message: text.to_owned() }
}
