//! A list of names, ready for look-ups.

use crate::core::name::{Namespace, ToolKey, ToolName};

/// Names as `name` (in every namespace) or `namespace/name` (that tool only). What no tool can be called is kept and never
/// matches: it shows up as unknown.
///
/// Sorted texts and nothing else: most lists come with a request, are short, and are looked into for a few tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Items {
    /// All of them as they were written; sorted, each once.
    names: Vec<String>,
    /// Whether one of them has a namespace.
    qualified: bool,
}

impl Items {
    pub(super) fn new<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<&str> = items.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let qualified = names.iter().any(|name| name.contains('/'));
        Self { names: names.into_iter().map(str::to_owned).collect(), qualified }
    }

    /// The names as namespace, if they have one, and name; sorted as they were written.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, Option<&str>, &str)> {
        self.names.iter().map(|item| match item.split_once('/') {
            None => (item.as_str(), None, item.as_str()),
            Some((namespace, name)) => (item.as_str(), Some(namespace), name),
        })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn allows(&self, namespace: &Namespace, name: &ToolName) -> bool {
        self.bare(name).is_some() || self.of_namespace(namespace, name).is_some()
    }

    /// The names that none of the tools has; sorted.
    pub(super) fn unknown<'a>(&self, registered: impl IntoIterator<Item = &'a ToolKey>) -> Vec<String> {
        let mut known = vec![false; self.names.len()];
        for ToolKey { namespace, name } in registered {
            for at in [self.bare(name), self.of_namespace(namespace, name)].into_iter().flatten() {
                known[at] = true;
            }
        }
        self.names.iter().zip(known).filter(|(_, known)| !known).map(|(item, _)| item.clone()).collect()
    }

    /// Where a tool stands by its name alone.
    fn bare(&self, name: &ToolName) -> Option<usize> {
        self.names.binary_search_by(|item| item.as_str().cmp(name.as_str())).ok()
    }

    /// Where it stands with its namespace.
    fn of_namespace(&self, namespace: &Namespace, name: &ToolName) -> Option<usize> {
        if !self.qualified {
            return None;
        }
        let written = || namespace.as_str().bytes().chain([b'/']).chain(name.as_str().bytes());
        self.names.binary_search_by(|item| item.bytes().cmp(written())).ok()
    }
}
