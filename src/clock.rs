//! The one place where a clock is read: monotonic moments for the rules, wall time for display.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::core::time::Moment;

/// Reads both clocks. Copies agree with each other: all count from the same start.
///
/// Wall times are derived from the monotonic clock and one anchor, so that a moment is always printed the same.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_wall: SystemTime,
}

impl Clock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "the anchor of all wall times")]
    pub fn start() -> Self {
        Self { start: Instant::now(), start_wall: SystemTime::now() }
    }

    /// Now, monotonic.
    pub fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    /// When tokio should wake for `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        match u64::try_from(moment.as_nanos()) {
            // Far enough in the future to mean never, and still a valid instant.
            Ok(n) => self.start + Duration::from_nanos(n).min(Duration::from_secs(30 * 365 * 86_400)),
            Err(_) => self.start,
        }
    }

    /// The moment of a tokio instant.
    pub fn moment(&self, instant: Instant) -> Moment {
        Moment::START + instant.saturating_duration_since(self.start)
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
}
