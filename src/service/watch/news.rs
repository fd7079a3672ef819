//! What wakes the watches. Each waits for one thing besides its own timer, so that a wake-up of many costs little.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};

use crate::{catalog::Reader, serve::Signal};

/// Heartbeats fall on so many ticks an interval, so that the heartbeats of many watches are few wake-ups.
const TICKS: u32 = 64;

/// Heartbeats vary by this part. With the ticks, which round down, it is at most 10 %.
const JITTER: f64 = 0.08;

/// Tells all watches of a server that something happened; what it is they find out themselves.
#[derive(Debug)]
pub(super) struct News {
    notify: Arc<Notify>,
    draining: AtomicBool,
    start: Instant,
}

impl News {
    /// Listens for all, in a task that ends with the registry.
    pub(super) fn start(reader: &Reader, signal: Signal) -> Arc<Self> {
        let draining = AtomicBool::new(false);
        let news = Arc::new(Self { notify: Arc::default(), draining, start: Instant::now() });
        let (mut revisions, mut settled) = (reader.revisions(), reader.settled());
        let told = Arc::clone(&news);
        tokio::spawn(async move {
            loop {
                let goes_on = tokio::select! {
                    changed = revisions.changed() => changed.is_ok(),
                    changed = settled.changed() => changed.is_ok(),
                    () = signal.begun(), if !told.is_draining() => {
                        told.draining.store(true, Ordering::Release);
                        true
                    }
                };
                told.notify.notify_waiters();
                if !goes_on {
                    return;
                }
            }
        });
        news
    }

    /// Ends with whatever happens from now on.
    pub(super) fn next(&self) -> OwnedNotified {
        Arc::clone(&self.notify).notified_owned()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// When the next heartbeat of a watch falls.
    pub(super) fn tick(&self, heartbeat: Duration) -> Instant {
        let after = heartbeat.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
        let tick = (heartbeat / TICKS).max(Duration::from_micros(1));
        let ticks = (self.start.elapsed() + after).as_nanos() / tick.as_nanos();
        self.start + tick * u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}
