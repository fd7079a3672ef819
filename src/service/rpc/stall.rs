//! Finds readers that do not read.
//!
//! HTTP/2 asks a stream for its next message as soon as it could hand on the one before, and holds back while the client's
//! window is shut. A stream that is not asked for a minute has a reader that took nothing for a minute. Keepalive does not find
//! it: such a peer answers pings. Nor can the stream end itself, as it is not asked: the connection must be cut.
//!
//! One loop looks at all streams of a port. A task or a timer for each would cost more than an idle stream itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::sleep;

use crate::serve::Peer;

/// A stream that is busy at so many looks in a row is stalled; the one more than the intervals between them is the part of an
/// interval before the first.
const LOOKS: u32 = 5;

/// All streams of a port. Copies are one.
#[derive(Clone, Debug, Default)]
pub struct Stalls(Arc<Mutex<Streams>>);

#[derive(Debug, Default)]
struct Streams {
    last: u64,
    open: HashMap<u64, Arc<Stream>>,
}

#[derive(Debug)]
struct Stream {
    peer: Peer,
    /// 0: it waits for a message. Else a message is on its way, and this less one is how many looks have found it so.
    busy: AtomicU32,
}

/// One stream, while it lives.
#[derive(Debug)]
pub(super) struct Stall {
    stream: Arc<Stream>,
    id: u64,
    all: Stalls,
}

impl Stalls {
    /// Cuts the connections of readers that take nothing for `after`, or up to a quarter more. Never ends.
    pub async fn cut(&self, after: Duration) {
        loop {
            sleep(after / (LOOKS - 1)).await;
            self.look();
        }
    }

    pub(super) fn watch(&self, peer: Peer) -> Stall {
        let stream = Arc::new(Stream { peer, busy: AtomicU32::new(0) });
        let mut streams = self.streams();
        streams.last += 1;
        let id = streams.last;
        streams.open.insert(id, Arc::clone(&stream));
        Stall { stream, id, all: self.clone() }
    }

    fn look(&self) {
        for stream in self.streams().open.values() {
            if stream.is_stalled() {
                let peer = &stream.peer;
                // Its other streams may have stalled as well: it is said once.
                if peer.close() {
                    tracing::warn!(peer = %peer.address, "closing a connection whose client reads nothing");
                }
            }
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// One more look.
    fn is_stalled(&self) -> bool {
        let one_more = |busy| if busy == 0 { None } else { Some(busy + 1) };
        self.busy.fetch_update(Relaxed, Relaxed, one_more).is_ok_and(|before| before >= LOOKS)
    }
}

impl Stall {
    /// A message was handed over.
    pub(super) fn sent(&self) {
        self.stream.busy.store(1, Relaxed);
    }

    /// The next one is wanted.
    pub(super) fn wanted(&self) {
        self.stream.busy.store(0, Relaxed);
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.all.streams().open.remove(&self.id);
    }
}
