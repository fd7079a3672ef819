//! The one task that owns all mutable state: commands and outcomes in, catalogs out. It never waits on I/O.
//!
//! Writes are judged against the durable state, handed to the store in groups (one group at a time), and made true when the
//! store answered; reports, outcomes and the passing of time change availability in between. What changed is published once
//! per turn of the loop.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{Catalog, Publisher},
    clock::Clock,
    core::{
        availability::{ProbeState, Windows},
        name::ToolKey,
        registry::{Registry, plan::Collision},
        schedule::TargetId,
        suspicion::Suspect,
        time::Moment,
        tool::StoredTool,
    },
    metrics::Metrics,
    prober::Prober,
    render::mapped_names,
    store::{Loaded, Store, StoreError},
};

mod canary;
mod command;
mod gateways;
mod publish;
mod runs;
mod settle;
mod suspect;
mod writes;

pub use self::canary::Canary;
pub use self::command::{
    Cleared, Command, GatewayReport, Handle, OpenStream, Position, RegisterAnswer, Registering, StreamGuard,
    Unregistering,
};
use self::{
    gateways::GatewayDesk, publish::Dirty, runs::ProbeWaiter, settle::Settling, writes::CommitInFlight,
};

/// Commands that wait for the owner. It answers thousands a second, so a full queue means overload: callers wait.
const QUEUE: usize = 1_024;
/// How often checkpoints are written and clocks compared.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Commands, or finished runs, taken in one turn of the loop before it publishes.
const PER_TURN: usize = 256;

/// Everything the owner is made of.
#[derive(Debug)]
pub struct Parts {
    /// The clock of all moments.
    pub clock: Clock,
    /// The server's default windows.
    pub defaults: crate::core::availability::Defaults,
    /// Durable state.
    pub store: Store,
    /// What the store holds.
    pub loaded: Loaded,
    /// Whether this server has a manifest. Without one, the tools that an earlier one declared are ordinary tools.
    pub has_manifest: bool,
    /// Runs probes.
    pub prober: Prober,
    /// What is asked where the prober suspects itself.
    pub canary: Canary,
    /// Where catalogs go.
    pub publisher: Publisher,
    /// Counts.
    pub metrics: Metrics,
    /// Ends the owner.
    pub stop: CancellationToken,
}

/// The owner task.
#[derive(Debug)]
pub struct Owner {
    clock: Clock,
    store: Store,
    prober: Prober,
    canary: Canary,
    publisher: Publisher,
    metrics: Metrics,
    stop: CancellationToken,
    commands: mpsc::Receiver<Command>,

    registry: Registry,
    desk: GatewayDesk,
    generation: u64,
    collisions: Vec<Collision>,

    waiting: VecDeque<Command>,
    commit: Option<CommitInFlight>,
    runs: JoinSet<runs::Landing>,
    flying: HashMap<TargetId, AbortHandle>,
    probe_waiters: Vec<ProbeWaiter>,
    dirty: Dirty,
    settling: Option<Settling>,
    suspect: Suspect,
    canary_run: Option<JoinHandle<bool>>,
    /// When the loop meant to wake at the latest. Later than that, something stood still.
    planned_wake: Moment,
    next_housekeeping: Moment,
}

impl Owner {
    /// Builds the state that the store holds, publishes it (unsettled), and gives the handle for commands.
    ///
    /// # Errors
    /// The store takes no writes.
    pub async fn new(parts: Parts) -> Result<(Self, Handle), StoreError> {
        let Parts {
            clock,
            defaults,
            store,
            mut loaded,
            has_manifest,
            prober,
            canary,
            publisher,
            metrics,
            stop,
        } = parts;
        if !has_manifest {
            forget_manifest(&mut loaded);
        }
        let (sender, commands) = mpsc::channel(QUEUE);
        let now = clock.now();
        let mut owner = Self {
            clock,
            store,
            prober,
            canary,
            publisher,
            metrics,
            stop,
            commands,
            registry: Registry::new(defaults),
            desk: GatewayDesk::default(),
            generation: loaded.generation,
            collisions: Vec::new(),
            waiting: VecDeque::new(),
            commit: None,
            runs: JoinSet::new(),
            flying: HashMap::new(),
            probe_waiters: Vec::new(),
            dirty: Dirty::new(loaded.revision),
            settling: None,
            suspect: Suspect::default(),
            canary_run: None,
            planned_wake: now,
            next_housekeeping: now,
        };
        owner.reserve_first_block().await?;
        // A revision of 0 would say "none" to watchers, so the first catalog has another one.
        owner.dirty.revision_moves();
        owner.restore(loaded, now);
        owner.begin_settling(true, now);
        owner.publish();
        Ok((owner, Handle::new(sender)))
    }

    /// Runs until it is stopped, then lets go of the store.
    pub async fn run(mut self) {
        loop {
            let now = self.clock.now();
            self.notice_standstill(now);
            self.end_windows(now);
            self.start_runs(now);
            self.expire(now);
            self.start_commit();
            self.checkpoint_if_urgent(now);
            self.publish();
            self.planned_wake = self.next_wake();
            let wake = self.clock.instant(self.planned_wake);
            // What is held back until the store has it must not grow meanwhile, or nothing would ever be published.
            let open = !self.dirty.is_held();
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(command) = self.commands.recv(), if open => self.take_commands(command),
                Some(done) = committed(&mut self.commit) => self.committed(done),
                Some(landing) = self.runs.join_next_with_id(), if open => self.take_landings(landing),
                Some(()) = self.dirty.cleared() => {}
                answers = canary::answer(&mut self.canary_run) => self.canary_answered(answers),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.finish().await;
    }

    fn take_commands(&mut self, first: Command) {
        let mut next = Some(first);
        for _ in 0..PER_TURN {
            let Some(command) = next.take() else { return };
            self.take(command);
            next = self.commands.try_recv().ok();
        }
        // One was taken out beyond the turn's share.
        if let Some(command) = next {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Probe { key, reply } => self.probe_now(key, reply, now),
            Command::Report { report, reply } => self.report(report, reply, now),
            Command::Gateway(command) => self.gateway(command, now),
            Command::Started => self.started(),
            write => self.waiting.push_back(write),
        }
    }

    fn next_wake(&mut self) -> Moment {
        let windows = if self.settling.is_some() { None } else { self.registry.next_window_end() };
        let settled = self.settling.as_ref().map(|s| s.until);
        let expiry = if self.may_expire() { self.registry.next_expiry() } else { None };
        [
            self.registry.next_due(),
            windows,
            expiry,
            settled,
            self.desk.deadline(),
            Some(self.next_housekeeping),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Moment::NEVER)
    }

    /// Puts in what the store holds.
    fn restore(&mut self, loaded: Loaded, now: Moment) {
        let mut successes: HashMap<(ToolKey, Arc<str>), (Duration, Option<Duration>)> = HashMap::new();
        for saved in loaded.successes {
            if let Some(age) = saved.age {
                successes.insert((saved.key, saved.probe), (age, saved.ttl));
            }
        }
        for policy in loaded.policies {
            let key = (policy.namespace.clone(), policy.agent.clone());
            self.dirty.policy(key.clone());
            self.registry.access.set_policy(key, Some(policy));
        }
        for (key, disabled) in loaded.switches {
            self.dirty.tool(key.clone());
            self.registry.access.set_switch(key, Some(Arc::new(disabled)));
        }
        for tool in loaded.tools {
            let (_, clamped) = Windows::clamp(&tool.spec.windows, self.registry.defaults());
            if let Some(changes) = clamped {
                tracing::warn!(tool = %tool.key, %changes, "stored windows do not fit the defaults any more and were lengthened");
            }
            let known = |probe: usize, windows: &Windows| {
                let spec = &tool.spec.probes[probe];
                let report = spec.kind == crate::core::probe::ProbeKind::Report;
                match successes.get(&(tool.key.clone(), Arc::clone(&spec.name))) {
                    Some((age, ttl)) => {
                        let fresh = report.then(|| ttl.unwrap_or(windows.ttl));
                        ProbeState::restored(now - *age, fresh, now, windows)
                    }
                    None => ProbeState::pending(),
                }
            };
            let stored: Arc<StoredTool> = Arc::new(tool.clone());
            self.registry.put(stored, mapped_names(&tool.key), known, now);
            self.dirty.tool(tool.key.clone());
        }
        self.restore_gateways(loaded.gateways, now);
    }

    fn end_windows(&mut self, now: Moment) {
        if now >= self.next_housekeeping {
            self.checkpoint(now);
            self.suspect_self(now);
            self.next_housekeeping = now + HOUSEKEEPING;
        }
        self.gateway_windows(now);
        if self.settling.is_some() {
            self.end_settling_if_due(now);
        }
        if self.settling.is_some() {
            return;
        }
        let (happenings, held_up) = self.registry.end_windows(now);
        for happening in happenings {
            self.note(&happening, None, now);
        }
        self.metrics.set_prober_overloaded(held_up);
    }

    async fn finish(mut self) {
        self.runs.abort_all();
        let now = self.clock.now();
        if let Some(commit) = self.commit.take() {
            let done = commit.wait().await;
            self.committed(done);
            self.publish();
        }
        self.checkpoint(now);
        self.store.close().await;
    }
}

/// Without a manifest nobody but calls can look after what an earlier one declared.
fn forget_manifest(loaded: &mut Loaded) {
    let mut declared = 0usize;
    for tool in &mut loaded.tools {
        declared += usize::from(std::mem::take(&mut tool.from_manifest));
    }
    if declared > 0 {
        tracing::warn!(declared, "tools that an earlier manifest declared are kept as ordinary tools");
    }
}

async fn committed(commit: &mut Option<CommitInFlight>) -> Option<writes::Committed> {
    match commit {
        Some(in_flight) => {
            let done = in_flight.answer().await;
            commit.take().map(|in_flight| in_flight.done(done))
        }
        None => std::future::pending().await,
    }
}
