//! Whether a tool works: the rules that turn probe outcomes and the passing of time into a verdict.
//!
//! State is kept per probe; a tool's verdict is derived from its probes. Exactly at its boundary a window is over.
//!
//! | event at a probe | effect |
//! |---|---|
//! | `PASS` | available, `last_success` = now |
//! | `NO` | unavailable at once, `last_success` cleared |
//! | `ERROR`, last success younger than the grace | stays available (last-good) |
//! | `ERROR` otherwise | unavailable |
//! | available, no new result for the TTL | as an `ERROR` of class `STALE` |
//!
//! Two counts may put off an edge. A `NO` of an available probe is taken as an `ERROR` until `failure_threshold` of them came
//! since the last `PASS`: so the grace bounds it as well. A `PASS` of an unavailable probe counts for nothing until
//! `success_threshold` came in a row; the first one of all is enough. Both are 1 unless the owner says otherwise.

use std::time::Duration;

use super::{
    probe::{ErrorClass, Outcome, Run, Why},
    time::Moment,
};

mod tool;
mod windows;
pub use tool::{FLAP_EDGES, FLAP_WINDOW, MAX_TRANSITIONS, ToolState, Transition};
pub use windows::{Defaults, Windows};

/// How soon a probe runs again after an `ERROR` inside the grace (30 s of it hold more than five tries), and while a
/// threshold puts off an edge.
pub const FAST_INTERVAL: Duration = Duration::from_secs(2);
/// How long a probe that is down keeps its interval before it slows down.
pub const SLOW_AFTER: Duration = Duration::from_secs(180);
/// The slowest cadence of a probe that is down, unless its interval is slower.
pub const SLOWEST: Duration = Duration::from_secs(30);

/// What agents see of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Works, or has no probe.
    Available,
    /// Does not work.
    Unavailable,
    /// Was never asked yet.
    Pending,
}

/// What an event did to a probe; the caller logs it and publishes flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that anybody needs to hear.
    Quiet,
    /// An error inside the grace: the last success stands in.
    LastGood,
    /// It works, and was never asked before.
    Up,
    /// It works again.
    Recovered,
    /// It said no, and was not unavailable before.
    SaidNo,
    /// Errors outlived the grace, and it was not unavailable before.
    Failed,
    /// The tool flapped, and does not any more.
    Calmed,
}

/// The newest result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// How it ended.
    pub outcome: Outcome,
    /// When.
    pub at: Moment,
    /// How long it took; zero for reports.
    pub duration: Duration,
    /// The address that was connected to.
    pub address: Option<std::net::SocketAddr>,
}

/// What is known of one probe of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    verdict: Verdict,
    last_success: Option<Moment>,
    newest: Option<Newest>,
    consecutive_errors: u32,
    consecutive_passes: u32,
    /// `NO`s since the last `PASS`.
    noes: u32,
    /// It was available before.
    proven: bool,
    /// Why it is not plainly available: the newest `NO` or `ERROR`, a STALE one included.
    trouble: Option<(Option<ErrorClass>, Why)>,
    /// When the newest `PASS` may no longer be used. None once an error or its end was counted.
    fresh_until: Option<Moment>,
    /// Its windows end no earlier than this: its turn to be asked came late.
    stretched: Option<Moment>,
    /// When it last turned unavailable, and the slowed-down cadence since.
    down: Option<Down>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Down {
    since: Moment,
    period: Option<Duration>,
}

impl ProbeState {
    /// Never asked.
    pub fn pending() -> Self {
        Self {
            verdict: Verdict::Pending,
            last_success: None,
            newest: None,
            consecutive_errors: 0,
            consecutive_passes: 0,
            noes: 0,
            proven: false,
            trouble: None,
            fresh_until: None,
            stretched: None,
            down: None,
        }
    }

    /// After a restart: a success of before that still covers `now` counts until the first result.
    /// A `fresh_for` is how long a pushed report may be used, because nobody can ask again.
    pub fn restored(
        last_success: Moment,
        fresh_for: Option<Duration>,
        now: Moment,
        windows: &Windows,
    ) -> Self {
        let age = now.since(last_success);
        let fresh_for = fresh_for.filter(|ttl| age < *ttl);
        if fresh_for.is_none() && age >= windows.grace {
            return Self::pending();
        }
        Self {
            verdict: Verdict::Available,
            last_success: Some(last_success),
            proven: true,
            fresh_until: fresh_for.map(|ttl| last_success + ttl),
            ..Self::pending()
        }
    }

    /// Its own verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether a success stands in for a missing or failed result.
    pub fn last_good(&self) -> bool {
        self.verdict == Verdict::Available && self.fresh_until.is_none()
    }

    /// When it last passed, unless a `NO` made it unavailable after. A `PASS` that a threshold does not count yet is none.
    pub fn last_success(&self) -> Option<Moment> {
        self.last_success
    }

    /// The newest result.
    pub fn newest(&self) -> Option<&Newest> {
        self.newest.as_ref()
    }

    /// How many errors in a row the newest results are.
    pub fn consecutive_errors(&self) -> u32 {
        self.consecutive_errors
    }

    /// How many passes in a row the newest results are.
    pub fn consecutive_passes(&self) -> u32 {
        self.consecutive_passes
    }

    /// How many times it said no since it last passed; errors in between do not matter.
    pub fn noes(&self) -> u32 {
        self.noes
    }

    /// Whether it passes again, and not often enough yet to be available.
    pub fn recovers(&self) -> bool {
        self.verdict == Verdict::Unavailable && self.consecutive_passes > 0
    }

    /// Why it is not plainly available.
    pub fn trouble(&self) -> Option<&(Option<ErrorClass>, Why)> {
        self.trouble.as_ref()
    }

    /// Counts a result. `ttl` is how long a report may be used, where it said so itself.
    pub fn result(&mut self, run: Run, ttl: Option<Duration>, now: Moment, windows: &Windows) -> Effect {
        let effect = match &run.outcome {
            Outcome::Pass => self.passed(now, ttl.unwrap_or(windows.ttl), windows),
            Outcome::No(why) => self.said_no(why.clone(), now, windows),
            Outcome::Error(class, why) => {
                self.consecutive_errors = self.consecutive_errors.saturating_add(1);
                self.consecutive_passes = 0;
                self.failed(Some(*class), why.clone(), now, windows)
            }
        };
        self.newest =
            Some(Newest { outcome: run.outcome, at: now, duration: run.duration, address: run.address });
        effect
    }

    /// When this state changes by itself, if no result comes before.
    pub fn window_end(&self, windows: &Windows) -> Option<Moment> {
        let end = match (self.verdict, self.fresh_until, self.last_success) {
            (Verdict::Available, Some(end), _) => end,
            (Verdict::Available, None, Some(success)) => success + windows.grace,
            _ => return None,
        };
        Some(self.stretched.map_or(end, |stretched| stretched.max(end)))
    }

    /// Lets time pass: a window that is over at `now` ends.
    pub fn tick(&mut self, now: Moment, windows: &Windows) -> Effect {
        match self.window_end(windows) {
            Some(end) if end <= now => {}
            _ => return Effect::Quiet,
        }
        if let Some(end) = self.fresh_until {
            // A report may have brought its own time.
            let silence = end.since(self.last_success.unwrap_or(now));
            let message = format!("no new result for {}", humantime::format_duration(silence));
            let why = Why::new(ErrorClass::Stale.reason(), &message);
            self.failed(Some(ErrorClass::Stale), why, now, windows)
        } else {
            let (class, why) = self.trouble.clone().unwrap_or_else(|| {
                let why = Why::new(ErrorClass::Stale.reason(), "no result since the restart");
                (Some(ErrorClass::Stale), why)
            });
            self.failed(class, why, now, windows)
        }
    }

    /// Pushes the end of its window into the future: its probe is waiting for a free slot, which is not its fault. False if it
    /// has none to push: two errors in a row leave no doubt that a third try would clear.
    pub fn stretch(&mut self, until: Moment) -> bool {
        let able = self.verdict == Verdict::Available && self.consecutive_errors < 2;
        if able {
            self.stretched = self.stretched.max(Some(until));
        }
        able
    }

    /// How long after this run the next one should start.
    pub fn cadence(&mut self, now: Moment, interval: Duration) -> Duration {
        match (self.verdict, &mut self.down) {
            (Verdict::Available, _) if self.fresh_until.is_none() => FAST_INTERVAL.min(interval),
            (Verdict::Unavailable, _) if self.consecutive_passes > 0 => FAST_INTERVAL.min(interval),
            (Verdict::Unavailable, Some(down)) if now.since(down.since) >= SLOW_AFTER => {
                let period = down.period.unwrap_or(interval).max(interval);
                let next = period.mul_f64(1.5).min(SLOWEST.max(interval));
                down.period = Some(next);
                next
            }
            _ => interval,
        }
    }

    fn passed(&mut self, now: Moment, ttl: Duration, windows: &Windows) -> Effect {
        let was = self.verdict;
        self.consecutive_errors = 0;
        self.noes = 0;
        self.consecutive_passes = self.consecutive_passes.saturating_add(1);
        if was == Verdict::Unavailable && self.proven && self.consecutive_passes < windows.success_threshold {
            return Effect::Quiet;
        }
        self.verdict = Verdict::Available;
        self.proven = true;
        self.last_success = Some(now);
        self.fresh_until = Some(now + ttl);
        self.stretched = None;
        self.trouble = None;
        self.down = None;
        match was {
            Verdict::Available => Effect::Quiet,
            Verdict::Pending => Effect::Up,
            Verdict::Unavailable => Effect::Recovered,
        }
    }

    fn said_no(&mut self, why: Why, now: Moment, windows: &Windows) -> Effect {
        self.consecutive_errors = 0;
        self.consecutive_passes = 0;
        self.noes = self.noes.saturating_add(1);
        let put_off = self.verdict == Verdict::Available && self.noes < windows.failure_threshold;
        if put_off && self.is_covered(now, windows) {
            return self.failed(None, why, now, windows);
        }
        self.last_success = None;
        self.go_down(None, why, now, Effect::SaidNo)
    }

    /// No class: it said no, and may be heard a few times more.
    fn failed(&mut self, class: Option<ErrorClass>, why: Why, now: Moment, windows: &Windows) -> Effect {
        if self.is_covered(now, windows) {
            self.fresh_until = None;
            self.trouble = Some((class, why));
            return Effect::LastGood;
        }
        self.go_down(class, why, now, Effect::Failed)
    }

    /// Whether its last success is younger than the grace.
    fn is_covered(&self, now: Moment, windows: &Windows) -> bool {
        self.last_success.is_some_and(|success| now.since(success) < windows.grace)
    }

    fn go_down(&mut self, class: Option<ErrorClass>, why: Why, now: Moment, effect: Effect) -> Effect {
        let was = self.verdict;
        self.verdict = Verdict::Unavailable;
        self.fresh_until = None;
        self.consecutive_passes = 0;
        self.stretched = None;
        self.trouble = Some((class, why));
        if was == Verdict::Unavailable {
            return Effect::Quiet;
        }
        self.down = Some(Down { since: now, period: None });
        effect
    }
}

#[cfg(test)]
mod tests;
