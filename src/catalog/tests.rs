//! Lists over catalogs that are put together by hand.

mod access;
mod lead;

use super::*;
use crate::{
    core::{
        allowlist::{Environment, RequestAllowlist},
        availability::{Defaults, ProbeState, Verdict},
        probe::{ErrorClass, Outcome, ProbeKind, ProbeSpec},
        registry::{Registry, Report},
        tool::{StoredTool, ToolSpec, spec_hash},
    },
    render::Format,
};

fn key(name: &str) -> ToolKey {
    ToolKey { namespace: Namespace::default(), name: ToolName::parse(name).unwrap() }
}

fn stored(name: &str, generation: u64, probed: bool) -> Arc<StoredTool> {
    let report = ProbeSpec { name: "report".into(), kind: ProbeKind::Report };
    let spec = ToolSpec {
        description: format!("does {name}"),
        probes: probed.then_some(report).into_iter().collect(),
        ..ToolSpec::new(ToolName::parse(name).unwrap())
    };
    Arc::new(StoredTool {
        key: key(name),
        spec_hash: spec_hash(&spec),
        spec: Arc::new(spec),
        owner: "a".into(),
        generation,
        from_manifest: false,
        approved: None,
        create_time_ms: 0,
        update_time_ms: 0,
    })
}

/// A registry and the catalog that shows it.
#[derive(Debug)]
struct World {
    registry: Registry,
    catalog: Catalog,
    server: ServerAllowlist,
}

impl World {
    fn new(allowed_tools: Option<&str>, builtin: bool) -> Self {
        let environment =
            Environment { allowed_tools: allowed_tools.map(str::to_owned), ..Environment::default() };
        let (server, _) = ServerAllowlist::from_environment(&environment).unwrap();
        let registry = Registry::new(Defaults::default());
        Self { registry, catalog: Catalog::empty("e".into(), 0, builtin), server }
    }

    fn put(&mut self, name: &str, probed: bool) {
        self.registry.put(stored(name, 1, probed), None, |_, _| ProbeState::pending(), Moment::START);
        self.show(name);
    }

    fn show(&mut self, name: &str) {
        let key = key(name);
        let before = self.catalog.get(&key).map(Arc::clone);
        self.catalog.revision += 1;
        let entry = self.registry.get(&key).unwrap();
        let tool = CatalogTool::new(entry, &self.registry, before.as_deref(), self.catalog.revision);
        self.catalog.put(tool);
    }

    fn remove(&mut self, name: &str) {
        self.registry.remove(&key(name));
        self.catalog.revision += 1;
        self.catalog.remove(&key(name));
    }

    fn report(&mut self, name: &str, outcome: Outcome) {
        let report = Report { key: key(name), probe: String::new(), outcome, ttl: None, generation: None };
        self.registry.report(report, Moment::START).unwrap();
        self.show(name);
    }

    fn list(&self, format: Format, allowed: Option<&[&str]>) -> (Vec<String>, Arc<Listing>) {
        self.select(Selection { format, allowed: allowed.map(names), ..Selection::default() })
    }

    fn select(&self, selection: Selection) -> (Vec<String>, Arc<Listing>) {
        let listing = self.catalog.list(&self.catalog.resolve(selection), &self.server);
        let shown = listing.tools.iter().map(|t| t.stored.key.name.to_string()).collect();
        (shown, listing)
    }
}

fn names(names: &[&str]) -> RequestAllowlist {
    RequestAllowlist::parse(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_list_holds_what_works_and_is_allowed() {
    let mut world = World::new(Some("a,b,c"), false);
    for (name, probed) in [("c", true), ("a", false), ("d", false), ("b", true)] {
        world.put(name, probed);
    }
    assert_eq!(world.list(Format::Mcp, None).0, ["a"]);
    world.report("b", Outcome::Pass);
    assert_eq!(world.list(Format::Mcp, None).0, ["a", "b"]);
    assert_eq!(world.list(Format::Mcp, Some(&["b", "d", "nope"])).0, ["b"], "the layers intersect");
    world.report("b", Outcome::no("PROBE_SAID_NO", "quota"));
    assert_eq!(world.list(Format::Mcp, None).0, ["a"]);
    world.remove("a");
    assert_eq!(world.list(Format::Mcp, None).1.tools_json(), "[]");
}

#[test]
fn equal_content_is_an_equal_etag_and_formats_differ() {
    let build = |names: &[&str]| {
        let mut world = World::new(None, false);
        names.iter().for_each(|name| world.put(name, false));
        let (_, mcp) = world.list(Format::Mcp, None);
        let (_, openai) = world.list(Format::OpenAiChat, None);
        (mcp.etag.clone(), mcp.tools_json(), openai.etag.clone())
    };
    let one = build(&["x", "y.z", "a"]);
    assert_eq!(one, build(&["y.z", "a", "x"]));
    assert_ne!(one.0, one.2);
    assert_ne!(one.0, build(&["x", "a"]).0);
    let parsed: serde_json::Value = serde_json::from_str(&one.1).unwrap();
    assert_eq!(parsed.as_array().unwrap().len(), 3);
}

#[test]
fn a_list_is_kept_until_what_is_visible_changes() {
    let mut world = World::new(None, false);
    world.put("a", true);
    world.report("a", Outcome::Pass);
    let (_, first) = world.list(Format::Mcp, None);
    world.report("a", Outcome::Pass);
    assert!(
        Arc::ptr_eq(&first, &world.list(Format::Mcp, None).1),
        "a result that flips nothing keeps the list"
    );
    world.report("a", Outcome::no("PROBE_SAID_NO", "x"));
    assert!(!Arc::ptr_eq(&first, &world.list(Format::Mcp, None).1));
}

#[test]
fn unknown_names_follow_what_is_registered() {
    let mut world = World::new(None, false);
    world.put("a", false);
    assert_eq!(world.list(Format::Mcp, Some(&["b", "a"])).1.unknown, ["b"]);
    // Not visible yet, so the list stays the same; but known.
    world.registry.put(stored("b", 1, true), None, |_, _| ProbeState::pending(), Moment::START);
    world.show("b");
    let (shown, listing) = world.list(Format::Mcp, Some(&["b", "a"]));
    assert_eq!((shown, listing.unknown.len()), (vec!["a".to_owned()], 0));
    world.remove("b");
    assert_eq!(world.list(Format::Mcp, Some(&["b", "a"])).1.unknown, ["b"]);
}

#[test]
fn a_ready_list_is_found_by_its_names_and_never_by_none() {
    let mut world = World::new(None, false);
    world.put("a", false);
    let ready = |world: &World, names: Option<&[&str]>| {
        world.catalog.ready(&world.catalog.resolve(Selection::default()), names)
    };
    let (_, all) = world.list(Format::Mcp, None);
    assert!(Arc::ptr_eq(&all, &ready(&world, None).unwrap()));
    assert!(ready(&world, Some(&[])).is_none(), "no names are not all names");
    assert!(ready(&world, Some(&["a", "b"])).is_none());
    let (_, some) = world.list(Format::Mcp, Some(&["b", "a", "b"]));
    assert!(Arc::ptr_eq(&some, &ready(&world, Some(&["a", "b"])).unwrap()));
    // Lists that were made later come before and after it.
    for other in [&["a"][..], &["z"], &["a", "c"]] {
        let (_, made) = world.list(Format::Mcp, Some(other));
        assert!(Arc::ptr_eq(&made, &ready(&world, Some(other)).unwrap()), "{other:?}");
    }
    assert!(Arc::ptr_eq(&some, &ready(&world, Some(&["a", "b"])).unwrap()));
}

#[test]
fn hidden_tools_say_which_stage_hides_them() {
    let mut world = World::new(Some("a,b"), false);
    for (name, probed) in [("a", true), ("b", false), ("z", false)] {
        world.put(name, probed);
    }
    let filter = world.catalog.resolve(Selection::default());
    let listing = world.catalog.list(&filter, &world.server);
    let stages: Vec<_> = world
        .catalog
        .hidden(&filter, &world.server, &listing)
        .map(|h| (h.tool.stored.key.name.to_string(), h.stage))
        .collect();
    assert_eq!(stages, [("a".to_owned(), Stage::Availability), ("z".to_owned(), Stage::ServerAllowlist)]);
}

#[test]
fn the_built_in_tool_is_shown_unless_one_is_registered_under_its_name() {
    let mut world = World::new(None, true);
    assert_eq!(world.list(Format::Mcp, None).0, ["gateway_status"]);
    assert_eq!(world.list(Format::Mcp, Some(&["a"])).0, Vec::<String>::new());
    world.put("gateway_status", true);
    assert_eq!(world.list(Format::Mcp, None).0, Vec::<String>::new(), "the registered one is pending");
}

#[test]
fn reasons_name_the_probe() {
    let mut world = World::new(None, false);
    world.put("a", true);
    let reason = |world: &World| world.catalog.get(&key("a")).unwrap().status.trouble.clone().unwrap();
    assert_eq!(reason(&world).reason, "NEVER_PROBED");
    world.report("a", Outcome::error(ErrorClass::Reported, "import failed"));
    let trouble = reason(&world);
    assert_eq!((trouble.reason.as_str(), trouble.class), ("PROBE_ERROR", Some(ErrorClass::Reported)));
    assert_eq!(trouble.message, "probe 'report': import failed");
    assert_eq!(world.catalog.get(&key("a")).unwrap().status.verdict, Verdict::Unavailable);
}

#[test]
fn ready_lists_are_bounded_by_their_bytes() {
    let mut world = World::new(None, false);
    let names: Vec<String> = (0..100).map(|i| format!("t{i:03}")).collect();
    for name in &names {
        let mut tool = StoredTool::clone(&stored(name, 1, false));
        let mut spec = ToolSpec::clone(&tool.spec);
        spec.description = "x".repeat(16 * 1024);
        tool.spec = Arc::new(spec);
        world.registry.put(Arc::new(tool), None, |_, _| ProbeState::pending(), Moment::START);
        world.show(name);
    }
    // Each list leaves another tool out: 100 lists of 1.6 MB.
    let lists: Vec<Vec<&str>> =
        names.iter().map(|out| names.iter().filter(|n| *n != out).map(String::as_str).collect()).collect();
    for list in &lists {
        world.list(Format::Mcp, Some(list));
    }
    let kept = lists
        .iter()
        .filter(|list| {
            let (_, first) = world.list(Format::Mcp, Some(list));
            Arc::ptr_eq(&first, &world.list(Format::Mcp, Some(list)).1)
        })
        .count();
    assert!((38..=41).contains(&kept), "64 MiB hold {kept} of them");
}
