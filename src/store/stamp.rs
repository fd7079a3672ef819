//! When something happened, so that a later process can tell how long ago.

use std::{
    fs,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// Ages above this are a clock that was set wrong, not an age.
const ABSURD: Duration = Duration::from_secs(400 * 86_400);

/// A moment by two clocks: one that runs on through sleep and ends with a reboot, one that people set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// CLOCK_BOOTTIME, in nanoseconds.
    pub boot: i64,
    /// Wall clock, milliseconds since 1970.
    pub wall_ms: i64,
}

impl Stamp {
    /// Reads both clocks.
    #[expect(clippy::disallowed_methods, reason = "the age of a success must survive the process")]
    pub fn now() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            boot: boot.tv_sec.saturating_mul(1_000_000_000).saturating_add(boot.tv_nsec),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// The same moment `by` earlier.
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        Self {
            boot: self.boot.saturating_sub(nanos),
            wall_ms: self.wall_ms.saturating_sub(nanos / 1_000_000),
        }
    }
}

/// How long before `now` a stamp was taken: by the boot clock in the same boot, else by the wall clock.
/// None for what can't be: the future, or an age that is absurd.
pub(super) fn age(at: Stamp, boot_id: &str, now: Stamp, now_boot_id: &str) -> Option<Duration> {
    let age = if !boot_id.is_empty() && boot_id == now_boot_id {
        Duration::from_nanos(u64::try_from(now.boot.checked_sub(at.boot)?).ok()?)
    } else {
        Duration::from_millis(u64::try_from(now.wall_ms.checked_sub(at.wall_ms)?).ok()?)
    };
    (age <= ABSURD).then_some(age)
}

/// Names this boot of the machine; empty where the system does not tell, and then nothing is of the same boot.
pub(super) fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let now = Stamp { boot: 50_000_000_000, wall_ms: 1_000_000 };
        let at = |boot_s: i64, wall_ms: i64| Stamp { boot: boot_s * 1_000_000_000, wall_ms };
        let s = Duration::from_secs;
        let cases = [
            ("same boot: the wall clock does not matter", at(20, 9_999_999), "a", Some(s(30))),
            ("same boot, this very moment", at(50, 0), "a", Some(s(0))),
            ("same boot, in the future", at(51, 0), "a", None),
            ("other boot: the boot clock does not matter", at(49, 990_000), "b", Some(s(10))),
            ("other boot, wall clock set back", at(49, 1_000_001), "b", None),
            ("other boot, wall clock was at 1970", at(49, -40_000_000_000_000), "b", None),
            ("unknown boot", at(20, 998_000), "", Some(s(2))),
            ("same boot, overflow", Stamp { boot: i64::MIN, wall_ms: 0 }, "a", None),
            ("other boot, overflow", Stamp { boot: 0, wall_ms: i64::MIN }, "b", None),
        ];
        for (name, stamp, boot_id, want) in cases {
            assert_eq!(age(stamp, boot_id, now, "a"), want, "{name}");
        }
        assert_eq!(age(at(20, 998_000), "", now, ""), Some(s(2)), "both unknown are not the same boot");
    }

    #[test]
    fn the_clocks_run() {
        let now = Stamp::now();
        assert!(now.boot > 0 && now.wall_ms > 1_600_000_000_000);
        assert_eq!(age(now.earlier(Duration::from_secs(3)), "x", now, "x"), Some(Duration::from_secs(3)));
        assert_eq!(age(now.earlier(Duration::from_secs(3)), "x", now, "y"), Some(Duration::from_secs(3)));
        assert!(!boot_id().contains('\n'));
    }
}
