//! What changed since the last catalog, and how it becomes the next one.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use super::{Catalog, Owner, writes::Finish};
use crate::{
    catalog::CatalogTool,
    core::{
        availability::{Effect, FLAP_EDGES, Verdict},
        name::ToolKey,
        probe::ProbeKind,
        registry::{Entry, Happening, Success, access::PolicyKey},
        time::Moment,
    },
    store::{Soft, Stamp, StoreError},
};

/// Revisions are reserved in blocks, so that a flip costs no write. A block lasts for weeks.
const REVISION_BLOCK: u64 = 1_000_000;

type Ack = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;
/// A probe of a tool.
type ProbeOf = (ToolKey, Arc<str>);

/// What the next catalog must show, and who waits for it.
pub(super) struct Dirty {
    tools: BTreeSet<ToolKey>,
    policies: BTreeSet<PolicyKey>,
    collisions: bool,
    suspicion: bool,
    pub(super) gateways: bool,
    /// Readers may be told, with the next catalog, that the registry is settled.
    pub(super) settles: bool,
    moved: bool,
    revision: u64,
    reserved: u64,
    finishes: Vec<Finish>,
    /// Clearings of last successes, and first successes, on their way to the store. Nothing is published meanwhile: what said
    /// no must not come back by a crash after somebody saw it hidden, nor what works be hidden after somebody saw it.
    clearing: VecDeque<(Vec<ProbeOf>, Ack)>,
    /// Clearings that the store refused; tried again with each checkpoint.
    uncleared: BTreeSet<ProbeOf>,
    successes: HashMap<(ToolKey, usize), Passed>,
    /// One of them is a tool's first: a restart must know of it soon.
    urgent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    at: Moment,
    generation: u64,
    ttl: Option<Duration>,
}

impl Dirty {
    /// Nothing, after `revision`; so many are reserved already.
    pub(super) fn new(revision: u64) -> Self {
        Self {
            tools: BTreeSet::new(),
            policies: BTreeSet::new(),
            collisions: false,
            suspicion: false,
            gateways: false,
            settles: false,
            moved: false,
            revision,
            reserved: revision,
            finishes: Vec::new(),
            clearing: VecDeque::new(),
            uncleared: BTreeSet::new(),
            successes: HashMap::new(),
            urgent: false,
        }
    }

    /// A tool may look different.
    pub(super) fn tool(&mut self, key: ToolKey) {
        self.tools.insert(key);
    }

    /// A policy changed.
    pub(super) fn policy(&mut self, key: PolicyKey) {
        self.policies.insert(key);
        self.moved = true;
    }

    pub(super) fn revision_moves(&mut self) {
        self.moved = true;
    }

    pub(super) fn collisions(&mut self) {
        self.collisions = true;
    }

    /// What the prober suspects of itself changed: watchers hear of it.
    pub(super) fn suspicion(&mut self) {
        self.suspicion = true;
        self.moved = true;
    }

    /// Whether something must be stored before anything is published.
    pub(super) fn is_held(&self) -> bool {
        !self.clearing.is_empty()
    }

    /// Callers to tell once reads show what they did.
    pub(super) fn finish_later(&mut self, finishes: impl IntoIterator<Item = Finish>) {
        self.finishes.extend(finishes);
    }

    /// Waits until the oldest clearing is stored. Dropping the future loses nothing.
    pub(super) async fn cleared(&mut self) -> Option<()> {
        let Some((_, oldest)) = self.clearing.front_mut() else { return std::future::pending().await };
        let answer = oldest.as_mut().await;
        let probes = self.clearing.pop_front().map(|(probes, _)| probes).unwrap_or_default();
        match answer {
            Ok(()) => probes.iter().for_each(|probe| _ = self.uncleared.remove(probe)),
            Err(error) => {
                let before = self.uncleared.len();
                self.uncleared.extend(probes);
                if self.uncleared.len() > before {
                    tracing::warn!(%error, "a cleared success could not be stored; until it is, it may count again after a crash");
                }
            }
        }
        Some(())
    }

    fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.policies.is_empty()
            && !self.collisions
            && !self.gateways
            && !self.settles
            && !self.moved
            && self.finishes.is_empty()
    }
}

impl fmt::Debug for Dirty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dirty").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Owner {
    /// Reserves the first block of revisions. Nothing may be published before.
    pub(super) async fn reserve_first_block(&mut self) -> Result<(), StoreError> {
        let up_to = self.dirty.revision + REVISION_BLOCK;
        self.store.reserve_revisions(up_to).await?;
        self.dirty.reserved = up_to;
        Ok(())
    }

    /// Publishes what changed and tells those who wait for it.
    pub(super) fn publish(&mut self) {
        if self.dirty.is_empty() || self.dirty.is_held() {
            return;
        }
        let mut catalog = Catalog::clone(&self.publisher.current());
        let tools = self.changed_tools(&catalog);
        if std::mem::take(&mut self.dirty.moved) {
            self.dirty.revision += 1;
            self.reserve_more();
        }
        catalog.revision = self.dirty.revision;
        for (key, tool) in tools {
            match tool {
                Some(tool) => catalog.put(tool),
                None => catalog.remove(&key),
            }
            catalog.switch_builtin(&key, self.registry.access.disabled(&key));
        }
        for key in std::mem::take(&mut self.dirty.policies) {
            let policy = self.registry.access.policy(&key).cloned();
            catalog.set_policy(key, policy);
        }
        self.publish_gateways(&mut catalog);
        if std::mem::take(&mut self.dirty.collisions) {
            catalog.collisions = Arc::new(self.collisions.clone());
        }
        if std::mem::take(&mut self.dirty.suspicion) {
            let suspicion = self.shown_suspicion();
            if suspicion.is_some() != catalog.prober_suspicion.is_some() {
                catalog.suspicion_turned = catalog.revision;
            }
            catalog.prober_suspicion = suspicion;
        }
        let count = |verdict| catalog.count(verdict);
        self.metrics.set_tools(
            count(Verdict::Available),
            count(Verdict::Unavailable),
            count(Verdict::Pending),
        );
        self.publisher.publish(catalog);
        if self.settling.is_none() {
            self.publisher.announce();
            self.publisher.set_settled(true);
        }
        self.dirty.settles = false;
        for finish in std::mem::take(&mut self.dirty.finishes) {
            finish(Ok(self.dirty.revision));
        }
    }

    /// The tools that may look different, as they are now; none: gone. If one does, the revision has to move.
    fn changed_tools(&mut self, catalog: &Catalog) -> Vec<(ToolKey, Option<CatalogTool>)> {
        let next = self.dirty.revision + 1;
        let mut tools = Vec::with_capacity(self.dirty.tools.len());
        for key in std::mem::take(&mut self.dirty.tools) {
            let before = catalog.get(&key);
            let entry = self.registry.get(&key);
            let tool = entry.map(|entry| CatalogTool::new(entry, &self.registry, before.map(|b| &**b), next));
            self.dirty.moved |= match &tool {
                Some(tool) => tool.stamps.changed() == next,
                None => before.is_some(),
            };
            tools.push((key, tool));
        }
        tools
    }

    /// Logs a happening, and remembers what reads and the checkpoint must show of it.
    pub(super) fn note(&mut self, happening: &Happening, ttl: Option<Duration>, now: Moment) {
        let Happening { key, probe, effect, flipped, flaps, success, outcome: _ } = happening;
        self.dirty.tool(key.clone());
        let Some(entry) = self.registry.get(key) else { return };
        let generation = entry.stored.generation;
        let name = &key.name;
        let spec = &entry.stored.spec.probes[*probe];
        let why = entry.state.probes[*probe].trouble().map(|(_, why)| &*why.message).unwrap_or_default();
        let reason = match entry.stored.spec.probes.len() {
            1 => why.to_owned(),
            _ => format!("probe '{}': {why}", spec.name),
        };
        match effect {
            Effect::Quiet => {}
            Effect::Calmed => tracing::info!(tool = %key, "does not flap any more"),
            Effect::Up => tracing::debug!(tool = %key, probe, "probe passes"),
            Effect::Recovered => tracing::info!(tool = %key, probe, "probe passes again"),
            Effect::LastGood => tracing::debug!(
                "Availability check failed for tool '{name}' but serving last-good within grace window: {reason}"
            ),
            Effect::SaidNo => tracing::debug!("Tool '{name}' unavailable: {reason}"),
            Effect::Failed if *flipped => {
                tracing::warn!("Availability check failed for tool '{name}': {reason}");
            }
            Effect::Failed => tracing::debug!("Availability check failed for tool '{name}': {reason}"),
        }
        if *flaps {
            tracing::warn!(tool = %key, edges = FLAP_EDGES + 1, "flaps: it came and went too often within 10 minutes");
        }
        let of = (key.clone(), Arc::clone(&spec.name));
        let reported = spec.kind == ProbeKind::Report;
        let passed = entry.state.probes[*probe].last_success();
        let at_probe = (key.clone(), *probe);
        match (success, effect) {
            (Success::Now, _) => {
                self.dirty.uncleared.remove(&of);
                self.dirty.urgent |= matches!(effect, Effect::Up | Effect::Recovered);
                self.dirty.successes.insert(at_probe, Passed { at: now, generation, ttl });
            }
            // An error ends the time that a report may be used: what is left of it is its grace, or nothing.
            (Success::Kept, Effect::LastGood) if reported => {
                let left = |at| (at_probe, Passed { at, generation, ttl: Some(Duration::ZERO) });
                self.dirty.successes.extend(passed.map(left));
            }
            (Success::Kept, Effect::Failed) if !reported => {}
            (Success::Cleared, _) | (Success::Kept, Effect::Failed) => {
                self.dirty.successes.remove(&at_probe);
                self.clear_successes(vec![of]);
            }
            (Success::Kept, _) => {}
        }
    }

    fn clear_successes(&mut self, probes: Vec<ProbeOf>) {
        let clear =
            |(key, probe): &ProbeOf| Soft::ClearSuccess { key: key.clone(), probe: Arc::clone(probe) };
        let answer = self.store.soft(probes.iter().map(clear).collect());
        self.dirty.clearing.push_back((probes, Box::pin(answer)));
    }

    /// Saves what a restart must not miss, before anybody sees it.
    pub(super) fn checkpoint_if_urgent(&mut self, now: Moment) {
        if std::mem::take(&mut self.dirty.urgent)
            && let Some(saved) = self.save(now)
        {
            self.dirty.clearing.push_back((Vec::new(), saved));
        }
    }

    /// Saves what is new since the last time.
    pub(super) fn checkpoint(&mut self, now: Moment) {
        let Some(saved) = self.save(now) else { return };
        tokio::spawn(async move {
            if let Err(error) = saved.await {
                tracing::warn!(%error, "a checkpoint could not be stored; a restart may hide tools for a moment");
            }
        });
    }

    /// Hands the successes and gateways that are new since the last time to the store.
    fn save(&mut self, now: Moment) -> Option<Ack> {
        if !self.dirty.uncleared.is_empty() && self.dirty.clearing.is_empty() {
            self.clear_successes(self.dirty.uncleared.iter().cloned().collect());
        }
        let stamp = Stamp::now();
        let mut changes: Vec<Soft> = Vec::new();
        for ((key, probe), passed) in std::mem::take(&mut self.dirty.successes) {
            // A success of a generation that is no more must not be saved.
            let current = |entry: &&Entry| entry.stored.generation == passed.generation;
            let Some(entry) = self.registry.get(&key).filter(current) else { continue };
            let probe = Arc::clone(&entry.stored.spec.probes[probe].name);
            let at = stamp.earlier(now.since(passed.at));
            changes.push(Soft::Success { key, generation: passed.generation, probe, at, ttl: passed.ttl });
        }
        self.save_gateways(&mut changes);
        (!changes.is_empty()).then(|| Box::pin(self.store.soft(changes)) as Ack)
    }

    fn reserve_more(&mut self) {
        if self.dirty.revision + REVISION_BLOCK / 2 < self.dirty.reserved {
            return;
        }
        self.dirty.reserved += REVISION_BLOCK;
        let reserved = self.store.reserve_revisions(self.dirty.reserved);
        tokio::spawn(async move {
            if let Err(error) = reserved.await {
                tracing::warn!(%error, "revisions could not be reserved; half a block is left");
            }
        });
    }
}
