//! The four durations of a tool, and its thresholds: what its owner gave, what the server's defaults add, and whether they fit
//! together.

use std::time::Duration;

use humantime::format_duration;

use crate::core::{refusal::Fault, tool::GivenWindows};

/// The server's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// How often a probe runs.
    pub interval: Duration,
    /// The longest derived timeout.
    pub timeout: Duration,
    /// The shortest derived TTL.
    pub ttl: Duration,
    /// The shortest derived grace.
    pub grace: Duration,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            ttl: Duration::from_secs(30),
            grace: Duration::from_secs(30),
        }
    }
}

impl Defaults {
    /// Whether a tool that gives nothing would be accepted.
    ///
    /// # Errors
    /// The values that don't fit, by name.
    pub fn check(&self) -> Result<(), String> {
        let timeout = self.timeout.min(self.interval / 2);
        let least = least(self.interval, timeout);
        for (name, value) in [("ttl", self.ttl), ("grace", self.grace)] {
            if value <= least {
                return Err(too_short(name, value, self.interval, timeout, least));
            }
        }
        Ok(())
    }
}

/// The four durations and the two thresholds in force for one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// How often each probe runs.
    pub interval: Duration,
    /// The one deadline of a run.
    pub timeout: Duration,
    /// How long a result may be used without a new one.
    pub ttl: Duration,
    /// How long a success outlives errors.
    pub grace: Duration,
    /// How many passes in a row make an unavailable probe available.
    pub success_threshold: u32,
    /// How many times an available probe must say no to be unavailable.
    pub failure_threshold: u32,
}

impl Windows {
    /// Fills in what the owner left out, and refuses what does not fit the interval.
    ///
    /// # Errors
    /// One fault for each window that is too short, naming all values.
    pub fn derive(given: &GivenWindows, defaults: &Defaults) -> Result<Self, Vec<Fault>> {
        let windows = Self::fill(given, defaults);
        let least = least(windows.interval, windows.timeout);
        let faults: Vec<Fault> = [("ttl", windows.ttl), ("grace", windows.grace)]
            .into_iter()
            .filter(|(_, value)| *value <= least)
            .map(|(name, value)| {
                Fault::new(name, too_short(name, value, windows.interval, windows.timeout, least))
            })
            .collect();
        if faults.is_empty() { Ok(windows) } else { Err(faults) }
    }

    /// For a tool that was stored under other defaults: windows that are too short now are lengthened, and the text says so.
    pub fn clamp(given: &GivenWindows, defaults: &Defaults) -> (Self, Option<String>) {
        let mut windows = Self::fill(given, defaults);
        let enough = 3 * windows.interval + windows.timeout;
        let mut changed = Vec::new();
        let least = least(windows.interval, windows.timeout);
        for (name, value) in [("ttl", &mut windows.ttl), ("grace", &mut windows.grace)] {
            if *value <= least {
                changed.push(format!("{name} {} -> {}", format_duration(*value), format_duration(enough)));
                *value = enough;
            }
        }
        (windows, (!changed.is_empty()).then(|| changed.join(", ")))
    }

    /// The longest time between two starts of a probe that neither window notices.
    pub fn longest_gap(&self) -> Duration {
        self.ttl.min(self.grace).saturating_sub(self.timeout)
    }

    fn fill(given: &GivenWindows, defaults: &Defaults) -> Self {
        let interval = given.interval.unwrap_or(defaults.interval);
        let derived = |least: Duration| least.max(3 * interval);
        Self {
            interval,
            timeout: given.timeout.unwrap_or_else(|| defaults.timeout.min(interval / 2)),
            ttl: given.ttl.unwrap_or_else(|| derived(defaults.ttl)),
            grace: given.grace.unwrap_or_else(|| derived(defaults.grace)),
            success_threshold: given.success_threshold.unwrap_or(1),
            failure_threshold: given.failure_threshold.unwrap_or(1),
        }
    }
}

/// What each window must exceed: one interval with its jitter, and one timeout.
fn least(interval: Duration, timeout: Duration) -> Duration {
    interval + interval / 20 + timeout
}

fn too_short(name: &str, value: Duration, interval: Duration, timeout: Duration, least: Duration) -> String {
    format!(
        "{name} {} must exceed 1.05 x interval {} + timeout {} = {}",
        format_duration(value),
        format_duration(interval),
        format_duration(timeout),
        format_duration(least)
    )
}
