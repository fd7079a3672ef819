//! MCP probes against servers that we did not write, frozen, killed and started again under them.
//!
//! They come from PyPI and npm and are large, so they are opt-in: `install` beside this file puts them into a folder, and
//! `TOOLPULSE_TEST_MCP_SERVERS` says which.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use support::{SOON, Server, env, eventually, http_get, skip};
use toolpulse::proto::v1::{
    ErrorClass, GetToolRequest, McpProbe, ProbeOutcome, ProbeSpec, RegisterToolRequest, Tool, ToolSpec,
    UnregisterToolsRequest, Verdict, probe_spec::Kind,
};

/// How one can see the sessions of a server.
#[derive(Clone, Copy)]
enum Sessions {
    /// It has none.
    None,
    /// `/sessions` says how many were opened, and how many are open.
    Asked,
    /// It writes a line when it opens one, and another when it ends one.
    Logged(&'static str, &'static str),
}

/// A server: its program and arguments in the folder of the servers, where `{port}` stands for the port.
struct Program {
    args: &'static [&'static str],
    env: Option<&'static str>,
    path: &'static str,
    sessions: Sessions,
}

const PATH: &str = "/mcp";
const OPENED: &str = "Session initialized with ID";
const CLOSED: &str = "Transport closed for session";

async fn python(args: &'static [&'static str], sessions: Sessions) {
    follows(Program { args, env: None, path: PATH, sessions }).await;
}

/// Protocol version 2025-11-25, sessions, events.
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk() {
    python(&["mcp-2/bin/python", "server.py", "mcp2", "{port}"], Sessions::Asked).await;
}

/// 2025-11-25, no sessions, JSON.
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_stateless_json() {
    python(&["mcp-2/bin/python", "server.py", "mcp2", "{port}", "stateless", "json"], Sessions::None).await;
}

/// 2025-11-25, sessions, events.
#[tokio::test(flavor = "multi_thread")]
async fn fastmcp() {
    python(&["mcp-2/bin/python", "server.py", "fastmcp", "{port}"], Sessions::Asked).await;
}

/// 2025-06-18, sessions, JSON.
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_1_20_json() {
    python(&["mcp-1.20/bin/python", "server.py", "mcp1", "{port}", "json"], Sessions::Asked).await;
}

/// 2025-03-26, no sessions: with them, this SDK before 1.11 ends for good with the first session that a client ends
/// (modelcontextprotocol/python-sdk#841).
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_1_9_stateless() {
    let args = &["mcp-1.9/bin/python", "server.py", "mcp1", "{port}", "stateless"];
    // It redirects from the path without a slash, and a probe goes nowhere else.
    follows(Program { args, env: None, path: "/mcp/", sessions: Sessions::None }).await;
}

/// 2024-11-05, no sessions, JSON.
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_1_8_stateless_json() {
    let args = &["mcp-1.8/bin/python", "server.py", "mcp1", "{port}", "stateless", "json"];
    follows(Program { args, env: None, path: "/mcp/", sessions: Sessions::None }).await;
}

/// 2025-03-26, sessions, events.
#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_1_11() {
    let sessions = Sessions::Logged(OPENED, CLOSED);
    follows(Program { args: &["node", "npm/sessions.mjs", "{port}"], env: None, path: PATH, sessions }).await;
}

/// 2025-11-25, sessions, events that can be resumed.
#[tokio::test(flavor = "multi_thread")]
async fn server_everything() {
    follows(Program {
        args: &[
            "node",
            "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
            "streamableHttp",
        ],
        env: Some("PORT"),
        path: PATH,
        sessions: Sessions::Logged(OPENED, CLOSED),
    })
    .await;
}

/// 2025-11-25, sessions, events that can be resumed.
#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk() {
    follows(Program {
        args: &[
            "node",
            "npm/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js",
        ],
        env: Some("MCP_PORT"),
        path: PATH,
        sessions: Sessions::Logged(OPENED, CLOSED),
    })
    .await;
}

/// 2025-11-25, no sessions, on another HTTP stack.
#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_on_hono() {
    const EXAMPLE: &str = "npm/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/honoWebStandardStreamableHttp.js";
    follows(Program {
        args: &["node", EXAMPLE],
        env: Some("MCP_PORT"),
        path: PATH,
        sessions: Sessions::None,
    })
    .await;
}

/// 2026-07-28 alone: no handshake.
#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_without_a_handshake() {
    follows(Program {
        args: &["node", "npm/stateless.mjs", "{port}"],
        env: None,
        path: PATH,
        sessions: Sessions::None,
    })
    .await;
}

async fn follows(program: Program) {
    let Some(dir) = env("TOOLPULSE_TEST_MCP_SERVERS") else {
        return skip("mcp-servers", "TOOLPULSE_TEST_MCP_SERVERS is not set; tests/real_mcp/install says how");
    };
    let logs = tempfile::tempdir().unwrap();
    let mut target = Target::start(&program, &PathBuf::from(dir), logs.path()).await;
    let server = Server::start(|_| {}).await;
    register(&server, format!("http://127.0.0.1:{}{}", target.port, program.path)).await;

    // Probed on and on, and no session is left.
    let mut runs = std::collections::BTreeSet::new();
    while runs.len() < 4 {
        let tool = until(&server, "the next run", |t| {
            t.status
                .as_ref()
                .and_then(|s| s.last_probe_time)
                .is_some_and(|at| !runs.contains(&(at.seconds, at.nanos)))
        })
        .await;
        let status = tool.status.unwrap();
        assert_eq!(
            (status.verdict(), status.probes[0].outcome()),
            (Verdict::Available, ProbeOutcome::Pass),
            "{status:?}"
        );
        let at = status.last_probe_time.unwrap();
        runs.insert((at.seconds, at.nanos));
    }
    target.no_session_is_left(4).await;

    // Frozen: nothing refuses the connection, and nothing answers.
    target.signal(Signal::STOP);
    let frozen = |t: &Tool| class(t) == ErrorClass::Timeout;
    until(&server, "a frozen server is out of time", frozen).await;
    until(&server, "the grace ends", |t| verdict(t) == Verdict::Unavailable).await;
    target.signal(Signal::CONT);
    until(&server, "the thawed server is back", |t| verdict(t) == Verdict::Available).await;

    target.kill();
    until(&server, "a killed server is not connected", |t| class(t) == ErrorClass::Connect).await;
    until(&server, "the grace ends", |t| verdict(t) == Verdict::Unavailable).await;
    target.start_again().await;
    until(&server, "the new server is back", |t| verdict(t) == Verdict::Available).await;

    let request = UnregisterToolsRequest { names: vec!["tool".into()], ..UnregisterToolsRequest::default() };
    server.tools().unregister_tools(request).await.unwrap();
    target.no_session_is_left(1).await;
}

async fn register(server: &Server, url: String) {
    let probe = McpProbe { url, ..McpProbe::default() };
    let request = RegisterToolRequest {
        tool: Some(ToolSpec {
            name: "tool".into(),
            probes: vec![ProbeSpec { name: String::new(), kind: Some(Kind::Mcp(probe)) }],
            interval: Some(seconds(1.0)),
            timeout: Some(seconds(0.8)),
            ttl: Some(seconds(3.0)),
            grace: Some(seconds(3.0)),
            ..ToolSpec::default()
        }),
        wait_for_probe: Some(seconds(10.0)),
        ..RegisterToolRequest::default()
    };
    server.tools().register_tool(request).await.expect("the tool is registered");
    // The first request makes some servers load what they need.
    until(server, "the tool is available", |t| verdict(t) == Verdict::Available).await;
}

async fn get(server: &Server) -> Tool {
    let request = GetToolRequest { name: "tool".into(), ..GetToolRequest::default() };
    server.tools().get_tool(request).await.expect("the tool is there").into_inner().tool.unwrap()
}

async fn until(server: &Server, what: &str, check: impl Fn(&Tool) -> bool) -> Tool {
    eventually(what, SOON, || async { Some(get(server).await).filter(|tool| check(tool)) }).await
}

fn verdict(tool: &Tool) -> Verdict {
    tool.status.as_ref().map(|s| s.verdict()).unwrap_or_default()
}

/// The class of the newest run's error.
fn class(tool: &Tool) -> ErrorClass {
    tool.status.as_ref().map(|s| s.probes[0].error_class()).unwrap_or_default()
}

fn seconds(n: f64) -> prost_types::Duration {
    Duration::from_secs_f64(n).try_into().unwrap()
}

/// A server's process. Dropping it kills it.
struct Target {
    command: Command,
    child: Child,
    port: u16,
    sessions: Sessions,
    log: PathBuf,
}

impl Target {
    async fn start(server: &Program, dir: &Path, logs: &Path) -> Self {
        // A port that was free a moment ago; these programs tell nobody which one they were given.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // A program of the machine has no folder.
        let program =
            if server.args[0].contains('/') { dir.join(server.args[0]) } else { server.args[0].into() };
        let mut command = Command::new(program);
        command.args(server.args[1..].iter().map(|arg| arg.replace("{port}", &port.to_string())));
        if let Some(name) = server.env {
            command.env(name, port.to_string());
        }
        let log = logs.join("log");
        command.current_dir(dir).stdin(Stdio::null()).stdout(File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        let target = Self { command, child, port, sessions: server.sessions, log };
        target.listens().await;
        target
    }

    async fn listens(&self) {
        let port = self.port;
        eventually("the server listens", SOON, || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
    }

    /// Waits until as many sessions are ended as were opened, since the process started; at least so many.
    async fn no_session_is_left(&self, opened: usize) {
        let address = format!("127.0.0.1:{}", self.port);
        eventually("all sessions are ended", SOON, || async {
            let (found, left) = match self.sessions {
                Sessions::None => return Some(()),
                Sessions::Asked => {
                    let (_, counts) = http_get(&address, "/sessions").await.ok()?;
                    let (found, left) = counts.split_once(' ')?;
                    (found.parse().ok()?, left.parse::<usize>().ok()?)
                }
                Sessions::Logged(opening, closing) => {
                    let log = std::fs::read_to_string(&self.log).unwrap();
                    let opened = log.matches(opening).count();
                    (opened, opened - log.matches(closing).count())
                }
            };
            assert!(found >= opened, "{found} sessions were opened");
            (left == 0).then_some(())
        })
        .await;
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn start_again(&mut self) {
        self.command.stdout(File::create(&self.log).unwrap());
        self.child = self.command.spawn().unwrap();
        self.listens().await;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail only if it ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
