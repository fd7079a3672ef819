use std::time::Duration;

use super::*;
use crate::core::refusal::Refusal;

const EMPTY: &str =
    "cannot be empty. Either unset it for all tools or provide a comma-separated list of tool names.";
const NOTHING: &str =
    "contains no valid tool names. Provide comma-separated tool names or unset the variable.";

fn environment(allowed: Option<&str>, hermes: Option<&str>, ci: Option<&str>) -> Environment {
    Environment {
        allowed_tools: allowed.map(str::to_owned),
        hermes_only_tools: hermes.map(str::to_owned),
        ci: ci.map(str::to_owned),
        custom: None,
    }
}

fn server(allowed: &str) -> ServerAllowlist {
    ServerAllowlist::from_environment(&environment(Some(allowed), None, None)).unwrap().0
}

fn key(text: &str) -> ToolKey {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ToolKey { namespace: Namespace::parse(namespace).unwrap(), name: ToolName::parse(name).unwrap() }
}

fn keys(texts: &[&str]) -> Vec<ToolKey> {
    texts.iter().map(|text| key(text)).collect()
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

fn allows(list: &ServerAllowlist, tool: &str) -> bool {
    let key = key(tool);
    list.allows(&key.namespace, &key.name)
}

#[test]
fn environment_table() {
    // ALLOWED_TOOLS, HERMES_ONLY_TOOLS; the variable and the names used, or the error.
    type Expected<'a> = Result<(&'a str, Option<Vec<&'a str>>), String>;
    let set = |variable, names: &[&'static str]| Ok((variable, Some(names.to_vec())));
    let empty = |variable: &str| Err(format!("{variable} {EMPTY}"));
    let nothing = |variable: &str| Err(format!("{variable} {NOTHING}"));
    let table: Vec<(Option<&str>, Option<&str>, Expected<'_>)> = vec![
        (None, None, Ok(("ALLOWED_TOOLS", None))),
        (Some(""), None, empty("ALLOWED_TOOLS")),
        (Some(" \t\n\u{a0}\u{3000}\u{1c}"), None, empty("ALLOWED_TOOLS")),
        (Some(",, ,\u{a0}"), None, nothing("ALLOWED_TOOLS")),
        (Some(" search ,\n send_message,"), None, set("ALLOWED_TOOLS", &["search", "send_message"])),
        (Some("\u{a0}b\u{2003},a,b, a "), None, set("ALLOWED_TOOLS", &["a", "b"])),
        (Some("Search,se*,'q',a;b,a b"), None, set("ALLOWED_TOOLS", &["'q'", "Search", "a b", "a;b", "se*"])),
        (None, Some("search"), set("HERMES_ONLY_TOOLS", &["search"])),
        (None, Some(""), empty("HERMES_ONLY_TOOLS")),
        (None, Some(","), nothing("HERMES_ONLY_TOOLS")),
        (Some("a"), Some("b"), set("ALLOWED_TOOLS", &["a"])),
        (Some("a"), Some(""), set("ALLOWED_TOOLS", &["a"])),
        (Some(""), Some("b"), empty("ALLOWED_TOOLS")),
        (Some(","), Some("b"), nothing("ALLOWED_TOOLS")),
    ];
    for (allowed, hermes, expected) in table {
        let found =
            ServerAllowlist::from_environment(&environment(allowed, hermes, None)).map(|(list, _)| {
                let diagnostics = list.diagnostics(&[], None, None);
                assert_eq!(list.is_set(), diagnostics.whitelist.is_some());
                (diagnostics.env_var_name, diagnostics.whitelist)
            });
        let expected = expected.map(|(variable, names)| {
            (variable.to_owned(), names.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>()))
        });
        assert_eq!(found, expected, "{allowed:?} {hermes:?}");
    }
}

#[test]
fn the_old_variable_warns() {
    let table: [(Option<&str>, Option<&str>, &[&str]); 7] = [
        (None, None, &[]),
        (Some("a"), None, &[]),
        (None, Some("a"), &["HERMES_ONLY_TOOLS is deprecated. Use ALLOWED_TOOLS instead."]),
        (Some("a,b"), Some(" b,a,"), &[]),
        (
            Some("a"),
            Some("b"),
            &[
                "ALLOWED_TOOLS and HERMES_ONLY_TOOLS are both set and differ. ALLOWED_TOOLS is used, HERMES_ONLY_TOOLS is ignored.",
            ],
        ),
        (
            Some("a"),
            Some(""),
            &[
                "ALLOWED_TOOLS and HERMES_ONLY_TOOLS are both set and differ. ALLOWED_TOOLS is used, HERMES_ONLY_TOOLS is ignored.",
            ],
        ),
        (Some("a"), Some("a"), &[]),
    ];
    for (allowed, hermes, expected) in table {
        let (_, lines) = ServerAllowlist::from_environment(&environment(allowed, hermes, None)).unwrap();
        assert_eq!(texts(&lines), expected, "{allowed:?} {hermes:?}");
        assert!(lines.iter().all(|line| line.level == Level::Warn));
    }
}

#[test]
fn another_variable_comes_first_and_allowed_tools_is_not_read() {
    let find = |custom: Option<&str>, hermes: Option<&str>| {
        let custom = Some(("MY_TOOLS".to_owned(), custom.map(str::to_owned)));
        let given = Environment { custom, ..environment(Some("never"), hermes, None) };
        ServerAllowlist::from_environment(&given).map(|(list, lines)| {
            let found = list.diagnostics(&[], None, None);
            let lines = lines.into_iter().map(|line| line.text).collect::<Vec<_>>();
            (found.env_var_name, found.env_value, lines)
        })
    };
    let text = str::to_owned;
    assert_eq!(find(Some("a"), None), Ok((text("MY_TOOLS"), Some(text("a")), vec![])));
    assert_eq!(find(Some("a"), Some("a")), Ok((text("MY_TOOLS"), Some(text("a")), vec![])));
    assert_eq!(find(None, None), Ok((text("MY_TOOLS"), None, vec![])));
    assert_eq!(find(Some(""), Some("a")), Err(format!("MY_TOOLS {EMPTY}")));
    let deprecated = text("HERMES_ONLY_TOOLS is deprecated. Use MY_TOOLS instead.");
    assert_eq!(find(None, Some("a")), Ok((text("HERMES_ONLY_TOOLS"), Some(text("a")), vec![deprecated])));
}

#[test]
fn ci_is_three_words() {
    for (ci, expected) in [
        (None, false),
        (Some("true"), true),
        (Some("TRUE"), true),
        (Some("Yes"), true),
        (Some("1"), true),
        (Some("on"), false),
        (Some("y"), false),
        (Some("t"), false),
        (Some("2"), false),
        (Some(" true "), false),
        (Some("false"), false),
        (Some("0"), false),
        (Some("no"), false),
        (Some(""), false),
    ] {
        let (list, _) = ServerAllowlist::from_environment(&environment(None, None, ci)).unwrap();
        assert_eq!(list.is_ci(), expected, "{ci:?}");
    }
}

#[test]
fn names_are_exact() {
    let list = server("search,team-a/send,se*,Upper,/odd,a/b/c,'q'");
    for (tool, expected) in [
        ("search", true),
        ("team-a/search", true),
        ("Search", false),
        ("searc", false),
        ("send", false),
        ("team-a/send", true),
        ("team-b/send", false),
        ("upper", false),
        ("Upper", true),
        ("odd", false),
        ("a/c", false),
        ("q", false),
    ] {
        assert_eq!(allows(&list, tool), expected, "{tool}");
    }
    let (unset, _) = ServerAllowlist::from_environment(&Environment::default()).unwrap();
    assert!(!unset.is_set() && allows(&unset, "team-a/anything"));
}

#[test]
fn missing_is_what_no_namespace_has() {
    let list = server("search,team-a/send,nope,team-b/send,default/search,bad name,a/b/c");
    let registered = keys(&["team-a/send", "team-z/search"]);
    assert_eq!(list.missing(&registered), ["a/b/c", "bad name", "default/search", "nope", "team-b/send"]);
    assert_eq!(list.missing(&keys(&["search"])).len(), 5);
    assert_eq!(list.missing(&[]).len(), 7);
    let (unset, _) = ServerAllowlist::from_environment(&Environment::default()).unwrap();
    assert_eq!(unset.missing(&[]), Vec::<String>::new());
}

#[test]
fn diagnostics_have_the_seeds_keys() {
    let registered = keys(&["extract", "search", "team-a/search", "team-a/send"]);
    let list = server(" search ,nope");
    let all = list.diagnostics(&registered, None, None);
    let expected = Diagnostics {
        env_var_name: "ALLOWED_TOOLS".to_owned(),
        env_value: Some(" search ,nope".to_owned()),
        is_ci: false,
        whitelist: Some(vec!["nope".to_owned(), "search".to_owned()]),
        registered_before_filter: ["extract", "search", "team-a/search", "team-a/send"]
            .map(str::to_owned)
            .into(),
        registered_after_filter: ["search", "team-a/search"].map(str::to_owned).into(),
        dropped_tools: ["extract", "team-a/send"].map(str::to_owned).into(),
        unknown_tools: vec!["nope".to_owned()],
    };
    assert_eq!(all, expected);

    // One namespace: bare names, but a name that only another namespace has is not unknown.
    let team_z = Namespace::parse("team-z").unwrap();
    let one = list.diagnostics(&registered, Some(&team_z), None);
    assert_eq!((one.registered_before_filter.len(), one.unknown_tools), (0, vec!["nope".to_owned()]));
    let team_a = Namespace::parse("team-a").unwrap();
    let one = list.diagnostics(&registered, Some(&team_a), None);
    assert_eq!(one.registered_after_filter, ["search"]);
    assert_eq!(one.dropped_tools, ["send"]);

    // The request's list intersects, and its unknown names join.
    let request = RequestAllowlist::parse(&["send".to_owned(), "extract".to_owned()]).unwrap();
    let both = list.diagnostics(&registered, Some(&team_a), Some(&request));
    assert_eq!(both.registered_after_filter, Vec::<String>::new());
    assert_eq!(both.dropped_tools, ["search", "send"]);
    assert_eq!(both.unknown_tools, ["extract", "nope"]);

    // Printed names are sorted as printed.
    let mixed = list.diagnostics(&keys(&["alpha/x", "default/z", "zoo/a"]), None, None);
    assert_eq!(mixed.registered_before_filter, ["alpha/x", "z", "zoo/a"]);
}

#[test]
fn start_without_a_list_warns() {
    let (list, _) = ServerAllowlist::from_environment(&environment(None, None, Some("true"))).unwrap();
    let (lines, result) = list.startup_check(&keys(&["b", "a"]));
    assert_eq!(result, Ok(()));
    assert_eq!(lines[0].level, Level::Warn);
    assert!(lines[1..].iter().all(|line| line.level == Level::Info));
    let rule = "=".repeat(50);
    assert_eq!(
        texts(&lines),
        [
            "Tool whitelist is unset. All 2 tools are visible. Consider using ALLOWED_TOOLS to prevent tool name collisions.",
            &rule,
            "ALLOWED_TOOLS FILTER DIAGNOSTICS",
            &rule,
            "ALLOWED_TOOLS=<unset>",
            "RegisteredBeforeFilter=['a', 'b']",
            "RegisteredAfterFilter=['a', 'b']",
            "DroppedTools=[]",
            "UnknownTools=[]",
            "IsCI=True",
            &rule,
        ]
    );
}

#[test]
fn start_with_unknown_names() {
    let registered = keys(&["extract", "search", "team-a/send"]);
    let given = |ci| environment(None, Some("search, it's,nope"), ci);
    let (list, _) = ServerAllowlist::from_environment(&given(Some("0"))).unwrap();
    let (lines, result) = list.startup_check(&registered);
    assert_eq!(result, Ok(()));
    assert_eq!(
        texts(&lines)[..3],
        [
            "Unknown tools in HERMES_ONLY_TOOLS will be ignored: [\"it's\", 'nope']",
            "Dropped 2 tools not in HERMES_ONLY_TOOLS whitelist: ['extract', 'team-a/send']",
            "HERMES_ONLY_TOOLS filtered tools: 3 available, 1 after filter",
        ]
    );
    assert_eq!(lines[0].level, Level::Warn);
    assert!(lines[1..].iter().all(|line| line.level == Level::Info));
    assert_eq!(texts(&lines)[6], "HERMES_ONLY_TOOLS=search, it's,nope");
    assert_eq!(lines.len(), 13);

    let (list, _) = ServerAllowlist::from_environment(&given(Some("1"))).unwrap();
    let (lines, result) = list.startup_check(&registered);
    let error = "Unknown tools in HERMES_ONLY_TOOLS: [\"it's\", 'nope']. All specified tools must be available in CI mode.";
    assert_eq!(result, Err(error.to_owned()));
    assert_eq!(lines.len(), 10, "only the block");
    let waited = list.ci_error(&list.missing(&registered), Some(Duration::from_secs(30)));
    assert_eq!(
        waited,
        format!(
            "{error} They were not registered within TOOLPULSE_STRICT_WAIT=30s; check the names with 'toolpulse allowlist check'."
        )
    );
}

#[test]
fn start_with_all_names_known_says_little() {
    let (list, _) =
        ServerAllowlist::from_environment(&environment(Some("search"), None, Some("yes"))).unwrap();
    let (lines, result) = list.startup_check(&keys(&["search"]));
    assert_eq!(result, Ok(()));
    assert_eq!(texts(&lines)[0], "ALLOWED_TOOLS filtered tools: 1 available, 1 after filter");
    assert_eq!(lines.len(), 11);
    // An unset CI and an empty registry: everything is unknown, nothing fails.
    let (lines, result) = server("search").startup_check(&[]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        texts(&lines)[..2],
        [
            "Unknown tools in ALLOWED_TOOLS will be ignored: ['search']",
            "ALLOWED_TOOLS filtered tools: 0 available, 0 after filter",
        ]
    );
}

#[test]
fn log_lines_are_bounded() {
    let names: Vec<String> = (0..1_500).map(|i| format!("tool-{i:04}")).collect();
    let registered = keys(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (lines, _) = server("tool-0000").startup_check(&registered);
    assert!(lines[0].text.ends_with("'tool-1000'] and 499 more"), "{}", lines[0].text);
}

#[test]
fn request_lists() {
    let parse = |names: &[&str]| {
        RequestAllowlist::parse(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let list = parse(&["search", "team-a/send", "search"]).unwrap();
    assert_eq!(list.names(), ["search", "team-a/send"]);
    for (tool, expected) in
        [("search", true), ("team-b/search", true), ("send", false), ("team-a/send", true)]
    {
        let key = key(tool);
        assert_eq!(list.allows(&key.namespace, &key.name), expected, "{tool}");
    }
    assert_eq!(list.unknown(&keys(&["search"])), ["team-a/send"]);

    let faults = |names: &[&str]| match parse(names) {
        Err(Refusal::Invalid(faults)) => faults,
        other => panic!("{other:?}"),
    };
    assert_eq!(faults(&[])[0].field, "allowed_tools.names");
    assert!(faults(&[])[0].message.starts_with("is empty"));
    let many = faults(&["ok", "", " ", "bad name", "/x", "a/", "A/x", "a/b/c", "se*", "a,b"]);
    let fields: Vec<&str> = many.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, (1..10).map(|i| format!("allowed_tools.names[{i}]")).collect::<Vec<_>>());
    assert!(many[0].message.starts_with("is blank") && many[1].message.starts_with("is blank"));
    assert_eq!(many[2].message, "name 'bad name' must be 1 to 128 characters of [A-Za-z0-9_.-]");
    assert!(many[5].message.starts_with("namespace 'A'"));

    assert!(parse(&vec!["a"; 10_000]).is_ok());
    assert_eq!(faults(&vec!["a"; 10_001])[0].message, "has 10001 names; at most 10000");
    assert_eq!(faults(&vec!["a b"; 10_000]).len(), 32);
}
