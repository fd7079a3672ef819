//! Runs of probes: started when due, cancelled with their last subscriber, counted when they land.

use std::{sync::Arc, time::Duration};

use tokio::task::{Id, JoinError};

use super::{
    Owner, PER_TURN,
    command::{ProbeAnswer, Reply},
    settle::STUMBLE,
};
use crate::core::{
    name::ToolKey,
    probe::{ErrorClass, Outcome, ProbeKind, Run},
    refusal::Refusal,
    registry::Report,
    schedule::TargetId,
    time::Moment,
};

/// Calls that wait for probes. Each is told within a minute or so; more are a flood.
const MAX_WAITERS: usize = 1_000;

/// Somebody who waits for the runs of one tool.
#[derive(Debug)]
pub(super) struct ProbeWaiter {
    key: ToolKey,
    generation: u64,
    pending: Vec<TargetId>,
    reply: Reply<ProbeAnswer>,
}

/// What a finished task brings.
pub(super) struct Landing {
    id: TargetId,
    kind: Arc<ProbeKind>,
    run: Run,
    /// Its end was noticed after its deadline: the server stood still, or had no time for it.
    late: bool,
}

impl Owner {
    /// Starts what is due and has a free slot.
    pub(super) fn start_runs(&mut self, now: Moment) {
        for id in self.registry.make_room(now) {
            if let Some(task) = self.flying.remove(&id) {
                task.abort();
            }
        }
        for start in self.registry.start_due(now) {
            self.metrics.probe_lateness(start.lane.label(), start.lateness);
            let prober = self.prober.clone();
            let id = start.id;
            let task = self.runs.spawn(async move {
                let run = prober.run(&start.kind, start.timeout).await;
                let late = run.duration >= start.timeout + STUMBLE;
                Landing { id: start.id, kind: start.kind, run, late }
            });
            self.flying.insert(id, task);
        }
    }

    /// Takes finished tasks, as many as one turn may have.
    pub(super) fn take_landings(&mut self, first: Result<(Id, Landing), JoinError>) {
        self.landed(first);
        for _ in 1..PER_TURN {
            let Some(next) = self.runs.try_join_next_with_id() else { return };
            self.landed(next);
        }
    }

    /// Takes the result of a finished task, unless it was given up meanwhile.
    fn landed(&mut self, landing: Result<(Id, Landing), JoinError>) {
        let now = self.clock.now();
        self.notice_standstill(now);
        let (task, id, kind, run, late) = match landing {
            Ok((task, Landing { id, kind, run, late })) => (task, id, Some(kind), run, late),
            Err(error) => {
                let task = error.id();
                let Some((&id, _)) = self.flying.iter().find(|(_, handle)| handle.id() == task) else {
                    return;
                };
                tracing::error!(%error, "a probe run crashed");
                let outcome = Outcome::error(ErrorClass::Protocol, "the probe crashed");
                (task, id, None, Run { outcome, duration: Duration::ZERO, address: None }, false)
            }
        };
        if self.flying.get(&id).is_none_or(|handle| handle.id() != task) {
            return;
        }
        self.flying.remove(&id);
        if late && matches!(run.outcome, Outcome::Error(..)) && self.registry.forgive(id, now) {
            return;
        }
        self.metrics.probe_result(kind.as_ref().map_or("crashed", |kind| kind.label()), run.outcome.label());
        if let Some(destination) = kind.as_ref().and_then(|kind| kind.endpoint()) {
            self.heard_of(destination, id, &run.outcome, now);
        }
        let counted = self.registry.landed(id, &run, now);
        for happening in &counted {
            self.note(happening, None, now);
        }
        if !self.registry.is_retried(id) {
            self.settled_target(id);
        }
        let heard = |waiter: &ProbeWaiter| counted.iter().any(|h| h.key == waiter.key);
        for waiter in self.probe_waiters.iter_mut().filter(|w| heard(w)) {
            waiter.pending.retain(|pending| *pending != id);
        }
        self.answer_waiters(|waiter| waiter.pending.is_empty());
    }

    /// Runs a tool's probes now; the caller is told when all have landed.
    pub(super) fn probe_now(&mut self, key: ToolKey, reply: Reply<ProbeAnswer>, now: Moment) {
        if self.probe_waiters.len() >= MAX_WAITERS {
            return drop(reply.send(Err(Refusal::TooManyProbes { limit: MAX_WAITERS })));
        }
        let targets = match self.registry.request(&key, now) {
            Ok(targets) => targets,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        let generation = self.registry.get(&key).map_or(0, |entry| entry.stored.generation);
        let mut pending: Vec<TargetId> = targets.into_iter().flatten().collect();
        pending.dedup();
        self.probe_waiters.push(ProbeWaiter { key, generation, pending, reply });
        self.answer_waiters(|waiter| waiter.pending.is_empty());
    }

    /// Counts a pushed result; the caller is told when reads show it.
    pub(super) fn report(&mut self, report: Report, reply: Reply<u64>, now: Moment) {
        let ttl = report.ttl;
        match self.registry.report(report, now) {
            Ok(happening) => {
                self.note(&happening, ttl, now);
                self.metrics.probe_result("report", happening.outcome);
                self.dirty.finish_later([
                    Box::new(move |outcome| drop(reply.send(outcome))) as super::writes::Finish
                ]);
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// Ends the run of a target that nobody wants any more.
    pub(super) fn cancel_run(&mut self, id: TargetId) {
        if let Some(task) = self.flying.remove(&id) {
            task.abort();
        }
        self.suspect.forget(id);
        self.settled_target(id);
    }

    /// Tells those who wait for a tool that is gone or replaced.
    pub(super) fn drop_waiters(&mut self) {
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.probe_waiters)
            .into_iter()
            .partition(|w| self.registry.get(&w.key).is_none_or(|e| e.stored.generation != w.generation));
        self.probe_waiters = left;
        for waiter in gone {
            let refusal = Refusal::ToolChanged { name: waiter.key.name.to_string() };
            drop(waiter.reply.send(Err(refusal)));
        }
    }

    fn answer_waiters(&mut self, ready: impl Fn(&ProbeWaiter) -> bool) {
        let (done, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.probe_waiters).into_iter().partition(ready);
        self.probe_waiters = left;
        self.dirty.finish_later(done.into_iter().map(|waiter| {
            Box::new(move |outcome: Result<u64, Refusal>| drop(waiter.reply.send(outcome.map(|_| ()))))
                as super::writes::Finish
        }));
    }
}
