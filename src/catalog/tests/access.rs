//! Layers, budgets, explanations and searches, over catalogs that are put together by hand and by chance.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::core::{
    labels::Selector,
    policy::{AgentId, DefaultPolicy, Policy, Rules},
    registry::access::PolicyKey,
};

impl World {
    fn put_labelled(&mut self, name: &str, probed: bool, labels: &[(&str, &str)]) {
        let mut tool = StoredTool::clone(&stored(name, 1, probed));
        let mut spec = ToolSpec::clone(&tool.spec);
        spec.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        tool.spec = Arc::new(spec);
        self.registry.put(Arc::new(tool), None, |_, _| ProbeState::pending(), Moment::START);
        self.show(name);
    }

    /// Its owner registers it again with other labels.
    fn relabel(&mut self, name: &str, labels: &[(&str, &str)]) {
        let Some(entry) = self.registry.get(&key(name)) else { return };
        let mut tool = StoredTool::clone(&entry.stored);
        let mut spec = ToolSpec::clone(&tool.spec);
        spec.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        tool.approved = tool.approved_beside(&spec.labels);
        tool.spec = Arc::new(spec);
        self.registry.put(Arc::new(tool), None, |_, _| ProbeState::pending(), Moment::START);
        self.show(name);
    }

    pub(super) fn policy(&mut self, agent: &str, rules: Rules) {
        let policy = Policy { namespace: Namespace::default(), agent: id(agent), rules: Arc::new(rules) };
        let key: PolicyKey = (policy.namespace.clone(), policy.agent.clone());
        self.catalog.revision += 1;
        self.catalog.set_policy(key, Some(policy));
    }

    pub(super) fn switch(&mut self, name: &str, off: Option<&str>) {
        let off = off.map(|message| Arc::new(Disabled { message: message.into(), since_ms: 7 }));
        self.registry.access.set_switch(key(name), off.clone());
        if self.registry.get(&key(name)).is_some() {
            self.show(name);
        }
        self.catalog.revision += 1;
        self.catalog.switch_builtin(&key(name), off.as_ref());
    }

    fn explain(&self, name: &str, selection: Selection) -> Explanation {
        self.catalog.explain(&ToolName::parse(name).unwrap(), selection, &self.server)
    }

    fn failed(&self, name: &str, selection: Selection) -> Vec<(&'static str, String)> {
        let stages = self.explain(name, selection).stages;
        stages.into_iter().filter(|s| !s.passed).map(|s| (s.stage, s.reason)).collect()
    }
}

fn id(agent: &str) -> AgentId {
    AgentId::parse(agent).unwrap()
}

fn agent(agent: &str) -> Selection {
    Selection { agent: Some(id(agent)), ..Selection::default() }
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

#[test]
fn every_layer_hides_and_explains_itself() {
    let mut world = World::new(Some("a,b,c,d,e,f,gateway_status"), true);
    for name in ["a", "b", "c", "d", "z"] {
        world.put_labelled(name, false, &[("team", "x")]);
    }
    world.put_labelled("e", false, &[("team", "y")]);
    world.put_labelled("f", true, &[("team", "x")]);
    world.switch("a", Some("broken"));
    let rules = Rules { denied: Some(names(&["b"])), ..Rules::default() };
    world.policy("bot", rules);
    let selection = || Selection {
        allowed: Some(names(&["a", "b", "d", "e", "f", "z"])),
        selector: selector("team=x"),
        ..agent("bot")
    };
    assert_eq!(world.select(selection()).0, ["d"]);
    for (name, stages) in [
        ("a", &[("operator", "DISABLED")][..]),
        ("b", &[("policy", "DENIED")]),
        ("c", &[("request", "NOT_IN_REQUEST")]),
        ("d", &[]),
        ("e", &[("labels", "LABELS_DIFFER")]),
        ("f", &[("availability", "NEVER_PROBED")]),
        ("z", &[("server_allowlist", "NOT_IN_ALLOWLIST")]),
        ("gateway_status", &[("request", "NOT_IN_REQUEST"), ("labels", "LABELS_DIFFER")]),
        ("nope", &[("registered", "NOT_REGISTERED")]),
    ] {
        let failed = world.failed(name, selection());
        let failed: Vec<(&str, &str)> = failed.iter().map(|(s, r)| (*s, r.as_str())).collect();
        assert_eq!(failed, stages, "{name}");
    }
    let order: Vec<&str> = world.explain("d", selection()).stages.iter().map(|s| s.stage).collect();
    let expected =
        "registered namespace server_allowlist operator policy request labels availability format budget";
    assert_eq!(order.join(" "), expected);
    // What the policy hides is not even named as hidden; what the request leaves out is known to it.
    let filter = world.catalog.resolve(selection());
    let listing = world.catalog.list(&filter, &world.server);
    let hidden = world.catalog.hidden(&filter, &world.server, &listing);
    let hidden: Vec<&str> = hidden.map(|h| h.tool.stored.key.name.as_str()).collect();
    assert_eq!(hidden, ["a", "f", "z"]);
    assert_eq!(listing.unknown, ["b"], "to this agent it is as if there were none");
}

#[test]
fn the_default_applies_where_there_is_no_policy() {
    let mut world = World::new(None, false);
    world.put("a", false);
    world.policy("bot", Rules::default());
    assert_eq!(world.select(agent("other")).0, ["a"]);
    world.catalog = world.catalog.with_default_policy(DefaultPolicy::Deny);
    assert_eq!(world.select(agent("bot")).0, ["a"]);
    for nobody in [agent("other"), Selection::default()] {
        assert!(world.select(nobody.clone()).0.is_empty());
        assert_eq!(world.failed("a", nobody), [("policy", "DENY_ALL".to_owned())]);
    }
    world.catalog.set_policy((Namespace::default(), id("bot")), None);
    assert!(world.select(agent("bot")).0.is_empty());
}

#[test]
fn agents_of_one_role_share_their_lists() {
    let mut world = World::new(None, false);
    world.put("a", false);
    world.put("b", false);
    let rules = |max_tools| Rules { denied: Some(names(&["b"])), max_tools, ..Rules::default() };
    world.policy("one", rules(0));
    world.policy("two", rules(0));
    world.policy("less", rules(1));
    world.policy("free", Rules::default());
    let (_, one) = world.select(agent("one"));
    assert!(Arc::ptr_eq(&one, &world.select(agent("two")).1));
    let asked = Selection { budget: Budget { tools: 1, tokens: 0 }, ..agent("one") };
    assert!(Arc::ptr_eq(&world.select(asked).1, &world.select(agent("less")).1), "whoever limits it");
    assert!(Arc::ptr_eq(&world.select(agent("free")).1, &world.select(Selection::default()).1));
    assert!(!Arc::ptr_eq(&one, &world.select(agent("free")).1));
    // A policy changes what its agent gets at once, with no tool touched.
    world.policy("one", Rules::nothing());
    assert!(world.select(agent("one")).0.is_empty());
    assert!(Arc::ptr_eq(&one, &world.select(agent("two")).1));
}

#[test]
fn a_switch_outlives_its_tool_and_the_built_in_has_one_too() {
    let mut world = World::new(None, true);
    world.put("a", false);
    world.switch("a", Some("why"));
    world.switch("gateway_status", Some(""));
    assert!(world.select(Selection::default()).0.is_empty());
    world.registry.remove(&key("a"));
    world.remove("a");
    assert!(world.select(Selection::default()).0.is_empty(), "also where the namespace holds nothing");
    world.put_labelled("a", false, &[("team", "x")]);
    assert_eq!(world.failed("a", Selection::default()), [("operator", "DISABLED".to_owned())]);
    let elsewhere = Selection { namespace: Namespace::parse("other").unwrap(), ..Selection::default() };
    assert_eq!(world.select(elsewhere).0, ["gateway_status"], "one switch for each namespace");
    world.switch("a", None);
    world.switch("gateway_status", None);
    assert_eq!(world.select(Selection::default()).0, ["a", "gateway_status"]);
}

#[test]
fn labels_open_nothing_that_is_closed_by_name() {
    let mut world = World::new(Some("a,b"), false);
    world.policy("bot", Rules { denied: Some(names(&["a"])), ..Rules::default() });
    for labels in [&[][..], &[("team", "x"), ("priority", "9")]] {
        for name in ["a", "b", "c"] {
            world.put_labelled(name, false, labels);
        }
        world.switch("b", Some("why"));
        assert!(world.select(agent("bot")).0.is_empty());
    }
}

#[test]
fn labels_that_are_not_approved_are_told_with_the_command() {
    let mut world = World::new(None, false);
    world.policy("bot", Rules { selector: selector("team=x"), ..Rules::default() });
    world.put_labelled("a", false, &[("team", "y")]);
    let policy = |world: &World| {
        let stage = world.explain("a", agent("bot")).stages.remove(4);
        (stage.passed, stage.reason, stage.message)
    };
    let told = |reason: &str, message: &str| (false, reason.to_owned(), message.to_owned());
    assert_eq!(policy(&world), told("POLICY_LABELS", "the policy of 'bot' asks for labels team=x"));
    world.relabel("a", &[("team", "x")]);
    let message = "the policy of 'bot' asks for labels team=x; its labels meet that now, but are not approved; to approve them: \
                   toolpulse tools approve-labels a";
    assert_eq!(policy(&world), told("LABELS_NOT_APPROVED", message));
    assert!(world.select(agent("bot")).0.is_empty());
    let elsewhere = super::super::approve_command("prod", "a");
    assert_eq!(elsewhere, "toolpulse tools approve-labels a --namespace prod");
    let own = Selection { selector: selector("team=x"), ..Selection::default() };
    assert_eq!(world.select(own).0, ["a"], "the request's own wish goes by the labels as they are");
    world.relabel("a", &[("team", "y"), ("priority", "high")]);
    assert_eq!(policy(&world).1, "POLICY_LABELS");
    let warnings = world.catalog.get(&key("a")).unwrap().warnings();
    assert_eq!(warnings[0].code, "PRIORITY_NOT_INTEGER", "although nothing but labels changed");
}

#[test]
fn a_budget_cuts_by_priority_then_by_name() {
    let mut world = World::new(None, false);
    for (name, priority) in [("a", "-1"), ("b", "x"), ("c", "5"), ("d", ""), ("e", "5")] {
        let labels: &[(&str, &str)] = if priority.is_empty() { &[] } else { &[("priority", priority)] };
        world.put_labelled(name, false, labels);
    }
    let budget = |tools, tokens| Selection { budget: Budget { tools, tokens }, ..Selection::default() };
    for (tools, expected) in
        [(1, &["c"][..]), (2, &["c", "e"]), (3, &["b", "c", "e"]), (4, &["b", "c", "d", "e"])]
    {
        assert_eq!(world.select(budget(tools, 0)).0, expected, "{tools}");
    }
    assert_eq!(world.select(budget(9, 0)).0.len(), 5);
    assert_eq!(world.failed("a", budget(4, 0)), [("budget", "OVER_BUDGET".to_owned())]);
    let full = tokens(world.select(Selection::default()).1.tools_json().len());
    for limit in 1..=full + 1 {
        let (shown, listing) = world.select(budget(0, limit));
        assert!(tokens(listing.tools_json().len()) <= limit || shown.is_empty());
        assert_eq!(shown.len() == 5, limit >= full, "{limit} of {full}");
    }
    let mut stable = World::new(None, false);
    stable.put_labelled("dead", true, &[("priority", "1")]);
    stable.put_labelled("alive", false, &[]);
    let (shown, _) = stable.select(Selection {
        format: Format::OpenAiChat,
        visibility: Visibility::Stable,
        ..budget(1, 0)
    });
    assert_eq!(shown, ["dead"], "what is cut does not move with what works");
}

#[test]
fn stable_bytes_outlive_a_flap_and_the_etag_tells_it() {
    let mut world = World::new(None, false);
    world.put("a", true);
    world.put("b", false);
    let select = |world: &World| {
        let selection =
            Selection { format: Format::OpenAiChat, visibility: Visibility::Stable, ..Selection::default() };
        world.select(selection).1
    };
    let pending = select(&world);
    world.report("a", Outcome::Pass);
    let up = select(&world);
    world.report("a", Outcome::no("PROBE_SAID_NO", "x"));
    let down = select(&world);
    for other in [&up, &down] {
        assert_eq!(other.tools_json(), pending.tools_json());
    }
    assert_eq!(pending.etag, down.etag);
    assert_ne!(pending.etag, up.etag);
    assert!(up.allowed_json().contains(r#""name":"a""#) && !down.allowed_json().contains(r#""name":"a""#));
    assert_ne!(up.etag, world.list(Format::OpenAiChat, None).1.etag);
    let mcp = Selection { visibility: Visibility::Stable, ..Selection::default() };
    let (shown, listing) = world.select(mcp);
    assert_eq!((shown, listing.visibility), (vec!["b".to_owned()], Visibility::Hide));
}

#[test]
fn close_names_are_offered_only_where_they_may_be_known() {
    let mut world = World::new(Some("search_docs,search_mail,send"), false);
    for name in ["search_docs", "search_mail", "search_dogs", "send"] {
        world.put(name, false);
    }
    world.policy("bot", Rules { denied: Some(names(&["search_mail"])), ..Rules::default() });
    let message = |name: &str| world.explain(name, agent("bot")).stages[0].message.clone();
    assert_eq!(
        message("Search-Doc"),
        "no tool 'Search-Doc' in namespace 'default'; did you mean 'search_docs'?"
    );
    assert_eq!(message("search_mial"), "no tool 'search_mial' in namespace 'default'");
    assert_eq!(message("zzz"), "no tool 'zzz' in namespace 'default'");
    let there = |selection: Selection| {
        let namespace = Namespace::parse("empty").unwrap();
        world.failed("send", Selection { namespace, ..selection })
    };
    assert_eq!(there(agent("bot")), [("namespace", "OTHER_NAMESPACE".to_owned())]);
    world.policy("bot", Rules::nothing());
    let namespace = Namespace::parse("empty").unwrap();
    let failed = world.failed("send", Selection { namespace, ..agent("bot") });
    assert_eq!(failed, [("registered", "NOT_REGISTERED".to_owned())]);
}

#[test]
fn a_search_finds_what_is_listed_and_nothing_else() {
    let mut world = World::new(None, false);
    for (name, probed) in [("send_mail", false), ("mail_archive", false), ("mailbox", true), ("clock", false)]
    {
        world.put(name, probed);
    }
    world.policy("bot", Rules { denied: Some(names(&["mail_archive"])), ..Rules::default() });
    let search = |selection: Selection, query: &str, limit: usize| -> Vec<String> {
        let (_, listing) = world.select(selection);
        listing.search(query, limit).iter().map(|h| h.tool.stored.key.name.to_string()).collect()
    };
    assert_eq!(search(Selection::default(), "send a Mail", 10), ["send_mail", "mail_archive"]);
    assert_eq!(search(Selection::default(), "send a mail", 1), ["send_mail"]);
    assert_eq!(search(agent("bot"), "mails mailbox", 10), ["send_mail"]);
    assert!(search(Selection::default(), "weather", 10).is_empty());
    assert!(
        search(Selection { namespace: Namespace::parse("x").unwrap(), ..agent("bot") }, "mail", 9).is_empty()
    );
}

#[test]
fn the_next_window_end_is_the_namespaces_own() {
    let mut world = World::new(None, false);
    assert_eq!(world.catalog.next_window_end("default"), None);
    world.put("a", true);
    world.report("a", Outcome::Pass);
    let end = world.catalog.next_window_end("default");
    assert!(end.is_some() && end == world.registry.next_window_end());
    assert_eq!(world.catalog.next_window_end("other"), None);
    world.report("a", Outcome::no("PROBE_SAID_NO", "x"));
    assert_eq!(world.catalog.next_window_end("default"), world.registry.next_window_end());
    world.remove("a");
    assert_eq!(world.catalog.next_window_end("default"), None);
}

pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f.g"];

fn some_names() -> impl Strategy<Value = Option<RequestAllowlist>> {
    let some = prop::collection::btree_set(prop::sample::select(&NAMES[..]), 1..5);
    prop::option::of(some.prop_map(|set| names(&set.into_iter().collect::<Vec<_>>())))
}

fn some_selector() -> impl Strategy<Value = Selector> {
    prop::sample::select(&["", "", "team=x", "team!=x", "team", "!team", "team in (x,y)"][..])
        .prop_map(selector)
}

pub(super) fn some_rules() -> impl Strategy<Value = Rules> {
    let deny_all = prop::bool::weighted(0.1);
    (some_names(), some_names(), deny_all, some_selector(), 0..4u32).prop_map(
        |(allowed, denied, deny_all, selector, max_tools)| Rules {
            allowed,
            denied,
            deny_all,
            selector,
            max_tools,
        },
    )
}

/// Tools with labels, whether each works and is switched off, and the server's allowlist.
fn some_world() -> impl Strategy<Value = World> {
    let label = prop::sample::select(&["", "x", "y"][..]);
    let tool = (any::<bool>(), prop::bool::weighted(0.2), label, -1..3i32);
    let tools = prop::collection::vec(prop::option::weighted(0.8, tool), NAMES.len());
    (tools, some_names(), any::<bool>()).prop_map(|(tools, server, builtin)| {
        let server = server.map(|list| list.names().join(","));
        let mut world = World::new(server.as_deref(), builtin);
        for (name, tool) in NAMES.iter().zip(tools) {
            let Some((works, off, team, priority)) = tool else { continue };
            let priority = priority.to_string();
            let labels = [("priority", priority.as_str()), ("team", team)];
            world.put_labelled(name, true, if team.is_empty() { &labels[..1] } else { &labels });
            if works {
                world.report(name, Outcome::Pass);
            }
            if off {
                world.switch(name, Some("off"));
            }
        }
        world
    })
}

pub(super) fn some_selection() -> impl Strategy<Value = Selection> {
    (some_names(), some_selector(), 0..4u32, prop::sample::select(&[0u32, 0, 20, 40][..]), any::<bool>())
        .prop_map(|(allowed, selector, tools, tokens, openai)| Selection {
            allowed,
            selector,
            budget: Budget { tools, tokens },
            format: if openai { Format::OpenAiChat } else { Format::Mcp },
            ..agent("bot")
        })
}

fn set(world: &World, selection: Selection) -> BTreeSet<String> {
    world.select(selection).0.into_iter().collect()
}

proptest! {
    /// A list holds exactly what Explain calls visible, and a search of it finds nothing else.
    #[test]
    fn lists_and_explanations_agree(mut world in some_world(), rules in some_rules(), selection in some_selection()) {
        world.policy("bot", rules);
        let (_, listing) = world.select(selection.clone());
        let shown = set(&world, selection.clone());
        for name in NAMES.iter().chain(&["gateway_status"]) {
            let explained = world.explain(name, selection.clone());
            prop_assert_eq!(explained.visible, shown.contains(*name), "{}: {:?}", name, explained);
            prop_assert_eq!(explained.visible, explained.stages.iter().all(|s| s.passed));
            let found = listing.search(name, 100);
            prop_assert!(found.iter().all(|h| shown.contains(h.tool.stored.key.name.as_str())));
        }
        let filter = world.catalog.resolve(selection);
        for hidden in world.catalog.hidden(&filter, &world.server, &listing) {
            prop_assert!(!shown.contains(hidden.tool.stored.key.name.as_str()));
            prop_assert!(filter.may_know(hidden.tool));
        }
    }

    /// Whatever owners say of their tools, an agent sees no tool of which its policy kept it. What it asks for itself, and the
    /// budgets, are no locks.
    #[test]
    fn new_labels_never_widen(mut world in some_world(), rules in some_rules(), relabels in prop::collection::vec(
        (prop::sample::select(&NAMES[..]), prop::sample::select(&["", "x", "y"][..])), 0..12))
    {
        world.policy("bot", Rules { max_tools: 0, ..rules });
        let before = set(&world, agent("bot"));
        for (name, team) in relabels {
            let labels = [("team", team)];
            world.relabel(name, if team.is_empty() { &[] } else { &labels });
            prop_assert!(set(&world, agent("bot")).is_subset(&before));
        }
    }

    /// No layer gives what another took: all of them together show no more than each alone does, budgets aside, which cut
    /// another end of a shorter list.
    #[test]
    fn layers_never_widen(mut world in some_world(), rules in some_rules(), selection in some_selection()) {
        let free = Selection { budget: Budget::default(), ..selection };
        let open = Selection { format: free.format, ..Selection::default() };
        let without_policy = set(&world, Selection { agent: None, ..free.clone() });
        world.policy("bot", Rules { max_tools: 0, ..rules.clone() });
        let all = set(&world, free.clone());
        prop_assert!(all.is_subset(&without_policy));
        let any_name = Selection { allowed: None, ..free.clone() };
        prop_assert!(all.is_subset(&set(&world, any_name)));
        let any_label = Selection { selector: Selector::default(), ..free.clone() };
        prop_assert!(all.is_subset(&set(&world, any_label)));
        prop_assert!(all.is_subset(&set(&world, open)));
        let mut budgeted = free.clone();
        budgeted.budget = Budget { tools: 2, tokens: 0 };
        prop_assert!(set(&world, budgeted).is_subset(&all));
        world.policy("bot", rules);
        prop_assert!(set(&world, free.clone()).is_subset(&all));
        world.policy("bot", Rules::nothing());
        prop_assert!(set(&world, free).is_empty());
    }
}
