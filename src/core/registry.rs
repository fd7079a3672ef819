//! All tools and what is known of them: the one mutable state, changed by one writer.
//!
//! Writes come in two steps. [`plan`] judges a request against the durable state and says which rows change; once the store
//! has them, [`Registry::put`] and [`Registry::remove`] make them true. Outcomes and the passing of time change
//! availability alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    availability::{Defaults, Effect, ProbeState, ToolState, Verdict, Windows},
    name::{Namespace, ToolKey, ToolName},
    probe::{ErrorClass, Outcome, ProbeKind, Run},
    refusal::Refusal,
    schedule::{Lane, Schedule, Start, Subscriber, TargetId, Terms},
    time::Moment,
    tool::StoredTool,
};

pub mod access;
mod expiry;
pub mod plan;

pub use expiry::Expired;

/// Most tools of one namespace.
pub const MAX_TOOLS_PER_NAMESPACE: usize = 100_000;
/// How far a window moves whose probe is held up by a cap.
const STRETCH: Duration = Duration::from_secs(1);

/// One tool with everything known of it.
#[derive(Debug)]
pub struct Entry {
    /// What is durable.
    pub stored: Arc<StoredTool>,
    /// The windows in force.
    pub windows: Windows,
    /// What the probes say.
    pub state: ToolState,
    targets: Vec<Option<TargetId>>,
    /// When a window of it ends, or its flap mark.
    turns: Option<Moment>,
    /// When it is unregistered by itself.
    expires: Option<Moment>,
    mapped_names: Vec<String>,
}

impl Entry {
    /// When its next window ends.
    pub fn window_end(&self) -> Option<Moment> {
        self.state.window_end(&self.windows)
    }
}

/// Something that happened to a tool, for the log, the catalog and the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The tool.
    pub key: ToolKey,
    /// The probe, by index.
    pub probe: usize,
    /// What the result or the end of a window did to the probe.
    pub effect: Effect,
    /// Whether the tool's verdict flipped.
    pub flipped: bool,
    /// Whether that was once too often: the tool flaps since now.
    pub flaps: bool,
    /// What the checkpoint must learn.
    pub success: Success,
    /// The outcome's name; empty where a window ended.
    pub outcome: &'static str,
}

/// What became of a probe's last success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// It stands as before.
    Kept,
    /// It is now.
    Now,
    /// A `NO` cleared it.
    Cleared,
}

/// All tools, the schedule of their probes, and the ends of their windows.
#[derive(Debug)]
pub struct Registry {
    /// What operators say of agents and tools.
    pub access: access::Access,
    defaults: Defaults,
    tools: BTreeMap<ToolKey, Entry>,
    mapped: BTreeMap<(Namespace, String), ToolName>,
    counts: HashMap<Namespace, usize>,
    window_ends: BTreeSet<(Moment, ToolKey)>,
    expiries: BTreeSet<(Moment, ToolKey)>,
    schedule: Schedule,
}

impl Registry {
    /// An empty registry.
    pub fn new(defaults: Defaults) -> Self {
        Self {
            access: access::Access::default(),
            defaults,
            tools: BTreeMap::new(),
            mapped: BTreeMap::new(),
            counts: HashMap::new(),
            window_ends: BTreeSet::new(),
            expiries: BTreeSet::new(),
            schedule: Schedule::default(),
        }
    }

    /// The server's default windows.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// One tool.
    pub fn get(&self, key: &ToolKey) -> Option<&Entry> {
        self.tools.get(key)
    }

    /// How many tools a namespace holds.
    pub fn count(&self, namespace: &Namespace) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }

    /// All tools, sorted by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ToolKey, &Entry)> {
        self.tools.iter()
    }

    /// The tools of one namespace, sorted by name.
    pub fn in_namespace<'a>(
        &'a self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = (&'a ToolKey, &'a Entry)> {
        let namespace = namespace.clone();
        // The smallest key of the namespace: no tool name sorts before "-".
        let first = ToolName::parse("-").ok().map(|name| ToolKey { namespace: namespace.clone(), name });
        first
            .into_iter()
            .flat_map(|first| self.tools.range(first..))
            .take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Puts a tool in, new or changed. A new generation starts without any knowledge; `restored` holds what a checkpoint
    /// knows of each probe. Gives the targets whose runs in flight must be cancelled.
    pub fn put(
        &mut self,
        stored: Arc<StoredTool>,
        mapped_names: impl IntoIterator<Item = String>,
        restored: impl Fn(usize, &Windows) -> ProbeState,
        now: Moment,
    ) -> Vec<TargetId> {
        let key = stored.key.clone();
        if let Some(entry) = self.tools.get_mut(&key)
            && entry.stored.generation == stored.generation
        {
            entry.stored = stored;
            return Vec::new();
        }
        let cancelled = self.remove(&key);
        let (windows, _) = Windows::clamp(&stored.spec.windows, &self.defaults);
        let probes = (0..stored.spec.probes.len()).map(|i| restored(i, &windows)).collect();
        let terms = Terms {
            interval: windows.interval,
            timeout: windows.timeout,
            longest_gap: windows.longest_gap(),
        };
        let targets = stored
            .spec
            .probes
            .iter()
            .enumerate()
            .map(|(probe, spec)| {
                let subscriber = Subscriber { key: key.clone(), generation: stored.generation, probe };
                (spec.kind != ProbeKind::Report)
                    .then(|| self.schedule.attach(subscriber, &spec.kind, &stored.owner, terms, now))
            })
            .collect();
        let mapped_names: Vec<String> = mapped_names.into_iter().collect();
        for mapped in &mapped_names {
            self.mapped.insert((key.namespace.clone(), mapped.clone()), key.name.clone());
        }
        let state = ToolState::new(probes, now);
        let entry = Entry { stored, windows, state, targets, turns: None, expires: None, mapped_names };
        self.tools.insert(key.clone(), entry);
        *self.counts.entry(key.namespace.clone()).or_default() += 1;
        self.note_times(&key, now);
        cancelled
    }

    /// Forgets a tool and everything known of it. Gives the targets whose runs in flight must be cancelled.
    pub fn remove(&mut self, key: &ToolKey) -> Vec<TargetId> {
        let Some(entry) = self.tools.remove(key) else { return Vec::new() };
        if let Some(count) = self.counts.get_mut(&key.namespace) {
            *count -= 1;
        }
        if let Some(end) = entry.turns {
            self.window_ends.remove(&(end, key.clone()));
        }
        if let Some(end) = entry.expires {
            self.expiries.remove(&(end, key.clone()));
        }
        for mapped in entry.mapped_names {
            self.mapped.remove(&(key.namespace.clone(), mapped));
        }
        let generation = entry.stored.generation;
        let gone = |(probe, id): (usize, &Option<TargetId>)| {
            let subscriber = Subscriber { key: key.clone(), generation, probe };
            id.filter(|id| self.schedule.detach(*id, &subscriber))
        };
        entry.targets.iter().enumerate().filter_map(gone).collect()
    }

    /// Runs that are due and have a free slot.
    pub fn start_due(&mut self, now: Moment) -> Vec<Start> {
        self.schedule.start_due(now)
    }

    /// Ends runs of targets that answered last time, where others of those wait for a slot. Gives the runs to cancel.
    pub fn make_room(&mut self, now: Moment) -> Vec<TargetId> {
        self.schedule.make_room(now)
    }

    /// When a run is due next, or has to yield its slot.
    pub fn next_due(&mut self) -> Option<Moment> {
        [self.schedule.next_due(), self.schedule.next_yield()].into_iter().flatten().min()
    }

    /// When a window, or a flap mark, ends next.
    pub fn next_window_end(&self) -> Option<Moment> {
        self.window_ends.first().map(|(end, _)| *end)
    }

    /// Counts a finished run for everyone who subscribed before it started, and plans the next. A first run that had too little
    /// time counts for nobody.
    pub fn landed(&mut self, id: TargetId, run: &Run, now: Moment) -> Vec<Happening> {
        let failed = matches!(run.outcome, Outcome::Error(..));
        if matches!(run.outcome, Outcome::Error(ErrorClass::Timeout, _)) && self.schedule.retry(id, now) {
            return Vec::new();
        }
        let Some(landed) = self.schedule.landed(id) else { return Vec::new() };
        let mut counted = Vec::new();
        let interval = self.schedule.interval(id).unwrap_or(self.defaults.interval);
        // Those who came while it flew wait for the next run, whatever the others' cadence is.
        let mut cadence = if landed.newcomers { interval } else { Duration::MAX };
        let mut down = !landed.newcomers;
        for subscriber in landed.subscribers {
            let current =
                self.tools.get(&subscriber.key).is_some_and(|e| e.stored.generation == subscriber.generation);
            if !current {
                continue;
            }
            counted.push(self.hear(&subscriber.key, subscriber.probe, run.clone(), None, now));
            if let Some(entry) = self.tools.get_mut(&subscriber.key) {
                let probe = &mut entry.state.probes[subscriber.probe];
                cadence = cadence.min(probe.cadence(now, interval));
                down &= probe.verdict() == Verdict::Unavailable && !probe.recovers();
            }
        }
        let lane = match (down, failed) {
            (true, _) => Lane::Down,
            (false, true) => Lane::Suspect,
            (false, false) => Lane::Live,
        };
        self.schedule.rearm(id, cadence.min(SLOWEST_EVER), lane, now);
        counted
    }

    /// Counts a pushed report.
    ///
    /// # Errors
    /// No such tool or probe, not a report probe, or another generation.
    pub fn report(&mut self, report: Report, now: Moment) -> Result<Happening, Refusal> {
        let Report { key, probe, outcome, ttl, generation } = report;
        let entry = self.tools.get(&key).ok_or_else(|| not_found(&key))?;
        if let Some(given) = generation
            && given != entry.stored.generation
        {
            let current = entry.stored.generation;
            return Err(Refusal::StaleGeneration { name: key.name.to_string(), given, current });
        }
        let index = find_report_probe(&entry.stored, &probe)?;
        let run = Run { outcome, duration: Duration::ZERO, address: None };
        Ok(self.hear(&key, index, run, ttl, now))
    }

    /// Ends the windows and flap marks that are over at `now`. Held-up probes get more time; `true` if there were any.
    pub fn end_windows(&mut self, now: Moment) -> (Vec<Happening>, bool) {
        let mut happenings = Vec::new();
        let mut held_up = false;
        while let Some((end, key)) = self.window_ends.first().cloned()
            && end <= now
        {
            let Some(entry) = self.tools.get_mut(&key) else {
                self.window_ends.pop_first();
                continue;
            };
            for (index, probe) in entry.state.probes.iter_mut().enumerate() {
                if probe.window_end(&entry.windows).is_none_or(|end| end > now) {
                    continue;
                }
                if entry.targets[index].is_some_and(|id| self.schedule.is_held_up(id))
                    && probe.stretch(now + STRETCH)
                {
                    held_up = true;
                    continue;
                }
                let effect = probe.tick(now, &entry.windows);
                happenings.push(Happening::of_time(&key, index, effect));
            }
            let flapped = entry.state.is_flapping();
            if let Some(last) = happenings.iter_mut().rev().find(|h| h.key == key)
                && entry.state.settle(last.probe, now)
            {
                last.flipped = true;
                last.flaps = entry.state.is_flapping() && !flapped;
            }
            if entry.state.calm(now) {
                happenings.push(Happening::of_time(&key, 0, Effect::Calmed));
            }
            self.note_times(&key, now);
        }
        (happenings, held_up)
    }

    /// Makes all probes of a tool due now. Gives their targets, by probe; none for `report`.
    ///
    /// # Errors
    /// No such tool, or it has no probes.
    pub fn request(&mut self, key: &ToolKey, now: Moment) -> Result<Vec<Option<TargetId>>, Refusal> {
        let entry = self.tools.get(key).ok_or_else(|| not_found(key))?;
        if entry.targets.is_empty() {
            return Err(Refusal::NoProbes { name: key.name.to_string() });
        }
        for (probe, id) in entry.targets.iter().enumerate() {
            let subscriber = Subscriber { key: key.clone(), generation: entry.stored.generation, probe };
            if let Some(id) = id {
                self.schedule.request(*id, &subscriber, now);
            }
        }
        Ok(entry.targets.clone())
    }

    /// Makes everything due, spread: nothing that was known before counts.
    pub fn sweep(&mut self, now: Moment, spread: Duration) {
        self.schedule.sweep(now, spread);
    }

    /// The targets of one tool.
    pub fn targets(&self, key: &ToolKey) -> impl Iterator<Item = TargetId> {
        self.tools.get(key).into_iter().flat_map(|entry| entry.targets.iter().copied().flatten())
    }

    /// All targets that are probed.
    pub fn target_ids(&self) -> impl Iterator<Item = TargetId> {
        self.schedule.ids()
    }

    /// Gives up a run in flight as if it had never started; it is due again at once.
    pub fn abandon(&mut self, id: TargetId, now: Moment) {
        self.schedule.give_up(id, now);
    }

    /// Gives the probes of a target, which should have had their turn and did not get it, the time of one run.
    pub fn excuse(&mut self, id: TargetId, now: Moment) {
        self.excuse_from(id, now, now);
    }

    /// The server itself was late, by so much: what it held up is made good, and no window ends meanwhile.
    pub fn was_late(&mut self, late: Duration, now: Moment) {
        for (id, start) in self.schedule.catch_up(late, now) {
            self.excuse_from(id, start, now);
        }
        // Reports that came meanwhile are still to be read.
        let over: Vec<ToolKey> =
            self.window_ends.iter().take_while(|(end, _)| *end <= now).map(|(_, key)| key.clone()).collect();
        for key in over {
            let Some(entry) = self.tools.get_mut(&key) else { continue };
            for (probe, _) in entry.state.probes.iter_mut().zip(&entry.targets).filter(|(_, id)| id.is_none())
            {
                probe.stretch(now + STRETCH);
            }
            self.note_times(&key, now);
        }
    }

    /// Lets a run count for nothing whose end the server noticed late; the target is due again. False if it has to count.
    pub fn forgive(&mut self, id: TargetId, now: Moment) -> bool {
        let forgiven = self.schedule.forgive(id, now);
        if forgiven {
            self.excuse(id, now);
        }
        forgiven
    }

    fn excuse_from(&mut self, id: TargetId, start: Moment, now: Moment) {
        let subscribers: Vec<(Subscriber, Terms)> = self.schedule.subscribers(id).to_vec();
        for (Subscriber { key, generation, probe }, terms) in subscribers {
            if let Some(entry) = self.tools.get_mut(&key).filter(|e| e.stored.generation == generation) {
                entry.state.probes[probe].stretch(start + terms.timeout + STRETCH);
                self.note_times(&key, now);
            }
        }
    }

    /// Whether a target that landed is still to be heard: its first run had too little time.
    pub fn is_retried(&self, id: TargetId) -> bool {
        self.schedule.is_retried(id)
    }

    /// When the next run of a probe is planned.
    pub fn due(&self, entry: &Entry, probe: usize) -> Option<Moment> {
        entry.targets[probe].and_then(|id| self.schedule.due(id))
    }

    fn hear(
        &mut self,
        key: &ToolKey,
        probe: usize,
        run: Run,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Happening {
        let mut happening = Happening::of_time(key, probe, Effect::Quiet);
        happening.outcome = run.outcome.label();
        let Some(entry) = self.tools.get_mut(key) else { return happening };
        let state = &mut entry.state;
        let flapped = state.is_flapping();
        let before = state.probes[probe].last_success();
        let passed = run.outcome == Outcome::Pass;
        happening.effect = state.probes[probe].result(run, ttl, now, &entry.windows);
        happening.success = match (before, state.probes[probe].last_success()) {
            // One that a threshold does not count yet is none.
            (_, Some(success)) if passed && success == now => Success::Now,
            (Some(_), None) => Success::Cleared,
            _ => Success::Kept,
        };
        happening.flipped = state.settle(probe, now);
        happening.flaps = state.is_flapping() && !flapped;
        self.note_times(key, now);
        happening
    }

    /// Plans what becomes of a tool by time alone, after something happened to it.
    fn note_times(&mut self, key: &ToolKey, now: Moment) {
        self.note_expiry(key, now);
        let Some(entry) = self.tools.get_mut(key) else { return };
        let ends = [entry.state.window_end(&entry.windows), entry.state.flap_end()];
        let end = ends.into_iter().flatten().min();
        if end == entry.turns {
            return;
        }
        if let Some(before) = entry.turns {
            self.window_ends.remove(&(before, key.clone()));
        }
        if let Some(end) = end {
            self.window_ends.insert((end, key.clone()));
        }
        entry.turns = end;
    }
}

impl Happening {
    /// What time alone did to a probe.
    fn of_time(key: &ToolKey, probe: usize, effect: Effect) -> Self {
        let (flipped, flaps, success) = (false, false, Success::Kept);
        Self { key: key.clone(), probe, effect, flipped, flaps, success, outcome: "" }
    }
}

/// A target whose subscribers all vanished while it flew, and that nobody joined, is gone; the number only keeps the sum finite.
const SLOWEST_EVER: Duration = Duration::from_secs(86_400);

/// A pushed result.
#[derive(Clone, Debug)]
pub struct Report {
    /// The tool.
    pub key: ToolKey,
    /// The probe; empty for the only `report` probe.
    pub probe: String,
    /// How the owner's check ended.
    pub outcome: Outcome,
    /// How long it may be used.
    pub ttl: Option<Duration>,
    /// The generation that was checked.
    pub generation: Option<u64>,
}

fn find_report_probe(tool: &StoredTool, probe: &str) -> Result<usize, Refusal> {
    let name = || tool.key.name.to_string();
    let probes = &tool.spec.probes;
    let known = || probes.iter().map(|p| &*p.name).collect::<Vec<_>>().join(", ");
    let found = if probe.is_empty() {
        let mut reports = probes.iter().enumerate().filter(|(_, p)| p.kind == ProbeKind::Report);
        match (reports.next(), reports.next()) {
            (Some((index, _)), None) => Some(index),
            (Some(_), Some(_)) => {
                let message = format!("tool '{}' has several report probes: {}", name(), known());
                return Err(Refusal::invalid("probe", message));
            }
            (None, _) => None,
        }
    } else {
        probes.iter().position(|p| &*p.name == probe)
    };
    let Some(index) = found else {
        return Err(Refusal::ProbeNotFound { name: name(), probe: probe.to_owned(), known: known() });
    };
    match &probes[index].kind {
        ProbeKind::Report => Ok(index),
        kind => Err(Refusal::NotAReportProbe {
            name: name(),
            probe: probes[index].name.to_string(),
            kind: kind.label(),
        }),
    }
}

/// There is no such tool.
pub fn not_found(key: &ToolKey) -> Refusal {
    Refusal::ToolNotFound { namespace: key.namespace.to_string(), name: key.name.to_string() }
}

#[cfg(test)]
mod tests;
