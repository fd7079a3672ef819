//! Readers that are led from one list to another, over catalogs that are put together by hand.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{super::lead::Lead, access::NAMES, *};
use crate::core::{
    labels::Selector,
    policy::{AgentId, Rules},
};

/// What a reader knows: digests by exposed name.
type Known = BTreeMap<String, [u8; 32]>;

fn all(listing: &Listing) -> Known {
    listing.definitions().map(|(_, d)| (d.exposed_name.clone(), d.digest)).collect()
}

/// What a reader knows that follows a lead.
fn follow(mut known: Known, lead: &Lead, to: &Listing) -> Known {
    for name in &lead.removed {
        known.remove(name);
    }
    let upserts = to.definitions().enumerate().filter(|(at, _)| lead.upserts.contains(at));
    known.extend(upserts.map(|(_, (_, d))| (d.exposed_name.clone(), d.digest)));
    known
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    Put { tool: usize, label: &'static str, text: u8 },
    Remove(usize),
    Pass(usize),
    No(usize),
    Error(usize),
    Switch(usize, bool),
    Policy(Rules),
}

fn some_event() -> impl Strategy<Value = Event> {
    let tool = || 0..NAMES.len();
    let label = prop::sample::select(&["", "x", "y"][..]);
    prop_oneof![
        3 => (tool(), label, 0..3u8).prop_map(|(tool, label, text)| Event::Put { tool, label, text }),
        1 => tool().prop_map(Event::Remove),
        4 => tool().prop_map(Event::Pass),
        3 => tool().prop_map(Event::No),
        1 => tool().prop_map(Event::Error),
        1 => (tool(), any::<bool>()).prop_map(|(tool, off)| Event::Switch(tool, off)),
        1 => super::access::some_rules().prop_map(Event::Policy),
    ]
}

impl World {
    fn happen(&mut self, event: &Event) {
        let registered = |world: &Self, tool: usize| world.registry.get(&key(NAMES[tool])).is_some();
        let outcome = match event {
            Event::Pass(_) => Outcome::Pass,
            Event::No(_) => Outcome::no("PROBE_SAID_NO", "no"),
            _ => Outcome::error(ErrorClass::Timeout, "late"),
        };
        match event {
            Event::Put { tool, label, text } => self.define(NAMES[*tool], label, *text),
            Event::Remove(tool) if registered(self, *tool) => self.remove(NAMES[*tool]),
            Event::Pass(tool) | Event::No(tool) | Event::Error(tool) if registered(self, *tool) => {
                self.report(NAMES[*tool], outcome);
            }
            Event::Switch(tool, off) => self.switch(NAMES[*tool], off.then_some("off")),
            Event::Policy(rules) => self.policy("bot", rules.clone()),
            _ => {}
        }
    }

    /// Registers a tool, or another spec of it, or only other labels.
    fn define(&mut self, name: &str, label: &str, text: u8) {
        let mut tool = StoredTool::clone(&stored(name, 1, true));
        let mut spec = ToolSpec::clone(&tool.spec);
        spec.description = format!("does {text}");
        if !label.is_empty() {
            spec.labels.insert("team".to_owned(), label.to_owned());
        }
        tool.spec_hash = spec_hash(&spec);
        tool.generation = u64::from(text) + 1;
        let before = self.registry.get(&key(name));
        tool.approved = before.and_then(|entry| entry.stored.approved_beside(&spec.labels));
        tool.spec = Arc::new(spec);
        self.registry.put(Arc::new(tool), None, |_, _| ProbeState::pending(), Moment::START);
        self.show(name);
    }
}

fn agent() -> Selection {
    Selection { agent: AgentId::parse("bot").ok(), ..Selection::default() }
}

/// Names of what the agent is told by a lead.
fn told<'a>(lead: &'a Lead, to: &'a Listing) -> impl Iterator<Item = &'a str> {
    let upserts = lead.upserts.iter().filter_map(|at| to.tools[*at].definition(to.format).ok());
    lead.removed.iter().map(String::as_str).chain(upserts.map(|d| &*d.exposed_name))
}

#[test]
fn one_change_of_many_is_one_upsert() {
    let mut world = World::new(None, false);
    for i in 0..1_000 {
        world.put(&format!("t{i}"), true);
        world.report(&format!("t{i}"), Outcome::Pass);
    }
    let filter = world.catalog.resolve(agent());
    let lead = |world: &World, since: u64| {
        let listing = world.catalog.list(&filter, &world.server);
        world.catalog.lead_since(since, &filter, &world.server, &listing)
    };
    let position = world.catalog.revision;
    assert_eq!(lead(&world, position), Some(Lead::default()));
    world.define("t500", "", 9);
    world.report("t500", Outcome::Pass);
    let one = lead(&world, position).unwrap();
    assert_eq!((one.upserts.len(), one.removed.len()), (1, 0));
    // What went and came back meanwhile is no change.
    let position = world.catalog.revision;
    world.report("t7", Outcome::no("PROBE_SAID_NO", "x"));
    assert_eq!(lead(&world, position).unwrap().removed, ["t7"]);
    world.report("t7", Outcome::Pass);
    assert_eq!(lead(&world, position), Some(Lead::default()));
    assert_eq!(lead(&world, world.catalog.revision + 1), None, "a revision of the future");
    assert_eq!(lead(&world, 0).map(|l| l.upserts.len()), Some(1_000));
}

#[test]
fn what_left_too_long_ago_starts_over() {
    let mut world = World::new(None, false);
    world.put("stays", false);
    let position = world.catalog.revision;
    for i in 0..20_000 {
        let name = format!("t{}", i % 3);
        world.put(&name, false);
        world.remove(&name);
    }
    let filter = world.catalog.resolve(agent());
    let listing = world.catalog.list(&filter, &world.server);
    assert_eq!(world.catalog.lead_since(position, &filter, &world.server, &listing), None);
    let recent = world.catalog.revision - 100;
    let lead = world.catalog.lead_since(recent, &filter, &world.server, &listing);
    assert_eq!(lead, Some(Lead::default()), "what came and went since is none of the reader's");
}

#[test]
fn what_an_agent_may_not_know_of_is_not_named() {
    let mut world = World::new(None, false);
    world.put("open", true);
    world.put("secret", true);
    world.policy("bot", Rules { denied: Some(names(&["secret"])), ..Rules::default() });
    let filter = world.catalog.resolve(agent());
    let position = world.catalog.revision;
    world.report("secret", Outcome::Pass);
    world.report("secret", Outcome::no("PROBE_SAID_NO", "x"));
    world.remove("secret");
    world.put("secret", false);
    let listing = world.catalog.list(&filter, &world.server);
    let lead = world.catalog.lead_since(position, &filter, &world.server, &listing);
    assert_eq!(lead, Some(Lead::default()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A reader that is led from any earlier state has exactly the list, whatever happened; live or resumed; and it is never told
    /// of a tool that it could see at no time.
    #[test]
    fn readers_end_with_the_list(
        events in prop::collection::vec(some_event(), 1..40),
        selections in prop::collection::vec(super::access::some_selection(), 1..4),
        stable in any::<bool>(),
        builtin in any::<bool>(),
    ) {
        let mut world = World::new(None, builtin);
        let mut readers: Vec<(Selection, Arc<Listing>, Known)> = Vec::new();
        for selection in selections {
            let visibility = if stable { Visibility::Stable } else { Visibility::Hide };
            let selection = Selection { visibility, ..selection };
            let (_, listing) = world.select(selection.clone());
            let known = all(&listing);
            readers.push((selection, listing, known));
        }
        // Names of the tools that each reader could see at some time, whether they worked or not.
        let mut permitted = vec![BTreeSet::<String>::new(); readers.len()];
        // All that each reader ever had, by revision.
        let mut past: Vec<Vec<(u64, Known)>> =
            readers.iter().map(|(_, _, known)| vec![(world.catalog.revision, known.clone())]).collect();
        for event in &events {
            world.happen(event);
            for (i, (selection, before, known)) in readers.iter_mut().enumerate() {
                let (past, permitted) = (&mut past[i], &mut permitted[i]);
                let filter = world.catalog.resolve(selection.clone());
                let now = world.catalog.list_after(Some(&before.contents), &filter, &world.server);
                let fresh = world.fresh(&filter);
                prop_assert_eq!(&now.etag, &fresh.etag, "led on from the list before");
                prop_assert_eq!(&now.unknown, &fresh.unknown);
                let lead = now.lead_from(Some(&before.contents));
                *known = follow(std::mem::take(known), &lead, &now);
                prop_assert_eq!(&*known, &all(&fresh));
                prop_assert_eq!(now.etag == before.etag, lead == Lead::default() && now.allowed_json() == before.allowed_json());
                let tools = world.catalog.candidates(&filter.namespace);
                let permits = tools.filter(|tool| filter.permits(tool, &world.server));
                permitted.extend(permits.map(|tool| filter.format_name(tool)));
                for (revision, was) in past.iter() {
                    let lead = world.catalog.lead_since(*revision, &filter, &world.server, &now);
                    let Some(lead) = lead else { continue };
                    let followed = follow(was.clone(), &lead, &now);
                    prop_assert_eq!(&followed, &all(&fresh), "resumed from {}: {:?}", revision, lead);
                    let unknown = told(&lead, &now).find(|name| !permitted.contains(*name));
                    prop_assert_eq!(unknown, None, "it could never see that");
                }
                past.push((world.catalog.revision, known.clone()));
                *before = now;
            }
        }
    }
}

impl World {
    /// A list that owes nothing to earlier ones.
    fn fresh(&self, filter: &Filter) -> Listing {
        let (tools, cut) = self.catalog.selected(filter, &self.server);
        self.catalog.make_listing(tools, cut, filter)
    }
}

impl Filter {
    fn format_name(&self, tool: &CatalogTool) -> String {
        self.shape.format.exposed_name(&tool.stored.key).into_owned()
    }
}

#[test]
fn selectors_see_labels_change() {
    let mut world = World::new(None, false);
    let selection = Selection { selector: Selector::parse("team=x").unwrap(), ..agent() };
    world.define("a", "x", 1);
    world.report("a", Outcome::Pass);
    let position = world.catalog.revision;
    let (_, before) = world.select(selection.clone());
    world.define("a", "y", 1);
    let (shown, now) = world.select(selection.clone());
    assert_eq!((shown.len(), now.lead_from(Some(&before.contents)).removed), (0, vec!["a".to_owned()]));
    // Whether it could be seen at that revision is not known, and its name must not be told to who could not.
    let filter = world.catalog.resolve(selection);
    assert_eq!(world.catalog.lead_since(position, &filter, &world.server, &now), None);
}
