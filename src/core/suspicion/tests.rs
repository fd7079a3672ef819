//! When the prober suspects itself, and when no more.

use super::*;

fn at(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as i64)
}

fn place(n: u16) -> HostPort {
    HostPort { host: "target".into(), port: n + 1 }
}

fn id(n: u16) -> TargetId {
    TargetId::for_tests(n.into())
}

/// So many destinations, all answering at 0 s.
fn answering(count: u16) -> Suspect {
    let mut suspect = Suspect::default();
    for n in 0..count {
        suspect.heard(&place(n), id(n), false, false, at(0.0));
    }
    suspect
}

#[test]
fn five_and_half_of_those_heard_of_turn_at_once() {
    for (all, turn, apart, expected) in [
        (4, 4, 0.1, None),
        (5, 5, 0.1, Some((5, 5))),
        (10, 5, 0.1, Some((5, 10))),
        (11, 5, 0.1, None),
        (9, 9, 3.7, Some((5, 5))),
        // Less than five within 15 s.
        (9, 9, 3.8, None),
    ] {
        let mut suspect = answering(all);
        let mut began = None;
        for n in 0..all {
            let now = at(1.0 + f64::from(n) * apart);
            suspect.heard(&place(n), id(n), n < turn, false, now);
            began = began.or_else(|| suspect.tick(false, now));
        }
        let told = suspect.suspicion().map(|s| (s.turned, s.of));
        let label = format!("{turn} of {all}, {apart} s apart");
        assert_eq!(told.is_some(), expected.is_some(), "{label}: {told:?}");
        assert_eq!(began.is_some(), expected.is_some(), "{label}");
        if apart < 1.0 {
            assert_eq!(told, expected, "{label}");
        }
    }
}

#[test]
fn what_never_answered_does_not_turn_but_after_a_start() {
    for (from_nothing, expected) in [(false, None), (true, Some(News::Began))] {
        let mut suspect = Suspect::default();
        for n in 0..6 {
            suspect.heard(&place(n), id(n), true, from_nothing, at(1.0));
        }
        assert_eq!(suspect.tick(false, at(1.0)), expected, "{from_nothing}");
    }
}

#[test]
fn one_destination_of_many_targets_turns_with_the_last_of_them() {
    let mut suspect = Suspect::default();
    for n in 0..10 {
        suspect.heard(&place(0), id(n), false, false, at(0.0));
    }
    for n in 0..10 {
        suspect.heard(&place(0), id(n), true, false, at(1.0));
    }
    assert_eq!(suspect.tick(false, at(1.0)), None, "it is one");
    let mut suspect = answering(5);
    for n in 0..5 {
        suspect.heard(&place(n), id(100 + n), true, false, at(1.0));
    }
    assert_eq!(suspect.tick(false, at(1.0)), None, "another path of each answers");
}

fn suspecting() -> Suspect {
    let mut suspect = answering(6);
    for n in 0..6 {
        suspect.heard(&place(n), id(n), true, false, at(1.0));
    }
    assert_eq!(suspect.tick(false, at(1.0)), Some(News::Began));
    assert!(suspect.wants_canary(at(1.0)) && !suspect.wants_canary(at(5.9)) && suspect.wants_canary(at(6.0)));
    suspect
}

/// When it ends, if looked at once a second.
fn end(suspect: &mut Suspect, operators: bool, until: u32) -> Option<u32> {
    (2..until).find(|second| suspect.tick(operators, at(f64::from(*second))) == Some(News::Ended))
}

#[test]
fn it_ends_by_itself_once_the_cause_is_gone() {
    // Turned at 1 s: at once until 16 s, then gone for 30 s.
    let mut down = suspecting();
    down.canary(true);
    assert_eq!(end(&mut down, true, 1_000), Some(46), "the operator's canary answers: they are really down");
    assert!(down.suspicion().is_none() && !down.wants_canary(at(1_000.0)));

    let mut cut_off = suspecting();
    cut_off.canary(true);
    assert_eq!(end(&mut cut_off, false, 1_000), None, "our own port tells nothing of the network");
    cut_off.heard(&place(3), id(3), false, false, at(1_000.0));
    let ended = (1_000..2_000).find(|s| cut_off.tick(false, at(f64::from(*s))).is_some());
    assert_eq!(ended, Some(1_030), "one that answers does");

    let mut broken = suspecting();
    broken.canary(false);
    broken.heard(&place(3), id(3), false, false, at(2.0));
    assert_eq!(end(&mut broken, true, 1_000), None, "the canary does not answer");
    assert!(broken.canary(true) && !broken.canary(true), "news once");
    assert!((1_000..1_100).any(|s| broken.tick(true, at(f64::from(s))) == Some(News::Ended)));

    let mut gone = suspecting();
    gone.canary(true);
    for n in 0..6 {
        gone.forget(id(n));
    }
    assert_eq!(end(&mut gone, false, 1_000), Some(32), "nothing is left that could answer");
}
