//! The schedule under a clock of plain numbers.

use super::*;
use crate::core::{
    name::{Namespace, ToolName},
    probe::TcpProbe,
};

const S: Duration = Duration::from_secs(1);
const TERMS: Terms =
    Terms { interval: Duration::from_secs(10), timeout: S, longest_gap: Duration::from_secs(27) };

fn at(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as i64)
}

fn subscriber(n: usize) -> Subscriber {
    let key =
        ToolKey { namespace: Namespace::default(), name: ToolName::parse(&format!("tool-{n}")).unwrap() };
    Subscriber { key, generation: 1, probe: 0 }
}

fn tcp(port: u16) -> ProbeKind {
    ProbeKind::Tcp(TcpProbe { address: HostPort { host: "target".into(), port } })
}

fn owner() -> Arc<str> {
    "owner".into()
}

/// Runs everything that is due until `end`, each run taking `took`; gives the starts.
fn play(schedule: &mut Schedule, took: Duration, end: Moment) -> Vec<(Moment, TargetId)> {
    let mut starts = Vec::new();
    let mut landing: VecDeque<(Moment, TargetId)> = VecDeque::new();
    loop {
        let due = schedule.next_due().filter(|d| *d < end);
        let lands = landing.front().map(|l| l.0).filter(|l| *l < end);
        let Some(now) = [due, lands].into_iter().flatten().min() else { return starts };
        while landing.front().is_some_and(|l| l.0 <= now) {
            let (_, id) = landing.pop_front().unwrap();
            schedule.landed(id).expect("it was in flight");
            schedule.rearm(id, 10 * S, Lane::Live, now);
        }
        for start in schedule.start_due(now) {
            assert!(!landing.iter().any(|(_, id)| *id == start.id), "two runs of one target at once");
            starts.push((now, start.id));
            landing.push_back((now + took, start.id));
        }
    }
}

#[test]
fn a_first_probe_is_due_at_once_and_the_next_ones_keep_their_grid() {
    let mut schedule = Schedule::default();
    schedule.attach(subscriber(0), &tcp(1), &owner(), TERMS, at(3.0));
    let starts = play(&mut schedule, S / 20, at(3_603.0));
    assert_eq!(starts[0].0, at(3.0));
    let gaps: Vec<f64> = starts.windows(2).map(|w| w[1].0.since(w[0].0).as_secs_f64()).collect();
    assert!((5.0..=15.3).contains(&gaps[0]), "the first gap finds the grid: {}", gaps[0]);
    assert!(gaps[1..].iter().all(|g| (9.5..=10.5).contains(g)), "then +- 5 %: {gaps:?}");
    let mean = gaps[1..].iter().sum::<f64>() / (gaps.len() - 1) as f64;
    assert!((mean - 10.0).abs() < 0.005, "no drift over an hour: {mean}");
}

#[test]
fn tight_windows_are_never_missed() {
    let mut schedule = Schedule::default();
    let tight = Terms { longest_gap: Duration::from_millis(10_510), ..TERMS };
    for n in 0..200 {
        schedule.attach(subscriber(n), &tcp(n as u16 + 1), &owner(), tight, at(n as f64 / 7.0));
    }
    let starts = play(&mut schedule, S / 20, at(300.0));
    let mut last: HashMap<TargetId, Moment> = HashMap::new();
    for (now, id) in starts {
        if let Some(before) = last.insert(id, now) {
            assert!(now.since(before) <= tight.longest_gap, "gap {:?}", now.since(before));
        }
    }
}

#[test]
fn starts_of_many_targets_spread() {
    let mut schedule = Schedule::default();
    for n in 0..10_000 {
        schedule.attach(subscriber(n), &tcp(n as u16 + 1), &owner(), TERMS, at(0.0));
    }
    let starts = play(&mut schedule, S / 20, at(100.0));
    let mut bins = vec![0u32; 1_000];
    for (now, _) in &starts {
        bins[(now.as_nanos() / 100_000_000) as usize] += 1;
    }
    let steady = &bins[300..];
    let mean = f64::from(steady.iter().sum::<u32>()) / steady.len() as f64;
    let peak = f64::from(*steady.iter().max().unwrap());
    assert!((95.0..105.0).contains(&mean) && peak <= 2.0 * mean, "mean {mean}, peak {peak}");
}

#[test]
fn identical_probes_share_runs_and_many_newcomers_do_not_multiply_traffic() {
    let mut schedule = Schedule::default();
    // A thousand tools are registered one by one over two seconds.
    let (mut starts, mut ids) = (Vec::new(), Vec::new());
    for (range, until) in [(0..1, 0.1), (1..500, 1.1), (500..1_000, 102.0)] {
        for n in range {
            let now = at(f64::from(n) / 500.0 + 0.1 * f64::from(n.min(1)));
            ids.push(schedule.attach(subscriber(n as usize), &tcp(1), &owner(), TERMS, now));
        }
        starts.extend(play(&mut schedule, S / 20, at(until)));
    }
    assert!(ids.windows(2).all(|w| w[0] == w[1]));
    let first: Vec<f64> = starts.iter().take(3).map(|(t, _)| t.since(at(0.0)).as_secs_f64()).collect();
    assert!(first[0] == 0.0 && first[1] == 1.0, "newcomers are asked for after a second: {first:?}");
    assert!(first[2] >= 11.0, "which takes the place of the next turn: {first:?}");
    assert!(starts.len() <= 12, "{} hits: one an interval, one at the start, one out of turn", starts.len());
    let other = schedule.attach(subscriber(5_000), &tcp(1), &"somebody else".into(), TERMS, at(102.0));
    assert_ne!(other, ids[0], "owners do not share: one may not learn what another probes");
}

#[test]
fn all_tools_of_a_shared_target_may_be_replaced_without_a_long_wait() {
    let mut schedule = Schedule::default();
    let terms = |n: usize| Subscriber { generation: 2, ..subscriber(n) };
    let ids: Vec<_> =
        (0..20).map(|n| schedule.attach(subscriber(n), &tcp(1), &owner(), TERMS, at(0.0))).collect();
    play(&mut schedule, S / 20, at(65.0));
    for (n, id) in ids.iter().enumerate() {
        schedule.detach(*id, &subscriber(n));
        schedule.attach(terms(n), &tcp(1), &owner(), TERMS, at(65.0));
    }
    let due = schedule.next_due().unwrap();
    assert!(due <= at(66.0), "asked at once, not with the next turn: {due:?}");
}

#[test]
fn a_newcomer_during_a_run_waits_for_the_next_one() {
    let mut schedule = Schedule::default();
    let id = schedule.attach(subscriber(0), &tcp(1), &owner(), TERMS, at(0.0));
    schedule.start_due(at(0.0));
    schedule.attach(subscriber(1), &tcp(1), &owner(), TERMS, at(0.5));
    let heard = schedule.landed(id).unwrap().subscribers;
    assert_eq!(heard, [subscriber(0)]);
    schedule.rearm(id, 10 * S, Lane::Live, at(1.0));
    let due = schedule.next_due().unwrap();
    schedule.start_due(due);
    assert_eq!(schedule.landed(id).unwrap().subscribers, [subscriber(0), subscriber(1)]);
}

#[test]
fn detaching_the_last_subscriber_cancels_and_frees_the_slot() {
    let mut schedule = Schedule::default();
    let id = schedule.attach(subscriber(0), &tcp(1), &owner(), TERMS, at(0.0));
    schedule.attach(subscriber(1), &tcp(1), &owner(), TERMS, at(0.0));
    schedule.start_due(at(0.0));
    assert!(!schedule.detach(id, &subscriber(0)), "others share the run");
    assert!(schedule.detach(id, &subscriber(1)));
    assert!(schedule.landed(id).is_none(), "a late result lands nowhere");
    assert_eq!((schedule.in_flight, schedule.destinations.len(), schedule.targets.len()), ([0; 4], 0, 0));
    let again = schedule.attach(subscriber(0), &tcp(1), &owner(), TERMS, at(1.0));
    assert_ne!(again, id, "ids are never reused");
    assert_eq!(schedule.next_due(), Some(at(1.0)));
}

#[test]
fn caps_bind_and_neither_the_dead_nor_newcomers_starve_the_living() {
    let mut schedule = Schedule::default();
    let lane = |n: u16| match n {
        0..1_000 => Lane::Live,
        1_000..1_700 => Lane::Down,
        1_700..1_750 => Lane::Suspect,
        _ => Lane::New,
    };
    for n in 0..2_500u16 {
        let id = schedule.attach(subscriber(n.into()), &tcp(n + 1), &owner(), TERMS, at(0.0));
        // The living come half a second later.
        let due = at(if n < 1_000 { 0.5 } else { 0.0 });
        schedule.rearm(id, Duration::ZERO, lane(n), due);
    }
    let starts = schedule.start_due(at(0.0));
    // Suspects first, then newcomers, and the dead have the rest; a quarter is left to the living.
    assert_eq!(schedule.in_flight, [0, 50, MAX_NEW_IN_FLIGHT, 206]);
    assert_eq!(starts.len(), MAX_IN_FLIGHT - LIVE_RESERVE);
    assert!(schedule.is_held_up(TargetId(1_600)) && !schedule.is_held_up(TargetId(1_000)));
    assert_eq!(schedule.start_due(at(0.5)).len(), LIVE_RESERVE);
    // Whoever leaves makes place for one who lives.
    schedule.landed(starts[600].id);
    let next = schedule.start_due(at(0.75));
    assert_eq!((next.len(), next[0].lane, next[0].lateness), (1, Lane::Live, S / 4));
}

#[test]
fn a_first_run_is_short_and_its_timeout_is_no_answer() {
    let mut schedule = Schedule::default();
    let patient = Terms { timeout: 3 * S, ..TERMS };
    let id = schedule.attach(subscriber(0), &tcp(1), &owner(), patient, at(0.0));
    let first = schedule.start_due(at(0.0)).remove(0);
    assert_eq!((first.timeout, first.lane), (FIRST_TIMEOUT, Lane::New));
    // It did not answer in that time: again, at once, with all its time.
    assert!(schedule.retry(id, at(1.0)) && schedule.is_retried(id));
    let second = schedule.start_due(at(1.0)).remove(0);
    assert_eq!((second.timeout, second.lane), (3 * S, Lane::Down));
    assert!(!schedule.retry(id, at(4.0)), "this one counts");
    assert!(schedule.landed(id).is_some() && !schedule.is_retried(id));

    // No longer than its timeout is the first run either, and then it counts.
    let hasty = schedule.attach(subscriber(1), &tcp(2), &owner(), TERMS, at(5.0));
    assert_eq!(schedule.start_due(at(5.0)).remove(0).timeout, S);
    assert!(!schedule.retry(hasty, at(6.0)));
}

#[test]
fn one_destination_takes_a_bounded_number_of_runs() {
    let mut schedule = Schedule::default();
    for n in 0..40 {
        // Different probes of one host and port.
        schedule.attach(subscriber(n), &tcp(9), &format!("owner {n}").into(), TERMS, at(0.0));
    }
    let starts = schedule.start_due(at(0.0));
    assert_eq!(starts.len(), MAX_PER_DESTINATION);
    let mut total = starts.len();
    let mut flying: VecDeque<_> = starts.into_iter().map(|s| s.id).collect();
    while let Some(id) = flying.pop_front() {
        schedule.landed(id);
        schedule.rearm(id, 10 * S, Lane::Live, at(0.0));
        let more = schedule.start_due(at(0.0));
        total += more.len();
        flying.extend(more.into_iter().map(|s| s.id));
    }
    assert_eq!(total, 40, "all had their turn");
    assert_eq!((schedule.in_flight, schedule.destinations.len(), schedule.blocked.len()), ([0; 4], 0, 0));
}

#[test]
fn a_request_runs_now_and_a_sweep_asks_everybody_spread() {
    let mut schedule = Schedule::default();
    let id = schedule.attach(subscriber(0), &tcp(1), &owner(), TERMS, at(0.0));
    schedule.start_due(at(0.0));
    schedule.request(id, &subscriber(0), at(0.1));
    schedule.landed(id);
    schedule.rearm(id, 10 * S, Lane::Live, at(0.2));
    assert!(schedule.due(id).unwrap() > at(1.0), "the run in flight was shared");
    schedule.request(id, &subscriber(0), at(0.3));
    assert_eq!(
        schedule.next_due(),
        Some(at(1.0)),
        "a second after the last start, however often it is requested"
    );
    assert_eq!(schedule.start_due(at(1.0)).len(), 1);
    schedule.landed(id);
    schedule.rearm(id, 10 * S, Lane::Live, at(1.1));
    schedule.request(id, &subscriber(0), at(5.0));
    assert_eq!(schedule.next_due(), Some(at(5.0)));
    for n in 1..500 {
        schedule.attach(subscriber(n), &tcp(n as u16 + 1), &owner(), TERMS, at(5.0));
    }
    schedule.sweep(at(100.0), 2 * S);
    let dues: Vec<_> = schedule.targets.values().map(|t| t.place).collect();
    let late = |d: &&Place| matches!(d, Place::Waiting(due) if *due >= at(101.0));
    let half = dues.iter().filter(late).count();
    assert!((150..350).contains(&half), "spread over two seconds: {half} in the second half");
    assert!(dues.iter().all(|d| matches!(d, Place::Waiting(due) if *due >= at(100.0) && *due <= at(102.0))));
}
