//! Registration, fences and windows of whole tools.

use super::{plan::*, *};
use crate::core::{
    policy::Disabled,
    probe::{ErrorClass, HostPort, ProbeSpec, TcpProbe},
    tool::ToolSpec,
};

const S: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Moment {
    Moment::from_nanos((seconds * 1e9) as i64)
}

fn key(name: &str) -> ToolKey {
    ToolKey { namespace: Namespace::default(), name: ToolName::parse(name).unwrap() }
}

fn tcp(port: u16) -> ProbeKind {
    ProbeKind::Tcp(TcpProbe { address: HostPort { host: "target".into(), port } })
}

fn spec(name: &str, description: &str, kinds: &[ProbeKind]) -> ToolSpec {
    let probe =
        |(i, kind): (usize, &ProbeKind)| ProbeSpec { name: format!("p{i}").into(), kind: kind.clone() };
    ToolSpec {
        description: description.into(),
        probes: kinds.iter().enumerate().map(probe).collect(),
        ..ToolSpec::new(ToolName::parse(name).unwrap())
    }
}

fn wanted(spec: ToolSpec, owner: &str) -> Registration {
    Registration {
        namespace: Namespace::default(),
        spec_hash: format!("{}|{}|{:?}", spec.name, spec.description, spec.probes).into(),
        spec: Arc::new(spec),
        mapped_names: Vec::new(),
        owner: owner.into(),
        overwrite: false,
        force: false,
        from_manifest: false,
    }
}

mod crowd;
mod expiry;
mod labels;
mod model;

struct World {
    registry: Registry,
    generation: u64,
}

impl World {
    fn new() -> Self {
        Self { registry: Registry::new(Defaults::default()), generation: 0 }
    }

    fn write<T>(&mut self, now: Moment, act: impl FnOnce(&mut Plan<'_>) -> T) -> (T, Vec<TargetId>) {
        let mut plan = Plan::new(&self.registry, self.generation, 1_000);
        let answer = act(&mut plan);
        let planned = plan.finish();
        self.generation = planned.generation;
        let mut cancelled = Vec::new();
        for (key, change) in planned.changes {
            cancelled.extend(match change {
                Some((tool, mapped)) => self.registry.put(tool, mapped, |_, _| ProbeState::pending(), now),
                None => self.registry.remove(&key),
            });
        }
        (answer, cancelled)
    }

    fn register(&mut self, wanted: Registration, now: Moment) -> Result<Registered, Refusal> {
        self.write(now, |plan| plan.register(wanted).map(|(result, _)| result)).0
    }

    fn verdict(&self, name: &str) -> Verdict {
        self.registry.get(&key(name)).unwrap().state.verdict()
    }
}

fn run(outcome: Outcome) -> Run {
    Run { outcome, duration: S, address: None }
}

fn replacing(wanted: Registration) -> Registration {
    Registration { overwrite: true, ..wanted }
}

#[test]
fn who_may_register_what() {
    use Registered::*;
    let base = || spec("search", "v1", &[]);
    let other = || spec("search", "v2", &[]);
    let mut labelled = base();
    labelled.labels.insert("team".into(), "x".into());
    let code = |r: &Result<Registered, Refusal>| match r {
        Ok(result) => format!("{result:?}"),
        Err(Refusal::AlreadyExists { owner, difference, .. }) => format!("exists: {owner}, {difference}"),
        Err(Refusal::OwnerMismatch { owner, caller, .. }) => format!("mismatch: {owner}, {caller}"),
        Err(other) => format!("{other}"),
    };
    let forced = |w: Registration| Registration { overwrite: true, force: true, ..w };
    for (again, expected, keeps_generation) in [
        (wanted(base(), "a"), format!("{Unchanged:?}"), true),
        (wanted(labelled, "a"), format!("{Replaced:?}"), true),
        (wanted(other(), "a"), "exists: a, a different spec".into(), true),
        (replacing(wanted(other(), "a")), format!("{Replaced:?}"), false),
        (wanted(base(), "b"), "exists: a, the same spec".into(), true),
        (wanted(other(), "b"), "exists: a, a different spec".into(), true),
        (replacing(wanted(other(), "b")), "mismatch: a, b".into(), true),
        (forced(wanted(base(), "b")), format!("{Replaced:?}"), false),
    ] {
        let mut world = World::new();
        assert_eq!(world.register(wanted(base(), "a"), at(0.0)), Ok(Created));
        let before = world.registry.get(&key("search")).unwrap().stored.generation;
        let label = format!("{again:?}");
        let result = world.register(again, at(1.0));
        assert_eq!(code(&result), expected, "{label}");
        let after = world.registry.get(&key("search")).unwrap().stored.generation;
        assert_eq!(after == before, keeps_generation, "{label}");
    }
}

#[test]
fn generations_never_repeat_for_a_name() {
    let mut world = World::new();
    let mut seen = BTreeSet::new();
    for round in 0..5 {
        world.register(wanted(spec("t", "x", &[]), "a"), at(f64::from(round))).unwrap();
        assert!(seen.insert(world.registry.get(&key("t")).unwrap().stored.generation));
        world.write(at(0.5), |plan| plan.unregister(&key("t"), "a", false));
    }
}

#[test]
fn identical_registration_during_a_run_keeps_it() {
    let mut world = World::new();
    world.register(wanted(spec("t", "x", &[tcp(1)]), "a"), at(0.0)).unwrap();
    let start = world.registry.start_due(at(0.0)).remove(0);
    let (_, cancelled) = world.write(at(0.1), |plan| plan.register(wanted(spec("t", "x", &[tcp(1)]), "a")));
    assert!(cancelled.is_empty());
    world.registry.landed(start.id, &run(Outcome::Pass), at(0.2));
    assert_eq!(world.verdict("t"), Verdict::Available);
}

#[test]
fn a_late_pass_of_the_old_spec_does_not_show_the_new_one() {
    let mut world = World::new();
    world.register(wanted(spec("t", "v1", &[tcp(1)]), "a"), at(0.0)).unwrap();
    let old = world.registry.start_due(at(0.0)).remove(0);
    world.registry.landed(old.id, &run(Outcome::Pass), at(0.1));
    world.registry.request(&key("t"), at(1.2)).unwrap();
    let old = world.registry.start_due(at(1.2)).remove(0);
    let replacement = replacing(wanted(spec("t", "v2", &[tcp(1)]), "a"));
    let (_, cancelled) = world.write(at(1.3), |plan| plan.register(replacement));
    assert_eq!(cancelled, [old.id], "the run of the old spec is cancelled");
    assert_eq!(world.verdict("t"), Verdict::Pending, "nothing is inherited");
    world.registry.landed(old.id, &run(Outcome::Pass), at(1.4));
    assert_eq!(world.verdict("t"), Verdict::Pending, "the late result is dropped");
    let new = world.registry.start_due(at(1.4));
    assert_eq!(new.len(), 1, "the new one is asked at once");
}

#[test]
fn a_late_pass_of_a_shared_run_does_not_count_for_a_replaced_tool() {
    let mut world = World::new();
    for name in ["t", "u"] {
        world.register(wanted(spec(name, "v1", &[tcp(1)]), "a"), at(0.0)).unwrap();
    }
    let shared = world.registry.start_due(at(0.0)).remove(0);
    let replacement = replacing(wanted(spec("t", "v2", &[tcp(1)]), "a"));
    let (_, cancelled) = world.write(at(0.1), |plan| plan.register(replacement));
    assert!(cancelled.is_empty(), "another tool still wants the run");
    world.registry.landed(shared.id, &run(Outcome::Pass), at(0.2));
    assert_eq!((world.verdict("t"), world.verdict("u")), (Verdict::Pending, Verdict::Available));
}

#[test]
fn unregistered_and_registered_again_hears_nothing_of_before() {
    let mut world = World::new();
    world.register(wanted(spec("t", "x", &[tcp(1)]), "a"), at(0.0)).unwrap();
    let old = world.registry.start_due(at(0.0)).remove(0);
    let (gone, cancelled) = world.write(at(0.1), |plan| plan.unregister(&key("t"), "a", false));
    assert_eq!((gone, cancelled), (Unregistered::Gone, vec![old.id]));
    world.register(wanted(spec("t", "x", &[tcp(1)]), "a"), at(0.2)).unwrap();
    world.registry.landed(old.id, &run(Outcome::Pass), at(0.3));
    assert_eq!(world.verdict("t"), Verdict::Pending);
}

#[test]
fn a_window_that_ends_flips_the_tool_without_any_result() {
    let mut world = World::new();
    world.register(wanted(spec("t", "x", &[tcp(1)]), "a"), at(0.0)).unwrap();
    let start = world.registry.start_due(at(0.0)).remove(0);
    world.registry.landed(start.id, &run(Outcome::Pass), at(0.0));
    assert_eq!(world.registry.next_window_end(), Some(at(30.0)));
    // The next run starts and never comes back.
    world.registry.start_due(at(15.5));
    assert!(world.registry.end_windows(at(29.9)).0.is_empty());
    let (happened, held_up) = world.registry.end_windows(at(30.0));
    assert_eq!((happened.len(), happened[0].flipped, held_up), (1, true, false));
    assert_eq!(world.verdict("t"), Verdict::Unavailable);
    assert_eq!(world.registry.next_window_end(), None);
}

#[test]
fn a_probe_that_waits_for_a_slot_does_not_go_stale() {
    let mut world = World::new();
    for n in 0..40 {
        let mut slow = spec(&format!("t{n}"), "x", &[tcp(1)]);
        slow.windows.timeout = Some(S * (n + 1));
        slow.windows.interval = Some(S * 60);
        slow.windows.ttl = Some(S * 200);
        slow.windows.grace = Some(S * 200);
        world.register(wanted(slow, &format!("owner {n}")), at(0.0)).unwrap();
    }
    let mut flying: Vec<Start> = world.registry.start_due(at(0.0));
    while let Some(start) = flying.pop() {
        world.registry.landed(start.id, &run(Outcome::Pass), at(0.0));
        flying.extend(world.registry.start_due(at(0.0)));
    }
    world.registry.sweep(at(150.0), Duration::ZERO);
    assert_eq!(world.registry.start_due(at(150.0)).len(), 16, "the destination's cap binds");
    let (happened, held_up) = world.registry.end_windows(at(200.0));
    assert!(held_up);
    assert_eq!(happened.len(), 16, "only those that really got no answer");
}

#[test]
fn reports_count_and_are_fenced() {
    let mut world = World::new();
    world.register(wanted(spec("t", "x", &[ProbeKind::Report, tcp(1)]), "a"), at(0.0)).unwrap();
    world.register(wanted(spec("two", "x", &[ProbeKind::Report, ProbeKind::Report]), "a"), at(0.0)).unwrap();
    let generation = world.registry.get(&key("t")).unwrap().stored.generation;
    let report = |name: &str, probe: &str, generation| Report {
        key: key(name),
        probe: probe.into(),
        outcome: Outcome::Pass,
        ttl: None,
        generation,
    };
    let mut send = |r: Report| world.registry.report(r, at(1.0)).map(|h| h.effect);
    assert_eq!(send(report("t", "", Some(generation))), Ok(Effect::Up));
    assert_eq!(send(report("t", "p0", None)), Ok(Effect::Quiet));
    assert!(matches!(send(report("t", "p1", None)), Err(Refusal::NotAReportProbe { kind: "tcp", .. })));
    assert!(matches!(send(report("t", "p9", None)), Err(Refusal::ProbeNotFound { .. })));
    assert!(matches!(send(report("nope", "", None)), Err(Refusal::ToolNotFound { .. })));
    assert!(matches!(send(report("two", "", None)), Err(Refusal::Invalid(_))));
    assert!(matches!(
        send(report("t", "p0", Some(generation + 1))),
        Err(Refusal::StaleGeneration { current, .. }) if current == generation
    ));
}

#[test]
fn clear_spares_the_manifest_and_other_owners() {
    let mut world = World::new();
    for (name, owner, from_manifest) in
        [("a1", "a", false), ("a2", "a", false), ("b1", "b", false), ("m", "a", true)]
    {
        let registration = Registration { from_manifest, ..wanted(spec(name, "x", &[]), owner) };
        world.register(registration, at(0.0)).unwrap();
    }
    let denied = world.write(at(1.0), |plan| plan.unregister(&key("m"), "a", true)).0;
    assert_eq!(denied, Unregistered::Denied);
    assert_eq!(world.write(at(1.0), |plan| plan.unregister(&key("b1"), "a", false)).0, Unregistered::Denied);
    assert_eq!(world.write(at(1.0), |plan| plan.clear(&Namespace::default(), Some("a"))).0, 2);
    assert_eq!(world.write(at(1.0), |plan| plan.clear(&Namespace::default(), None)).0, 1);
    let left: Vec<_> = world.registry.iter().map(|(key, _)| key.name.to_string()).collect();
    assert_eq!(left, ["m"]);
    let gone = world.write(at(2.0), |plan| plan.retain_manifest(&BTreeSet::new())).0;
    assert_eq!(gone, [key("m")]);
    assert_eq!(world.registry.count(&Namespace::default()), 0);
}

#[test]
fn calls_do_not_change_the_manifests_tools() {
    let mut world = World::new();
    let declared = Registration { from_manifest: true, ..wanted(spec("m", "x", &[]), "a") };
    world.register(declared.clone(), at(0.0)).unwrap();
    let labelled = ToolSpec { labels: [("k".into(), "v".into())].into(), ..spec("m", "x", &[]) };
    let table = [
        ("identical, by its owner", wanted(spec("m", "x", &[]), "a"), Ok(Registered::Unchanged)),
        ("its owner", wanted(spec("m", "y", &[]), "a"), Err(true)),
        ("its owner, other labels", wanted(labelled, "a"), Err(true)),
        ("somebody", wanted(spec("m", "x", &[]), "b"), Err(true)),
        ("the manifest, again", declared, Ok(Registered::Unchanged)),
    ];
    for (what, wanted, expected) in table {
        let wanted = Registration { overwrite: true, force: true, ..wanted };
        let result = world.register(wanted, at(1.0));
        let result = result.map_err(|refusal| matches!(refusal, Refusal::DeclaredTool { .. }));
        assert_eq!(result, expected, "{what}");
        assert!(world.registry.get(&key("m")).unwrap().stored.from_manifest, "{what}");
    }
    let changed = Registration { overwrite: true, from_manifest: true, ..wanted(spec("m", "y", &[]), "a") };
    assert_eq!(world.register(changed, at(2.0)).unwrap(), Registered::Replaced);

    // The manifest takes over what its owner registered by a call before.
    world.register(wanted(spec("n", "x", &[]), "a"), at(3.0)).unwrap();
    let taken = Registration { from_manifest: true, ..wanted(spec("n", "x", &[]), "a") };
    assert_eq!(world.register(taken, at(4.0)).unwrap(), Registered::Replaced);
    assert!(world.registry.get(&key("n")).unwrap().stored.from_manifest);
}

#[test]
fn a_name_that_equals_anothers_mapped_one_is_refused() {
    let mapped = |name: &str, mapped: &str| Registration {
        mapped_names: vec![mapped.into()],
        ..wanted(spec(name, "x", &[]), "a")
    };
    let mut world = World::new();
    world.register(mapped("my.tool", "my_tool_12345678"), at(0.0)).unwrap();
    let clash = world.register(wanted(spec("my_tool_12345678", "x", &[]), "a"), at(0.0)).unwrap_err();
    assert!(clash.to_string().contains("my.tool"), "{clash}");
    world.register(wanted(spec("other_1", "x", &[]), "a"), at(0.0)).unwrap();
    assert!(world.register(mapped("other.1", "other_1"), at(0.0)).is_err());
    // Two tools that formats would show under one name.
    assert!(world.register(mapped("my-tool.", "my_tool_12345678"), at(0.0)).is_err());
    world.register(mapped("my.tool", "my_tool_12345678"), at(0.0)).unwrap();
    let both = world.write(at(0.0), |plan| {
        (
            plan.register(mapped("x.y", "x_y")).is_ok(),
            plan.register(wanted(spec("x_y", "x", &[]), "a")).is_ok(),
        )
    });
    assert_eq!(both.0, (true, false), "inside one batch as well");
    world.write(at(1.0), |plan| plan.unregister(&key("my.tool"), "a", false));
    assert!(world.register(wanted(spec("my_tool_12345678", "x", &[]), "a"), at(2.0)).is_ok());
}

#[test]
fn errors_of_a_shared_probe_hit_each_tool_by_its_own_windows() {
    let mut world = World::new();
    world.register(wanted(spec("short", "x", &[tcp(1)]), "a"), at(0.0)).unwrap();
    let mut long = spec("long", "x", &[tcp(1)]);
    long.windows.grace = Some(S * 100);
    world.register(wanted(long, "a"), at(0.0)).unwrap();
    let start = world.registry.start_due(at(0.0)).remove(0);
    world.registry.landed(start.id, &run(Outcome::Pass), at(0.0));
    world.registry.sweep(at(50.0), Duration::ZERO);
    let start = world.registry.start_due(at(50.0)).remove(0);
    let counted =
        world.registry.landed(start.id, &run(Outcome::error(ErrorClass::Timeout, "timeout")), at(50.0));
    assert_eq!(counted.len(), 2);
    assert_eq!((world.verdict("short"), world.verdict("long")), (Verdict::Unavailable, Verdict::Available));
}
