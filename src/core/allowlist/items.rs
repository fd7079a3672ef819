//! A list of names, ready for look-ups.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::core::name::{Namespace, ToolKey, ToolName};

/// Names as `name` (in every namespace) or `namespace/name` (that tool only). What no tool can be called is kept and never
/// matches: it shows up as unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Items {
    /// All of them as they were written; sorted.
    names: Vec<String>,
    bare: HashSet<Box<str>>,
    qualified: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl Items {
    pub(super) fn new<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = items.into_iter().collect();
        let mut bare = HashSet::new();
        let mut qualified = HashMap::<Box<str>, HashSet<Box<str>>>::new();
        for item in &names {
            match item.split_once('/') {
                None => {
                    bare.insert((*item).into());
                }
                Some((namespace, name)) => {
                    qualified.entry(namespace.into()).or_default().insert(name.into());
                }
            }
        }
        Self { names: names.into_iter().map(str::to_owned).collect(), bare, qualified }
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
        self.bare.contains(name.as_str())
            || self.qualified.get(namespace.as_str()).is_some_and(|names| names.contains(name.as_str()))
    }

    /// The names that none of the tools has; sorted.
    pub(super) fn unknown<'a>(&self, registered: impl IntoIterator<Item = &'a ToolKey>) -> Vec<String> {
        // What tools use is collected, not what they are: the list is short, the registry need not be.
        let mut bare = HashSet::new();
        let mut qualified = HashSet::new();
        for ToolKey { namespace, name } in registered {
            if let Some(item) = self.bare.get(name.as_str()) {
                bare.insert(item.as_ref());
            }
            if let Some((namespace, names)) = self.qualified.get_key_value(namespace.as_str())
                && let Some(name) = names.get(name.as_str())
            {
                qualified.insert((namespace.as_ref(), name.as_ref()));
            }
        }
        let is_known = |item: &str| match item.split_once('/') {
            None => bare.contains(item),
            Some(pair) => qualified.contains(&pair),
        };
        self.names.iter().filter(|item| !is_known(item)).cloned().collect()
    }
}
