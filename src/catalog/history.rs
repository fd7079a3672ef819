//! What readers need besides the state now to be led on from an earlier one: which tools changed since, and which left.

use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use rpds::RedBlackTreeMapSync;

use super::{Catalog, CatalogTool};
use crate::core::name::{Namespace, ToolName};

/// How many departures are remembered, of all namespaces. A resume from before the oldest starts over with the whole state.
const MAX_DEPARTURES: usize = 16_384;

/// The tools that left.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// What is left of them: enough to judge who could have seen them.
    departures: RedBlackTreeMapSync<(Namespace, u64, ToolName), Arc<CatalogTool>>,
    /// The same in the order in which they left.
    order: RedBlackTreeMapSync<(u64, Namespace, ToolName), ()>,
    /// Of what left at this revision or before, nothing is known.
    oldest: u64,
}

impl History {
    /// Nothing, at the start of a history.
    pub(super) fn new(revision: u64) -> Self {
        Self {
            departures: RedBlackTreeMapSync::default(),
            order: RedBlackTreeMapSync::default(),
            oldest: revision,
        }
    }

    /// Remembers a tool that left.
    pub(super) fn departs(&mut self, tool: &CatalogTool, revision: u64) {
        let key = &tool.stored.key;
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        self.order.insert_mut((revision, namespace.clone(), name.clone()), ());
        self.departures.insert_mut((namespace, revision, name), Arc::new(tool.remains()));
        while self.order.size() > MAX_DEPARTURES
            && let Some(first) = self.order.first().map(|(first, ())| first.clone())
        {
            self.order.remove_mut(&first);
            let (revision, namespace, name) = first;
            self.oldest = revision;
            self.departures.remove_mut(&(namespace, revision, name));
        }
    }

    fn newest_of(&self, namespace: &Namespace) -> u64 {
        let at = |revision| (namespace.clone(), revision, ToolName::least());
        let mut all = self.departures.range((Included(at(0)), Included(at(u64::MAX))));
        all.next_back().map_or(0, |((_, revision, _), _)| *revision)
    }
}

impl Catalog {
    /// Whether everything that left after `revision` is still known.
    pub fn knows(&self, revision: u64) -> bool {
        revision >= self.history.oldest
    }

    /// The tools of a namespace of which operators are shown something else since `revision`, in the order of their changes;
    /// those beyond `last`, if it is given: revision and name of one that came before.
    pub fn changed_after<'a>(
        &'a self,
        namespace: &Namespace,
        revision: u64,
        last: Option<(u64, &ToolName)>,
    ) -> impl Iterator<Item = &'a Arc<CatalogTool>> {
        let from = match last {
            Some((at, name)) => Excluded((at, name.clone())),
            None => Included((revision.saturating_add(1), ToolName::least())),
        };
        let namespace = self.namespace(namespace);
        let changes = namespace.changes.range((from, Unbounded));
        changes.filter_map(|((_, name), ())| namespace.tools.get(name.as_str()))
    }

    /// What is left of the tools of a namespace that left after `revision`, in the order in which they did, each with the
    /// revision.
    pub fn departed_after<'a>(
        &'a self,
        namespace: &'a Namespace,
        revision: u64,
    ) -> impl Iterator<Item = (u64, &'a Arc<CatalogTool>)> {
        let first = (namespace.clone(), revision.saturating_add(1), ToolName::least());
        let departures = self.history.departures.range((Included(first), Unbounded));
        departures.take_while(move |((at, ..), _)| at == namespace).map(|((_, at, _), tool)| (*at, tool))
    }

    /// A revision at which agents see in a namespace what they see now, and as early as is known.
    pub fn shown_since(&self, namespace: &Namespace) -> u64 {
        // A revision of 0 says that there is none.
        self.shown_in(namespace).max(self.rules_changed).max(self.history.oldest).max(1)
    }

    /// When the tools of a namespace last changed for operators, as far as it is known.
    pub fn changed_in(&self, namespace: &Namespace) -> u64 {
        let changed = self.namespace(namespace).changes.last().map_or(0, |((at, _), ())| *at);
        // A revision of 0 says that there is none.
        changed.max(self.history.newest_of(namespace)).max(self.history.oldest).max(1)
    }

    /// When the tools of a namespace last changed for agents. It names their state: equal numbers are equal tools.
    pub(super) fn shown_in(&self, namespace: &Namespace) -> u64 {
        match self.namespaces.get(namespace) {
            Some(tools) => tools.shown,
            None => self.history.newest_of(namespace),
        }
    }
}
