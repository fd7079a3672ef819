//! Who is probed when. Identical probes of one owner are one target with many subscribers, and share its runs.
//!
//! Starts lie on a grid: a target's slots are its phase (a hash of what it is) plus multiples of the period, so that starts
//! spread by themselves, never drift, and stay where they are after a restart. Never two runs of one target at once.
//!
//! What is due waits for a slot in the lane of its [`Lane`]: a target that does not answer costs a slot for its whole timeout,
//! so those that may be dead share a part of the slots, and the living never wait for them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{
    name::ToolKey,
    probe::{HostPort, ProbeKind},
    time::Moment,
};

mod late;
pub use late::PATIENCE;

/// Runs in flight, all together: 10,000 live targets at 10 s and 50 ms each need about 50.
pub const MAX_IN_FLIGHT: usize = 1_024;
/// Of them, runs of targets that are down, with those in doubt: each may cost its whole timeout. Those in doubt may take what the
/// living do not reserve, so that it is soon known which of them are down.
pub const MAX_DOWN_IN_FLIGHT: usize = 512;
/// Of them, first runs of targets: nobody knows yet whether they answer.
pub const MAX_NEW_IN_FLIGHT: usize = 512;
/// Kept free for targets that answer: 10,000 of them at 10 s, with a quarter of a second each.
pub const LIVE_RESERVE: usize = 256;
/// A target that does not answer its first run within this is asked again, with its whole timeout, among those that are down.
/// So a crowd of dead newcomers is through its lane soon, and a slow one is not judged by an impatient run.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// Runs in flight to one host and port: a prober is no load generator.
pub const MAX_PER_DESTINATION: usize = 16;
/// A target is asked for newcomers this long after its last run at the soonest: many come together.
const NEWCOMER_SPACING: Duration = Duration::from_secs(1);
/// A target is asked on request this long after its last start at the soonest, however many request it.
const REQUEST_SPACING: Duration = Duration::from_secs(1);
/// Each start is moved by up to this part of the period, so that targets of one phase drift apart.
const JITTER: f64 = 0.025;

/// One probe of one generation of one tool: who a result is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subscriber {
    /// The tool.
    pub key: ToolKey,
    /// The generation that subscribed; a result counts for no other.
    pub generation: u64,
    /// Index into the spec's probes.
    pub probe: usize,
}

/// Names a target while it has subscribers; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(u64);

#[cfg(test)]
impl TargetId {
    /// One of a test that has no schedule.
    pub fn for_tests(id: u64) -> Self {
        Self(id)
    }
}

/// What the newest run of a target lets expect of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// It answers.
    Live,
    /// It did not answer, and a last success stands in: asked before those that are down, as its grace runs.
    Suspect,
    /// Never asked.
    New,
    /// Everybody who asks for it takes it for unavailable.
    Down,
}

impl Lane {
    /// In the order in which they are served.
    const ALL: [Self; 4] = [Self::Live, Self::Suspect, Self::New, Self::Down];

    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::New => "new",
            Self::Down => "down",
        }
    }
}

/// A run to start now.
#[derive(Clone, Debug)]
pub struct Start {
    /// Which target.
    pub id: TargetId,
    /// What to ask.
    pub kind: Arc<ProbeKind>,
    /// The one deadline.
    pub timeout: Duration,
    /// Where it waited for its slot.
    pub lane: Lane,
    /// How long after it was due; nobody but the server is to blame for that.
    pub lateness: Duration,
}

/// A finished run: who it counts for, and whom to ask about the cadence.
#[derive(Debug)]
pub struct Landed {
    /// The subscribers at the start of the run that are still there.
    pub subscribers: Vec<Subscriber>,
    /// Whether others came since: the run does not count for them, and they wait for the next one.
    pub newcomers: bool,
}

/// What a subscriber asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How often.
    pub interval: Duration,
    /// The longest run.
    pub timeout: Duration,
    /// The longest time between two starts that its windows bear.
    pub longest_gap: Duration,
}

#[derive(Debug)]
struct Target {
    identity: (Arc<ProbeKind>, Arc<str>),
    phase: u64,
    rounds: u64,
    subscribers: Vec<(Subscriber, Terms)>,
    started: Option<Moment>,
    /// The newest run out of turn, for newcomers.
    out_of_turn: Option<Moment>,
    place: Place,
    /// When the run that is queued or in flight was due.
    due: Moment,
    lane: Lane,
    /// The run in flight has less than the whole timeout.
    trial: bool,
    /// Some subscribers came after the start of the newest run.
    newcomers: bool,
    again: bool,
    /// When it was due before the server was late.
    owed: Option<Moment>,
    /// Its newest run did not count, as the server was late.
    forgiven: bool,
}

/// Where a target is: in exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the heap, for this moment.
    Waiting(Moment),
    /// Due, and in a lane for want of a free slot.
    Queued,
    /// In flight, with this many of its subscribers (later ones came after the start).
    Flying { subscribers: usize, lane: Lane },
}

/// All targets, and who is next.
#[derive(Debug, Default)]
pub struct Schedule {
    targets: HashMap<TargetId, Target>,
    by_identity: HashMap<(Arc<ProbeKind>, Arc<str>), TargetId>,
    heap: BinaryHeap<Reverse<(Moment, TargetId)>>,
    lanes: [VecDeque<TargetId>; 4],
    blocked: HashMap<HostPort, VecDeque<TargetId>>,
    destinations: HashMap<HostPort, usize>,
    /// By lane.
    in_flight: [usize; 4],
    /// Starts in the lane of the living, the oldest first; some have landed.
    live_flights: VecDeque<(Moment, TargetId)>,
    next_id: u64,
}

impl Schedule {
    /// Adds a subscriber, who is heard at once; where others share the target, after a second, and out of turn at most once an
    /// interval: registering more tools never multiplies traffic.
    pub fn attach(
        &mut self,
        subscriber: Subscriber,
        kind: &ProbeKind,
        owner: &Arc<str>,
        terms: Terms,
        now: Moment,
    ) -> TargetId {
        let identity = (Arc::new(kind.clone()), Arc::clone(owner));
        if let Some(&id) = self.by_identity.get(&identity) {
            self.join(id, subscriber, terms, now);
            return id;
        }
        let id = TargetId(self.next_id);
        self.next_id += 1;
        let target = Target {
            phase: hash(&identity),
            identity: identity.clone(),
            rounds: 0,
            subscribers: vec![(subscriber, terms)],
            started: None,
            out_of_turn: None,
            place: Place::Waiting(now),
            due: now,
            lane: Lane::New,
            trial: false,
            newcomers: false,
            again: false,
            owed: None,
            forgiven: false,
        };
        self.targets.insert(id, target);
        self.by_identity.insert(identity, id);
        self.heap.push(Reverse((now, id)));
        id
    }

    /// Removes a subscriber; true if the target is gone with it, and its run in flight must be cancelled.
    pub fn detach(&mut self, id: TargetId, subscriber: &Subscriber) -> bool {
        let Some(target) = self.targets.get_mut(&id) else { return false };
        let Some(index) = target.subscribers.iter().position(|(s, _)| s == subscriber) else { return false };
        target.subscribers.remove(index);
        if let Place::Flying { subscribers, .. } = &mut target.place
            && index < *subscribers
        {
            *subscribers -= 1;
        }
        if !target.subscribers.is_empty() {
            return false;
        }
        self.free_slot(id);
        if let Some(target) = self.targets.remove(&id) {
            self.by_identity.remove(&target.identity);
        }
        true
    }

    /// When something is due that is not held up by a cap.
    pub fn next_due(&mut self) -> Option<Moment> {
        while let Some(&Reverse((due, id))) = self.heap.peek() {
            if self.targets.get(&id).is_some_and(|t| t.place == Place::Waiting(due)) {
                return Some(due);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes what is due at `now` and has a free slot; call [`Schedule::make_room`] first.
    pub fn start_due(&mut self, now: Moment) -> Vec<Start> {
        self.enqueue_due(now);
        let mut starts = Vec::new();
        for lane in Lane::ALL {
            while self.has_slot(lane)
                && let Some(id) = self.lanes[lane as usize].pop_front()
            {
                starts.extend(self.start(id, lane, now));
            }
        }
        starts
    }

    /// Ends a run: frees its slot and says whom it counts for. The target waits for [`Schedule::rearm`].
    pub fn landed(&mut self, id: TargetId) -> Option<Landed> {
        let target = self.targets.get_mut(&id)?;
        let Place::Flying { subscribers, .. } = target.place else { return None };
        let heard = target.subscribers[..subscribers].iter().map(|(s, _)| s.clone()).collect();
        let newcomers = target.subscribers.len() > subscribers;
        target.newcomers = newcomers;
        self.free_slot(id);
        Some(Landed { subscribers: heard, newcomers })
    }

    /// Ends a run that got no answer in its time. True if that was less than the target's whole timeout: then nothing is known
    /// yet, and it is due again, among those that are down.
    pub fn retry(&mut self, id: TargetId, now: Moment) -> bool {
        let Some(target) = self.targets.get_mut(&id) else { return false };
        if !target.trial || !matches!(target.place, Place::Flying { .. }) {
            return false;
        }
        target.lane = Lane::Down;
        self.give_up(id, now);
        true
    }

    /// Ends a run as if it had never started; the target is due at once.
    pub fn give_up(&mut self, id: TargetId, now: Moment) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        if matches!(target.place, Place::Flying { .. }) {
            target.again = false;
            self.free_slot(id);
            self.wait(id, now);
        }
    }

    /// Plans the next run of a target that landed: `cadence` after its last start, on its grid where the cadence is regular.
    pub fn rearm(&mut self, id: TargetId, cadence: Duration, lane: Lane, now: Moment) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        target.lane = lane;
        target.trial = false;
        target.forgiven = false;
        let mut due = target.next_start(cadence, target.started.unwrap_or(now)).max(now);
        if std::mem::take(&mut target.newcomers) {
            due = target.due_for_newcomers(due, now);
        }
        if std::mem::take(&mut target.again) {
            due = target.due_on_request(due, now);
        }
        self.wait(id, due);
    }

    /// Makes a target due now, or a second after its last start. In flight: it runs once more after, unless the run in flight
    /// already counts for `subscriber`.
    pub fn request(&mut self, id: TargetId, subscriber: &Subscriber, now: Moment) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        match target.place {
            Place::Flying { subscribers, .. } => {
                let heard = target.subscribers[..subscribers].iter().any(|(s, _)| s == subscriber);
                target.again |= !heard;
            }
            Place::Queued => {}
            Place::Waiting(due) => {
                let due = target.due_on_request(due, now);
                self.wait(id, due);
            }
        }
    }

    /// Makes every target due, spread evenly over `spread`: nothing that was known before counts.
    pub fn sweep(&mut self, now: Moment, spread: Duration) {
        let ids: Vec<TargetId> = self.targets.keys().copied().collect();
        for id in ids {
            let Some(target) = self.targets.get_mut(&id) else { continue };
            match target.place {
                Place::Flying { .. } => target.again = true,
                Place::Queued => {}
                Place::Waiting(_) => {
                    let due = now + spread.mul_f64(target.part());
                    self.wait(id, due);
                }
            }
        }
    }

    /// When the next run of a target is planned; none while it runs or waits for a slot.
    pub fn due(&self, id: TargetId) -> Option<Moment> {
        match self.targets.get(&id)?.place {
            Place::Waiting(due) => Some(due),
            Place::Queued | Place::Flying { .. } => None,
        }
    }

    /// Whether a target is due and held up by a cap: its silence is not its fault.
    pub fn is_held_up(&self, id: TargetId) -> bool {
        self.targets.get(&id).is_some_and(|t| t.place == Place::Queued)
    }

    /// Whether the newest run of a target had too little time, and the next one is still to come.
    pub fn is_retried(&self, id: TargetId) -> bool {
        self.targets.get(&id).is_some_and(|t| t.trial && t.lane == Lane::Down)
    }

    /// Who is told of a target, and what they ask for.
    pub fn subscribers(&self, id: TargetId) -> &[(Subscriber, Terms)] {
        self.targets.get(&id).map_or(&[], |target| &target.subscribers)
    }

    /// All targets.
    pub fn ids(&self) -> impl Iterator<Item = TargetId> {
        self.targets.keys().copied()
    }

    /// The smallest interval that a target's subscribers ask for.
    pub fn interval(&self, id: TargetId) -> Option<Duration> {
        self.targets.get(&id).map(Target::interval)
    }

    fn join(&mut self, id: TargetId, subscriber: Subscriber, terms: Terms, now: Moment) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        target.subscribers.push((subscriber, terms));
        match target.place {
            // The run in flight started before this subscriber came, so it does not count for it.
            Place::Flying { .. } | Place::Queued => {}
            Place::Waiting(due) => {
                let due = target.due_for_newcomers(due, now);
                self.wait(id, due);
            }
        }
    }

    fn wait(&mut self, id: TargetId, due: Moment) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.place = Place::Waiting(due);
            self.heap.push(Reverse((due, id)));
        }
    }

    fn enqueue_due(&mut self, now: Moment) {
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(Reverse((due, id))) = self.heap.pop() {
                self.enqueue(id, due);
            }
        }
    }

    fn enqueue(&mut self, id: TargetId, due: Moment) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.place = Place::Queued;
            target.due = target.owed.take().unwrap_or(due);
            self.lanes[target.lane as usize].push_back(id);
        }
    }

    fn has_slot(&self, lane: Lane) -> bool {
        let [live, suspect, new, down] = self.in_flight;
        let doubtful = suspect + new + down;
        let free = live + doubtful < MAX_IN_FLIGHT;
        let free_to_doubtful = free && doubtful < MAX_IN_FLIGHT - LIVE_RESERVE;
        match lane {
            Lane::Live => free,
            Lane::New => free_to_doubtful && new < MAX_NEW_IN_FLIGHT,
            Lane::Suspect => free_to_doubtful,
            Lane::Down => free_to_doubtful && suspect + down < MAX_DOWN_IN_FLIGHT,
        }
    }

    fn start(&mut self, id: TargetId, lane: Lane, now: Moment) -> Option<Start> {
        let target = self.targets.get_mut(&id).filter(|t| t.place == Place::Queued)?;
        if let Some(endpoint) = target.identity.0.endpoint() {
            let busy = self.destinations.entry(endpoint.clone()).or_default();
            if *busy >= MAX_PER_DESTINATION {
                self.blocked.entry(endpoint.clone()).or_default().push_back(id);
                return None;
            }
            *busy += 1;
        }
        self.in_flight[lane as usize] += 1;
        target.place = Place::Flying { subscribers: target.subscribers.len(), lane };
        target.started = Some(now);
        target.rounds += 1;
        let whole = target.subscribers.iter().map(|(_, t)| t.timeout).max().unwrap_or_default();
        target.trial = lane == Lane::New && whole > FIRST_TIMEOUT;
        let timeout = if target.trial { FIRST_TIMEOUT } else { whole };
        let lateness = now.since(target.due);
        if lane == Lane::Live {
            self.live_flights.push_back((now, id));
        }
        Some(Start { id, kind: Arc::clone(&target.identity.0), timeout, lane, lateness })
    }

    /// Leaves the place of a flying target, so that its slot is free; it waits, for ever until it is rearmed.
    fn free_slot(&mut self, id: TargetId) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        let Place::Flying { lane, .. } = target.place else { return };
        target.place = Place::Waiting(Moment::NEVER);
        self.in_flight[lane as usize] -= 1;
        let Some(endpoint) = target.identity.0.endpoint().cloned() else { return };
        if let Some(busy) = self.destinations.get_mut(&endpoint) {
            *busy -= 1;
            if *busy == 0 {
                self.destinations.remove(&endpoint);
            }
        }
        while let Some(next) = self.blocked.get_mut(&endpoint).and_then(VecDeque::pop_front) {
            if let Some(waiting) = self.targets.get(&next) {
                self.lanes[waiting.lane as usize].push_front(next);
                break;
            }
        }
        if self.blocked.get(&endpoint).is_some_and(VecDeque::is_empty) {
            self.blocked.remove(&endpoint);
        }
    }
}

impl Target {
    /// Where it lies in a spread, from 0 to 1.
    fn part(&self) -> f64 {
        (self.phase >> 11) as f64 / (1u64 << 53) as f64
    }

    fn interval(&self) -> Duration {
        self.subscribers.iter().map(|(_, t)| t.interval).min().unwrap_or(Duration::MAX)
    }

    fn longest_gap(&self) -> Duration {
        self.subscribers.iter().map(|(_, t)| t.longest_gap).min().unwrap_or(Duration::MAX)
    }

    /// When newcomers are asked for, where the next run is planned for `due`.
    fn due_for_newcomers(&mut self, due: Moment, now: Moment) -> Moment {
        let Some(started) = self.started else { return due.min(now) };
        let interval = self.interval();
        let in_turn = due.min((started + interval).max(now));
        let soon = (started + NEWCOMER_SPACING).max(now);
        let spent = self.out_of_turn.is_some_and(|last| now.since(last) < interval);
        if spent || in_turn <= soon {
            return in_turn;
        }
        self.out_of_turn = Some(soon);
        soon
    }

    /// When it is asked on request, where the next run is planned for `due`.
    fn due_on_request(&self, due: Moment, now: Moment) -> Moment {
        let soon = self.started.map_or(now, |started| (started + REQUEST_SPACING).max(now));
        due.min(soon)
    }

    /// The next start: half a period to one and a half after the last one, on the grid, if the windows bear that.
    fn next_start(&self, period: Duration, last: Moment) -> Moment {
        // A run out of turn takes the place of the next one.
        let out_of_turn =
            self.out_of_turn.is_some_and(|out| out <= last && last.since(out) < NEWCOMER_SPACING);
        if period < self.interval() || out_of_turn {
            return last + period;
        }
        let step = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1);
        let phase = (self.phase % step.unsigned_abs()) as i64;
        let half = Duration::from_nanos(step.unsigned_abs() / 2);
        let after = (last + half).as_nanos() - phase;
        let slot = Moment::from_nanos((after.div_euclid(step) + 1) * step + phase);
        let noise = hash(&(self.phase, self.rounds)) as f64 / u64::MAX as f64 * 2.0 - 1.0;
        let moved = period.mul_f64(JITTER * noise.abs());
        let slot = if noise < 0.0 { slot - moved } else { slot + moved };
        slot.min(last + self.longest_gap().mul_f64(0.95).max(period))
    }
}

fn hash(what: &impl Hash) -> u64 {
    // The keys are fixed, so that phases are the same after a restart.
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
