//! Ten thousand targets, played through in virtual time: when they are asked, and what becomes of the living when half are dead.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
};

use super::*;
use crate::core::schedule::{Lane, MAX_IN_FLIGHT, MAX_NEW_IN_FLIGHT, PATIENCE};

const CROWD: u16 = 10_000;
const ANSWERS_AFTER: Duration = Duration::from_millis(50);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A registry whose runs land after a time that the test chooses; what dies does not answer at all.
struct Crowd {
    registry: Registry,
    landing: BinaryHeap<Reverse<(Moment, TargetId, usize, bool)>>,
    /// Which run of each target is in flight.
    flying: HashMap<TargetId, usize>,
    most_in_flight: usize,
    yielded: usize,
    begun: Vec<Begun>,
    flips: Vec<(Moment, ToolKey)>,
}

/// A run that began.
struct Begun {
    at: Moment,
    port: u16,
    lane: Lane,
    lateness: Duration,
}

impl Crowd {
    /// `count` tools with a target each, its port their number; all registered at once.
    fn of(count: u16) -> Self {
        let mut registry = Registry::new(Defaults::default());
        for port in 0..count {
            let spec = spec(&format!("t{port}"), "", &[tcp(port)]);
            let stored = StoredTool {
                key: key(&spec.name.to_string()),
                spec: spec.into(),
                spec_hash: "".into(),
                owner: "owner".into(),
                generation: 1,
                from_manifest: false,
                approved: None,
                create_time_ms: 0,
                update_time_ms: 0,
            };
            registry.put(stored.into(), [], |_, _| ProbeState::pending(), at(0.0));
        }
        let (landing, flying) = (BinaryHeap::new(), HashMap::new());
        let (begun, flips) = (Vec::new(), Vec::new());
        Self { registry, landing, flying, most_in_flight: 0, yielded: 0, begun, flips }
    }

    /// Plays until `end`. `lives` says whether the target of a port answers a run that begins at a moment.
    fn play(&mut self, end: f64, lives: impl Fn(u16, Moment) -> bool) {
        loop {
            let landing = self.landing.peek().map(|Reverse((moment, ..))| *moment);
            let next = [self.registry.next_due(), landing, self.registry.next_window_end()];
            let Some(now) = next.into_iter().flatten().min().filter(|now| *now < at(end)) else { return };
            self.land(now);
            let (happenings, _) = self.registry.end_windows(now);
            self.flips.extend(happenings.into_iter().filter(|h| h.flipped).map(|h| (now, h.key)));
            self.start(now, &lives);
        }
    }

    fn land(&mut self, now: Moment) {
        while let Some(&Reverse((moment, id, number, passes))) = self.landing.peek()
            && moment <= now
        {
            self.landing.pop();
            if self.flying.get(&id) != Some(&number) {
                continue;
            }
            self.flying.remove(&id);
            let outcome = if passes { Outcome::Pass } else { Outcome::error(ErrorClass::Timeout, "silence") };
            let heard = self.registry.landed(id, &run(outcome), now);
            self.flips.extend(heard.into_iter().filter(|h| h.flipped).map(|h| (now, h.key)));
        }
    }

    fn start(&mut self, now: Moment, lives: impl Fn(u16, Moment) -> bool) {
        for id in self.registry.make_room(now) {
            assert!(self.flying.remove(&id).is_some(), "only what is in flight yields");
            self.yielded += 1;
        }
        for Start { id, kind, timeout, lane, lateness } in self.registry.start_due(now) {
            let ProbeKind::Tcp(TcpProbe { address: HostPort { port, .. } }) = *kind else { unreachable!() };
            let number = self.begun.len();
            assert!(self.flying.insert(id, number).is_none(), "two runs of one target at once");
            self.begun.push(Begun { at: now, port, lane, lateness });
            let passes = lives(port, now);
            let takes = if passes { ANSWERS_AFTER } else { timeout };
            self.landing.push(Reverse((now + takes, id, number, passes)));
        }
        self.most_in_flight = self.most_in_flight.max(self.flying.len());
    }

    /// What the owner does when it notices that it stood still: runs in flight say nothing, and everything is asked.
    fn wake(&mut self, now: f64, spread: Duration) {
        for (id, _) in std::mem::take(&mut self.flying) {
            self.registry.abandon(id, at(now));
        }
        self.landing.clear();
        self.registry.sweep(at(now), spread);
    }

    fn begun_within(&self, from: f64, to: f64) -> impl Iterator<Item = &Begun> {
        self.begun.iter().filter(move |begun| begun.at >= at(from) && begun.at < at(to))
    }

    /// Asserts that no tenth of a second has more than twice as many starts as the mean, and gives the mean.
    fn assert_spread(&self, from: f64, to: f64) -> f64 {
        let mut bins = vec![0u32; ((to - from) * 10.0).round() as usize];
        for begun in self.begun_within(from, to) {
            bins[(begun.at.since(at(from)).as_millis() / 100) as usize] += 1;
        }
        let mean = f64::from(bins.iter().sum::<u32>()) / bins.len() as f64;
        let peak = f64::from(*bins.iter().max().unwrap());
        assert!(peak <= 2.0 * mean, "{from} to {to} s: mean {mean}, peak {peak}");
        mean
    }

    /// The lateness that all but one in a hundred of these starts keep.
    fn lateness_p99<'a>(begun: impl Iterator<Item = &'a Begun>) -> Duration {
        let mut all: Vec<Duration> = begun.map(|begun| begun.lateness).collect();
        assert!(all.len() > 100, "{} starts", all.len());
        all.sort_unstable();
        all[all.len() * 99 / 100]
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.registry.iter().filter(|(_, entry)| entry.state.verdict() == verdict).count()
    }
}

#[test]
fn ten_thousand_that_come_at_once_are_asked_as_slots_allow_and_then_spread() {
    let mut crowd = Crowd::of(CROWD);
    crowd.play(35.0, |_, _| true);
    // The slots of newcomers, 50 ms each, are the only bound of the first round.
    let first: Vec<&Begun> = crowd.begun_within(0.0, 4.0).collect();
    assert_eq!(first.len(), usize::from(CROWD));
    assert!(first.iter().all(|begun| begun.lane == Lane::New && begun.lateness <= S));
    assert_eq!(crowd.most_in_flight, MAX_NEW_IN_FLIGHT);
    // The first round's end and the grid overlap until 16 s; from there on it is the grid alone.
    crowd.assert_spread(6.0, 16.0);
    let mean = crowd.assert_spread(16.0, 35.0);
    assert!((97.0..103.0).contains(&mean), "{mean}");
    assert!(crowd.begun_within(4.0, 35.0).all(|begun| begun.lateness == Duration::ZERO));
    assert_eq!(crowd.count(Verdict::Available), usize::from(CROWD));
}

#[test]
fn an_hour_has_as_many_runs_as_intervals() {
    let mut crowd = Crowd::of(100);
    crowd.play(3_620.0, |_, _| true);
    for port in 0..100 {
        let starts: Vec<Moment> = crowd.begun.iter().filter(|b| b.port == port).map(|b| b.at).collect();
        let (early, late) = (starts[1], *starts.last().unwrap());
        let rounds = (starts.len() - 2) as f64;
        let drift = late.since(early).as_secs_f64() - rounds * 10.0;
        assert!(rounds >= 359.0 && drift.abs() <= 0.5, "{port}: {rounds} rounds, {drift} s off");
    }
}

#[test]
fn half_of_all_may_die_and_the_living_are_asked_on_time() {
    let mut crowd = Crowd::of(CROWD);
    let dies = |port: u16, now: Moment| port % 2 == 1 && now >= at(20.0);
    // One of the living loses a packet while all the slots for the doubtful are taken.
    let unlucky = 4_242;
    let loses = |port: u16, now: Moment| port == unlucky && now >= at(34.0) && now < at(44.5);
    crowd.play(20.0, |_, _| true);
    crowd.play(80.0, |port, now| !dies(port, now) && !loses(port, now));
    let living = |from, to| crowd.begun_within(from, to).filter(|b| b.lane == Lane::Live && b.port % 2 == 0);
    // While it is found out who is dead, runs that hang yield their slots to the living.
    let meanwhile = living(20.0, 45.0).map(|begun| begun.lateness).max().unwrap();
    assert!(meanwhile <= PATIENCE, "{meanwhile:?}");
    assert!(crowd.yielded > 0);
    let p99 = Crowd::lateness_p99(living(45.0, 80.0));
    assert!(p99 <= MILLISECOND, "{p99:?}");
    assert!(living(45.0, 80.0).count() > 5_000 * 3);
    // All the dead are found out in 48 s (30 s of grace, and then two runs of 3 s each in 768 slots), and none of the living is taken for dead, the unlucky one included.
    let wrong = crowd.flips.iter().find(|(moment, key)| *moment > at(20.0) && number(key).is_multiple_of(2));
    assert!(wrong.is_none(), "{wrong:?}");
    assert!(crowd.flips.iter().all(|(moment, _)| *moment < at(68.0)));
    assert_eq!(crowd.count(Verdict::Unavailable), usize::from(CROWD) / 2);
    assert!(crowd.most_in_flight <= MAX_IN_FLIGHT);
}

#[test]
fn a_crowd_of_dead_newcomers_delays_neither_the_living_nor_live_newcomers_for_long() {
    let mut crowd = Crowd::of(CROWD);
    crowd.play(60.0, |port, _| port % 2 == 0);
    // 512 slots, half of them for a second and half for 50 ms.
    let firsts = crowd.begun.iter().filter(|begun| begun.lane == Lane::New);
    let (count, last) = firsts.fold((0, Moment::START), |(n, last), begun| (n + 1, last.max(begun.at)));
    assert_eq!(count, usize::from(CROWD), "each once");
    assert!(last < at(12.0), "{last:?}");
    let living = crowd.begun.iter().filter(|begun| begun.lane == Lane::Live);
    assert!(Crowd::lateness_p99(living) <= MILLISECOND);
    assert_eq!(crowd.count(Verdict::Available), usize::from(CROWD) / 2);
    assert_eq!(crowd.count(Verdict::Unavailable), usize::from(CROWD) / 2);
}

#[test]
fn after_a_stall_of_a_minute_everybody_is_asked_once_spread_and_nothing_flips() {
    stand_still(60.0);
}

#[test]
fn after_a_sleep_of_an_hour_everybody_is_asked_once_spread_and_nothing_flips() {
    stand_still(3_600.0);
}

fn stand_still(stood: f64) {
    let mut crowd = Crowd::of(CROWD);
    crowd.play(20.0, |_, _| true);
    crowd.flips.clear();
    let woke = 20.0 + stood;
    crowd.wake(woke, 3 * S);
    // The owner ends no window until the sweep is over: play the landings alone.
    while let Some(due) = crowd.registry.next_due().filter(|due| *due < at(woke + 3.0)) {
        let landing = crowd.landing.peek().map_or(due, |Reverse((moment, ..))| (*moment).min(due));
        crowd.land(landing);
        crowd.start(landing, |_, _| true);
    }
    crowd.land(at(woke + 3.1));
    let asked: HashSet<u16> = crowd.begun_within(woke, woke + 3.1).map(|begun| begun.port).collect();
    let starts = crowd.begun_within(woke, woke + 3.1).count();
    assert_eq!((asked.len(), starts), (usize::from(CROWD), usize::from(CROWD)), "once each");
    crowd.assert_spread(woke, woke + 3.0);
    crowd.play(woke + 40.0, |_, _| true);
    assert!(crowd.flips.is_empty(), "{:?}", crowd.flips.first());
    crowd.assert_spread(woke + 18.0, woke + 38.0);
}

#[test]
fn a_late_turn_is_not_the_targets_fault() {
    // All pass at first, and then nobody gets a slot: its windows are stretched for as long as it waits.
    let mut crowd = Crowd::of(64);
    crowd.play(5.0, |_, _| true);
    crowd.registry.sweep(at(20.0), Duration::ZERO);
    for id in crowd.registry.target_ids().collect::<Vec<_>>() {
        crowd.registry.excuse(id, at(29.0));
    }
    let (ended, _) = crowd.registry.end_windows(at(32.9));
    assert!(ended.is_empty(), "timeout and a second are granted: {}", ended.len());
    let (ended, _) = crowd.registry.end_windows(at(33.1));
    assert_eq!(ended.len(), 64, "and no more");
}

fn number(key: &ToolKey) -> u16 {
    key.name.to_string()[1..].parse().unwrap()
}

#[test]
fn after_a_stall_too_short_to_ask_everything_anew_what_was_missed_is_asked_spread() {
    for late in [0.3, 1.0, 1.99] {
        let mut crowd = Crowd::of(CROWD);
        crowd.play(30.0, |_, _| true);
        crowd.flips.clear();
        let woke = 30.0 + late;
        crowd.registry.was_late(Duration::from_secs_f64(late), at(woke));
        crowd.land(at(woke));
        crowd.play(woke + 20.0, |_, _| true);
        assert!(crowd.flips.is_empty(), "{:?}", crowd.flips.first());
        crowd.assert_spread(woke, woke + 20.0);
        // Nobody is left out, and how late it was is told.
        let asked: HashSet<u16> = crowd.begun_within(woke, woke + 10.5).map(|begun| begun.port).collect();
        assert_eq!(asked.len(), usize::from(CROWD));
        let latest = crowd
            .begun_within(woke, woke + 10.0)
            .map(|begun| begun.lateness.as_secs_f64())
            .fold(0.0, f64::max);
        assert!((late..=3.0 * late + 0.01).contains(&latest), "{late}: {latest}");
    }
}
