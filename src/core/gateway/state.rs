//! The life of gateways: live, stale, gone.
//!
//! Who holds a gateway: the newest publish stream, until it ends. A unary report to a gateway that a stream holds counts all
//! the same (a side process may know more), but the stream's life stays the gateway's: when it ends, whatever was reported
//! last is gone or stale.
//!
//! What is old: a stream's report, if its sequence is not above the same stream's newest one; a unary report, if its sequence
//! is not above that of the newest report, unary or not, with the same `instance`. A stream without an instance counts for
//! itself alone. A new stream, another instance and sequence 0 are always newer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{GatewayId, MAX_GATEWAYS, Report, Snapshot, WallTime};
use crate::core::{name::Namespace, refusal::Refusal, time::Moment};

/// A gateway is gone this many ttl after its newest report.
const GONE_AFTER: u32 = 3;

/// Names one publish stream. Never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// Which way a report came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By a call of its own.
    Unary,
    /// On a publish stream.
    Stream(StreamId),
}

/// How a publish stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By its client's will: half-closed or cancelled.
    Clean,
    /// The connection was lost, or the server drains.
    Lost,
}

/// A checked report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReport {
    /// What is reported.
    pub report: Report,
    /// The run of the gateway's process; may be empty.
    pub instance: Arc<str>,
    /// Its number; 0: not counted.
    pub sequence: u64,
    /// How long it counts.
    pub ttl: Duration,
    /// When the gateway looked at itself.
    pub observed_at: Option<WallTime>,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportEffect {
    /// A newer one was there already.
    Dropped,
    /// The gateway is new to readers, or they see another report, ttl or staleness.
    Changed,
    /// Readers see the same; only times and numbers moved. No change for watchers.
    Refreshed,
}

/// Readers see something else of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: GatewayId,
    /// It is gone; otherwise it became stale.
    pub gone: bool,
}

/// A gateway as it is kept over a restart, but for the time of its newest report: moments don't outlive a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    namespace: Namespace,
    id: GatewayId,
    report: Report,
    sequence: u64,
    instance: Arc<str>,
    counted: Option<u64>,
    ttl: Duration,
    observed_at: Option<WallTime>,
}

type Key = (Namespace, GatewayId);

/// All gateways of all namespaces.
#[derive(Debug, Default)]
pub struct Gateways {
    namespaces: BTreeMap<Namespace, BTreeMap<GatewayId, Entry>>,
    /// The newest stream of each gateway; also of one that has not reported yet, or is gone because its stream fell silent.
    holders: HashMap<Key, Holder>,
    /// When each gateway becomes stale, or gone.
    timers: BTreeSet<(Moment, Key)>,
}

#[derive(Debug)]
struct Entry {
    snapshot: Arc<Snapshot>,
    /// The newest number of the snapshot's instance. `None`: its numbers count within a stream only.
    counted: Option<u64>,
}

#[derive(Debug)]
struct Holder {
    stream: StreamId,
    instance: Arc<str>,
    newest: u64,
}

impl Entry {
    fn gone_at(&self) -> Moment {
        self.snapshot.received + self.snapshot.ttl * GONE_AFTER
    }

    /// When it changes by itself.
    fn due(&self) -> Moment {
        if self.snapshot.stale { self.gone_at() } else { self.snapshot.received + self.snapshot.ttl }
    }

    /// The newest number of the instance, if the snapshot is its. One whose time is over doesn't count any more, whether or
    /// not the tick came by.
    fn counted_for(&self, instance: &str, now: Moment) -> u64 {
        let counts = *self.snapshot.instance == *instance && now < self.gone_at();
        self.counted.filter(|_| counts).unwrap_or(0)
    }
}

impl Gateways {
    /// Takes a report.
    ///
    /// # Errors
    /// A newer stream holds the gateway, or the namespace is full.
    pub fn report(
        &mut self,
        namespace: &Namespace,
        id: &GatewayId,
        source: Source,
        new: NewReport,
        now: Moment,
    ) -> Result<ReportEffect, Refusal> {
        let key = (namespace.clone(), id.clone());
        let entry = self.entry(&key);
        let holder = match source {
            Source::Unary => None,
            Source::Stream(stream) => Some(
                self.holders
                    .get(&key)
                    .filter(|holder| holder.stream == stream)
                    .ok_or_else(|| Refusal::Superseded { gateway_id: id.to_string() })?,
            ),
        };
        // What is counted already: on the stream, and by the instance whatever way its reports came.
        let by_stream =
            holder.filter(|holder| holder.instance == new.instance).map_or(0, |holder| holder.newest);
        let by_instance = entry.map_or(0, |entry| entry.counted_for(&new.instance, now));
        let counted = if holder.is_some() { by_stream } else { by_instance };
        if (1..=counted).contains(&new.sequence) {
            return Ok(ReportEffect::Dropped);
        }
        let same = |old: &Snapshot| !old.stale && old.report == new.report && old.ttl == new.ttl;
        let effect = match entry {
            Some(entry) if same(&entry.snapshot) => ReportEffect::Refreshed,
            Some(_) => ReportEffect::Changed,
            None => {
                self.check_room(namespace)?;
                ReportEffect::Changed
            }
        };
        // A number is kept over reports without one.
        let number = |before| if new.sequence > 0 { new.sequence } else { before };
        if let Source::Stream(stream) = source {
            let holder = Holder { stream, instance: Arc::clone(&new.instance), newest: number(by_stream) };
            self.holders.insert(key.clone(), holder);
        }
        let is_named = source == Source::Unary || !new.instance.is_empty();
        let counted = is_named.then(|| number(by_instance));
        let NewReport { report, instance, sequence, ttl, observed_at } = new;
        let (namespace, id) = key.clone();
        let snapshot = Arc::new(Snapshot {
            namespace,
            id,
            report,
            sequence,
            instance,
            ttl,
            observed_at,
            received: now,
            stale: false,
        });
        self.put(key, Entry { snapshot, counted });
        Ok(effect)
    }

    /// A publish stream names its gateway and holds it from now on; the stream that held it before is returned.
    pub fn stream_opened(
        &mut self,
        namespace: &Namespace,
        id: &GatewayId,
        stream: StreamId,
    ) -> Option<StreamId> {
        let holder = Holder { stream, instance: "".into(), newest: 0 };
        self.holders.insert((namespace.clone(), id.clone()), holder).map(|before| before.stream)
    }

    /// A publish stream is over. Only the end of the stream that holds the gateway means anything.
    pub fn stream_ended(
        &mut self,
        namespace: &Namespace,
        id: &GatewayId,
        stream: StreamId,
        end: End,
        now: Moment,
    ) -> Option<Changed> {
        let key = (namespace.clone(), id.clone());
        if self.holders.get(&key).is_none_or(|holder| holder.stream != stream) {
            return None;
        }
        self.holders.remove(&key);
        let entry = self.entry(&key)?;
        let gone = end == End::Clean || now >= entry.gone_at();
        if !gone && entry.snapshot.stale {
            return None;
        }
        if gone {
            self.remove(&key);
        } else {
            self.make_stale(&key);
        }
        Some(Changed { namespace: key.0, id: key.1, gone })
    }

    /// Makes stale and removes what is due. A moment exactly at the boundary is over.
    pub fn tick(&mut self, now: Moment) -> Vec<Changed> {
        let mut changed = Vec::new();
        while let Some((due, key)) = self.timers.first().cloned()
            && due <= now
        {
            let gone = self.entry(&key).is_none_or(|entry| entry.gone_at() <= now);
            if gone {
                self.timers.remove(&(due, key.clone()));
                self.remove(&key);
            } else {
                self.make_stale(&key);
            }
            changed.push(Changed { namespace: key.0, id: key.1, gone });
        }
        changed
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// One gateway, live or stale.
    pub fn get(&self, namespace: &Namespace, id: &GatewayId) -> Option<&Arc<Snapshot>> {
        self.namespaces.get(namespace)?.get(id).map(|entry| &entry.snapshot)
    }

    /// The gateways of a namespace, live and stale, sorted by id.
    pub fn list(&self, namespace: &Namespace) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.namespaces.get(namespace).into_iter().flat_map(BTreeMap::values).map(|entry| &entry.snapshot)
    }

    /// The ids of the live gateways of a namespace, sorted.
    pub fn live(&self, namespace: &Namespace) -> impl Iterator<Item = &GatewayId> {
        self.list(namespace).filter(|snapshot| !snapshot.stale).map(|snapshot| &snapshot.id)
    }

    /// All gateways, live and stale, sorted by namespace and id.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.namespaces.values().flat_map(BTreeMap::values).map(|entry| &entry.snapshot)
    }

    /// What to keep of a gateway over a restart, with the moment of its newest report.
    pub fn saved(&self, namespace: &Namespace, id: &GatewayId) -> Option<(Saved, Moment)> {
        let entry = self.namespaces.get(namespace)?.get(id)?;
        let snapshot = &entry.snapshot;
        let saved = Saved {
            namespace: snapshot.namespace.clone(),
            id: snapshot.id.clone(),
            report: snapshot.report.clone(),
            sequence: snapshot.sequence,
            instance: Arc::clone(&snapshot.instance),
            counted: entry.counted,
            ttl: snapshot.ttl,
            observed_at: snapshot.observed_at,
        };
        Some((saved, snapshot.received))
    }

    /// Takes back a gateway after a restart; `age`: how long ago its newest report came. It is served stale until it is heard
    /// again. False if it is gone by now, already heard again, or there is no room.
    pub fn restore(&mut self, saved: Saved, age: Duration, now: Moment) -> bool {
        let Saved { namespace, id, report, sequence, instance, counted, ttl, observed_at } = saved;
        let received = now - age;
        let key = (namespace.clone(), id.clone());
        let snapshot =
            Snapshot { namespace, id, report, sequence, instance, ttl, observed_at, received, stale: true };
        let entry = Entry { snapshot: Arc::new(snapshot), counted };
        if entry.gone_at() <= now || self.entry(&key).is_some() || self.check_room(&key.0).is_err() {
            return false;
        }
        self.put(key, entry);
        true
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        self.namespaces.get(&key.0)?.get(&key.1)
    }

    fn check_room(&self, namespace: &Namespace) -> Result<(), Refusal> {
        if self.namespaces.get(namespace).is_none_or(|gateways| gateways.len() < MAX_GATEWAYS) {
            return Ok(());
        }
        Err(Refusal::Exhausted {
            reason: "TOO_MANY_GATEWAYS",
            what: format!("gateways in namespace '{namespace}'"),
            limit: MAX_GATEWAYS as u64,
        })
    }

    fn make_stale(&mut self, key: &Key) {
        if let Some(Entry { snapshot, counted }) = self.remove(key) {
            let snapshot = Arc::new(Snapshot { stale: true, ..(*snapshot).clone() });
            self.put(key.clone(), Entry { snapshot, counted });
        }
    }

    /// The only place, beside [`Self::remove`], where entries and timers change: they always go together.
    fn put(&mut self, key: Key, entry: Entry) {
        let due = entry.due();
        let gateways = self.namespaces.entry(key.0.clone()).or_default();
        if let Some(before) = gateways.insert(key.1.clone(), entry) {
            self.timers.remove(&(before.due(), key.clone()));
        }
        self.timers.insert((due, key));
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let gateways = self.namespaces.get_mut(&key.0)?;
        let entry = gateways.remove(&key.1)?;
        if gateways.is_empty() {
            self.namespaces.remove(&key.0);
        }
        self.timers.remove(&(entry.due(), key.clone()));
        Some(entry)
    }
}
