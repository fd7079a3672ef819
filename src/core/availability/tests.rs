//! The seeds' table, the edges around it, and a model that random histories are held against.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::core::tool::GivenWindows;

const S: Duration = Duration::from_secs(1);

fn windows() -> Windows {
    let (success_threshold, failure_threshold) = (1, 1);
    Windows {
        interval: 10 * S,
        timeout: 3 * S,
        ttl: 30 * S,
        grace: 30 * S,
        success_threshold,
        failure_threshold,
    }
}

fn at(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as i64)
}

fn run(outcome: Outcome) -> Run {
    Run { outcome, duration: Duration::ZERO, address: None }
}

fn pass() -> Run {
    run(Outcome::Pass)
}

fn no() -> Run {
    run(Outcome::no("PROBE_SAID_NO", "quota used up"))
}

fn error() -> Run {
    run(Outcome::error(ErrorClass::Connect, "connection refused"))
}

/// A step of a table: what happens when, and what must hold after it.
type Step = (f64, Option<Run>, Effect, Verdict);

fn play(name: &str, w: &Windows, steps: Vec<Step>) -> ProbeState {
    let mut probe = ProbeState::pending();
    for (t, event, effect, verdict) in steps {
        let now = at(t);
        let got = match event {
            Some(result) => probe.result(result, None, now, w),
            None => probe.tick(now, w),
        };
        assert_eq!((got, probe.verdict()), (effect, verdict), "{name}: at {t} s");
    }
    probe
}

#[test]
fn the_seeds_table() {
    use Effect::*;
    use Verdict::*;
    let w = windows();
    let p = play("returns true", &w, vec![(0.0, Some(pass()), Up, Available)]);
    assert_eq!(p.last_success(), Some(at(0.0)));
    play("returns false", &w, vec![(0.0, Some(no()), SaidNo, Unavailable)]);
    play("raises, no success ever", &w, vec![(0.0, Some(error()), Failed, Unavailable)]);
    let p = play(
        "raises within the grace of a success",
        &w,
        vec![(0.0, Some(pass()), Up, Available), (12.0, Some(error()), LastGood, Available)],
    );
    assert!(p.last_good());
    play(
        "raises after the grace",
        &w,
        vec![
            (0.0, Some(pass()), Up, Available),
            (12.0, Some(error()), LastGood, Available),
            (30.0, Some(error()), Failed, Unavailable),
        ],
    );
}

#[test]
fn exactly_at_the_boundary_a_window_is_over() {
    use Effect::*;
    use Verdict::*;
    let w = windows();
    for (t, effect, verdict) in [(29.999_999_999, LastGood, Available), (30.0, Failed, Unavailable)] {
        play(
            "error at the end of the grace",
            &w,
            vec![(0.0, Some(pass()), Up, Available), (t, Some(error()), effect, verdict)],
        );
    }
    for (t, effect, verdict) in [(29.999_999_999, Quiet, Available), (30.0, Failed, Unavailable)] {
        let p = play(
            "no result at all",
            &w,
            vec![(0.0, Some(pass()), Up, Available), (t, None, effect, verdict)],
        );
        assert_eq!(p.trouble().map(|(class, _)| *class), (t >= 30.0).then_some(Some(ErrorClass::Stale)));
    }
}

#[test]
fn an_error_after_a_no_does_not_bring_the_tool_back() {
    use Effect::*;
    use Verdict::*;
    play(
        "pass, no, error",
        &windows(),
        vec![
            (0.0, Some(pass()), Up, Available),
            (1.0, Some(no()), SaidNo, Unavailable),
            (2.0, Some(error()), Quiet, Unavailable),
            (3.0, None, Quiet, Unavailable),
        ],
    );
}

#[test]
fn a_window_ends_with_no_result_at_all() {
    use Effect::*;
    use Verdict::*;
    let w = windows();
    let p = play(
        "grace",
        &w,
        vec![(0.0, Some(pass()), Up, Available), (12.0, Some(error()), LastGood, Available)],
    );
    assert_eq!(p.window_end(&w), Some(at(30.0)));
    let short_ttl = Windows { ttl: 15 * S, ..w };
    play(
        "ttl ends inside the grace: last-good; then the grace ends",
        &short_ttl,
        vec![
            (0.0, Some(pass()), Up, Available),
            (14.9, None, Quiet, Available),
            (15.0, None, LastGood, Available),
            (29.9, None, Quiet, Available),
            (30.0, None, Failed, Unavailable),
        ],
    );
    let long_ttl = Windows { ttl: 60 * S, ..w };
    play(
        "a grace shorter than the ttl matters only after an error",
        &long_ttl,
        vec![
            (0.0, Some(pass()), Up, Available),
            (40.0, None, Quiet, Available),
            (41.0, Some(error()), Failed, Unavailable),
        ],
    );
}

#[test]
fn one_passing_probe_never_keeps_a_dead_one() {
    let w = windows();
    let mut tool = ToolState::new(vec![ProbeState::pending(), ProbeState::pending()], at(0.0));
    assert_eq!(tool.verdict(), Verdict::Pending);
    tool.probes[0].result(pass(), None, at(0.0), &w);
    assert!(!tool.settle(0, at(0.0)), "the second probe was never asked");
    tool.probes[1].result(pass(), None, at(1.0), &w);
    assert!(tool.settle(1, at(1.0)));
    for t in 1..=40 {
        let now = at(f64::from(t) + 1.0);
        tool.probes[0].result(pass(), None, now, &w);
        tool.probes[1].result(error(), None, now, &w);
        tool.settle(1, now);
        let expected = if t < 30 { Verdict::Available } else { Verdict::Unavailable };
        assert_eq!(tool.verdict(), expected, "{t} s after the second probe's success");
    }
    assert_eq!(tool.culprit(), Some(1), "the reason names the dead one");
}

#[test]
fn after_a_restart_a_young_success_covers_and_an_old_one_does_not() {
    let w = windows();
    for (age, verdict) in [(0.0, Verdict::Available), (29.9, Verdict::Available), (30.0, Verdict::Pending)] {
        let p = ProbeState::restored(at(-age), None, at(0.0), &w);
        assert_eq!(p.verdict(), verdict, "age {age}");
    }
    let mut p = ProbeState::restored(at(-20.0), None, at(0.0), &w);
    assert_eq!(p.window_end(&w), Some(at(10.0)));
    assert_eq!(p.tick(at(10.0), &w), Effect::Failed);
    let report = ProbeState::restored(at(-40.0), Some(60 * S), at(0.0), &w);
    assert_eq!((report.verdict(), report.window_end(&w)), (Verdict::Available, Some(at(20.0))));
    let short = ProbeState::restored(at(-10.0), Some(5 * S), at(0.0), &w);
    assert_eq!(
        (short.verdict(), short.window_end(&w)),
        (Verdict::Available, Some(at(20.0))),
        "its grace covers"
    );
}

#[test]
fn cadence_is_fast_in_the_grace_and_slows_down_when_long_down() {
    let w = windows();
    let mut p = ProbeState::pending();
    p.result(pass(), None, at(0.0), &w);
    assert_eq!(p.cadence(at(0.0), w.interval), 10 * S);
    p.result(error(), None, at(10.0), &w);
    assert_eq!(p.cadence(at(10.0), w.interval), FAST_INTERVAL);
    p.result(no(), None, at(20.0), &w);
    assert_eq!(p.cadence(at(199.9), w.interval), 10 * S);
    let slowed: Vec<_> = (0..5).map(|i| p.cadence(at(200.0 + f64::from(i)), w.interval)).collect();
    assert_eq!(slowed, [15.0, 22.5, 30.0, 30.0, 30.0].map(Duration::from_secs_f64));
    assert_eq!(p.clone().cadence(at(300.0), 60 * S), 60 * S, "never faster than a slow interval");
    p.result(pass(), None, at(400.0), &w);
    p.result(no(), None, at(410.0), &w);
    assert_eq!(p.cadence(at(411.0), w.interval), 10 * S, "an edge resets");
}

#[test]
fn windows_are_derived() {
    let secs = |i: u64, t: u64, l: u64, g: u64| Windows {
        interval: Duration::from_secs(i),
        timeout: Duration::from_millis(t),
        ttl: Duration::from_secs(l),
        grace: Duration::from_secs(g),
        ..windows()
    };
    let given = |i: u64| GivenWindows { interval: Some(Duration::from_secs(i)), ..Default::default() };
    for (given, expected) in [
        (GivenWindows::default(), secs(10, 3_000, 30, 30)),
        (given(1), secs(1, 500, 30, 30)),
        (given(4), secs(4, 2_000, 30, 30)),
        (given(60), secs(60, 3_000, 180, 180)),
        (
            GivenWindows { ttl: Some(45 * S), grace: Some(15 * S), ..Default::default() },
            secs(10, 3_000, 45, 15),
        ),
    ] {
        assert_eq!(Windows::derive(&given, &Defaults::default()), Ok(expected), "{given:?}");
    }
}

#[test]
fn windows_that_do_not_fit_are_refused_by_name() {
    let given =
        GivenWindows { ttl: Some(Duration::from_millis(13_500)), grace: Some(S), ..Default::default() };
    let faults = Windows::derive(&given, &Defaults::default()).unwrap_err();
    let texts: Vec<_> = faults.iter().map(|f| (f.field.as_str(), f.message.as_str())).collect();
    assert_eq!(
        texts,
        [
            ("ttl", "ttl 13s 500ms must exceed 1.05 x interval 10s + timeout 3s = 13s 500ms"),
            ("grace", "grace 1s must exceed 1.05 x interval 10s + timeout 3s = 13s 500ms"),
        ]
    );
    let just = GivenWindows { ttl: Some(Duration::from_millis(13_501)), ..given };
    assert_eq!(Windows::derive(&just, &Defaults::default()).unwrap_err().len(), 1);
    assert!(Defaults { ttl: 13 * S, ..Defaults::default() }.check().is_err());
    assert!(Defaults::default().check().is_ok());
    let (clamped, text) = Windows::clamp(&just, &Defaults::default());
    assert_eq!(clamped.grace, 33 * S);
    assert_eq!(text.as_deref(), Some("grace 1s -> 33s"));
}

#[test]
fn a_failure_threshold_puts_the_edge_off_within_the_grace() {
    use Effect::*;
    use Verdict::*;
    let w = Windows { failure_threshold: 3, ..windows() };
    let p = play(
        "the third no, whatever errors come between",
        &w,
        vec![
            (0.0, Some(pass()), Up, Available),
            (10.0, Some(no()), LastGood, Available),
            (12.0, Some(error()), LastGood, Available),
            (14.0, Some(no()), LastGood, Available),
            (16.0, Some(no()), SaidNo, Unavailable),
            (17.0, Some(error()), Quiet, Unavailable),
        ],
    );
    assert_eq!((p.last_success(), p.noes()), (None, 3));
    play(
        "a pass starts the count anew",
        &w,
        vec![
            (0.0, Some(pass()), Up, Available),
            (1.0, Some(no()), LastGood, Available),
            (2.0, Some(no()), LastGood, Available),
            (3.0, Some(pass()), Quiet, Available),
            (4.0, Some(no()), LastGood, Available),
            (5.0, Some(no()), LastGood, Available),
            (6.0, Some(no()), SaidNo, Unavailable),
        ],
    );
    let p = play(
        "the grace bounds it, with no result needed",
        &w,
        vec![
            (0.0, Some(pass()), Up, Available),
            (10.0, Some(no()), LastGood, Available),
            (29.9, None, Quiet, Available),
            (30.0, None, Failed, Unavailable),
        ],
    );
    assert_eq!(p.trouble().map(|(class, why)| (*class, &*why.reason)), Some((None, "PROBE_SAID_NO")));
    let long_ttl = Windows { ttl: 60 * S, ..w };
    play(
        "a no when the grace is over hides at once",
        &long_ttl,
        vec![(0.0, Some(pass()), Up, Available), (40.0, Some(no()), SaidNo, Unavailable)],
    );
    play("who was never available has nothing to keep", &w, vec![(0.0, Some(no()), SaidNo, Unavailable)]);
}

#[test]
fn a_success_threshold_puts_the_return_off() {
    use Effect::*;
    use Verdict::*;
    let w = Windows { success_threshold: 3, ..windows() };
    play(
        "the very first pass is enough, whatever came before it",
        &w,
        vec![(0.0, Some(error()), Failed, Unavailable), (1.0, Some(pass()), Recovered, Available)],
    );
    let mut p = play(
        "then three in a row",
        &w,
        vec![
            (0.0, Some(pass()), Up, Available),
            (1.0, Some(no()), SaidNo, Unavailable),
            (2.0, Some(pass()), Quiet, Unavailable),
            (3.0, Some(pass()), Quiet, Unavailable),
            (4.0, Some(error()), Quiet, Unavailable),
            (5.0, Some(pass()), Quiet, Unavailable),
            (6.0, Some(no()), Quiet, Unavailable),
            (7.0, Some(pass()), Quiet, Unavailable),
            (8.0, Some(pass()), Quiet, Unavailable),
        ],
    );
    assert!(p.recovers() && p.last_success().is_none(), "a pass that does not count yet covers nothing");
    assert_eq!(p.cadence(at(8.0), w.interval), FAST_INTERVAL);
    assert_eq!(p.result(pass(), None, at(9.0), &w), Recovered);
    assert_eq!((p.verdict(), p.last_success(), p.consecutive_passes()), (Available, Some(at(9.0)), 3));
    let mut p = ProbeState::restored(at(-10.0), None, at(0.0), &w);
    p.result(no(), None, at(1.0), &w);
    assert_eq!(p.result(pass(), None, at(2.0), &w), Quiet, "it was available before the restart");
}

fn flip(tool: &mut ToolState, up: bool, now: Moment) {
    tool.probes[0].result(if up { pass() } else { no() }, None, now, &windows());
    tool.settle(0, now);
}

#[test]
fn more_than_six_edges_in_ten_minutes_is_flapping_until_it_is_over() {
    let mut tool = ToolState::new(vec![ProbeState::pending()], at(0.0));
    for i in 0..=6 {
        assert!(!tool.is_flapping(), "after the first result and {i} edges less one");
        flip(&mut tool, i % 2 == 0, at(f64::from(i) * 10.0));
    }
    assert!(!tool.is_flapping(), "the first result is no edge: these are six");
    flip(&mut tool, true, at(65.0));
    assert!(!tool.is_flapping(), "no flip");
    flip(&mut tool, false, at(70.0));
    assert!(tool.is_flapping());
    assert_eq!(tool.flap_end(), Some(at(610.0)), "ten minutes after the first of the seven");
    assert!(!tool.calm(at(609.9)) && tool.is_flapping());
    assert!(tool.calm(at(610.0)) && !tool.is_flapping());
    assert!(!tool.calm(at(611.0)), "once");
    flip(&mut tool, true, at(611.0));
    assert!(tool.is_flapping(), "the edge at 20 s counts until 620 s");
    assert_eq!(tool.flap_end(), Some(at(620.0)));
}

#[test]
fn the_newest_turns_are_remembered_with_their_causes() {
    let mut tool = ToolState::new(vec![ProbeState::pending()], at(0.0));
    for i in 0..50 {
        flip(&mut tool, i % 2 == 0, at(f64::from(i)));
    }
    let turns = tool.transitions();
    assert_eq!(turns.len(), MAX_TRANSITIONS);
    assert_eq!((turns[0].at, turns[31].at), (at(18.0), at(49.0)));
    let Transition { from, to, cause, .. } = &turns[31];
    assert_eq!((*from, *to), (Verdict::Available, Verdict::Unavailable));
    assert_eq!(cause.as_ref().map(|(class, why)| (*class, &*why.message)), Some((None, "quota used up")));
    assert_eq!(turns[30].cause, None);
}

/// The rules again, written from the table and sharing nothing: a history is replayed from its beginning for each question.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pass,
    No,
    Error,
}

fn model(history: &[(u64, Event)], now: u64, ttl: u64, grace: u64) -> Verdict {
    let Some(&(newest_at, newest)) = history.last() else { return Verdict::Pending };
    let after_last_no = history.iter().rposition(|(_, e)| matches!(e, Event::No)).map_or(0, |i| i + 1);
    let covering =
        history[after_last_no..].iter().rev().find(|(_, e)| matches!(e, Event::Pass)).map(|(t, _)| *t);
    // A tool that went down inside a gap between results stays down until the next PASS.
    let Some(success) = covering else { return Verdict::Unavailable };
    let usable = match newest {
        Event::Pass => now < newest_at + ttl || now < success + grace,
        _ => now < success + grace,
    };
    if usable { Verdict::Available } else { Verdict::Unavailable }
}

proptest! {
    #[test]
    fn any_history_agrees_with_the_model(
        steps in prop::collection::vec((0u64..25, prop_oneof![Just(Event::Pass), Just(Event::No), Just(Event::Error)], any::<bool>()), 1..60),
        ttl in 14u64..60,
        grace in 14u64..60,
    ) {
        let w = Windows { ttl: ttl as u32 * S, grace: grace as u32 * S, ..windows() };
        let mut probe = ProbeState::pending();
        let mut history = Vec::new();
        let mut now = 0;
        for (wait, event, tick_first) in steps {
            now += wait;
            let moment = at(now as f64);
            if tick_first {
                while probe.window_end(&w).is_some_and(|end| end <= moment) {
                    probe.tick(moment, &w);
                }
                prop_assert_eq!(probe.verdict(), model(&history, now, ttl, grace), "tick at {} of {:?}", now, history);
            }
            let result = match event { Event::Pass => pass(), Event::No => no(), Event::Error => error() };
            probe.result(result, None, moment, &w);
            history.push((now, event));
            prop_assert_eq!(probe.verdict(), model(&history, now, ttl, grace), "result at {} of {:?}", now, history);
            prop_assert!(probe.window_end(&w).is_none_or(|end| end > moment));
        }
    }
}
