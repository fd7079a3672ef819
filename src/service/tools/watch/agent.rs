//! Where one watch of an agent's tools stands, and the messages that lead it on.
//!
//! It keeps the list that its reader has, and shares it with all who have the same. A list that changed is made once for each
//! distinct filter, and a message between two lists is encoded once, whoever needs it.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::{LAST_FIELDS, Standing};
use crate::{
    catalog::{Catalog, Contents, Lead, Reader, Selection, Visibility},
    metrics::Metrics,
    proto::v1::{Goodbye, Position, WatchAvailableToolsResponse},
    service::{
        convert::field_len,
        prepared::frame,
        tools::available,
        watch::{Cursor, MAX_PART_BYTES, Part, Parts},
    },
};

/// What all watches of agents share.
#[derive(Debug)]
pub(crate) struct AgentFeed {
    reader: Reader,
    parts: Parts<Key, usize>,
}

/// All that a part depends on. It is between contents, so it may be shared by agents of different filters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The etag of what the reader has; none: nothing.
    from: Option<Arc<str>>,
    to: Arc<str>,
    revision: u64,
    reset: bool,
    /// So many steps were sent before.
    at: usize,
}

/// Where one watch stands.
#[derive(Debug)]
pub(super) struct AgentCursor {
    feed: Arc<AgentFeed>,
    selection: Selection,
    standing: Standing,
    /// What the reader has.
    has: Option<Arc<Contents>>,
    /// The revision that was looked at last.
    revision: u64,
    /// The state of the policies then.
    rules: u64,
    batch: Option<Batch>,
}

/// One state that the reader is led to, and how far it is.
#[derive(Debug)]
struct Batch {
    to: Arc<Contents>,
    /// A revision that can be resumed from.
    revision: u64,
    /// It must forget what it had.
    reset: bool,
    /// So many steps were sent.
    at: usize,
    /// Known from the start where it resumes, and then for it alone; else found when it is needed.
    lead: Option<Lead>,
    shared: bool,
}

impl AgentFeed {
    pub(crate) fn new(reader: Reader, metrics: Metrics) -> Self {
        Self { reader, parts: Parts::new(metrics) }
    }
}

impl AgentCursor {
    pub(super) fn new(feed: Arc<AgentFeed>, selection: Selection, resume: Option<Position>) -> Self {
        let standing = Standing::new(resume);
        Self { feed, selection, standing, has: None, revision: 0, rules: 0, batch: None }
    }

    /// Whether the reader is known to have everything, without making a list.
    fn is_current(&self, catalog: &Catalog) -> bool {
        let has = self.has.as_ref().filter(|_| matches!(self.standing, Standing::Here));
        self.rules == catalog.rules_changed()
            && has.is_some_and(|has| catalog.is_current(&self.selection.namespace, has))
    }

    fn message(&self) -> WatchAvailableToolsResponse {
        let epoch = self.feed.reader.load().epoch.to_string();
        WatchAvailableToolsResponse { epoch, ..Default::default() }
    }
}

impl Cursor for AgentCursor {
    type Message = Bytes;

    fn advance(&mut self) {
        let catalog = self.feed.reader.load();
        let current = self.is_current(&catalog);
        self.revision = catalog.revision;
        self.rules = catalog.rules_changed();
        if current {
            return;
        }
        let server = self.feed.reader.allowlist();
        let filter = catalog.resolve(self.selection.clone());
        let listing = catalog.list_after(self.has.as_deref(), &filter, server);
        let to = Arc::clone(&listing.contents);
        let revision = catalog.shown_since(&self.selection.namespace);
        let whole = |reset| Batch { to: Arc::clone(&to), revision, reset, at: 0, lead: None, shared: true };
        self.batch = match &self.standing {
            Standing::Nothing => Some(whole(false)),
            Standing::Here if self.has.as_ref().is_some_and(|has| has.etag == to.etag) => {
                self.has = Some(to);
                None
            }
            Standing::Here => Some(whole(false)),
            Standing::Resume(from) => {
                let known = from.epoch == *catalog.epoch && from.revision > 0;
                let lead =
                    known.then(|| catalog.lead_since(from.revision, &filter, server, &listing)).flatten();
                Some(match lead {
                    None => whole(true),
                    lead => {
                        let revision = revision.max(from.revision);
                        Batch { lead, shared: false, revision, ..whole(false) }
                    }
                })
            }
        };
    }

    fn part(&mut self) -> Option<Bytes> {
        let mut batch = self.batch.take()?;
        let (at, parts) = (batch.at, &self.feed.parts);
        let part = if batch.shared {
            let from = self.has.as_ref().map(|has| Arc::clone(&has.etag));
            let Batch { revision, reset, .. } = batch;
            let key = Key { from, to: Arc::clone(&batch.to.etag), revision, reset, at };
            parts.get(key, || batch.encode(self.has.as_deref(), self.message()))
        } else {
            parts.encode(|| batch.encode(None, self.message()))
        };
        match part.next {
            Some(next) => self.batch = Some(Batch { at: next, ..batch }),
            None => {
                self.standing = Standing::Here;
                self.has = Some(batch.to);
            }
        }
        part.frame
    }

    fn heartbeat(&self) -> Bytes {
        frame(&WatchAvailableToolsResponse { synced: true, revision: self.revision, ..self.message() })
    }

    fn goodbye(&self, goodbye: Goodbye) -> Bytes {
        frame(&WatchAvailableToolsResponse { goodbye: Some(goodbye), ..self.message() })
    }
}

impl Batch {
    /// The part that begins after the steps that were sent. `has`: what the reader has.
    fn encode(&mut self, has: Option<&Contents>, mut message: WatchAvailableToolsResponse) -> Part<usize> {
        let lead = self.lead.get_or_insert_with(|| self.to.lead_from(has));
        message.reset = self.reset && self.at == 0;
        let mut size = message.encoded_len() + LAST_FIELDS;
        let steps = lead.removed.len() + lead.upserts.len();
        let mut at = self.at;
        while at < steps {
            if let Some(name) = lead.removed.get(at) {
                size += name.len() + 3;
                if size > MAX_PART_BYTES && at > self.at {
                    break;
                }
                message.removed.push(name.clone());
            } else {
                let tool = &self.to.tools[lead.upserts[at - lead.removed.len()]];
                // A tool without a definition is in no list.
                if let Ok(definition) = tool.definition(self.to.format) {
                    let mut upsert = available::tool(tool, definition);
                    upsert.definition_json.clone_from(&definition.json);
                    size += field_len(&upsert);
                    if size > MAX_PART_BYTES && at > self.at {
                        break;
                    }
                    message.upserts.push(upsert);
                }
            }
            at += 1;
        }
        if at < steps {
            return Part { frame: Some(frame(&message)), next: Some(at) };
        }
        message.synced = true;
        message.revision = self.revision;
        message.etag = self.to.etag.to_string();
        if self.to.visibility == Visibility::Stable {
            message.allowed_json = self.to.allowed_json();
        }
        Part { frame: Some(frame(&message)), next: None }
    }
}
