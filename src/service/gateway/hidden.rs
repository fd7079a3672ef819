//! What joins the `degraded` of a status: the tools that agents may use and do not see, as they do not work, so that gating and
//! status agree; and the prober, where it suspects itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    catalog::{Catalog, Selection},
    core::{allowlist::ServerAllowlist, availability::Verdict, name::Namespace},
};

/// What a joined entry says. It is the same for all: the reason of a tool may move while its verdict does not, and then no
/// watcher would hear of it.
pub(super) const REASON: &str = "unavailable";

/// Most names that are kept of a namespace: a status takes 256 entries, of which the gateway itself may have reported as many.
const MAX_NAMES: usize = 512;

/// What joins the status of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Joined {
    /// The prober suspects itself.
    pub(super) suspect: bool,
    /// Names of hidden tools, sorted.
    pub(super) tools: Arc<[String]>,
}

impl Joined {
    pub(super) fn is_empty(&self) -> bool {
        !self.suspect && self.tools.is_empty()
    }
}

/// The hidden tools by namespace, found once per revision: many watches ask at once.
#[derive(Debug, Default)]
pub(super) struct Hidden(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    revision: u64,
    by_namespace: HashMap<Namespace, Arc<[String]>>,
}

impl Hidden {
    /// What joins the statuses of a namespace.
    pub(super) fn of(&self, catalog: &Catalog, namespace: &Namespace, allowlist: &ServerAllowlist) -> Joined {
        let suspect = catalog.prober_suspicion.is_some();
        Joined { suspect, tools: self.tools(catalog, namespace, allowlist) }
    }

    /// The names in a namespace, sorted.
    fn tools(&self, catalog: &Catalog, namespace: &Namespace, allowlist: &ServerAllowlist) -> Arc<[String]> {
        let counts = catalog.namespaces.get(namespace).map(|tools| tools.counts());
        if counts.is_none_or(|(tools, available)| tools == available) {
            return Arc::default();
        }
        {
            let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if found.revision == catalog.revision
                && let Some(names) = found.by_namespace.get(namespace)
            {
                return Arc::clone(names);
            }
        }
        // Nobody in particular reads a status: it tells what those may know who have no policy.
        let filter = catalog.resolve(Selection { namespace: namespace.clone(), ..Selection::default() });
        let names: Arc<[String]> = catalog
            .tools(namespace)
            .filter(|tool| tool.status.verdict == Verdict::Unavailable)
            .filter(|tool| filter.permits(tool, allowlist))
            .map(|tool| tool.stored.key.name.to_string())
            .take(MAX_NAMES)
            .collect();
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.revision < catalog.revision {
            *found = Found { revision: catalog.revision, by_namespace: HashMap::new() };
        }
        if found.revision == catalog.revision {
            found.by_namespace.insert(namespace.clone(), Arc::clone(&names));
        }
        names
    }
}
