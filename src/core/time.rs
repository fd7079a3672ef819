//! Moments of a monotonic clock, as plain numbers: the core never reads a clock, `now` is an argument.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A moment on the server's monotonic clock, in nanoseconds from its start. Negative: before the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// The start of the clock.
    pub const START: Self = Self(0);
    /// Later than every moment that is ever reached.
    pub const NEVER: Self = Self(i64::MAX);

    /// The moment `nanos` after the start.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is later than `self`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}
