//! Where one watch of all tools stands, and the messages that lead it on.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::{LAST_FIELDS, Standing};
use crate::{
    catalog::{Catalog, CatalogTool, Reader},
    clock::Clock,
    core::{
        labels::Selector,
        name::{Namespace, ToolName},
    },
    metrics::Metrics,
    proto::v1::{Goodbye, Position, WatchToolsResponse},
    service::{
        convert::{self, field_len},
        prepared::frame,
        watch::{Cursor, MAX_PART_BYTES, Part, Parts},
    },
};

/// What all watches of operators share.
#[derive(Debug)]
pub(crate) struct OperatorFeed {
    reader: Reader,
    clock: Clock,
    parts: Parts<Key, Progress>,
}

/// What is watched.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) namespace: Namespace,
    /// Empty: everybody's tools.
    pub(super) owner: String,
    pub(super) labels: Selector,
}

/// All that a part depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    asked: Arc<Asked>,
    since: Option<u64>,
    revision: u64,
    reset: bool,
    must_send: bool,
    suspicion: Arc<str>,
    progress: Progress,
}

/// What of a batch was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    /// So many departures.
    departed: usize,
    /// The tools up to this one, and the revision of its change.
    last: Option<(u64, ToolName)>,
}

/// Where one watch stands.
#[derive(Debug)]
pub(super) struct OperatorCursor {
    feed: Arc<OperatorFeed>,
    asked: Arc<Asked>,
    standing: Standing,
    /// The newest change that the reader has.
    has: u64,
    /// The revision that was looked at last.
    revision: u64,
    /// What the reader was told that the prober suspects of itself.
    suspicion: Arc<str>,
    batch: Option<Batch>,
}

/// One state that the reader is led to, and how far it is.
#[derive(Debug)]
struct Batch {
    catalog: Arc<Catalog>,
    /// It has all that did not change after this revision; none: it has nothing.
    since: Option<u64>,
    /// A revision that can be resumed from.
    revision: u64,
    /// It must forget what it had.
    reset: bool,
    /// It gets a message even if nothing changed.
    must_send: bool,
    /// What the prober suspects of itself; empty: nothing.
    suspicion: Arc<str>,
    progress: Progress,
}

impl OperatorFeed {
    pub(crate) fn new(reader: Reader, clock: Clock, metrics: Metrics) -> Self {
        Self { reader, clock, parts: Parts::new(metrics) }
    }
}

impl Asked {
    fn selects(&self, tool: &CatalogTool) -> bool {
        (self.owner.is_empty() || *self.owner == *tool.stored.owner)
            && self.labels.matches(&tool.stored.spec.labels)
    }
}

impl OperatorCursor {
    pub(super) fn new(feed: Arc<OperatorFeed>, asked: Asked, resume: Option<Position>) -> Self {
        let (asked, standing) = (Arc::new(asked), Standing::new(resume));
        Self { feed, asked, standing, has: 0, revision: 0, suspicion: Arc::default(), batch: None }
    }

    fn message(&self) -> WatchToolsResponse {
        WatchToolsResponse { epoch: self.feed.reader.load().epoch.to_string(), ..Default::default() }
    }
}

impl Cursor for OperatorCursor {
    type Message = Bytes;

    fn advance(&mut self) {
        let catalog = self.feed.reader.load();
        let looked = std::mem::replace(&mut self.revision, catalog.revision);
        let changed = catalog.changed_in(&self.asked.namespace);
        let suspicion = catalog.prober_suspicion.as_ref().map(|s| Arc::clone(&s.text)).unwrap_or_default();
        let turned = std::mem::replace(&mut self.suspicion, Arc::clone(&suspicion)) != suspicion;
        let (since, revision) = match &self.standing {
            Standing::Nothing => (None, changed),
            Standing::Here if self.has == changed && !turned => return,
            Standing::Here => (Some(self.has).filter(|_| catalog.knows(looked)), changed),
            Standing::Resume(from) => {
                let known = from.epoch == *catalog.epoch
                    && from.revision > 0
                    && from.revision <= catalog.revision
                    && catalog.knows(from.revision);
                (known.then_some(from.revision), changed.max(if known { from.revision } else { 0 }))
            }
        };
        let reset = since.is_none() && !matches!(self.standing, Standing::Nothing);
        let must_send = reset || turned || !matches!(self.standing, Standing::Here);
        let progress = Progress::default();
        self.batch = Some(Batch { catalog, since, revision, reset, must_send, suspicion, progress });
    }

    fn part(&mut self) -> Option<Bytes> {
        let batch = self.batch.take()?;
        let Batch { since, revision, reset, must_send, .. } = batch;
        let (asked, progress) = (Arc::clone(&self.asked), batch.progress.clone());
        let suspicion = Arc::clone(&batch.suspicion);
        let key = Key { asked, since, revision, reset, must_send, suspicion, progress };
        let part = self.feed.parts.get(key, || batch.encode(&self.asked, self.message(), &self.feed.clock));
        match part.next {
            Some(progress) => {
                // The reader may stall here: it is not to keep alive what others made of this state.
                let catalog = match batch.progress == Progress::default() {
                    true => Arc::new(batch.catalog.without_lists(&self.asked.namespace)),
                    false => batch.catalog,
                };
                self.batch = Some(Batch { catalog, progress, reset: false, must_send: true, ..batch });
            }
            None => {
                self.standing = Standing::Here;
                self.has = batch.catalog.changed_in(&self.asked.namespace);
            }
        }
        part.frame
    }

    fn heartbeat(&self) -> Bytes {
        let prober_suspicion = self.suspicion.to_string();
        frame(&WatchToolsResponse {
            synced: true,
            revision: self.revision,
            prober_suspicion,
            ..self.message()
        })
    }

    fn goodbye(&self, goodbye: Goodbye) -> Bytes {
        frame(&WatchToolsResponse { goodbye: Some(goodbye), ..self.message() })
    }
}

impl Batch {
    fn encode(&self, asked: &Asked, mut message: WatchToolsResponse, clock: &Clock) -> Part<Progress> {
        message.reset = self.reset;
        message.prober_suspicion = self.suspicion.to_string();
        let mut size = message.encoded_len() + LAST_FIELDS;
        let mut progress = self.progress.clone();
        let complete = self.push_departed(asked, &mut progress, &mut message, &mut size)
            && self.push_changed(asked, &mut progress, &mut message, &mut size, clock);
        if !complete {
            message.prober_suspicion.clear();
            return Part { frame: Some(frame(&message)), next: Some(progress) };
        }
        if !self.must_send && message.upserts.is_empty() && message.removed.is_empty() {
            return Part { frame: None, next: None };
        }
        message.synced = true;
        message.revision = self.revision;
        Part { frame: Some(frame(&message)), next: None }
    }

    /// Puts names that are gone into a message. False if it is full.
    fn push_departed(
        &self,
        asked: &Asked,
        progress: &mut Progress,
        message: &mut WatchToolsResponse,
        size: &mut usize,
    ) -> bool {
        let Some(since) = self.since else { return true };
        for (_, tool) in self.catalog.departed_after(&asked.namespace, since).skip(progress.departed) {
            let back = self.catalog.get(&tool.stored.key).is_some_and(|now| asked.selects(now));
            let could = asked.selects(tool) || tool.stamps.access_changed_after(since);
            if could && !back && tool.stamps.existed_at(since) && !push_removed(tool, message, size) {
                return false;
            }
            progress.departed += 1;
        }
        true
    }

    /// Puts tools that are new, changed or no longer selected into a message. False if it is full.
    fn push_changed(
        &self,
        asked: &Asked,
        progress: &mut Progress,
        message: &mut WatchToolsResponse,
        size: &mut usize,
        clock: &Clock,
    ) -> bool {
        let (catalog, namespace) = (&self.catalog, &asked.namespace);
        let last = progress.last.clone();
        let last = last.as_ref().map(|(at, name)| (*at, name));
        let changed = self.since.map(|since| catalog.changed_after(namespace, since, last));
        let all = self.since.is_none();
        let all = all.then(|| catalog.tools_after(namespace, last.map(|(_, name)| name.as_str())));
        for tool in changed.into_iter().flatten().chain(all.into_iter().flatten()) {
            let is_full = if asked.selects(tool) {
                let upsert = convert::status::tool(tool, clock);
                *size += field_len(&upsert);
                let is_full = *size > MAX_PART_BYTES && !is_empty(message);
                if !is_full {
                    message.upserts.push(upsert);
                }
                is_full
            } else {
                let stamps = &tool.stamps;
                let could =
                    self.since.is_some_and(|s| stamps.existed_at(s) && stamps.access_changed_after(s));
                could && !push_removed(tool, message, size)
            };
            if is_full {
                return false;
            }
            progress.last = Some((tool.stamps.changed(), tool.stored.key.name.clone()));
        }
        true
    }
}

/// False if the message is full.
fn push_removed(tool: &CatalogTool, message: &mut WatchToolsResponse, size: &mut usize) -> bool {
    let name = tool.stored.key.name.to_string();
    *size += name.len() + 3;
    let is_full = *size > MAX_PART_BYTES && !is_empty(message);
    if !is_full {
        message.removed.push(name);
    }
    !is_full
}

fn is_empty(message: &WatchToolsResponse) -> bool {
    message.upserts.is_empty() && message.removed.is_empty()
}
