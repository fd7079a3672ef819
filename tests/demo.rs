//! `toolpulse demo`: the story comes true, whatever the environment says, and nothing of it stays behind.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod support;

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time::timeout,
};

use support::{SOON, server::clean_command};

/// What the story promises to take at most.
const STORY: Duration = Duration::from_secs(40);

/// What must be told, in this order; white space aside, as texts are wrapped.
const TOLD: [&str; 24] = [
    "The server listens on 127.0.0.1:",
    "8 tools are registered",
    "1. What an agent sees",
    "9 tools: calculate, calendar.create_event, detect_language, gateway_status, query_database, search_web, \
     send_message, transcribe_audio, translate_text",
    r#""inputSchema": {"#,
    r#""name": "calendar_create_event_"#,
    "2. A target fails",
    "search_web is still listed; its status says last_good, PROBE_ERROR",
    "search_web left the list by itself, 5.",
    "3. A target says no",
    "send_message left the list with the next probe: PROBE_SAID_NO (probe 'http': quota used up)",
    "4. Both recover",
    "search_web and send_message are back: 9 tools.",
    "5. An agent that may use some tools only",
    "Listed: query_database, search_web",
    "Unknown: send_mesage",
    "6. A gateway tells how it is",
    "watch: support-bot is idle",
    "watch: support-bot is busy, 3 queued",
    "degraded: channel:telegram (credential_unavailable)",
    "capability:translate_text",
    r#"{"run": "busy", "queued": 3, "active_sessions": 7, "sessions_by_channel": {"slack": 2, "telegram": 5}"#,
    "watch: support-bot is gone",
    "No active gateway: gateway_status is only available inside a running bot/gateway",
];

/// The demo, with a directory of its own for temporary files.
fn demo(args: &[&str], environment: &[(&str, &str)]) -> (Command, TempDir) {
    let files = tempfile::tempdir().unwrap();
    let mut command = clean_command();
    command.arg("demo").args(args).env("TMPDIR", files.path()).envs(environment.iter().copied());
    let mut command = Command::from(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    (command, files)
}

async fn run_once(environment: &[(&str, &str)]) -> Output {
    let (mut command, files) = demo(&["--once"], environment);
    let output = timeout(STORY, command.output()).await.expect("the story takes less than 40 s").unwrap();
    assert!(is_empty(files.path()), "something is left in the directory of temporary files");
    output
}

fn assert_told(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}\n{stdout}", output.status);
    assert_eq!(stderr, "", "the log stays out of the story");
    let text = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = text.as_str();
    for expected in TOLD {
        let at = rest.find(expected).unwrap_or_else(|| panic!("missing, or too early: {expected}\n{stdout}"));
        rest = &rest[at + expected.len()..];
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
async fn the_story_comes_true() {
    assert_told(&run_once(&[]).await);
}

#[tokio::test]
async fn the_users_own_environment_tells_no_other_story() {
    let environment = [
        ("CI", "true"),
        ("ALLOWED_TOOLS", "nope"),
        ("HERMES_ONLY_TOOLS", ""),
        ("TOOLPULSE_LISTEN", "127.0.0.1:1"),
        ("TOOLPULSE_STORE", "memory"),
        ("TOOLPULSE_PROBE_GRACE", "1h"),
        ("TOOLPULSE_SERVER", "http://127.0.0.1:1"),
    ];
    assert_told(&run_once(&environment).await);
}

#[tokio::test]
async fn the_server_goes_on_until_a_signal() {
    let (mut command, files) = demo(&[], &[]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut commands = Vec::new();
    timeout(STORY, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(" --server 127.0.0.1:") {
                commands.push(line.trim().to_owned());
            }
            if line.contains("Ctrl-C") {
                return;
            }
        }
        panic!("the demo ended by itself");
    })
    .await
    .unwrap();

    let list = commands.iter().find(|c| c.contains("tools list --all")).expect("a command that lists tools");
    let listed = timeout(SOON, Command::new("sh").args(["-c", list]).output()).await.unwrap().unwrap();
    let table = String::from_utf8_lossy(&listed.stdout);
    assert_eq!(table.matches(" AVAILABLE").count(), 8, "{list}\n{table}{listed:?}");

    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = timeout(SOON, child.wait()).await.expect("a signal ends the demo").unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert!(status.success(), "{status}: {stderr}");
    assert!(is_empty(files.path()), "something is left in the directory of temporary files");
}

#[tokio::test]
async fn a_story_that_was_not_told_is_no_success() {
    let (mut command, files) = demo(&["--once"], &[]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("answers 503") {
                return;
            }
        }
        panic!("the demo ended by itself");
    };
    timeout(STORY, begun).await.unwrap();
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = timeout(SOON, child.wait_with_output()).await.expect("a signal ends the demo").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "error: a signal came before the story was told\n");
    assert!(is_empty(files.path()), "something is left in the directory of temporary files");
}

#[tokio::test]
async fn a_stage_that_cannot_be_built_is_told_in_one_line() {
    let (mut command, files) = demo(&["--once"], &[]);
    command.env("TMPDIR", files.path().join("missing"));
    let output = timeout(SOON, command.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: cannot make a temporary directory: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
