//! What a start makes of the allowlist in its environment: texts and exit codes to the letter.

use std::{path::Path, time::Duration};

use tempfile::NamedTempFile;
use toolpulse::proto::{
    health::{HealthCheckRequest, health_check_response::ServingStatus},
    v1::{ListAvailableToolsRequest, RegisterToolRequest, RegisterToolsRequest},
};

use crate::support::{SOON, Server, ServerConfig, eventually, inproc::tool, server::Ended};

const EMPTY: &str =
    " cannot be empty. Either unset it for all tools or provide a comma-separated list of tool names.";
const NOTHING: &str =
    " contains no valid tool names. Provide comma-separated tool names or unset the variable.";

/// Three tools, one of them in another namespace.
fn manifest() -> NamedTempFile {
    let file = NamedTempFile::with_suffix(".yaml").unwrap();
    let text = "tools: [{name: search}, {name: send_message}, {name: search, namespace: prod}]";
    std::fs::write(file.path(), text).unwrap();
    file
}

type Env = [(&'static str, &'static str)];

fn configure(manifest: &Path, env: &Env) -> impl FnOnce(&mut ServerConfig) {
    move |config| {
        config.store("memory").env("TOOLPULSE_MANIFEST", manifest);
        for (name, value) in env {
            config.env(name, value);
        }
    }
}

/// The last line of a start that failed, and how it failed.
fn refusal(ended: &Ended) -> (Option<i32>, &str) {
    (ended.status.code(), ended.log.lines().last().unwrap_or_default())
}

/// The level of each line of the log that ends with a text; without the lines that have it not.
fn levels<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    let lines = log.lines().filter(|line| line.ends_with(text));
    lines
        .filter_map(|line| ["DEBUG", "INFO", "WARN", "ERROR"].into_iter().find(|l| line.contains(l)))
        .collect()
}

#[tokio::test]
async fn a_list_that_names_nothing_stops_the_start() {
    let file = manifest();
    let rows: &[(&Env, &str, &str)] = &[
        (&[("ALLOWED_TOOLS", "")], "ALLOWED_TOOLS", EMPTY),
        (&[("ALLOWED_TOOLS", " \t\n")], "ALLOWED_TOOLS", EMPTY),
        (&[("ALLOWED_TOOLS", ",")], "ALLOWED_TOOLS", NOTHING),
        (&[("ALLOWED_TOOLS", " , ,\n,")], "ALLOWED_TOOLS", NOTHING),
        (&[("HERMES_ONLY_TOOLS", "")], "HERMES_ONLY_TOOLS", EMPTY),
        (&[("HERMES_ONLY_TOOLS", ",,")], "HERMES_ONLY_TOOLS", NOTHING),
        (&[("ALLOWED_TOOLS", ""), ("HERMES_ONLY_TOOLS", "search")], "ALLOWED_TOOLS", EMPTY),
        (&[("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("MINE", " ")], "MINE", EMPTY),
        (&[("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("MINE", ","), ("ALLOWED_TOOLS", "search")], "MINE", NOTHING),
        (&[("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("HERMES_ONLY_TOOLS", " ")], "HERMES_ONLY_TOOLS", EMPTY),
    ];
    for (env, variable, text) in rows {
        let ended = Server::refuse(configure(file.path(), env)).await;
        let expected = format!("error: {variable}{text}");
        assert_eq!(refusal(&ended), (Some(2), expected.as_str()), "{env:?}");
    }
}

#[tokio::test]
async fn unknown_names_stop_a_strict_start() {
    let file = manifest();
    for ci in ["true", "TRUE", "True", "1", "yes", "YES"] {
        let env = [("CI", ci), ("ALLOWED_TOOLS", "nope,search,it's,Search")];
        let ended = Server::refuse(|config| {
            config.store("memory").env("TOOLPULSE_MANIFEST", file.path());
            env.iter().for_each(|(name, value)| {
                config.env(name, value);
            });
        })
        .await;
        let expected = "error: Unknown tools in ALLOWED_TOOLS: ['Search', \"it's\", 'nope']. All specified tools must be available in CI mode.";
        assert_eq!(refusal(&ended), (Some(2), expected), "{ci}");
        assert_eq!(levels(&ended.log, "IsCI=True"), ["INFO"], "the block shows what would be right");
    }
    let rows: &[(&Env, &str)] = &[
        (&[("CI", "1"), ("HERMES_ONLY_TOOLS", "nope")], "HERMES_ONLY_TOOLS: ['nope']"),
        (&[("CI", "1"), ("ALLOWED_TOOLS", "prod/send_message")], "ALLOWED_TOOLS: ['prod/send_message']"),
        (&[("CI", "1"), ("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("MINE", "x")], "MINE: ['x']"),
    ];
    for (env, unknown) in rows {
        let ended = Server::refuse(configure(file.path(), env)).await;
        let expected =
            format!("error: Unknown tools in {unknown}. All specified tools must be available in CI mode.");
        assert_eq!(refusal(&ended), (Some(2), expected.as_str()), "{env:?}");
    }
}

/// Environment, what an agent of `default` sees, lines of the log with their level, and what must not be in it.
type Start =
    (&'static Env, &'static [&'static str], &'static [(&'static str, &'static str)], &'static [&'static str]);

const STARTS: &[Start] = &[
    (
        &[],
        &["search", "send_message"],
        &[
            (
                "WARN",
                "Tool whitelist is unset. All 3 tools are visible. Consider using ALLOWED_TOOLS to prevent tool name collisions.",
            ),
            ("INFO", "ALLOWED_TOOLS=<unset>"),
            ("INFO", "IsCI=False"),
        ],
        &["after filter", "deprecated"],
    ),
    (
        &[("ALLOWED_TOOLS", " search ,\n send_message,,search"), ("CI", "true")],
        &["search", "send_message"],
        &[
            ("INFO", "ALLOWED_TOOLS filtered tools: 3 available, 3 after filter"),
            ("INFO", "UnknownTools=[]"),
            ("INFO", "IsCI=True"),
        ],
        &["Dropped ", "Unknown tools", "unset"],
    ),
    (
        &[("ALLOWED_TOOLS", "search,nope,Search")],
        &["search"],
        &[
            ("WARN", "Unknown tools in ALLOWED_TOOLS will be ignored: ['Search', 'nope']"),
            ("INFO", "Dropped 1 tools not in ALLOWED_TOOLS whitelist: ['send_message']"),
            ("INFO", "ALLOWED_TOOLS filtered tools: 3 available, 2 after filter"),
            ("INFO", "ALLOWED_TOOLS FILTER DIAGNOSTICS"),
            ("INFO", "ALLOWED_TOOLS=search,nope,Search"),
            ("INFO", "RegisteredBeforeFilter=['prod/search', 'search', 'send_message']"),
            ("INFO", "RegisteredAfterFilter=['prod/search', 'search']"),
            ("INFO", "DroppedTools=['send_message']"),
            ("INFO", "UnknownTools=['Search', 'nope']"),
            ("INFO", "IsCI=False"),
        ],
        &["unset"],
    ),
    (
        &[("ALLOWED_TOOLS", "prod/search,send_message"), ("CI", "1")],
        &["send_message"],
        &[("INFO", "Dropped 1 tools not in ALLOWED_TOOLS whitelist: ['search']")],
        &[],
    ),
    (
        &[("HERMES_ONLY_TOOLS", "search,gone")],
        &["search"],
        &[
            ("WARN", "HERMES_ONLY_TOOLS is deprecated. Use ALLOWED_TOOLS instead."),
            ("WARN", "Unknown tools in HERMES_ONLY_TOOLS will be ignored: ['gone']"),
            ("INFO", "Dropped 1 tools not in HERMES_ONLY_TOOLS whitelist: ['send_message']"),
            ("INFO", "HERMES_ONLY_TOOLS filtered tools: 3 available, 2 after filter"),
            ("INFO", "HERMES_ONLY_TOOLS=search,gone"),
        ],
        &[],
    ),
    (
        &[("ALLOWED_TOOLS", "search"), ("HERMES_ONLY_TOOLS", "send_message")],
        &["search"],
        &[(
            "WARN",
            "ALLOWED_TOOLS and HERMES_ONLY_TOOLS are both set and differ. ALLOWED_TOOLS is used, HERMES_ONLY_TOOLS is ignored.",
        )],
        &["deprecated"],
    ),
    (
        &[("ALLOWED_TOOLS", "search,send_message"), ("HERMES_ONLY_TOOLS", " send_message,search")],
        &["search", "send_message"],
        &[],
        &["differ", "deprecated"],
    ),
    (
        &[("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("MINE", "search"), ("ALLOWED_TOOLS", "")],
        &["search"],
        &[
            ("INFO", "MINE filtered tools: 3 available, 2 after filter"),
            ("INFO", "ALLOWED_TOOLS FILTER DIAGNOSTICS"),
            ("INFO", "MINE=search"),
        ],
        &["ALLOWED_TOOLS="],
    ),
    (
        &[
            ("TOOLPULSE_ALLOWLIST_VAR", "MINE"),
            ("HERMES_ONLY_TOOLS", "search"),
            ("ALLOWED_TOOLS", "send_message"),
        ],
        &["search"],
        &[("INFO", "HERMES_ONLY_TOOLS=search")],
        &["ALLOWED_TOOLS="],
    ),
    (
        &[("TOOLPULSE_ALLOWLIST_VAR", "MINE"), ("ALLOWED_TOOLS", "send_message")],
        &["search", "send_message"],
        &[("INFO", "MINE=<unset>")],
        &[],
    ),
];

#[tokio::test]
async fn starts_with_and_without_a_list() {
    let file = manifest();
    for (env, visible, lines, absent) in STARTS {
        let server = Server::start(configure(file.path(), env)).await;
        let reply = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await;
        let names: Vec<_> = reply.unwrap().into_inner().tools.into_iter().map(|t| t.name).collect();
        assert_eq!(names, *visible, "{env:?}");
        let log = server.log();
        for (level, text) in *lines {
            assert_eq!(levels(&log, text), [*level], "{env:?}: {text}\n{log}");
        }
        for text in *absent {
            assert!(!log.contains(text), "{env:?}: {text}\n{log}");
        }
        let rules = log.lines().filter(|line| line.ends_with(&"=".repeat(50))).count();
        assert_eq!(rules, 3, "one block: {log}");
    }
}

#[tokio::test]
async fn other_values_of_ci_are_not_strict() {
    let file = manifest();
    for ci in ["", "0", "false", "on", "y", "2", " true", "true "] {
        let server = Server::start(|config| {
            config.store("memory").env("TOOLPULSE_MANIFEST", file.path());
            config.env("CI", ci).env("ALLOWED_TOOLS", "nope");
        })
        .await;
        assert_eq!(levels(&server.log(), "IsCI=False"), ["INFO"], "{ci:?}");
    }
}

async fn register(server: &Server, name: &str) {
    let request = RegisterToolRequest { tool: Some(tool(name)), ..Default::default() };
    server.tools().register_tool(request).await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_registered_later_becomes_visible() {
    let server = Server::start(|config| {
        config.store("memory").env("ALLOWED_TOOLS", "late");
    })
    .await;
    register(&server, "late").await;
    register(&server, "other").await;
    let reply = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await;
    assert_eq!(reply.unwrap().into_inner().tools.len(), 1);
}

#[tokio::test]
async fn a_strict_start_is_judged_after_store_and_manifest_are_loaded() {
    let (file, data) = (manifest(), tempfile::tempdir().unwrap());
    let mut first = Server::start(|config| {
        config.data_dir(data.path());
    })
    .await;
    let tools = RegisterToolsRequest { tools: vec![tool("stored")], ..Default::default() };
    first.tools().register_tools(tools).await.unwrap();
    first.signal(rustix::process::Signal::TERM);
    first.wait_exit(SOON).await;

    let strict = |names: &'static str| {
        let (data, file) = (data.path().to_owned(), file.path().to_owned());
        move |config: &mut ServerConfig| {
            config.data_dir(data).env("TOOLPULSE_MANIFEST", file).env("CI", "1").env("ALLOWED_TOOLS", names);
        }
    };
    let ended = Server::refuse(strict("stored,search,missing")).await;
    assert!(refusal(&ended).1.contains("Unknown tools in ALLOWED_TOOLS: ['missing']."), "{}", ended.log);
    drop(Server::start(strict("stored,search")).await);
}

#[tokio::test]
async fn a_strict_start_may_wait_for_its_names() {
    let server = Server::start(|config| {
        config.store("memory").without_waiting();
        config.env("CI", "1").env("ALLOWED_TOOLS", "one,two").env("TOOLPULSE_STRICT_WAIT", "60s");
    })
    .await;
    let ready = async || server.admin_get("/readyz").await.unwrap();
    let pending = eventually("settled", SOON, async || {
        let (code, body) = ready().await;
        (!body.contains("settling")).then_some((code, body))
    });
    assert_eq!(pending.await, (503, "pending: allowlist\n".to_owned()));
    let health = async || {
        let reply = server.health().check(HealthCheckRequest::default()).await;
        reply.unwrap().into_inner().status()
    };
    assert_eq!(health().await, ServingStatus::NotServing);
    // The API is open all the while.
    register(&server, "one").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(ready().await.0, 503);
    register(&server, "two").await;
    eventually("ready", SOON, async || (ready().await == (200, "ok\n".to_owned())).then_some(())).await;
    assert_eq!(health().await, ServingStatus::Serving);
    server.logs("RegisteredAfterFilter=['one', 'two']").await;
    assert_eq!(levels(&server.log(), "RegisteredAfterFilter=['one', 'two']"), ["INFO"]);
}

#[tokio::test]
async fn a_strict_start_that_waited_in_vain_ends() {
    let mut server = Server::start(|config| {
        config.store("memory").without_waiting();
        config.env("CI", "true").env("ALLOWED_TOOLS", "never").env("TOOLPULSE_STRICT_WAIT", "500ms");
    })
    .await;
    let status = server.wait_exit(SOON).await;
    let log = server.log();
    let last = log.lines().last().unwrap();
    assert_eq!(status.code(), Some(2), "{log}");
    let error =
        "error: Unknown tools in ALLOWED_TOOLS: ['never']. All specified tools must be available in CI mode.";
    assert!(last.starts_with(error), "{log}");
    for word in ["TOOLPULSE_STRICT_WAIT=500ms", "allowlist check"] {
        assert!(last.contains(word), "{log}");
    }
}
