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
