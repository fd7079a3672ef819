//! Where one watch of gateways stands, and the messages that lead it on.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use prost::Message;

use super::{View, convert, hidden::Joined};
use crate::{
    catalog::{Catalog, GatewayEntry},
    core::{gateway::GatewayId, name::Namespace},
    proto::v1::{self, Goodbye, WatchGatewayStatusResponse},
    service::{
        convert::field_len,
        watch::{Cursor, MAX_PART_BYTES},
    },
};

/// Room in a part for its fields that are set last: `revision` and `synced`.
const LAST_FIELDS: usize = 16;

/// Where one watch of gateways stands.
#[derive(Debug)]
pub struct GatewayCursor {
    view: Arc<View>,
    namespace: Namespace,
    /// Sorted; none: all of the namespace.
    only: Option<Arc<[GatewayId]>>,
    position: Position,
    batch: Option<Batch>,
    /// What joins a status moves without a change of its gateway. So where they do, this is what the reader has.
    sent: Option<Sent>,
}

#[derive(Debug)]
enum Position {
    /// The reader has nothing.
    Nothing,
    /// It has what an earlier watch gave it.
    Resume(v1::Position),
    /// It has the state at this revision.
    At(u64),
}

#[derive(Debug, Default)]
struct Sent {
    joined: Joined,
    /// Hashes of the snapshots.
    hashes: HashMap<GatewayId, u64>,
}

/// One state that the reader is led to, and how far it is.
#[derive(Debug)]
struct Batch {
    catalog: Arc<Catalog>,
    joined: Joined,
    /// It has all that did not change after this revision; none: it has nothing.
    since: Option<u64>,
    /// All gateways are looked at, not only those that changed.
    whole: bool,
    /// It must forget what it had.
    reset: bool,
    /// It gets a message even if nothing changed.
    must_send: bool,
    /// So many departures were looked at.
    departures: usize,
    /// The gateway that was looked at last, and the revision of its change.
    last: Option<(u64, GatewayId)>,
}

impl GatewayCursor {
    pub(super) fn new(
        view: Arc<View>,
        namespace: Namespace,
        only: Option<Arc<[GatewayId]>>,
        resume: Option<v1::Position>,
    ) -> Self {
        let sent = view.hidden.is_some().then(Sent::default);
        let position = resume.map_or(Position::Nothing, Position::Resume);
        Self { view, namespace, only, position, batch: None, sent }
    }

    /// From where the reader can be led on; none: from nothing.
    fn since(&self, catalog: &Catalog) -> Option<u64> {
        match &self.position {
            Position::Nothing => None,
            Position::At(revision) => Some(*revision).filter(|at| catalog.gateways.knows(*at)),
            Position::Resume(from) => {
                let known = from.epoch == *catalog.epoch
                    && from.revision <= catalog.revision
                    && catalog.gateways.knows(from.revision);
                // What the tools added back then is not known, but at the very same revision it is the same.
                let known = known && (self.sent.is_none() || from.revision == catalog.revision);
                known.then_some(from.revision)
            }
        }
    }

    fn message(&self) -> WatchGatewayStatusResponse {
        WatchGatewayStatusResponse { epoch: self.view.reader.load().epoch.to_string(), ..Default::default() }
    }

    fn watches(&self, id: &GatewayId) -> bool {
        self.only.as_ref().is_none_or(|only| only.binary_search(id).is_ok())
    }

    /// Puts ids that are gone into a message. False if it is full.
    fn push_removed(
        &mut self,
        batch: &mut Batch,
        message: &mut WatchGatewayStatusResponse,
        size: &mut usize,
    ) -> bool {
        let Some(since) = batch.since else { return true };
        for id in batch.catalog.gateways.departed(&self.namespace, since).skip(batch.departures) {
            if self.watches(id) {
                *size += id.as_str().len() + 3;
                if *size > MAX_PART_BYTES {
                    return false;
                }
                message.removed.push(id.to_string());
                if let Some(sent) = &mut self.sent {
                    sent.hashes.remove(id);
                }
            }
            batch.departures += 1;
        }
        true
    }

    /// Puts snapshots into a message. False if it is full.
    fn push_snapshots(
        &mut self,
        batch: &mut Batch,
        message: &mut WatchGatewayStatusResponse,
        size: &mut usize,
    ) -> bool {
        while let Some(entry) = next_entry(batch, &self.namespace, self.only.as_deref()) {
            let at = (entry.changed, entry.snapshot.id.clone());
            let snapshot = convert::snapshot(&entry.snapshot, &batch.joined, &self.view.clock);
            let hash = self.sent.as_ref().map(|sent| (hash(&snapshot), sent.hashes.get(&at.1).copied()));
            if hash.is_none_or(|(now, before)| before != Some(now)) {
                *size += field_len(&snapshot);
                // Of one that is too large alone the reader is not kept.
                let is_empty = message.snapshots.is_empty() && message.removed.is_empty();
                if *size > MAX_PART_BYTES && !is_empty {
                    return false;
                }
                message.snapshots.push(snapshot);
                if let (Some(sent), Some((now, _))) = (&mut self.sent, hash) {
                    sent.hashes.insert(at.1.clone(), now);
                }
            }
            batch.last = Some(at);
        }
        true
    }
}

impl Cursor for GatewayCursor {
    type Message = WatchGatewayStatusResponse;

    fn advance(&mut self) {
        let catalog = self.view.reader.load();
        let joined = self.view.joined(&catalog, &self.namespace);
        let since = self.since(&catalog);
        let reset = since.is_none() && !matches!(self.position, Position::Nothing);
        // What joins while the prober suspects itself joins every status.
        let mut whole = since.is_none_or(|since| since < catalog.suspicion_turned);
        if let Some(sent) = &mut self.sent {
            match &self.position {
                Position::Resume(_) if !reset => {
                    // It is at this very state.
                    let all = catalog.gateways.list(&self.namespace);
                    let hashes = all.map(|entry| {
                        let snapshot = convert::snapshot(&entry.snapshot, &joined, &self.view.clock);
                        (entry.snapshot.id.clone(), hash(&snapshot))
                    });
                    sent.hashes = hashes.collect();
                }
                Position::At(_) if !reset => whole |= sent.joined != joined,
                _ => sent.hashes.clear(),
            }
            sent.joined = joined.clone();
        }
        let must_send = !matches!(self.position, Position::At(_)) || reset;
        let (departures, last) = (0, None);
        self.batch = Some(Batch { catalog, joined, since, whole, reset, must_send, departures, last });
    }

    fn part(&mut self) -> Option<WatchGatewayStatusResponse> {
        let mut batch = self.batch.take()?;
        let mut message = self.message();
        message.reset = std::mem::take(&mut batch.reset);
        let mut size = message.encoded_len() + LAST_FIELDS;
        let complete = self.push_removed(&mut batch, &mut message, &mut size)
            && self.push_snapshots(&mut batch, &mut message, &mut size);
        if !complete {
            batch.must_send = true;
            self.batch = Some(batch);
            return Some(message);
        }
        self.position = Position::At(batch.catalog.revision);
        let is_news = batch.must_send || !message.snapshots.is_empty() || !message.removed.is_empty();
        is_news.then(|| WatchGatewayStatusResponse {
            synced: true,
            revision: batch.catalog.revision,
            ..message
        })
    }

    fn heartbeat(&self) -> WatchGatewayStatusResponse {
        let revision = match &self.position {
            Position::At(revision) => *revision,
            // Not before the first batch, which is always first.
            Position::Nothing | Position::Resume(_) => 0,
        };
        WatchGatewayStatusResponse { synced: true, revision, ..self.message() }
    }

    fn goodbye(&self, goodbye: Goodbye) -> WatchGatewayStatusResponse {
        WatchGatewayStatusResponse { goodbye: Some(goodbye), ..self.message() }
    }
}

/// The gateway that is to be looked at next.
fn next_entry<'a>(
    batch: &'a Batch,
    namespace: &'a Namespace,
    only: Option<&'a [GatewayId]>,
) -> Option<&'a GatewayEntry> {
    let gateways = &batch.catalog.gateways;
    let last = batch.last.as_ref().map(|(_, id)| id);
    let since = batch.since.filter(|_| !batch.whole);
    if let Some(only) = only {
        let rest = &only[only.partition_point(|id| last.is_some_and(|last| id <= last))..];
        let changed = |entry: &&GatewayEntry| since.is_none_or(|since| entry.changed > since);
        return rest.iter().filter_map(|id| gateways.get(namespace, id)).find(changed);
    }
    match since {
        Some(since) => {
            let last = batch.last.as_ref().map(|(at, id)| (*at, id));
            gateways.changed_after(namespace, since, last).next()
        }
        None => gateways.after(namespace, last).next(),
    }
}

/// Of all that is a change when it changes: the times and numbers of a report are not.
fn hash(snapshot: &v1::GatewaySnapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    let delivery = snapshot.status.as_ref().map(|status| &status.delivery_json);
    let ttl = snapshot.ttl.as_ref().map(|ttl| (ttl.seconds, ttl.nanos));
    (&snapshot.text, delivery, ttl, snapshot.stale, &snapshot.error).hash(&mut hasher);
    hasher.finish()
}
