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
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    sync::{futures::OwnedNotified, watch::Receiver},
    time::{Instant, Sleep, sleep_until},
};
use tokio_stream::Stream;
use tonic::Status;

mod news;
mod parts;

use self::news::News;
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
    /// There from the first watch on.
    news: OnceLock<Arc<News>>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl Watches {
    /// None yet. `signal` ends them.
    pub fn new(settings: WatchSettings, signal: Signal, metrics: Metrics) -> Self {
        Self(Arc::new(Shared { settings, signal, metrics, open: Mutex::default(), news: OnceLock::new() }))
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
        let news = self.0.news.get_or_init(|| News::start(reader, self.0.signal.clone()));
        let heartbeat_at = news.tick(heartbeat);
        let now = Instant::now();
        let age_at = now + jittered(max_age);
        Ok(WatchStream {
            cursor,
            phase: Phase::Idle,
            moved: true,
            has_begun: false,
            revisions,
            is_settled,
            settled,
            wake: Box::pin(news.next()),
            news: Arc::clone(news),
            waker: None,
            pause: None,
            pausing_until: now,
            timer: Box::pin(sleep_until(heartbeat_at.min(age_at))),
            heartbeat_at,
            age_at,
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
    revisions: Receiver<u64>,
    /// Whether what is known can be told: while the registry settles, watches are silent.
    is_settled: bool,
    settled: Receiver<bool>,
    news: Arc<News>,
    wake: Pin<Box<OwnedNotified>>,
    /// Whom the timer wakes.
    waker: Option<Waker>,
    /// Until the next batch may begin; there only where a batch waits for it.
    pause: Option<Pin<Box<Sleep>>>,
    pausing_until: Instant,
    /// The earlier of the next two.
    timer: Pin<Box<Sleep>>,
    heartbeat_at: Instant,
    age_at: Instant,
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
        // What comes from here on wakes again.
        while self.wake.as_mut().poll(cx).is_ready() {
            self.wake.set(self.news.next());
        }
        if self.news.is_draining()
            && let Poll::Ready(message) = self.poll_drain(cx)
        {
            return Poll::Ready(Some(message));
        }
        match self.revisions.has_changed() {
            Ok(false) => {}
            Ok(true) => {
                self.revisions.mark_unchanged();
                self.moved = true;
            }
            Err(_) => {
                // Nothing will ever change again: the server is about to end.
                let retry_after = serve::retry_after();
                let status = Err(error::draining(retry_after));
                return Poll::Ready(Some(self.say_goodbye(GoodbyeReason::Drain, retry_after, status)));
            }
        }
        if self.settled.has_changed().unwrap_or(false) {
            self.is_settled = *self.settled.borrow_and_update();
        }
        let now = Instant::now();
        if now >= self.age_at {
            let retry_after = Duration::from_millis(fastrand::u64(AGE_RETRY_MS));
            return Poll::Ready(Some(self.say_goodbye(GoodbyeReason::AgeLimit, retry_after, Ok(()))));
        }
        if self.moved && self.is_settled && self.poll_pause(now, cx).is_ready() {
            // The revision was marked as seen before the state is looked at: what comes later wakes again.
            self.moved = false;
            self.has_begun = true;
            self.cursor.advance();
            self.phase = Phase::Batch(false);
            return Poll::Ready(None);
        }
        self.poll_heartbeat(now, cx).map(Some)
    }

    /// The next heartbeat, once it is due and there is a state to be said of; else the timer wakes again, for it or the age.
    fn poll_heartbeat(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<C::Message> {
        let is_due = now >= self.heartbeat_at;
        if is_due {
            let heartbeat = self.place.shared.settings.heartbeat;
            self.heartbeat_at = self.news.tick(heartbeat).max(now + Duration::from_millis(1));
            self.timer.as_mut().reset(self.heartbeat_at.min(self.age_at));
            self.waker = None;
        }
        // A timer that is set for this task already need not be asked again with each message.
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            if self.timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        if is_due && self.has_begun { Poll::Ready(self.cursor.heartbeat()) } else { Poll::Pending }
    }

    /// The time between batches. The timer is set only where a batch waits for it.
    fn poll_pause(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if now >= self.pausing_until {
            self.pause = None;
            return Poll::Ready(());
        }
        let until = self.pausing_until;
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep_until(until)));
        pause.as_mut().poll(cx)
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
            if this.news.is_draining()
                && let Poll::Ready(message) = this.poll_drain(cx)
            {
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

/// From which address a call came.
pub(super) fn peer_of<T>(request: &tonic::Request<T>) -> Option<IpAddr> {
    request.extensions().get::<serve::Peer>().map(|peer| peer.address.ip())
}

fn jittered(d: Duration) -> Duration {
    d.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}
