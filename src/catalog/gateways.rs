//! The gateways as readers see them, with what a resumed watch needs: when each changed, and which are gone since when.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::core::{
    gateway::{GatewayId, Snapshot},
    name::Namespace,
};

/// How many departures are remembered. A resume from before the oldest starts over with the whole state.
const MAX_DEPARTURES: usize = 4_096;

/// One gateway as readers see it.
#[derive(Clone, Debug)]
pub struct GatewayEntry {
    /// What is known of it. Its times and sequence are those of the newest report; they move without a revision.
    pub snapshot: Arc<Snapshot>,
    /// The revision at which readers last saw it change.
    pub changed: u64,
}

/// All gateways, by namespace and id.
#[derive(Clone, Debug)]
pub struct GatewayCatalog {
    entries: RedBlackTreeMapSync<(Namespace, GatewayId), GatewayEntry>,
    /// The same gateways in the order of their changes, so that a watch reads what changed and nothing else.
    changes: RedBlackTreeMapSync<(Namespace, u64, GatewayId), ()>,
    departures: RedBlackTreeMapSync<(u64, Namespace, GatewayId), ()>,
    /// A resume from a revision below this can't be continued.
    oldest: u64,
}

impl GatewayCatalog {
    /// None, at the start of a history.
    pub fn new(revision: u64) -> Self {
        Self {
            entries: RedBlackTreeMapSync::default(),
            changes: RedBlackTreeMapSync::default(),
            departures: RedBlackTreeMapSync::default(),
            oldest: revision,
        }
    }

    /// The gateways of a namespace, sorted by id.
    pub fn list<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = &'a GatewayEntry> {
        self.after(namespace, None)
    }

    /// The gateways of a namespace whose ids are greater than `after`, sorted by id.
    pub fn after<'a>(
        &'a self,
        namespace: &'a Namespace,
        after: Option<&GatewayId>,
    ) -> impl Iterator<Item = &'a GatewayEntry> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match after {
            Some(id) => Excluded((namespace.clone(), id.clone())),
            // Sorts before every id.
            None => Included((namespace.clone(), GatewayId::least())),
        };
        self.entries
            .range((from, Unbounded))
            .take_while(move |((at, _), _)| at == namespace)
            .map(|(_, entry)| entry)
    }

    /// One gateway.
    pub fn get(&self, namespace: &Namespace, id: &GatewayId) -> Option<&GatewayEntry> {
        self.entries.get(&(namespace.clone(), id.clone()))
    }

    /// The gateways of a namespace that changed after `revision`, in the order of their changes; those beyond `last`, if it
    /// is given: revision and id of one that came before.
    pub fn changed_after<'a>(
        &'a self,
        namespace: &'a Namespace,
        revision: u64,
        last: Option<(u64, &GatewayId)>,
    ) -> impl Iterator<Item = &'a GatewayEntry> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match last {
            Some((at, id)) => Excluded((namespace.clone(), at, id.clone())),
            // Sorts before every id.
            None => Included((namespace.clone(), revision.saturating_add(1), GatewayId::least())),
        };
        self.changes
            .range((from, Unbounded))
            .take_while(move |((at, ..), ())| at == namespace)
            .filter_map(|((_, _, id), ())| self.get(namespace, id))
    }

    /// Whether everything that changed after `revision` is still known.
    pub fn knows(&self, revision: u64) -> bool {
        revision >= self.oldest
    }

    /// The gateways of a namespace that left after `revision` and did not come back.
    pub fn departed<'a>(
        &'a self,
        namespace: &'a Namespace,
        revision: u64,
    ) -> impl Iterator<Item = &'a GatewayId> {
        let first = (revision.saturating_add(1), Namespace::least(), GatewayId::least());
        self.departures
            .range(first..)
            .map(|((_, at, id), ())| (at, id))
            .filter(move |(at, id)| *at == namespace && self.get(at, id).is_none())
            .map(|(_, id)| id)
    }

    /// Puts a gateway in, or its newer state. `changed`: readers see something else, as of this revision.
    pub fn put(&mut self, snapshot: Arc<Snapshot>, changed: Option<u64>) {
        let key = (snapshot.namespace.clone(), snapshot.id.clone());
        let before = self.entries.get(&key).map(|entry| entry.changed);
        let changed = changed.or(before).unwrap_or(self.oldest);
        if let Some(before) = before {
            self.changes.remove_mut(&(key.0.clone(), before, key.1.clone()));
        }
        self.changes.insert_mut((key.0.clone(), changed, key.1.clone()), ());
        self.entries.insert_mut(key, GatewayEntry { snapshot, changed });
    }

    /// Takes a gateway out, as of a revision.
    pub fn remove(&mut self, namespace: &Namespace, id: &GatewayId, revision: u64) {
        if let Some(entry) = self.get(namespace, id) {
            let changed = entry.changed;
            self.changes.remove_mut(&(namespace.clone(), changed, id.clone()));
        }
        self.entries.remove_mut(&(namespace.clone(), id.clone()));
        self.departures.insert_mut((revision, namespace.clone(), id.clone()), ());
        while self.departures.size() > MAX_DEPARTURES
            && let Some((oldest, ())) = self.departures.first().map(|(key, ())| (key.clone(), ()))
        {
            self.oldest = oldest.0;
            self.departures.remove_mut(&oldest);
        }
    }
}
