//! Random orders of registrations, replacements, removals, starts, late results and time, held against a small model that
//! knows only what was registered when, and which answers came for whom.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Answer {
    Pass,
    No,
    Error,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Registers or replaces a tool: its name, and which of two targets it is probed at.
    Register(usize, u16),
    Unregister(usize),
    Wait(u32),
    Start,
    /// Lets one of the runs in flight end, a cancelled one too: its result is late.
    Land(usize, Answer),
}

/// What the model knows of one tool.
struct Known {
    generation: u64,
    target: u16,
    answers: Vec<(u32, Answer)>,
}

impl Known {
    fn verdict(&self, now: u32) -> Verdict {
        let Some(&(at, newest)) = self.answers.last() else { return Verdict::Pending };
        // The last PASS with no NO after it.
        let success = self.answers.iter().rev().take_while(|(_, a)| !matches!(a, Answer::No));
        let success = success.filter(|(_, a)| matches!(a, Answer::Pass)).map(|(t, _)| *t).next();
        let fresh = matches!(newest, Answer::Pass) && now < at + 30;
        let covered = success.is_some_and(|t| now < t + 30);
        if fresh || covered { Verdict::Available } else { Verdict::Unavailable }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![3 => Just(Answer::Pass), 1 => Just(Answer::No), 2 => Just(Answer::Error)];
    prop_oneof![
        2 => (0usize..3, 1u16..3).prop_map(|(tool, target)| Step::Register(tool, target)),
        1 => (0usize..3).prop_map(Step::Unregister),
        3 => (0u32..20).prop_map(Step::Wait),
        4 => Just(Step::Start),
        4 => (any::<usize>(), answer).prop_map(|(run, answer)| Step::Land(run, answer)),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_agrees_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let names = ["a", "b", "c"];
        let mut world = World::new();
        let mut known: BTreeMap<&str, Known> = BTreeMap::new();
        let mut flying: Vec<(TargetId, Vec<(&str, u64)>)> = Vec::new();
        let mut now = 0u32;
        let mut edition = 0u32;
        for step in steps {
            let moment = at(f64::from(now));
            match step {
                Step::Register(tool, target) => {
                    edition += 1;
                    let spec = spec(names[tool], &format!("edition {edition}"), &[tcp(target)]);
                    world.register(replacing(wanted(spec, "a")), moment).unwrap();
                    let generation = world.registry.get(&key(names[tool])).unwrap().stored.generation;
                    known.insert(names[tool], Known { generation, target, answers: Vec::new() });
                }
                Step::Unregister(tool) => {
                    world.write(moment, |plan| plan.unregister(&key(names[tool]), "a", false));
                    known.remove(names[tool]);
                }
                Step::Wait(seconds) => now += seconds,
                Step::Start => {
                    for start in world.registry.start_due(moment) {
                        let ProbeKind::Tcp(probe) = &*start.kind else { unreachable!() };
                        let of = known.iter().filter(|(_, k)| k.target == probe.address.port);
                        let heard = of.map(|(name, k)| (*name, k.generation)).collect();
                        prop_assert!(flying.iter().all(|(id, _)| *id != start.id), "two runs of one target");
                        flying.push((start.id, heard));
                    }
                }
                Step::Land(run_index, answer) => {
                    if flying.is_empty() {
                        continue;
                    }
                    let (id, heard) = flying.swap_remove(run_index % flying.len());
                    let outcome = match answer {
                        Answer::Pass => Outcome::Pass,
                        Answer::No => Outcome::no("PROBE_SAID_NO", "no"),
                        Answer::Error => Outcome::error(ErrorClass::Timeout, "late"),
                    };
                    world.registry.landed(id, &run(outcome), moment);
                    for (name, generation) in heard {
                        if let Some(k) = known.get_mut(name).filter(|k| k.generation == generation) {
                            k.answers.push((now, answer));
                        }
                    }
                }
            }
            let moment = at(f64::from(now));
            world.registry.end_windows(moment);
            for name in names {
                let verdict = world.registry.get(&key(name)).map(|e| e.state.verdict());
                prop_assert_eq!(verdict, known.get(name).map(|k| k.verdict(now)), "{} at {} s", name, now);
            }
            prop_assert!(world.registry.next_window_end().is_none_or(|end| end > moment));
        }
    }
}
