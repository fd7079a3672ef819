//! The gateways' side of the owner: reports, publish streams, the ends of their windows, and their checkpoint.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    Owner,
    command::{GatewayCommand, GatewayReport, OpenStream, Reply},
};
use crate::{
    catalog::Catalog,
    core::{
        gateway::{Changed, GatewayId, Gateways, ReportEffect, Saved, StreamId},
        name::Namespace,
        time::Moment,
    },
    store::{SavedGateway, Soft},
};

type Key = (Namespace, GatewayId);

/// The gateways, the streams that publish them, and what the next catalog and checkpoint must learn.
#[derive(Debug, Default)]
pub(super) struct GatewayDesk {
    gateways: Gateways,
    streams: HashMap<StreamId, CancellationToken>,
    next_stream: u64,
    /// Gateways to publish; true: readers see something else.
    touched: HashMap<Key, bool>,
    unsaved: BTreeSet<Key>,
}

/// A snapshot as it is saved: what the rules keep, and when it came.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSnapshot {
    /// By the wall clock: another machine may read it.
    received_ms: i64,
    #[serde(flatten)]
    gateway: Saved,
}

impl GatewayDesk {
    /// When a gateway becomes stale, or gone.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.gateways.deadline()
    }

    fn touch(&mut self, key: Key, visible: bool) {
        self.unsaved.insert(key.clone());
        *self.touched.entry(key).or_default() |= visible;
    }
}

impl Owner {
    /// Takes something of a gateway.
    pub(super) fn gateway(&mut self, command: GatewayCommand, now: Moment) {
        match command {
            GatewayCommand::Report(report, reply) => self.gateway_report(report, reply, now),
            GatewayCommand::Opened(namespace, id, reply) => {
                self.desk.next_stream += 1;
                let stream = StreamId(self.desk.next_stream);
                let superseded = CancellationToken::new();
                self.desk.streams.insert(stream, superseded.clone());
                if let Some(old) = self.desk.gateways.stream_opened(&namespace, &id, stream)
                    && let Some(token) = self.desk.streams.remove(&old)
                {
                    token.cancel();
                }
                drop(reply.send(OpenStream { id: stream, superseded }));
            }
            GatewayCommand::Ended(namespace, id, stream, end) => {
                self.desk.streams.remove(&stream);
                if let Some(changed) = self.desk.gateways.stream_ended(&namespace, &id, stream, end, now) {
                    self.gateway_changed(changed);
                }
            }
        }
    }

    /// Lets gateways become stale, or gone, whose time is over.
    pub(super) fn gateway_windows(&mut self, now: Moment) {
        for changed in self.desk.gateways.tick(now) {
            self.gateway_changed(changed);
        }
    }

    /// Puts what changed into the next catalog.
    pub(super) fn publish_gateways(&mut self, catalog: &mut Catalog) {
        for ((namespace, id), visible) in self.desk.touched.drain() {
            match self.desk.gateways.get(&namespace, &id) {
                Some(snapshot) => {
                    catalog.gateways.put(snapshot.clone(), visible.then_some(catalog.revision));
                }
                None => catalog.gateways.remove(&namespace, &id, catalog.revision),
            }
        }
        self.dirty.gateways = false;
    }

    /// Adds the snapshots that are new since the last time.
    pub(super) fn save_gateways(&mut self, changes: &mut Vec<Soft>) {
        for (namespace, id) in std::mem::take(&mut self.desk.unsaved) {
            let saved = self.desk.gateways.saved(&namespace, &id).and_then(|(gateway, received)| {
                let received_ms = self.clock.wall_ms(received);
                serde_json::to_string(&SavedSnapshot { received_ms, gateway }).ok()
            });
            let gateway_id = id.as_str().to_owned();
            changes.push(match saved {
                Some(snapshot_json) => Soft::Gateway(SavedGateway { namespace, gateway_id, snapshot_json }),
                None => Soft::DropGateway { namespace, gateway_id },
            });
        }
    }

    /// Puts in what the store holds; it is stale until its gateway reports again.
    pub(super) fn restore_gateways(&mut self, saved: Vec<SavedGateway>, now: Moment) {
        let now_ms = self.clock.wall_ms(now);
        for SavedGateway { namespace, gateway_id, snapshot_json } in saved {
            let snapshot = match serde_json::from_str::<SavedSnapshot>(&snapshot_json) {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    tracing::warn!(%namespace, gateway = gateway_id, %error, "a saved gateway status is unreadable and was dropped");
                    continue;
                }
            };
            let Ok(id) = GatewayId::parse(&gateway_id) else { continue };
            // A clock that was set back can't tell: then it counts as long ago.
            let age =
                u64::try_from(now_ms - snapshot.received_ms).map_or(Duration::MAX, Duration::from_millis);
            self.desk.gateways.restore(snapshot.gateway, age, now);
            // One that is gone by now is dropped from the store as well.
            self.desk.touch((namespace, id), true);
            self.dirty.gateways = true;
        }
    }

    fn gateway_report(&mut self, report: GatewayReport, reply: Reply<(ReportEffect, u64)>, now: Moment) {
        let GatewayReport { namespace, id, source, new } = report;
        let effect = match self.desk.gateways.report(&namespace, &id, source, new, now) {
            Ok(effect) => effect,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        if effect != ReportEffect::Dropped {
            self.dirty.gateways = true;
            self.desk.touch((namespace, id), effect == ReportEffect::Changed);
        }
        if effect == ReportEffect::Changed {
            self.dirty.revision_moves();
        }
        self.dirty.finish_later([Box::new(move |outcome: Result<u64, _>| {
            drop(reply.send(outcome.map(|revision| (effect, revision))));
        }) as super::writes::Finish]);
    }

    fn gateway_changed(&mut self, changed: Changed) {
        let Changed { namespace, id, gone } = changed;
        tracing::info!(%namespace, gateway = %id, gone, "gateway is silent");
        self.desk.touch((namespace, id), true);
        self.dirty.gateways = true;
        self.dirty.revision_moves();
    }
}
