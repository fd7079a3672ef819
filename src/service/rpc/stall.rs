//! Finds readers that do not read.
//!
//! HTTP/2 asks a stream for its next message as soon as it could hand on the one before, and holds back while the client's
//! window is shut. A stream that is not asked for a minute has a reader that took nothing for a minute. Keepalive does not find
//! it: such a peer answers pings. Nor can the stream end itself, as it is not asked: the connection must be cut.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::serve::Peer;

/// How long a reader may take nothing.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// How often to look. Not a timer per message: there may be 20,000 streams.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Watches over one stream while it lives.
#[derive(Debug)]
pub(super) struct Stall {
    /// Since when a message has been on its way.
    since: Arc<Mutex<Option<Instant>>>,
    watcher: AbortHandle,
}

impl Stall {
    pub(super) fn watch(peer: Peer) -> Self {
        let since = Arc::new(Mutex::new(None));
        let watcher = tokio::spawn(close_stalled(peer, Arc::clone(&since))).abort_handle();
        Self { since, watcher }
    }

    /// A message was handed over.
    pub(super) fn sent(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The next one is wanted.
    pub(super) fn wanted(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

async fn close_stalled(peer: Peer, since: Arc<Mutex<Option<Instant>>>) {
    loop {
        sleep(LOOK_EVERY).await;
        let since = *since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| since.elapsed() >= STALLED_AFTER) {
            tracing::warn!(peer = %peer.address, "closing a connection whose client reads nothing");
            peer.close();
            return;
        }
    }
}
