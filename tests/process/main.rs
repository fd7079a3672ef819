//! The real binary: how it starts, refuses to start, ends, and what its commands print.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod allowlist;
mod commands;
mod drain;
mod limits;
mod log;
mod raw;
mod secrets;
mod settings;
mod shutdown;
mod stalled;
mod standstill;
mod tls;
mod watch;
mod watches;

use std::process::Stdio;

use support::server::clean_command;

/// How a command ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// stdout as JSON.
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The one line on stderr.
    fn error(&self) -> &str {
        let line = self.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("no line: {self:?}"));
        assert!(!line.contains('\n'), "more than one line: {self:?}");
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

/// Runs the binary to its end.
async fn run(args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = tokio::process::Command::from(clean_command());
    command.args(args).envs(env.iter().copied()).kill_on_drop(true);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = tokio::time::timeout(support::SOON, output).await.expect("an end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code().expect("no signal"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
