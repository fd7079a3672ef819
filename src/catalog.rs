//! What every read is answered from: an immutable snapshot of the registry, replaced as a whole by the one writer.
//!
//! A change copies only the path to what changed (the maps are persistent), so publishing a flip does not grow with the
//! number of tools. Readers load the snapshot once per request and never lock.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;

use crate::core::{
    allowlist::ServerAllowlist,
    availability::Verdict,
    name::{Namespace, ToolKey, ToolName},
    registry::plan::Collision,
    time::Moment,
};

mod gateways;
mod listing;
mod tool;

pub use self::{
    gateways::{GatewayCatalog, GatewayEntry},
    listing::{Hidden, Listing, Selection, Stage},
    tool::{CatalogTool, Definition, ProbeStatus, Status, Trouble},
};
use self::{listing::Listings, tool::builtin_gateway_status};

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
    /// When the next window ends: before that, no list changes by itself.
    pub next_window_end: Option<Moment>,
    /// What agents are shown besides registered tools.
    builtin: Option<Arc<CatalogTool>>,
    verdicts: [usize; 3],
    /// What a namespace without tools lists as.
    empty: NamespaceCatalog,
}

/// The tools of one namespace.
#[derive(Clone, Debug, Default)]
pub struct NamespaceCatalog {
    tools: RedBlackTreeMapSync<ToolName, Arc<CatalogTool>>,
    available: u32,
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
            next_window_end: None,
            builtin: show_gateway_status.then(|| Arc::new(builtin_gateway_status())),
            verdicts: [0; 3],
            empty: NamespaceCatalog::default(),
        }
    }

    /// One tool, available or not.
    pub fn get(&self, key: &ToolKey) -> Option<&Arc<CatalogTool>> {
        self.namespaces.get(&key.namespace)?.tools.get(&key.name)
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

    /// Puts a tool in, or its newer state. `visible`: what agents may see may have changed.
    pub fn put(&mut self, tool: CatalogTool, visible: bool) {
        let key = tool.stored.key.clone();
        let mut namespace = self.namespaces.get(&key.namespace).cloned().unwrap_or_default();
        let before = namespace.tools.get(&key.name);
        // A list also says which names are unknown.
        let visible = visible || before.is_none();
        if let Some(before) = before {
            namespace.available -= u32::from(before.is_available());
            self.verdicts[before.status.verdict as usize] -= 1;
        }
        namespace.available += u32::from(tool.is_available());
        self.verdicts[tool.status.verdict as usize] += 1;
        namespace.tools.insert_mut(key.name, Arc::new(tool));
        if visible {
            namespace.listings = Arc::default();
        }
        self.namespaces.insert_mut(key.namespace, namespace);
    }

    /// Takes a tool out; a namespace without tools goes with it.
    pub fn remove(&mut self, key: &ToolKey) {
        let Some(namespace) = self.namespaces.get(&key.namespace) else { return };
        let mut namespace = namespace.clone();
        let Some(before) = namespace.tools.get(&key.name) else { return };
        namespace.available -= u32::from(before.is_available());
        self.verdicts[before.status.verdict as usize] -= 1;
        namespace.tools.remove_mut(key.name.as_str());
        namespace.listings = Arc::default();
        if namespace.tools.is_empty() {
            self.namespaces.remove_mut(&key.namespace);
        } else {
            self.namespaces.insert_mut(key.namespace.clone(), namespace);
        }
    }

    fn namespace(&self, namespace: &Namespace) -> &NamespaceCatalog {
        self.namespaces.get(namespace).unwrap_or(&self.empty)
    }
}

impl NamespaceCatalog {
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
}

/// The readers' end of the catalog; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    catalog: Arc<ArcSwap<Catalog>>,
    revisions: watch::Receiver<u64>,
    settled: watch::Receiver<bool>,
    allowlist: Arc<ServerAllowlist>,
}

/// Both ends, with `catalog` published and unsettled.
pub fn channel(catalog: Catalog, allowlist: ServerAllowlist) -> (Publisher, Reader) {
    let (revisions, revisions_rx) = watch::channel(catalog.revision);
    let (settled, settled_rx) = watch::channel(false);
    let catalog = Arc::new(ArcSwap::from_pointee(catalog));
    let reader = Reader {
        catalog: Arc::clone(&catalog),
        revisions: revisions_rx,
        settled: settled_rx,
        allowlist: Arc::new(allowlist),
    };
    (Publisher { catalog, revisions, settled }, reader)
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
        *self.settled.borrow()
    }

    /// Tells whether the registry is settled.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.clone()
    }

    /// What an agent may use now.
    pub fn list(&self, selection: &Selection) -> (Arc<Catalog>, Arc<Listing>) {
        let catalog = self.load();
        let listing = catalog.list(selection, &self.allowlist);
        (catalog, listing)
    }
}

#[cfg(test)]
mod tests;
