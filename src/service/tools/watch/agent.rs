//! Where one watch of an agent's tools stands, and the messages that lead it on.
//!
//! It keeps the list that its reader has, and shares it with all who have the same. A list that changed is made once for each
//! distinct filter, and a message between two lists is encoded once, whoever needs it. Those who ask for the same look once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

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
    /// What is watched now.
    views: Mutex<HashMap<Arc<Selection>, Weak<View>>>,
}

/// What watches of one selection look at.
#[derive(Debug)]
struct View {
    selection: Arc<Selection>,
    newest: Mutex<Option<Sight>>,
    feed: Arc<AgentFeed>,
}

/// What one of them saw.
#[derive(Clone, Debug)]
struct Sight {
    /// Of which state.
    shown: (u64, u64),
    contents: Arc<Contents>,
    /// A revision that can be resumed from.
    revision: u64,
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
    view: Arc<View>,
    standing: Standing,
    /// What the reader has.
    has: Option<Arc<Contents>>,
    /// The revision that was looked at last.
    revision: u64,
    /// What agents might see then.
    shown: (u64, u64),
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
        Self { reader, parts: Parts::new(metrics), views: Mutex::default() }
    }

    fn view(self: &Arc<Self>, selection: Selection) -> Arc<View> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(&selection).and_then(Weak::upgrade) {
            return view;
        }
        let selection = Arc::new(selection);
        let view =
            View { selection: Arc::clone(&selection), newest: Mutex::default(), feed: Arc::clone(self) };
        let view = Arc::new(view);
        views.insert(selection, Arc::downgrade(&view));
        view
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut views = self.feed.views.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one may have taken its place already.
        if views.get(&self.selection).is_some_and(|view| view.strong_count() == 0) {
            views.remove(&self.selection);
        }
    }
}

impl View {
    /// The list now. `has`: what a reader has.
    fn look(&self, catalog: &Catalog, has: Option<&Contents>) -> Sight {
        let shown = catalog.shown_at(&self.selection.namespace);
        // Held while the list is made: whoever comes meanwhile needs the same.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sight) = newest.as_ref().filter(|sight| sight.shown == shown) {
            return sight.clone();
        }
        let filter = catalog.resolve(Selection::clone(&self.selection));
        let listing = catalog.list_after(has, &filter, self.feed.reader.allowlist());
        let contents = Arc::clone(&listing.contents);
        let revision = catalog.shown_since(&self.selection.namespace);
        newest.insert(Sight { shown, contents, revision }).clone()
    }

    /// What leads a reader here from where it stood.
    fn lead(&self, from: &Position, catalog: &Catalog) -> Option<Lead> {
        let known = from.epoch == *catalog.epoch && from.revision > 0;
        let server = self.feed.reader.allowlist();
        let filter = catalog.resolve(Selection::clone(&self.selection));
        let listing = catalog.list(&filter, server);
        known.then(|| catalog.lead_since(from.revision, &filter, server, &listing)).flatten()
    }
}

impl AgentCursor {
    pub(super) fn new(feed: Arc<AgentFeed>, selection: Selection, resume: Option<Position>) -> Self {
        let standing = Standing::new(resume);
        Self { view: feed.view(selection), standing, has: None, revision: 0, shown: (0, 0), batch: None }
    }

    fn message(&self) -> WatchAvailableToolsResponse {
        let epoch = self.view.feed.reader.load().epoch.to_string();
        WatchAvailableToolsResponse { epoch, ..Default::default() }
    }
}

impl Cursor for AgentCursor {
    type Message = Bytes;

    fn advance(&mut self) {
        let catalog = self.view.feed.reader.load();
        self.revision = catalog.revision;
        let shown = catalog.shown_at(&self.view.selection.namespace);
        let is_current = matches!(self.standing, Standing::Here) && self.shown == shown;
        self.shown = shown;
        if is_current {
            return;
        }
        let Sight { contents: to, revision, .. } = self.view.look(&catalog, self.has.as_deref());
        let batch = Batch { to, revision, reset: false, at: 0, lead: None, shared: true };
        self.batch = match &self.standing {
            Standing::Nothing => Some(batch),
            Standing::Here if self.has.as_ref().is_some_and(|has| has.etag == batch.to.etag) => {
                self.has = Some(batch.to);
                None
            }
            Standing::Here => Some(batch),
            Standing::Resume(from) => Some(match self.view.lead(from, &catalog) {
                None => Batch { reset: true, ..batch },
                lead => Batch { lead, shared: false, revision: revision.max(from.revision), ..batch },
            }),
        };
    }

    fn part(&mut self) -> Option<Bytes> {
        let mut batch = self.batch.take()?;
        let (at, parts) = (batch.at, &self.view.feed.parts);
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
