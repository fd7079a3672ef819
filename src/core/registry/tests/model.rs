//! Random orders of registrations, replacements, removals, starts, late results, time and standstills, held against a small
//! model that knows only what was registered when, and which answers came for whom. Each verdict is found anew from the whole
//! history of answers.

use proptest::prelude::*;

use super::*;
use crate::core::availability::{FLAP_EDGES, FLAP_WINDOW, MAX_TRANSITIONS, Transition};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Pass,
    No,
    Error,
}

/// What a registration asks for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// Which targets it is probed at.
    first: u16,
    second: Option<u16>,
    ttl: u32,
    grace: u32,
    success: u32,
    failure: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Registers or replaces a tool.
    Register(usize, Wish),
    /// Registers a tool again as it is.
    Again(usize),
    Unregister(usize),
    Wait(u32),
    /// Everything stands still so long: what is in flight is given up, and all is asked anew.
    Standstill(u32),
    Start,
    Request(usize),
    /// Lets one of the runs in flight end, a cancelled one too: its result is late.
    Land(usize, Answer),
}

/// What the model knows of one tool.
struct Known {
    generation: u64,
    registration: Registration,
    wish: Wish,
    /// For each probe, the answers that count.
    answers: Vec<Vec<(u32, Answer)>>,
    turns: Vec<(u32, Verdict, Verdict)>,
    verdict: Verdict,
    flapping: bool,
}

impl Known {
    fn targets(&self) -> Vec<u16> {
        std::iter::once(self.wish.first).chain(self.wish.second).collect()
    }

    fn verdict(&self, now: u32) -> Verdict {
        let probes: Vec<Verdict> =
            self.answers.iter().map(|answers| probe(answers, now, &self.wish)).collect();
        let any = |verdict| probes.contains(&verdict);
        match () {
            () if any(Verdict::Unavailable) => Verdict::Unavailable,
            () if any(Verdict::Pending) => Verdict::Pending,
            () => Verdict::Available,
        }
    }

    fn flaps(&self, now: u32) -> bool {
        let edges = self.turns.iter().filter(|(at, from, to)| {
            *from != Verdict::Pending
                && *to != Verdict::Pending
                && u64::from(now - at) < FLAP_WINDOW.as_secs()
        });
        edges.count() > FLAP_EDGES
    }
}

/// The verdict of one probe, from all its answers.
fn probe(answers: &[(u32, Answer)], now: u32, wish: &Wish) -> Verdict {
    let mut verdict = Verdict::Pending;
    let mut good = 0;
    let mut ever = false;
    // The answers before this one do not count for a return.
    let mut down_at = 0;
    for i in 0..=answers.len() {
        let at = answers.get(i).map_or(now, |(at, _)| *at);
        let newest = i.checked_sub(1).map(|before| answers[before].1);
        let lasts = if newest == Some(Answer::Pass) { wish.ttl.max(wish.grace) } else { wish.grace };
        if verdict == Verdict::Available && at >= good + lasts {
            (verdict, down_at) = (Verdict::Unavailable, i);
        }
        let Some((_, answer)) = answers.get(i) else { return verdict };
        let covered = verdict == Verdict::Available && at < good + wish.grace;
        let since_pass = answers[..=i].iter().rev().take_while(|(_, a)| *a != Answer::Pass);
        let noes = since_pass.filter(|(_, a)| *a == Answer::No).count();
        let passes = answers[down_at..=i].iter().rev().take_while(|(_, a)| *a == Answer::Pass).count();
        let goes_down = match answer {
            Answer::Pass => {
                if verdict == Verdict::Available || !ever || passes >= wish.success as usize {
                    (verdict, good, ever) = (Verdict::Available, at, true);
                }
                false
            }
            Answer::No => !covered || noes >= wish.failure as usize,
            Answer::Error => !covered,
        };
        if goes_down {
            (verdict, down_at) = (Verdict::Unavailable, i + 1);
        }
    }
    verdict
}

fn wish() -> impl Strategy<Value = Wish> {
    let windows = prop_oneof![Just((30, 30)), Just((20, 45)), Just((50, 20))];
    (1u16..4, prop::option::of(1u16..4), windows, 1u32..4, 1u32..4).prop_map(
        |(first, second, (ttl, grace), success, failure)| Wish {
            first,
            second,
            ttl,
            grace,
            success,
            failure,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![4 => Just(Answer::Pass), 3 => Just(Answer::No), 2 => Just(Answer::Error)];
    prop_oneof![
        3 => (0usize..3, wish()).prop_map(|(tool, wish)| Step::Register(tool, wish)),
        2 => (0usize..3).prop_map(Step::Again),
        1 => (0usize..3).prop_map(Step::Unregister),
        12 => (0u32..12).prop_map(Step::Wait),
        1 => (3u32..2_000).prop_map(Step::Standstill),
        20 => Just(Step::Start),
        8 => (0usize..3).prop_map(Step::Request),
        30 => (any::<usize>(), answer).prop_map(|(run, answer)| Step::Land(run, answer)),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A tool, its generation, and one of its probes.
type Hearer = (&'static str, u64, usize);

/// The registry, the model, and what is in flight between them.
struct Both {
    world: World,
    known: BTreeMap<&'static str, Known>,
    /// Runs in flight, and the probes that hear of them.
    flying: Vec<(TargetId, Vec<Hearer>)>,
    now: u32,
    edition: u32,
    /// What the registry told of this step.
    told: Vec<Happening>,
}

impl Both {
    fn new() -> Self {
        let (known, flying) = (BTreeMap::new(), Vec::new());
        Self { world: World::new(), known, flying, now: 0, edition: 0, told: Vec::new() }
    }

    fn register(&mut self, name: &'static str, wish: Wish) {
        self.edition += 1;
        let kinds: Vec<ProbeKind> = std::iter::once(wish.first).chain(wish.second).map(tcp).collect();
        let mut spec = spec(name, &format!("edition {}", self.edition), &kinds);
        spec.windows.ttl = Some(S * wish.ttl);
        spec.windows.grace = Some(S * wish.grace);
        spec.windows.success_threshold = Some(wish.success);
        spec.windows.failure_threshold = Some(wish.failure);
        let registration = replacing(wanted(spec, "a"));
        self.world.register(registration.clone(), at(f64::from(self.now))).unwrap();
        let known = Known {
            generation: self.world.registry.get(&key(name)).unwrap().stored.generation,
            registration,
            wish,
            answers: vec![Vec::new(); kinds.len()],
            turns: Vec::new(),
            verdict: Verdict::Pending,
            flapping: false,
        };
        self.known.insert(name, known);
    }

    fn start(&mut self) {
        for start in self.world.registry.start_due(at(f64::from(self.now))) {
            let ProbeKind::Tcp(probe) = &*start.kind else { unreachable!() };
            let mut heard = Vec::new();
            for (name, known) in &self.known {
                for (index, target) in known.targets().into_iter().enumerate() {
                    if target == probe.address.port {
                        heard.push((*name, known.generation, index));
                    }
                }
            }
            assert!(self.flying.iter().all(|(id, _)| *id != start.id), "two runs of one target");
            self.flying.push((start.id, heard));
        }
    }

    fn land(&mut self, which: usize, answer: Answer) {
        if self.flying.is_empty() {
            return;
        }
        let (id, heard) = self.flying.swap_remove(which % self.flying.len());
        let outcome = match answer {
            Answer::Pass => Outcome::Pass,
            Answer::No => Outcome::no("PROBE_SAID_NO", "no"),
            Answer::Error => Outcome::error(ErrorClass::Connect, "refused"),
        };
        self.told.extend(self.world.registry.landed(id, &run(outcome), at(f64::from(self.now))));
        for (name, generation, index) in heard {
            if let Some(known) = self.known.get_mut(name).filter(|known| known.generation == generation) {
                known.answers[index].push((self.now, answer));
            }
        }
    }

    fn take(&mut self, step: Step) {
        let moment = at(f64::from(self.now));
        match step {
            Step::Register(tool, wish) => self.register(NAMES[tool], wish),
            Step::Again(tool) => {
                if let Some(known) = self.known.get(NAMES[tool]) {
                    let again = self.world.register(known.registration.clone(), moment);
                    assert_eq!(again, Ok(Registered::Unchanged));
                }
            }
            Step::Unregister(tool) => {
                self.world.write(moment, |plan| plan.unregister(&key(NAMES[tool]), "a", false));
                self.known.remove(NAMES[tool]);
            }
            Step::Wait(seconds) => self.now += seconds,
            Step::Standstill(seconds) => {
                self.now += seconds;
                let moment = at(f64::from(self.now));
                for (id, _) in self.flying.drain(..) {
                    self.world.registry.abandon(id, moment);
                }
                self.world.registry.sweep(moment, S);
            }
            Step::Start => self.start(),
            Step::Request(tool) => drop(self.world.registry.request(&key(NAMES[tool]), moment)),
            Step::Land(which, answer) => self.land(which, answer),
        }
        self.told.extend(self.world.registry.end_windows(at(f64::from(self.now))).0);
    }

    /// Holds the registry against the model.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let (now, moment) = (self.now, at(f64::from(self.now)));
        let told = std::mem::take(&mut self.told);
        for name in NAMES {
            let entry = self.world.registry.get(&key(name));
            prop_assert_eq!(entry.is_some(), self.known.contains_key(name), "{}", name);
            let (Some(entry), Some(known)) = (entry, self.known.get_mut(name)) else { continue };
            let (state, verdict) = (&entry.state, known.verdict(now));
            prop_assert_eq!(
                state.verdict(),
                verdict,
                "{} at {} s: {:?} {:?}",
                name,
                now,
                known.wish,
                known.answers
            );

            let turned = verdict != known.verdict;
            if turned {
                known.turns.push((now, known.verdict, verdict));
                known.verdict = verdict;
            }
            let of_it: Vec<&Happening> = told.iter().filter(|h| h.key == key(name)).collect();
            let flips = of_it.iter().filter(|h| h.flipped).count();
            prop_assert_eq!(flips, usize::from(turned), "one event for a change, none for none: {:?}", of_it);

            let flapping = known.flaps(now);
            prop_assert_eq!(state.is_flapping(), flapping, "{} at {} s: {:?}", name, now, known.turns);
            let began = of_it.iter().any(|h| h.flaps);
            prop_assert_eq!(began, flapping && !known.flapping, "{:?}", of_it);
            let calmed = of_it.iter().any(|h| h.effect == Effect::Calmed);
            prop_assert_eq!(calmed, known.flapping && !flapping && !turned, "{:?}", of_it);
            known.flapping = flapping;

            let newest = &known.turns[known.turns.len().saturating_sub(MAX_TRANSITIONS)..];
            let expected: Vec<_> =
                newest.iter().map(|(t, from, to)| (at(f64::from(*t)), *from, *to)).collect();
            let turn = |t: &Transition| (t.at, t.from, t.to);
            prop_assert_eq!(state.transitions().iter().map(turn).collect::<Vec<_>>(), expected);
            for turn in state.transitions().iter() {
                prop_assert_eq!(turn.cause.is_some(), turn.to == Verdict::Unavailable);
            }
            for probe in &state.probes {
                let covers = |success: Moment| moment.since(success) < entry.windows.grace;
                prop_assert!(!probe.last_good() || probe.last_success().is_some_and(covers), "{:?}", probe);
            }
        }
        prop_assert!(self.world.registry.next_window_end().is_none_or(|end| end > moment));
        Ok(())
    }
}

proptest! {
    #[test]
    fn any_order_of_events_agrees_with_the_model(steps in prop::collection::vec(step(), 1..400)) {
        let mut both = Both::new();
        for step in steps {
            both.take(step);
            both.check()?;
        }
    }

    /// A tool that comes and goes all the time, so that marks and forgotten turns are reached.
    #[test]
    fn a_restless_tool_agrees_with_the_model(
        wish in wish(),
        rounds in prop::collection::vec((0u32..40, any::<bool>(), 1usize..4), 1..150),
    ) {
        let mut both = Both::new();
        both.take(Step::Register(0, Wish { second: None, ..wish }));
        for (wait, passes, times) in rounds {
            let answer = if passes { Answer::Pass } else { Answer::No };
            both.take(Step::Wait(wait));
            both.check()?;
            for _ in 0..times {
                for step in [Step::Wait(1), Step::Request(0), Step::Start, Step::Land(0, answer)] {
                    both.take(step);
                    both.check()?;
                }
            }
        }
    }
}
