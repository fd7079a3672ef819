//! What all watches have in common: the state now first, changes in batches, heartbeats, an age limit, the end at a drain,
//! and how many there may be. What is watched is a [`Cursor`].
//!
//! A watch is a stream without a task: everything happens when the reader asks for the next message. So a slow reader gets
//! fewer and newer states, and nobody ever waits for it.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::{Stream, wrappers::WatchStream as Changes};
use tonic::Status;

mod parts;

pub use self::parts::{Part, Parts};
use super::{convert::to_proto_duration, error};
use crate::{
    catalog::Reader,
    core::refusal::Refusal,
    metrics::{Metrics, Watcher},
    proto::v1::{Goodbye, GoodbyeReason},
    serve::{self, Signal},
};

/// Most bytes of one message of a watch. A reader that stalls holds about two messages beyond its window.
pub const MAX_PART_BYTES: usize = 256 * 1024;

/// Heartbeats and ages vary by this part, so that the streams of one server neither beat nor end together.
const JITTER: f64 = 0.1;

/// The range that clients wait for at the age limit. The ages are spread already, so it is short.
const AGE_RETRY_MS: std::ops::Range<u64> = 100..1_000;

/// Bounds of all watches of a server.
#[derive(Clone, Copy, Debug)]
pub struct WatchSettings {
    /// Batches of one watch are this far apart: what changes faster is merged.
    pub coalesce: Duration,
    /// How often a message is sent in any case. Balancers cut streams that are silent for 60 s.
    pub heartbeat: Duration,
    /// How old a stream gets: clients come back to whatever servers there are by then.
    pub max_age: Duration,
    /// Open at once, in all.
    pub max_watches: usize,
    /// Open at once from one address: one client that leaks streams must not shut out the others.
    pub max_watches_per_peer: usize,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            coalesce: Duration::from_millis(100),
            heartbeat: Duration::from_secs(15),
            max_age: Duration::from_secs(30 * 60),
            max_watches: 20_000,
            max_watches_per_peer: 1_000,
        }
    }
}

/// What is watched, and how much of it the reader has. It starts before the beginning: the first batch is the state now, or
/// what changed since the position that the reader resumes from.
pub trait Cursor: Send + Unpin + 'static {
    /// A message of the stream.
    type Message: Send + 'static;

    /// Looks at the newest state. From now on [`Self::part`] gives what the reader lacks of it.
    fn advance(&mut self);

    /// The next message of the batch, of at most [`MAX_PART_BYTES`]; none once the reader has it all. The first batch has at
    /// least one.
    fn part(&mut self) -> Option<Self::Message>;

    /// A message that says only where the reader stands.
    fn heartbeat(&self) -> Self::Message;

    /// The last message.
    fn goodbye(&self, goodbye: Goodbye) -> Self::Message;
}

/// All watches of a server: opens them and counts them. Copies are one.
#[derive(Clone, Debug)]
pub struct Watches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: WatchSettings,
    signal: Signal,
    metrics: Metrics,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl Watches {
    /// None yet. `signal` ends them.
    pub fn new(settings: WatchSettings, signal: Signal, metrics: Metrics) -> Self {
        Self(Arc::new(Shared { settings, signal, metrics, open: Mutex::default() }))
    }

    /// Opens a watch for a peer. `reader` wakes it when there may be something new.
    ///
    /// # Errors
    /// Too many are open.
    pub fn open<C: Cursor>(
        &self,
        peer: Option<IpAddr>,
        reader: &Reader,
        cursor: C,
    ) -> Result<WatchStream<C>, Refusal> {
        let place = self.place(peer.map(|address| address.to_canonical()))?;
        let WatchSettings { heartbeat, max_age, .. } = self.0.settings;
        let (mut revisions, mut settled) = (reader.revisions(), reader.settled());
        revisions.mark_unchanged();
        let is_settled = *settled.borrow_and_update();
        Ok(WatchStream {
            cursor,
            phase: Phase::Idle,
            moved: true,
            has_begun: false,
            revisions: Changes::from_changes(revisions),
            is_settled,
            settled: Changes::from_changes(settled),
            pause: Box::pin(sleep(Duration::ZERO)),
            pausing_until: Instant::now(),
            heartbeat: Box::pin(sleep(jittered(heartbeat))),
            age: Box::pin(sleep(jittered(max_age))),
            goodbye: Box::pin(self.0.signal.goodbye()),
            place,
        })
    }

    /// What ends the watches.
    pub(super) fn signal(&self) -> &Signal {
        &self.0.signal
    }

    fn place(&self, peer: Option<IpAddr>) -> Result<Place, Refusal> {
        let WatchSettings { max_watches, max_watches_per_peer, .. } = self.0.settings;
        let mut open = self.0.open();
        if open.total >= max_watches {
            return Err(Refusal::TooManyWatches { whose: "are open", limit: max_watches });
        }
        if let Some(peer) = peer {
            let of_peer = open.by_peer.entry(peer).or_default();
            if *of_peer >= max_watches_per_peer {
                let whose = "are open from this address";
                return Err(Refusal::TooManyWatches { whose, limit: max_watches_per_peer });
            }
            *of_peer += 1;
        }
        open.total += 1;
        Ok(Place { shared: Arc::clone(&self.0), peer, _counted: self.0.metrics.watcher() })
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch's place under the limits; free again when it is dropped.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    peer: Option<IpAddr>,
    _counted: Watcher,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        open.total -= 1;
        if let Some(peer) = self.peer
            && let Some(of_peer) = open.by_peer.get_mut(&peer)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                open.by_peer.remove(&peer);
            }
        }
    }
}

/// One open watch.
pub struct WatchStream<C> {
    cursor: C,
    phase: Phase,
    /// There may be something new.
    moved: bool,
    /// The first batch began: before it there is no state to be said of.
    has_begun: bool,
    revisions: Changes<u64>,
    /// Whether what is known can be told: while the registry settles, watches are silent.
    is_settled: bool,
    settled: Changes<bool>,
    /// Until the next batch may begin; set when it is waited for.
    pause: Pin<Box<Sleep>>,
    pausing_until: Instant,
    heartbeat: Pin<Box<Sleep>>,
    age: Pin<Box<Sleep>>,
    goodbye: Pin<Box<dyn Future<Output = Duration> + Send>>,
    place: Place,
}

enum Phase {
    /// In a batch; true: the reader got a message of it.
    Batch(bool),
    /// The reader has everything that was looked at.
    Idle,
    /// Goodbye was said; this is the status.
    Ending(Result<(), Status>),
    Ended,
}

impl<C: Cursor> WatchStream<C> {
    /// The end at a drain, once it is this stream's turn.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<C::Message> {
        let retry_after = ready!(self.goodbye.as_mut().poll(cx));
        Poll::Ready(self.say_goodbye(GoodbyeReason::Drain, retry_after, Err(error::draining(retry_after))))
    }

    /// The next part of the batch, if there is one.
    fn next_part(&mut self) -> Option<C::Message> {
        let Phase::Batch(sent_before) = self.phase else { return None };
        let part = self.cursor.part();
        self.phase = match &part {
            Some(_) => Phase::Batch(true),
            None => Phase::Idle,
        };
        if part.is_none() && sent_before {
            self.pausing_until = Instant::now() + self.place.shared.settings.coalesce;
        }
        part
    }

    /// What happens between batches. Ready without a message: a batch begins.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Option<C::Message>> {
        if self.age.as_mut().poll(cx).is_ready() {
            let retry_after = Duration::from_millis(fastrand::u64(AGE_RETRY_MS));
            return Poll::Ready(Some(self.say_goodbye(GoodbyeReason::AgeLimit, retry_after, Ok(()))));
        }
        while let Poll::Ready(revision) = Pin::new(&mut self.revisions).poll_next(cx) {
            if revision.is_none() {
                // Nothing will ever change again: the server is about to end.
                let retry_after = serve::retry_after();
                let status = Err(error::draining(retry_after));
                return Poll::Ready(Some(self.say_goodbye(GoodbyeReason::Drain, retry_after, status)));
            }
            self.moved = true;
        }
        while let Poll::Ready(Some(is_settled)) = Pin::new(&mut self.settled).poll_next(cx) {
            self.is_settled = is_settled;
        }
        if self.moved && self.is_settled && self.poll_pause(cx).is_ready() {
            // The revision was marked as seen before the state is looked at: what comes later wakes again.
            self.moved = false;
            self.has_begun = true;
            self.cursor.advance();
            self.phase = Phase::Batch(false);
            return Poll::Ready(None);
        }
        if !self.has_begun {
            return Poll::Pending;
        }
        ready!(self.heartbeat.as_mut().poll(cx));
        let next = jittered(self.place.shared.settings.heartbeat);
        self.heartbeat.as_mut().reset(Instant::now() + next);
        Poll::Ready(Some(self.cursor.heartbeat()))
    }

    /// The time between batches. The timer is set only where a batch waits for it.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.pausing_until {
            return Poll::Ready(());
        }
        if self.pause.deadline() != self.pausing_until {
            self.pause.as_mut().reset(self.pausing_until);
        }
        self.pause.as_mut().poll(cx)
    }

    fn say_goodbye(
        &mut self,
        reason: GoodbyeReason,
        retry_after: Duration,
        status: Result<(), Status>,
    ) -> C::Message {
        self.phase = Phase::Ending(status);
        let retry_after = Some(to_proto_duration(retry_after));
        self.cursor.goodbye(Goodbye { reason: reason.into(), retry_after })
    }
}

impl<C: Cursor> Stream for WatchStream<C> {
    type Item = Result<C::Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if matches!(this.phase, Phase::Ending(_) | Phase::Ended) {
                let Phase::Ending(Err(status)) = std::mem::replace(&mut this.phase, Phase::Ended) else {
                    return Poll::Ready(None);
                };
                return Poll::Ready(Some(Err(status)));
            }
            if let Poll::Ready(message) = this.poll_drain(cx) {
                return Poll::Ready(Some(Ok(message)));
            }
            if let Some(message) = this.next_part() {
                return Poll::Ready(Some(Ok(message)));
            }
            if let Some(message) = ready!(this.poll_idle(cx)) {
                return Poll::Ready(Some(Ok(message)));
            }
        }
    }
}

impl<C> fmt::Debug for WatchStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream").field("place", &self.place).finish_non_exhaustive()
    }
}

fn jittered(d: Duration) -> Duration {
    d.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}
