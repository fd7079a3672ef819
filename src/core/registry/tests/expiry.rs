//! Tools that go by themselves.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn short_lived(name: &str) -> ToolSpec {
    ToolSpec { unregister_after: Some(MINUTE), ..spec(name, "x", &[ProbeKind::Report]) }
}

fn report(world: &mut World, name: &str, outcome: Outcome, now: Moment) {
    let report = Report { key: key(name), probe: String::new(), outcome, ttl: None, generation: None };
    world.registry.report(report, now).unwrap();
}

fn no() -> Outcome {
    Outcome::no("PROBE_SAID_NO", "no")
}

fn names(expired: &[Expired]) -> Vec<&str> {
    expired.iter().map(|expired| expired.key.name.as_str()).collect()
}

#[test]
fn only_what_is_unavailable_without_a_break_goes() {
    let mut world = World::new();
    for name in ["no", "pending", "back", "available"] {
        world.register(wanted(short_lived(name), "a"), at(0.0)).unwrap();
    }
    world.register(wanted(spec("for_ever", "x", &[ProbeKind::Report]), "a"), at(0.0)).unwrap();
    let declared = Registration { from_manifest: true, ..wanted(short_lived("declared"), "a") };
    world.register(declared, at(0.0)).unwrap();
    report(&mut world, "available", Outcome::Pass, at(0.0));
    for name in ["no", "back", "for_ever", "declared"] {
        report(&mut world, name, no(), at(1.0));
        report(&mut world, name, Outcome::error(ErrorClass::Reported, "e"), at(2.0));
    }
    report(&mut world, "back", Outcome::Pass, at(50.0));
    report(&mut world, "back", no(), at(51.0));
    assert_eq!(world.registry.next_expiry(), Some(at(61.0)));
    assert!(world.registry.expired(at(60.9)).is_empty());
    let expired = world.registry.expired(at(61.0));
    assert_eq!(names(&expired), ["no"]);
    assert!(world.write(at(61.0), |plan| plan.expire(&expired[0])).0);
    assert!(world.registry.get(&key("no")).is_none());
    assert_eq!(names(&world.registry.expired(at(111.0))), ["back"]);
    world.registry.end_windows(at(111.0));
    assert_eq!(names(&world.registry.expired(at(141.0))), ["back"], "not gone: told again");
    assert_eq!(names(&world.registry.expired(at(171.0))), ["available", "back"], "silent since its TTL");
    world.write(at(172.0), |plan| plan.clear(&Namespace::default(), None));
    assert_eq!(world.registry.next_expiry(), None);
}

#[test]
fn the_time_is_counted_anew_where_little_was_seen() {
    let mut world = World::new();
    world.register(wanted(short_lived("t"), "a"), at(0.0)).unwrap();
    report(&mut world, "t", no(), at(0.0));
    world.registry.restart_expiries(at(59.0));
    assert_eq!(world.registry.next_expiry(), Some(at(119.0)));
    let off = Disabled { message: "mine".into(), since_ms: 0 };
    world.registry.access.set_switch(key("t"), Some(Arc::new(off)));
    assert!(world.registry.expired(at(119.0)).is_empty(), "disabled");
    assert_eq!(world.registry.next_expiry(), Some(at(179.0)));
    world.registry.access.set_switch(key("t"), None);
    world.registry.restart_expiry(&key("t"), at(130.0));
    assert!(world.registry.expired(at(189.9)).is_empty());
    assert_eq!(names(&world.registry.expired(at(190.0))), ["t"]);
    report(&mut world, "t", Outcome::Pass, at(191.0));
    world.registry.restart_expiries(at(192.0));
    assert_eq!(world.registry.next_expiry(), None, "it is available");
}

#[test]
fn what_became_of_it_meanwhile_saves_it() {
    type Change = fn(&mut World);
    let changes: [(&str, Change, bool); 5] = [
        ("nothing", |_| {}, true),
        ("it works", |world| report(world, "t", Outcome::Pass, at(60.0)), false),
        (
            "it came back and went",
            |world| {
                report(world, "t", Outcome::Pass, at(60.0));
                report(world, "t", no(), at(60.5));
            },
            false,
        ),
        (
            "it was replaced",
            |world| {
                let other = ToolSpec { description: "y".into(), ..short_lived("t") };
                world.register(replacing(wanted(other, "a")), at(60.0)).unwrap();
                report(world, "t", no(), at(60.0));
            },
            false,
        ),
        (
            "it was disabled",
            |world| {
                let off = Disabled { message: "".into(), since_ms: 0 };
                world.registry.access.set_switch(key("t"), Some(Arc::new(off)));
            },
            false,
        ),
    ];
    for (what, change, goes) in changes {
        let mut world = World::new();
        world.register(wanted(short_lived("t"), "a"), at(0.0)).unwrap();
        report(&mut world, "t", no(), at(0.0));
        let expired = world.registry.expired(at(60.0));
        assert_eq!(names(&expired), ["t"], "{what}");
        change(&mut world);
        assert_eq!(world.write(at(61.0), |plan| plan.expire(&expired[0])).0, goes, "{what}");
        assert_eq!(world.registry.get(&key("t")).is_none(), goes, "{what}");
    }
    let mut world = World::new();
    world.register(wanted(short_lived("t"), "a"), at(0.0)).unwrap();
    report(&mut world, "t", no(), at(0.0));
    let expired = world.registry.expired(at(60.0));
    let other = ToolSpec { description: "y".into(), ..short_lived("t") };
    let goes = world.write(at(61.0), |plan| {
        plan.register(replacing(wanted(other, "a"))).unwrap();
        plan.expire(&expired[0])
    });
    assert!(!goes.0, "replaced in the same commit");
}
