//! The one place where a clock is read: monotonic moments for the rules, wall time for display.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::core::time::Moment;

/// A suspend shorter than this is lost in the noise of reading two clocks, and harms nobody.
const SHORTEST_SLEEP: Duration = Duration::from_secs(2);

/// Reads both clocks. Copies agree with each other: all count from the same start.
///
/// Wall times are derived from the monotonic clock and one anchor, so that a moment is always printed the same. The monotonic
/// clock stands still while the machine sleeps; [`Clock::absorb_sleep`] makes moments jump over that time.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    start_wall: SystemTime,
    suspended: fn() -> i64,
    start_suspended: i64,
    slept: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self::start_on(suspended)
    }

    /// A clock that starts now, on a machine that was suspended for so many nanoseconds since its boot.
    #[expect(clippy::disallowed_methods, reason = "the anchor of all wall times")]
    pub fn start_on(suspended: fn() -> i64) -> Self {
        Self {
            start: Instant::now(),
            start_wall: SystemTime::now(),
            suspended,
            start_suspended: suspended(),
            slept: Arc::default(),
        }
    }

    /// Now, monotonic.
    pub fn now(&self) -> Moment {
        let running = Moment::START + Instant::now().saturating_duration_since(self.start);
        Moment::from_nanos(running.as_nanos().saturating_add(self.slept.load(Ordering::Relaxed)))
    }

    /// When tokio should wake for `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        let nanos = moment.as_nanos().saturating_sub(self.slept.load(Ordering::Relaxed));
        // Far enough in the future to mean never, and still a valid instant.
        let never = Duration::from_secs(30 * 365 * 86_400);
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)).min(never)
    }

    /// The wall time of a moment.
    pub fn wall(&self, moment: Moment) -> SystemTime {
        let nanos = moment.as_nanos();
        let by = Duration::from_nanos(nanos.unsigned_abs());
        if nanos >= 0 { self.start_wall + by } else { self.start_wall.checked_sub(by).unwrap_or(UNIX_EPOCH) }
    }

    /// The wall time of a moment, in milliseconds since 1970.
    pub fn wall_ms(&self, moment: Moment) -> i64 {
        self.wall(moment)
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    /// How long the machine slept since the last call, if that is worth noticing. Moments count it from now on.
    pub fn absorb_sleep(&self) -> Option<Duration> {
        let slept = (self.suspended)() - self.start_suspended;
        let before = self.slept.load(Ordering::Relaxed);
        let more = Duration::from_nanos(u64::try_from(slept - before).unwrap_or(0));
        if more < SHORTEST_SLEEP {
            return None;
        }
        self.slept.store(slept, Ordering::Relaxed);
        Some(more)
    }
}

/// How long the machine was suspended since its boot, in nanoseconds.
fn suspended() -> i64 {
    let read = |id| {
        let t = clock_gettime(id);
        t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec)
    };
    read(ClockId::Boottime) - read(ClockId::Monotonic)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    thread_local! {
        static SUSPENDED: Cell<i64> = const { Cell::new(7_000_000_000) };
    }

    fn sleep(by: Duration) {
        SUSPENDED.set(SUSPENDED.get() + i64::try_from(by.as_nanos()).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn moments_jump_over_sleep_and_timers_do_not() {
        let clock = Clock::start_on(|| SUSPENDED.get());
        let copy = clock.clone();
        tokio::time::advance(S).await;
        assert_eq!((clock.now(), clock.absorb_sleep()), (Moment::START + S, None), "none since the start");
        let due = clock.now() + S;
        let timer = clock.instant(due);
        // Short ones are lost in the noise, and add up.
        sleep(S);
        assert_eq!((clock.absorb_sleep(), clock.now()), (None, Moment::START + S));
        sleep(3_600 * S);
        assert_eq!((clock.absorb_sleep(), clock.absorb_sleep()), (Some(3_601 * S), None));
        assert_eq!((clock.now(), copy.now()), (Moment::START + 3_602 * S, Moment::START + 3_602 * S));
        // What was due meanwhile is over, and what is due in a second wakes in a second.
        assert!(clock.instant(due) < timer);
        assert_eq!(clock.instant(clock.now() + S), Instant::now() + S);
        let wall = clock.wall(clock.now()).duration_since(clock.wall(Moment::START)).unwrap();
        assert_eq!(wall, 3_602 * S, "the wall clock ran on while the machine slept");
    }
}
