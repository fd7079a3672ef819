//! Settling: after a start, and after the process or the machine stood still, what is known is too old to judge by. Everything
//! is asked at once; until that sweep ends, or 5 s passed, no window ends and no list is answered.

use std::{collections::HashSet, time::Duration};

use super::Owner;
use crate::core::{name::ToolKey, schedule::TargetId, time::Moment};

/// How long a sweep may take before the registry answers with what it knows.
const LONGEST: Duration = Duration::from_secs(5);
/// Standing still for longer than this makes ages meaningless.
const STANDSTILL: Duration = Duration::from_secs(2);
/// Less is what timers and a busy machine take.
pub(super) const STUMBLE: Duration = Duration::from_millis(100);
/// A sweep starts so many probes a second, at most: 10,000 within 3 s.
const STARTS_PER_SECOND: f64 = 3_300.0;
/// Later starts would not land before the sweep's end.
const LONGEST_SPREAD: Duration = Duration::from_secs(3);

/// A sweep under way.
#[derive(Debug)]
pub(super) struct Settling {
    /// When it ends at the latest.
    pub(super) until: Moment,
    waiting: HashSet<TargetId>,
    /// The manifest is still to be declared: its tools belong to the sweep of the start.
    starting: bool,
}

impl Owner {
    /// Asks everything at once, spread. `starting`: tools are still to come, until [`Owner::started`].
    pub(super) fn begin_settling(&mut self, starting: bool, now: Moment) {
        let waiting: HashSet<TargetId> = self.registry.target_ids().collect();
        let spread = Duration::from_secs_f64(waiting.len() as f64 / STARTS_PER_SECOND).min(LONGEST_SPREAD);
        self.registry.sweep(now, spread);
        self.publisher.set_settled(false);
        self.settling = Some(Settling { until: now + LONGEST, waiting, starting });
    }

    /// A tool of the manifest came while the server starts: its probes have to have their turn too.
    pub(super) fn settle_with(&mut self, key: &ToolKey) {
        if let Some(settling) = self.settling.as_mut().filter(|settling| settling.starting) {
            settling.waiting.extend(self.registry.targets(key));
        }
    }

    /// All tools of the start are there.
    pub(super) fn started(&mut self) {
        if let Some(settling) = &mut self.settling {
            settling.starting = false;
        }
    }

    /// A target had its turn, or is gone.
    pub(super) fn settled_target(&mut self, id: TargetId) {
        if let Some(settling) = &mut self.settling {
            settling.waiting.remove(&id);
        }
    }

    /// Ends settling if everything had its turn, or the time is up. Reads see one coalesced change.
    pub(super) fn end_settling_if_due(&mut self, now: Moment) {
        let Some(settling) = &self.settling else { return };
        if (settling.starting || !settling.waiting.is_empty()) && now < settling.until {
            return;
        }
        let unasked = settling.waiting.len();
        if unasked > 0 {
            tracing::warn!(unasked, "settling ends although not every probe had its turn");
            for id in &settling.waiting {
                self.registry.excuse(*id, now);
            }
        }
        self.settling = None;
        self.dirty.settles = true;
    }

    /// Notices that the process or the machine stood still since the last turn, and begins to settle.
    pub(super) fn notice_standstill(&mut self, now: Moment) {
        let slept = self.clock.absorb_sleep();
        let now = if slept.is_some() { self.clock.now() } else { now };
        let late = now.since(self.planned_wake);
        self.planned_wake = self.planned_wake.max(now);
        if late <= STANDSTILL && slept.is_none() {
            if late >= STUMBLE && self.settling.is_none() {
                tracing::debug!(seconds = late.as_secs_f64(), "was late; what was held up is made good");
                self.registry.was_late(late, now);
            }
            return;
        }
        tracing::warn!(seconds = late.as_secs_f64(), "stood still; everything is asked anew");
        // A run that spanned the gap says nothing about its target.
        for (id, task) in self.flying.drain() {
            task.abort();
            self.registry.abandon(id, now);
        }
        self.suspect.forget_all();
        self.registry.restart_expiries(now);
        self.begin_settling(false, now);
    }
}
