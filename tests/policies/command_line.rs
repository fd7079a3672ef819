//! The commands of operators, against a running server.

use toolpulse::proto::v1::AgentPolicy;

use super::*;
use crate::support::server::clean_command;

/// What a command prints, and how it ends.
fn run(server: &Server, line: &[&str]) -> (String, i32) {
    let output = clean_command()
        .args(line)
        .args(["--server", server.address()])
        .output()
        .expect("the binary can be started");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (text.into_owned(), output.status.code().unwrap_or(-1))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_looks_and_acts() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    for name in ["search_docs", "send_mail"] {
        register(&server, named(name)).await;
    }
    let says = |line: &[&str], code: i32, texts: &[&str]| {
        let (output, ended) = run(&server, line);
        assert_eq!(ended, code, "{line:?}: {output}");
        for text in texts {
            assert!(output.contains(text), "{line:?}: {output}");
        }
    };
    says(&["policy", "set", "bot", "--deny", "send_mail", "--max-tools", "5"], 0, &["send_mail", "etag:"]);
    says(&["policy", "list"], 0, &["bot", "send_mail"]);
    says(&["policy", "get", "bot", "--output", "json"], 0, &["\"max_tools\": 5"]);
    says(&["policy", "set", "bot", "--etag", "x"], 1, &["ETAG_MISMATCH"]);
    says(&["policy", "set", "new", "--etag", "x"], 1, &["agent 'new' has no policy, so none with etag 'x'"]);
    says(
        &["policy", "set", "bot", "--create-only"],
        1,
        &["agent 'bot' has a policy already", "POLICY_EXISTS"],
    );
    says(&["tools", "list", "--agent", "bot"], 0, &["search_docs"]);
    says(
        &["tools", "explain", "send_mail", "--agent", "bot"],
        1,
        &[
            "'send_mail' is hidden from agent 'bot' by policy: the policy of 'bot' denies it by name",
            "DENIED",
        ],
    );
    says(&["tools", "explain", "serach_docs"], 1, &["did you mean 'search_docs'?"]);
    says(&["tools", "explain", "search_docs"], 0, &["'search_docs' is visible"]);
    says(&["tools", "disable", "search_docs", "--message", "costs"], 0, &["'search_docs' is disabled"]);
    says(&["tools", "explain", "search_docs"], 1, &["an operator disabled it: costs"]);
    says(&["tools", "list", "--all"], 0, &["AVAILABLE (disabled)"]);
    let (none, _) = run(&server, &["tools", "list", "--all", "--selector", "team=x"]);
    assert!(!none.contains("search_docs"), "{none}");
    says(&["tools", "list", "--all", "--selector", "!team"], 0, &["search_docs", "send_mail"]);
    says(&["tools", "enable", "search_docs"], 0, &["'search_docs' is enabled"]);
    says(&["tools", "search", "documents", "docs"], 0, &["search_docs"]);
    says(
        &["tools", "list", "--format", "openai-chat", "--visibility", "stable", "--max-tools", "1"],
        0,
        &["\"type\":\"allowed_tools\""],
    );
    says(&["policy", "delete", "bot"], 0, &["the policy of 'bot' is deleted"]);
    says(&["policy", "get", "bot"], 1, &["POLICY_NOT_FOUND"]);
    assert_eq!(set(&server, AgentPolicy { ..policy("bot") }).await.unwrap().max_tools, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_approves_labels() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    for team in ["mail", "search"] {
        register(&server, labelled("a", &[("team", team)])).await;
    }
    set(&server, AgentPolicy { label_selector: "team=search".into(), ..policy("bot") }).await.unwrap();
    let command = "toolpulse tools approve-labels a";
    let (explained, code) = run(&server, &["tools", "explain", "a", "--agent", "bot"]);
    let headline = explained.lines().next().unwrap_or_default();
    assert!(
        code == 1 && headline.ends_with(command) && explained.contains("LABELS_NOT_APPROVED"),
        "{explained}"
    );
    let lines = |text: &str| -> Vec<String> {
        let of_labels = |l: &&str| ["labels:", "approved:", "to approve:"].iter().any(|n| l.starts_with(n));
        text.lines().filter(of_labels).map(str::to_owned).collect()
    };
    let (shown, _) = run(&server, &["tools", "get", "a"]);
    let expected = [
        "labels:        team=search".to_owned(),
        "approved:      team=mail; policies ask for these as well".to_owned(),
        format!("to approve:    {command}"),
    ];
    assert_eq!(lines(&shown), expected);
    let (json, _) = run(&server, &["tools", "get", "a", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["approved_labels"], serde_json::json!({"team": "mail"}));
    // The command as it is told.
    let told: Vec<&str> = command.split(' ').skip(1).collect();
    assert_eq!(run(&server, &told), ("the labels of 'a' are approved: team=search\n".to_owned(), 0));
    let (shown, _) = run(&server, &["tools", "get", "a"]);
    assert_eq!(lines(&shown), ["labels:        team=search"]);
    assert_eq!(run(&server, &["tools", "explain", "a", "--agent", "bot"]).1, 0);
    let (missing, code) = run(&server, &["tools", "approve-labels", "nosuch"]);
    assert!(code == 1 && missing.contains("no tool 'nosuch'"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_as_that() {
    let server = Server::start(|c| {
        c.store("memory");
        c.env("TOOLPULSE_DEFAULT_POLICY", "deny");
    })
    .await;
    for (line, expected) in [
        (&["policy", "list"][..], "no policies in namespace 'default'"),
        (&["tools", "list", "--all"], "no tools in namespace 'default'"),
        (&["tools", "list", "--all", "--selector", "a=b"], "no tools with labels a=b in namespace 'default'"),
        (
            &["tools", "list"],
            "no tools for an agent without a policy in namespace 'default': none is registered",
        ),
        (&["tools", "search", "x", "--agent", "bot"], "no tool that agent 'bot' may use now fits"),
    ] {
        assert_eq!(run(&server, line), (format!("{expected}\n"), 0), "{line:?}");
    }
    register(&server, named("a")).await;
    let (list, code) = run(&server, &["tools", "list", "--agent", "bot", "--hidden"]);
    let expected = "no tools for agent 'bot' in namespace 'default'; 'a', for one, is hidden by policy: 'bot' has no policy, and \
                    the server's TOOLPULSE_DEFAULT_POLICY=deny denies all tools. 'toolpulse tools list --all' shows";
    assert!(code == 0 && list.starts_with(expected), "{list}");
    assert!(list.ends_with("no tool is hidden that the agent may know of\n"), "{list}");
    let (explained, _) = run(&server, &["tools", "explain", "nosuch"]);
    assert_eq!(explained.lines().next(), Some("no tool 'nosuch' in namespace 'default'"));
    let (explained, _) = run(&server, &["tools", "explain", "a"]);
    let policy = "what applies without a policy, TOOLPULSE_DEFAULT_POLICY=deny, denies all tools";
    assert!(explained.contains(policy), "{explained}");
    for (message, expected) in [("", "disabled:      yes"), ("costs", "disabled:      yes: costs")] {
        switch(&server, "a", false, message).await;
        let (shown, _) = run(&server, &["tools", "get", "a"]);
        assert!(shown.lines().any(|line| line == expected), "{shown}");
        assert!(shown.lines().all(|line| line == line.trim_end()), "{shown}");
    }
}
