//! The commands that talk to a server, as a person or a script runs them.

use std::fs;

use crate::{
    Ran, run,
    support::{
        Server,
        targets::{Answer, HttpTarget},
    },
};

/// A server, files of tools, and a way to run commands against it.
struct Desk {
    server: Server,
    target: HttpTarget,
    files: tempfile::TempDir,
}

impl Desk {
    async fn new(env: &[(&str, &str)]) -> Self {
        let server = Server::start(|config| {
            config.store("memory");
            env.iter().for_each(|(name, value)| {
                config.env(name, value);
            });
        })
        .await;
        let target = HttpTarget::start(Answer::Status(200)).await;
        Self { server, target, files: tempfile::tempdir().unwrap() }
    }

    async fn run(&self, args: &str) -> Ran {
        let args: Vec<&str> = args.split_whitespace().collect();
        run(&args, &[("TOOLPULSE_SERVER", self.server.address())]).await
    }

    /// The same command, for scripts; its output must parse.
    async fn json(&self, args: &str) -> serde_json::Value {
        let ran = self.run(&format!("{args} --output json")).await;
        assert_eq!(ran.code, 0, "{args}: {ran:?}");
        ran.json()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    async fn with_tools() -> Self {
        let desk = Self::new(&[]).await;
        let file = desk.file(
            "tools.yaml",
            &format!(
                "owner: ann\ntools:\n- name: search\n  description: Finds things.\n  endpoint: https://x.example/\n  probes: [{{http: {{url: \"{}\"}}}}]\n- name: clock\n",
                desk.target.url("/")
            ),
        );
        let ran = desk.run(&format!("tools register {file} --wait 10s")).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        for row in [["search", "CREATED", "AVAILABLE"], ["clock", "CREATED", "AVAILABLE"]] {
            assert!(ran.stdout.lines().any(|line| row.iter().all(|cell| line.contains(cell))), "{ran:?}");
        }
        desk
    }
}

#[tokio::test]
async fn lint_looks_up_secrets_where_it_knows_the_directory_and_says_where_it_does_not() {
    let files = tempfile::tempdir().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let file = files.path().join("tools.yaml");
    let probe = "{http: {url: 'https://search.example/', headers: [{bearer_secret_ref: search-token}]}}";
    fs::write(&file, format!("tools:\n- name: search\n  probes: [{probe}]\n")).unwrap();
    let args = ["tools", "lint", file.to_str().unwrap()];
    let unset = run(&args, &[]).await;
    assert!(unset.code == 0 && unset.stdout.contains("TOOLPULSE_SECRETS_DIR is not set"), "{unset:?}");
    assert!(!unset.stdout.contains("WARNING"), "{unset:?}");
    let dir = secrets.path().to_str().unwrap();
    let missing = run(&args, &[("TOOLPULSE_SECRETS_DIR", dir)]).await;
    for words in ["WARNING", "SECRET_NOT_USABLE", "'search-token' is not for search.example port 443"] {
        assert!(missing.code == 0 && missing.stdout.contains(words), "{words}: {missing:?}");
    }
    fs::write(secrets.path().join("search-token"), "s3cret").unwrap();
    fs::write(secrets.path().join("search-token.hosts"), "search.example").unwrap();
    let good = run(&args, &[("TOOLPULSE_SECRETS_DIR", dir)]).await;
    assert!(good.code == 0 && !good.stdout.contains("WARNING"), "{good:?}");
    assert!(!good.stdout.contains("s3cret") && !good.stdout.contains("not looked at"), "{good:?}");
}

#[tokio::test]
async fn tools_are_listed_shown_and_probed() {
    let desk = Desk::with_tools().await;
    let list = desk.run("tools list").await;
    assert_eq!((list.code, list.stderr.as_str()), (0, ""));
    let names: Vec<_> = list.stdout.lines().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["NAME", "clock", "search"]);
    let json = desk.json("tools list").await;
    assert_eq!(json["tools"][1]["name"], "search");
    assert_eq!(json["tools"][1]["definition"]["description"], "Finds things.");
    let chat = desk.json("tools list --format openai-chat").await;
    assert_eq!(chat["tools"][0]["definition"]["type"], "function");
    let definitions = desk.run("tools list --definitions").await;
    assert_eq!(definitions.json().as_array().unwrap().len(), 2);
    let narrowed = desk.run("tools list --allowed search,nope").await;
    assert_eq!(narrowed.stdout.lines().count(), 2, "{narrowed:?}");
    assert!(narrowed.stderr.starts_with("warning: ") && narrowed.stderr.contains("nope"), "{narrowed:?}");

    let shown = desk.run("tools get search").await;
    for words in ["default/search", "ann", "AVAILABLE", "https://x.example/", &desk.target.url("/")] {
        assert!(shown.stdout.contains(words), "{words}: {shown:?}");
    }
    assert_eq!(desk.json("tools get search").await["status"]["verdict"], "VERDICT_AVAILABLE");
    let missing = desk.run("tools get nope").await;
    assert_eq!(missing.code, 1);
    assert_eq!(missing.error(), "no tool 'nope' in namespace 'default' (NOT_FOUND, TOOL_NOT_FOUND)");

    assert_eq!(desk.run("tools probe search").await.code, 0);
    let json = desk.json("tools probe search").await;
    assert_eq!(json["results"][0]["outcome"], "PROBE_OUTCOME_PASS");
    assert_eq!(json["results"][0]["sent"], format!("GET {}", desk.target.url("/")));
    desk.target.set(Answer::Status(403));
    let failed = desk.run("tools probe search").await;
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("NO"), "{failed:?}");
    let sent = format!("GET {}", desk.target.url("/"));
    for words in ["SENT", &sent, &desk.target.address(), "verdict: UNAVAILABLE: HTTP_STATUS: "] {
        assert!(failed.stdout.contains(words), "{words}: {failed:?}");
    }
    let shown = desk.run("tools get search").await;
    let turns: Vec<&str> = shown.stdout.lines().skip_while(|line| !line.starts_with("TURNED")).collect();
    let cells = |line: &str| line.split_whitespace().skip(1).take(4).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(turns[1]), ["AVAILABLE", "UNAVAILABLE", "http", "HTTP_STATUS"], "the newest first");
    assert_eq!(cells(turns[2]), ["PENDING", "AVAILABLE", "http", "PROBE_PASSED"]);
    assert!(desk.run("tools probe clock").await.error().contains("has no probes"));

    let all = desk.run("tools list --all").await;
    assert!(all.stdout.lines().any(|l| l.contains("search") && l.contains("UNAVAILABLE")), "{all:?}");
    assert_eq!(desk.json("tools list --all").await["tools"].as_array().unwrap().len(), 2);
    let hidden = desk.run("tools list --hidden").await;
    assert!(hidden.stdout.contains("HTTP_STATUS"), "{hidden:?}");
    assert_eq!(desk.json("tools list --hidden").await["hidden"][0]["name"], "search");
}

#[tokio::test]
async fn tools_are_registered_and_unregistered() {
    let desk = Desk::with_tools().await;
    let other = desk.file("other.yaml", "owner: bob\ntools: [{name: search}, {name: new}]");
    let refused = desk.run(&format!("tools register {other}")).await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.stdout.lines().any(|l| l.contains("search") && l.contains("ALREADY_EXISTS")),
        "{refused:?}"
    );
    assert!(refused.stdout.lines().any(|l| l.contains("new") && l.contains("CREATED")), "{refused:?}");
    let ran = desk.run(&format!("tools register {other} --overwrite --force --output json")).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.json()["results"][0]["result"], "REGISTER_RESULT_REPLACED");
    let trial = desk.json(&format!("tools register {other} --owner bob --validate-only")).await;
    assert_eq!(trial["results"][1]["result"], "REGISTER_RESULT_VALID");
    let mcp = desk.file("mcp.json", r#"{"tools": [{"name": "m", "inputSchema": {"type": "object"}}]}"#);
    let elsewhere = desk.json(&format!("tools register {mcp} --namespace prod")).await;
    assert_eq!(elsewhere["results"][0]["namespace"], "prod");
    assert_eq!(desk.json("tools list --namespace prod").await["tools"][0]["name"], "m");

    let broken = desk.file("broken.yaml", "tools:\n- name: a\n  probe: 1\n");
    let ran = desk.run(&format!("tools register {broken}")).await;
    assert_eq!(ran.code, 1);
    assert!(ran.error().contains("line 3"), "{ran:?}");
    assert_eq!(desk.run("tools register /nowhere.yaml").await.code, 1);

    let denied = desk.run("tools unregister clock").await;
    assert_eq!(denied.code, 1);
    let gone = desk.run("tools unregister clock --owner ann").await;
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(desk.run("tools unregister clock --owner ann").await.code, 1);
    let json = desk.json("tools unregister new search --force").await;
    assert_eq!(json["unregistered"], serde_json::json!(["new", "search"]));
    assert_eq!(desk.json("tools list").await["tools"], serde_json::json!([]));
}

#[tokio::test]
async fn the_allowlist_is_checked_for_pipelines() {
    let desk = Desk::new(&[("ALLOWED_TOOLS", "clock,late")]).await;
    let file = desk.file("tools.yaml", "tools: [{name: clock}, {name: dropped}]");
    assert_eq!(desk.run(&format!("tools register {file}")).await.code, 0);
    let missing = desk.run("allowlist check").await;
    assert_eq!((missing.code, missing.stderr.as_str()), (1, ""));
    let rule = "=".repeat(50);
    let expected = format!(
        "{rule}\nALLOWED_TOOLS FILTER DIAGNOSTICS\n{rule}\nALLOWED_TOOLS=clock,late\n\
         RegisteredBeforeFilter=['clock', 'dropped']\nRegisteredAfterFilter=['clock']\n\
         DroppedTools=['dropped']\nUnknownTools=['late']\nIsCI=False\n{rule}\n"
    );
    assert_eq!(missing.stdout, expected);
    let json = desk.run("allowlist check --output json").await;
    assert_eq!((json.code, &json.json()["unknown_tools"]), (1, &serde_json::json!(["late"])));
    let file = desk.file("late.yaml", "tools: [{name: late}]");
    assert_eq!(desk.run(&format!("tools register {file}")).await.code, 0);
    assert_eq!(desk.run("allowlist check").await.code, 0);
    assert_eq!(desk.run("allowlist check --allowed clock").await.code, 0);
    assert_eq!(desk.run("allowlist check --allowed clock,nope").await.code, 1);
}

#[tokio::test]
async fn health_is_told_by_the_exit_code() {
    let desk = Desk::new(&[]).await;
    let healthy = desk.run("healthcheck").await;
    assert_eq!((healthy.code, healthy.stdout.as_str(), healthy.stderr.as_str()), (0, "SERVING\n", ""));
    assert_eq!(desk.json("healthcheck").await["status"], "SERVING");
    let admin = run(&["healthcheck", "--server", desk.server.admin_address()], &[]).await;
    assert_eq!(admin.code, 0, "{admin:?}");
    let service = desk.run("healthcheck --service toolpulse.v1.ToolRegistryService").await;
    assert_eq!(service.code, 0);
    let unknown = desk.run("healthcheck --service nope").await;
    assert_eq!(unknown.code, 3);
    assert!(unknown.error().contains("'nope'"), "{unknown:?}");
    let address = desk.server.address().to_owned();
    drop(desk);
    let gone = run(&["healthcheck", "--server", &address], &[]).await;
    assert_eq!(gone.code, 3);
    assert!(gone.error().contains("cannot reach"), "{gone:?}");
    let gone = run(&["tools", "list", "--server", &address], &[]).await;
    assert_eq!(gone.code, 1);
    assert!(gone.error().contains("cannot reach"), "{gone:?}");

    // Waiting for names: up, and not healthy.
    let waits = Server::start(|config| {
        config.store("memory").without_waiting();
        config.env("CI", "1").env("ALLOWED_TOOLS", "x").env("TOOLPULSE_STRICT_WAIT", "60s");
    })
    .await;
    let waiting = run(&["healthcheck", "--server", waits.address()], &[]).await;
    assert_eq!((waiting.code, waiting.stdout.as_str()), (3, "NOT_SERVING\n"));
}

#[tokio::test]
async fn settings_are_printed_with_their_origin() {
    let env = [("TOOLPULSE_STORE", "memory"), ("CI", "1"), ("ALLOWED_TOOLS", "a,b")];
    let ran = run(&["config", "print", "--probe-interval", "5s"], &env).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for cells in [
        ["probe_interval", "5s", "flag", "--probe-interval"],
        ["store", "memory", "environment", "TOOLPULSE_STORE"],
        ["listen", "127.0.0.1:50051", "default", "-"],
        ["ALLOWED_TOOLS", "a,b", "environment", "ALLOWED_TOOLS"],
        ["CI", "1", "environment", "CI"],
    ] {
        let line = ran.stdout.lines().find(|l| l.split_whitespace().next() == Some(cells[0]));
        let line: Vec<_> = line.unwrap_or_else(|| panic!("{cells:?}: {ran:?}")).split_whitespace().collect();
        assert_eq!(line, cells);
    }
    let json = run(&["config", "print", "--output", "json"], &env).await.json();
    assert!(json["settings"].as_array().unwrap().len() > 20);
    let wrong = run(&["config", "print", "--probe-interval", "soon"], &[]).await;
    assert_eq!(wrong.code, 2);
    assert!(wrong.error().contains("--probe-interval"), "{wrong:?}");
}

#[tokio::test]
async fn usage() {
    let version = run(&["--version"], &[]).await;
    assert_eq!(
        (version.code, version.stdout.as_str()),
        (0, concat!("toolpulse ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    assert_eq!(run(&["--help"], &[]).await.code, 0);
    for (args, words) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["tools", "list", "--wrong"], "--wrong"),
        (&["tools", "get"], "NAME"),
        (&["tools", "list", "--all", "--hidden"], "--hidden"),
        (&["tools", "list", "--output", "xml"], "xml"),
        (&["tools", "list", "--namespace", "Bad_One"], "Bad_One"),
        (&["tools", "list", "--server", "ftp://x"], "ftp://x"),
        (&["tools", "register", "f", "--wait", "10"], "10s"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (&["--config", "/nowhere.yaml", "config", "print"], "/nowhere.yaml"),
    ] {
        let ran = run(args, &[]).await;
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.error().contains(words), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
    }
}
