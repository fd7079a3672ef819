//! The labels that policies know a tool by, over all that owners, operators and the manifest do.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::core::{labels::Selector, policy::Rules};

type Labels = BTreeMap<String, String>;

/// What happens to the one tool.
#[derive(Clone, Debug)]
enum Step {
    Register { labels: Labels, owner: &'static str, edition: u8, from_manifest: bool },
    Approve,
    Unregister,
    ManifestDropsIt,
}

/// What the model knows of it.
#[derive(Debug)]
struct Known {
    now: Labels,
    approved: Labels,
    from_manifest: bool,
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn labelled(text: &str, edition: u8) -> ToolSpec {
    ToolSpec { labels: labels(text), ..spec("t", &format!("edition {edition}"), &[ProbeKind::Report]) }
}

fn approved(world: &World) -> Option<Labels> {
    world.registry.get(&key("t")).unwrap().stored.approved.as_deref().cloned()
}

#[test]
fn approved_labels_stay_until_an_operator_or_a_new_name() {
    let mut world = World::new();
    let over = |text: &str, edition, owner| Registration {
        overwrite: true,
        force: true,
        ..wanted(labelled(text, edition), owner)
    };
    world.register(over("team=mail", 1, "a"), at(0.0)).unwrap();
    assert_eq!(approved(&world), None, "a new tool's labels are its own");
    let first = world.registry.get(&key("t")).unwrap().stored.generation;
    let report =
        Report { key: key("t"), probe: String::new(), outcome: Outcome::Pass, ttl: None, generation: None };
    world.registry.report(report, at(0.0)).unwrap();

    world.register(over("team=search", 1, "a"), at(1.0)).unwrap();
    assert_eq!(approved(&world), Some(labels("team=mail")));
    assert_eq!(world.registry.get(&key("t")).unwrap().stored.generation, first, "only labels differ");
    assert_eq!(world.verdict("t"), Verdict::Available);
    for (text, edition, owner) in [("", 1, "a"), ("team=x", 2, "a"), ("team=y", 3, "b")] {
        world.register(over(text, edition, owner), at(2.0)).unwrap();
        assert_eq!(approved(&world), Some(labels("team=mail")), "{text} by {owner}");
    }
    world.register(over("team=mail", 4, "b"), at(3.0)).unwrap();
    assert_eq!(approved(&world), None, "they are the approved ones again");
    world.register(over("team=z", 4, "b"), at(4.0)).unwrap();
    let generation = world.registry.get(&key("t")).unwrap().stored.generation;
    for time in ["the first time", "again"] {
        world.write(at(5.0), |plan| plan.approve_labels(&key("t"))).0.unwrap();
        assert_eq!(approved(&world), None, "{time}");
    }
    assert_eq!(world.registry.get(&key("t")).unwrap().stored.generation, generation);
    world.register(over("", 4, "b"), at(6.0)).unwrap();
    assert_eq!(approved(&world), Some(labels("team=z")));
    world.write(at(7.0), |plan| plan.unregister(&key("t"), "b", false));
    world.register(over("team=new", 4, "b"), at(8.0)).unwrap();
    assert_eq!(approved(&world), None, "a new registration is a new tool");
    let missing = world.write(at(9.0), |plan| plan.approve_labels(&key("other"))).0;
    assert!(matches!(missing, Err(Refusal::ToolNotFound { .. })));
}

#[test]
fn approving_within_one_group_of_writes_keeps_what_came_with_the_registration() {
    let mut world = World::new();
    let mapped = |text: &str| Registration {
        mapped_names: vec!["shown".into()],
        ..replacing(wanted(labelled(text, 1), "a"))
    };
    world.register(mapped("team=x"), at(0.0)).unwrap();
    let planned = |plan: Plan<'_>| plan.finish().changes.remove(&key("t")).unwrap().unwrap();
    let mut plan = Plan::new(&world.registry, 1, 0);
    plan.register(mapped("team=y")).unwrap();
    plan.approve_labels(&key("t")).unwrap();
    let (tool, names) = planned(plan);
    assert_eq!((tool.approved.as_deref(), names.as_slice()), (None, &["shown".to_owned()][..]));
    assert_eq!(tool.spec.labels, labels("team=y"));

    world.register(mapped("team=z"), at(1.0)).unwrap();
    let mut plan = Plan::new(&world.registry, 1, 0);
    plan.approve_labels(&key("t")).unwrap();
    assert_eq!(planned(plan).1, ["shown"], "of the tool that is stored, too");
}

fn some_labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map("[ab]", "[xy]", 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let owner = prop::sample::select(&["a", "b"][..]);
    let register = (some_labels(), owner, 0u8..2, prop::bool::weighted(0.1))
        .prop_map(|(labels, owner, edition, m)| Step::Register { labels, owner, edition, from_manifest: m });
    prop_oneof![
        8 => register,
        1 => Just(Step::Approve),
        1 => Just(Step::Unregister),
        1 => Just(Step::ManifestDropsIt),
    ]
}

fn act(world: &mut World, known: &mut Option<Known>, step: Step) {
    match step {
        Step::Register { labels, owner, edition, from_manifest } => {
            let spec = ToolSpec { labels: labels.clone(), ..labelled("", edition) };
            let wanted = Registration { overwrite: true, force: true, from_manifest, ..wanted(spec, owner) };
            let outcome = world.register(wanted, at(0.0));
            match known {
                Some(tool) if tool.from_manifest && !from_manifest => {
                    // Refused, unless it is what is declared.
                    assert!(outcome.is_err() || tool.now == labels);
                }
                Some(tool) => {
                    tool.now = labels.clone();
                    tool.from_manifest = from_manifest;
                    if from_manifest {
                        tool.approved = labels;
                    }
                }
                None => *known = Some(Known { now: labels.clone(), approved: labels, from_manifest }),
            }
        }
        Step::Approve => {
            let approved = world.write(at(0.0), |plan| plan.approve_labels(&key("t"))).0;
            assert_eq!(approved.is_ok(), known.is_some());
            if let Some(tool) = known {
                tool.approved = tool.now.clone();
            }
        }
        Step::Unregister => {
            let gone = world.write(at(0.0), |plan| plan.unregister(&key("t"), "a", true)).0;
            if gone == Unregistered::Gone {
                *known = None;
            }
        }
        Step::ManifestDropsIt => {
            world.write(at(0.0), |plan| plan.retain_manifest(&Default::default()));
            *known = known.take().filter(|tool| !tool.from_manifest);
        }
    }
}

proptest! {
    /// Whatever is done to a tool, a policy lets it pass only if its selector matches the labels now and those that an
    /// operator knows; so nothing but an operator, the manifest or a new name opens what was closed.
    #[test]
    fn no_owner_opens_what_a_selector_closed(steps in prop::collection::vec(step(), 1..30)) {
        let selectors = ["a", "!a", "a=x", "a!=x", "b in (x,y)", "b notin (x)", "a=x,!b", ""];
        let rules: Vec<Rules> = selectors
            .iter()
            .map(|text| Rules { selector: Selector::parse(text).unwrap(), ..Rules::default() })
            .collect();
        let mut world = World::new();
        let mut known: Option<Known> = None;
        for step in steps {
            let by_owner = matches!(&step, Step::Register { from_manifest: false, .. }) && known.is_some();
            let open_before: Option<Vec<bool>> =
                known.as_ref().map(|t| rules.iter().map(|r| r.selector.matches(&t.approved)).collect());
            act(&mut world, &mut known, step.clone());
            let Some(tool) = &known else {
                prop_assert!(world.registry.get(&key("t")).is_none());
                continue;
            };
            let stored = Arc::clone(&world.registry.get(&key("t")).unwrap().stored);
            prop_assert_eq!(&stored.spec.labels, &tool.now);
            prop_assert!(stored.approved.as_deref() != Some(&tool.now), "kept only where they differ");
            for (i, rules) in rules.iter().enumerate() {
                let StoredTool { key, spec, approved, .. } = &*stored;
                let open = rules.denies(&key.namespace, &key.name, &spec.labels, approved.as_deref()).is_none();
                let selector = &rules.selector;
                prop_assert_eq!(open, selector.matches(&tool.now) && selector.matches(&tool.approved));
                prop_assert!(
                    !open || !by_owner || open_before.as_ref().is_some_and(|before| before[i]),
                    "{step:?} opened {selector}"
                );
            }
        }
    }
}
