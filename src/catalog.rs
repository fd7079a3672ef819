//! What every read is answered from: an immutable snapshot of the registry, replaced as a whole by the one writer.
//!
//! A change copies only the path to what changed (the maps are persistent), so publishing a flip does not grow with the
//! number of tools. Readers load the snapshot once per request and never lock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;
use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;

use crate::core::{
    allowlist::ServerAllowlist,
    availability::Verdict,
    name::{Namespace, ToolKey, ToolName},
    policy::{DefaultPolicy, Disabled},
    registry::{access::PolicyKey, plan::Collision},
    time::Moment,
};

mod explain;
mod gateways;
mod history;
mod lead;
mod listing;
mod policies;
mod search;
mod selection;
mod stamps;
mod tool;

pub use self::{
    explain::{Explanation, Judged, Since, approve_command},
    gateways::{GatewayCatalog, GatewayEntry},
    lead::Lead,
    listing::{Contents, Hidden, Listing, tokens},
    search::Hit,
    selection::{Budget, Filter, Selection, Shape, Stage, Visibility},
    stamps::Stamps,
    tool::{CatalogTool, Definition, ProbeStatus, Status, Trouble},
};
use self::{
    history::History,
    listing::Listings,
    policies::{PolicyEntry, SharedRules, without_policy},
    tool::builtin_gateway_status,
};

/// One state of the whole registry.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Identity of the history that `revision` counts: new at each start.
    pub epoch: Arc<str>,
    /// Moves with every stored change and every flip.
    pub revision: u64,
    /// Namespaces that hold a tool.
    pub namespaces: RedBlackTreeMapSync<Namespace, NamespaceCatalog>,
    /// Gateways that are live or stale.
    pub gateways: GatewayCatalog,
    /// Names that two owners want, the newest last.
    pub collisions: Arc<Vec<Collision>>,
    /// What the prober suspects of itself, if it does.
    pub prober_suspicion: Option<ProberSuspicion>,
    /// When that began or ended last.
    pub suspicion_turned: u64,
    policies: RedBlackTreeMapSync<PolicyKey, Arc<PolicyEntry>>,
    /// What applies to an agent without a policy.
    without_policy: SharedRules,
    /// What agents are shown besides registered tools.
    builtin: Option<Arc<CatalogTool>>,
    /// The same where an operator switched it off.
    builtin_off: RedBlackTreeMapSync<Namespace, Arc<CatalogTool>>,
    verdicts: [usize; 3],
    history: History,
    /// When a policy, or the switch of what is built in, changed last: what agents may see then changed without their tools.
    rules_changed: u64,
    /// What a namespace without tools lists as.
    empty: NamespaceCatalog,
}

/// What the prober suspects of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberSuspicion {
    /// Since when.
    pub since: Moment,
    /// Why, for operators.
    pub text: Arc<str>,
}

/// The tools of one namespace.
#[derive(Clone, Debug, Default)]
pub struct NamespaceCatalog {
    tools: RedBlackTreeMapSync<ToolName, Arc<CatalogTool>>,
    available: u32,
    /// When windows end.
    window_ends: RedBlackTreeMapSync<(Moment, ToolName), ()>,
    /// The same tools in the order in which operators saw them change.
    changes: RedBlackTreeMapSync<(u64, ToolName), ()>,
    /// When agents last could see a change.
    shown: u64,
    /// Lists that were asked for, until what agents may see changes.
    listings: Arc<Listings>,
}

impl Catalog {
    /// A registry without tools.
    pub fn empty(epoch: Arc<str>, revision: u64, show_gateway_status: bool) -> Self {
        Self {
            epoch,
            revision,
            namespaces: RedBlackTreeMapSync::default(),
            gateways: GatewayCatalog::new(revision),
            collisions: Arc::default(),
            prober_suspicion: None,
            suspicion_turned: revision,
            policies: RedBlackTreeMapSync::default(),
            without_policy: without_policy(DefaultPolicy::Allow),
            builtin_off: RedBlackTreeMapSync::default(),
            builtin: show_gateway_status.then(|| Arc::new(builtin_gateway_status())),
            verdicts: [0; 3],
            history: History::new(revision),
            rules_changed: revision,
            empty: NamespaceCatalog::default(),
        }
    }

    /// The same, with what applies to an agent without a policy.
    #[must_use]
    pub fn with_default_policy(self, default: DefaultPolicy) -> Self {
        Self { without_policy: without_policy(default), ..self }
    }

    /// One tool, available or not.
    pub fn get(&self, key: &ToolKey) -> Option<&Arc<CatalogTool>> {
        self.namespaces.get(&key.namespace)?.tools.get(&key.name)
    }

    /// One tool of a namespace, registered or built in.
    pub fn find(&self, namespace: &Namespace, name: &str) -> Option<&Arc<CatalogTool>> {
        let builtin = || self.builtin(namespace).filter(|tool| tool.stored.key.name.as_str() == name);
        self.namespace(namespace).tools.get(name).or_else(builtin)
    }

    /// Whether there is a built-in tool of this name, registered or not.
    pub fn is_builtin(&self, key: &ToolKey) -> bool {
        self.builtin.as_ref().is_some_and(|tool| tool.stored.key.name == key.name)
    }

    /// When the next window of a namespace ends: before that, none of its lists changes by itself.
    pub fn next_window_end(&self, namespace: &str) -> Option<Moment> {
        self.namespaces.get(namespace)?.window_ends.first().map(|((end, _), ())| *end)
    }

    /// The built-in tool of a namespace, where no registered one has its name.
    fn builtin(&self, namespace: &Namespace) -> Option<&Arc<CatalogTool>> {
        let builtin = self.builtin_off.get(namespace).or(self.builtin.as_ref())?;
        let taken = self.namespace(namespace).tools.contains_key(builtin.stored.key.name.as_str());
        (!taken).then_some(builtin)
    }

    /// The tools of a namespace, sorted by name.
    pub fn tools(&self, namespace: &Namespace) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.namespace(namespace).tools.values()
    }

    /// The tools of a namespace whose names are greater than `after`, sorted by name.
    pub fn tools_after(
        &self,
        namespace: &Namespace,
        after: Option<&str>,
    ) -> impl Iterator<Item = &Arc<CatalogTool>> {
        let from = match after {
            Some(name) => std::ops::Bound::Excluded(name),
            None => std::ops::Bound::Unbounded,
        };
        self.namespace(namespace)
            .tools
            .range::<str, _>((from, std::ops::Bound::Unbounded))
            .map(|(_, tool)| tool)
    }

    /// All names that allowlists may hold: the registered tools, and what is built in.
    pub fn registered(&self) -> Vec<ToolKey> {
        let builtin = self.builtin.iter().map(|tool| tool.stored.key.clone());
        let tools =
            self.namespaces.values().flat_map(|n| n.tools.values()).map(|tool| tool.stored.key.clone());
        builtin.chain(tools).collect()
    }

    /// How many tools have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.verdicts[verdict as usize]
    }

    /// Puts a tool in, or its newer state.
    pub fn put(&mut self, tool: CatalogTool) {
        let key = tool.stored.key.clone();
        if !self.namespaces.contains_key(&key.namespace) {
            self.namespaces.insert_mut(key.namespace.clone(), NamespaceCatalog::default());
        }
        // In its place: what the first of many tools copied, the others change as it is.
        let Some(namespace) = self.namespaces.get_mut(&key.namespace) else { return };
        let before = namespace.tools.get(&key.name).cloned();
        let visible = before.as_ref().is_none_or(|before| before.stamps.shown() != tool.stamps.shown());
        if let Some(before) = before {
            self.verdicts[before.status.verdict as usize] -= 1;
            namespace.forget(&before);
        }
        if let Some(end) = tool.window_end {
            namespace.window_ends.insert_mut((end, key.name.clone()), ());
        }
        namespace.changes.insert_mut((tool.stamps.changed(), key.name.clone()), ());
        namespace.available += u32::from(tool.is_available());
        self.verdicts[tool.status.verdict as usize] += 1;
        namespace.tools.insert_mut(key.name, Arc::new(tool));
        if visible {
            namespace.is_shown(self.revision);
        }
    }

    /// Takes a tool out; a namespace without tools goes with it.
    pub fn remove(&mut self, key: &ToolKey) {
        // Copied only if it holds the tool.
        if self.get(key).is_none() {
            return;
        }
        let Some(namespace) = self.namespaces.get_mut(&key.namespace) else { return };
        let Some(before) = namespace.tools.get(&key.name).cloned() else { return };
        self.verdicts[before.status.verdict as usize] -= 1;
        namespace.forget(&before);
        namespace.tools.remove_mut(key.name.as_str());
        namespace.is_shown(self.revision);
        let is_empty = namespace.tools.is_empty();
        self.history.departs(&before, self.revision);
        if is_empty {
            self.namespaces.remove_mut(&key.namespace);
        }
    }

    /// Shows the built-in tool of a namespace as switched off, or on again. Nothing happens for other tools.
    pub fn switch_builtin(&mut self, key: &ToolKey, disabled: Option<&Arc<Disabled>>) {
        let Some(builtin) = self.builtin.as_ref().filter(|_| self.is_builtin(key)) else { return };
        match disabled {
            Some(disabled) => {
                let same = |off: &Arc<CatalogTool>| off.disabled.as_ref() == Some(disabled);
                if self.builtin_off.get(&key.namespace).is_some_and(same) {
                    return;
                }
                let off = builtin.switched(Some(Arc::clone(disabled)));
                self.builtin_off.insert_mut(key.namespace.clone(), Arc::new(off));
            }
            None => {
                if !self.builtin_off.remove_mut(&key.namespace) {
                    return;
                }
            }
        }
        self.rules_changed = self.revision;
        if let Some(namespace) = self.namespaces.get_mut(&key.namespace) {
            namespace.is_shown(self.revision);
        }
    }

    /// The same state of one namespace without the lists that were made of it, for a reader that may keep it for long.
    #[must_use]
    pub fn without_lists(&self, namespace: &Namespace) -> Self {
        let tools = self
            .namespaces
            .get(namespace)
            .map(|tools| (namespace.clone(), NamespaceCatalog { listings: Arc::default(), ..tools.clone() }));
        Self { namespaces: tools.into_iter().collect(), ..self.clone() }
    }

    fn namespace(&self, namespace: &Namespace) -> &NamespaceCatalog {
        self.namespaces.get(namespace).unwrap_or(&self.empty)
    }
}

impl NamespaceCatalog {
    /// Takes out what is kept of a tool beside it.
    fn forget(&mut self, tool: &CatalogTool) {
        let name = &tool.stored.key.name;
        self.available -= u32::from(tool.is_available());
        self.changes.remove_mut(&(tool.stamps.changed(), name.clone()));
        if let Some(end) = tool.window_end {
            self.window_ends.remove_mut(&(end, name.clone()));
        }
    }

    /// Agents may see something else, as of a revision.
    fn is_shown(&mut self, revision: u64) {
        self.shown = revision;
        self.listings = Arc::default();
    }

    /// How many tools it holds, and how many of them are available.
    pub fn counts(&self) -> (u32, u32) {
        (u32::try_from(self.tools.size()).unwrap_or(u32::MAX), self.available)
    }
}

/// The writer's end of the catalog.
#[derive(Debug)]
pub struct Publisher {
    catalog: Arc<ArcSwap<Catalog>>,
    revisions: watch::Sender<u64>,
    settled: watch::Sender<bool>,
    is_settled: Arc<AtomicBool>,
}

/// The readers' end of the catalog; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    catalog: Arc<ArcSwap<Catalog>>,
    revisions: watch::Receiver<u64>,
    settled: watch::Receiver<bool>,
    /// The same as `settled`: every read asks, and to look into the channel takes a lock.
    is_settled: Arc<AtomicBool>,
    allowlist: Arc<ServerAllowlist>,
}

/// Both ends, with `catalog` published and unsettled.
pub fn channel(catalog: Catalog, allowlist: ServerAllowlist) -> (Publisher, Reader) {
    let (revisions, revisions_rx) = watch::channel(catalog.revision);
    let (settled, settled_rx) = watch::channel(false);
    let catalog = Arc::new(ArcSwap::from_pointee(catalog));
    let is_settled = Arc::new(AtomicBool::new(false));
    let reader = Reader {
        catalog: Arc::clone(&catalog),
        revisions: revisions_rx,
        settled: settled_rx,
        is_settled: Arc::clone(&is_settled),
        allowlist: Arc::new(allowlist),
    };
    (Publisher { catalog, revisions, settled, is_settled }, reader)
}

impl Publisher {
    /// The newest catalog, to build the next one from.
    pub fn current(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Makes a catalog the one that every later read sees.
    pub fn publish(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// Wakes those who wait for a newer revision than they saw.
    pub fn announce(&self) {
        let newest = self.catalog.load().revision;
        self.revisions.send_if_modified(|revision| {
            let moved = *revision != newest;
            *revision = newest;
            moved
        });
    }

    /// Whether every probe had its turn since the start, or since the process stood still.
    pub fn set_settled(&self, settled: bool) {
        // Before those who wait are woken: they read at once.
        self.is_settled.store(settled, Ordering::Release);
        self.settled.send_if_modified(|before| std::mem::replace(before, settled) != settled);
    }
}

impl Reader {
    /// The catalog as it stands now.
    pub fn load(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The server's allowlist.
    pub fn allowlist(&self) -> &ServerAllowlist {
        &self.allowlist
    }

    /// Tells of newer revisions.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.clone()
    }

    /// Whether the registry is settled.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    /// Tells whether the registry is settled.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.clone()
    }
}

#[cfg(test)]
mod tests;
