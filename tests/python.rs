//! A client in another language, with stubs that it generated itself: the tour, the loop that the README shows, and a judge
//! of every format that has nothing in common with the server.
//!
//! `tests/run` installs Python's packages, generates the stubs, and says where they are.

#![allow(clippy::unwrap_used)]

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use support::{SOON, Server, env, eventually, skip};
use tokio::task::spawn_blocking;
use toolpulse::proto::v1::{ListAvailableToolsRequest, ListAvailableToolsResponse};

mod support;

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_of_a_python_client() {
    let Some(python) = Python::find() else { return };
    let server = Server::start(|_| {}).await;
    let mut tour = python.script("tour.py");
    tour.arg(server.address()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn_blocking(move || tour.output()).await.expect("not cancelled").expect("Python starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.trim_end().ends_with("* done"), "{out}");
}

/// `TOOLPULSE_CORPUS` names a folder of definitions besides those of `tests/data`, as in `tests/corpus.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn every_format_passes_an_independent_validator() {
    let Some(python) = Python::find() else { return };
    let server = Server::start(|_| {}).await;
    let mut judge = python.script("formats.py");
    judge.arg(server.address()).args(env("TOOLPULSE_CORPUS"));
    judge.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn_blocking(move || judge.output()).await.expect("not cancelled").expect("Python starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{out}");
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.trim_end().ends_with("* done"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_pushes_the_results_of_its_own_checks() {
    let Some(python) = Python::find() else { return };
    let mut server = Server::start(|_| {}).await;

    let owner = python.push_checks(&server, None);
    let hidden = eventually("web_search is hidden by a report", SOON, || async {
        let hidden = list(&server).await.hidden;
        hidden.into_iter().find(|tool| tool.name == "web_search" && tool.reason == "PROBE_SAID_NO")
    })
    .await;
    assert!(hidden.message.contains("SEARCH_API_KEY is not set"), "{}", hidden.message);
    drop(owner);

    let owner = python.push_checks(&server, Some("secret"));
    listed(&server).await;
    drop(owner);

    // The last reports outlive a restart within their window.
    server.restart().await;
    listed(&server).await;
}

async fn listed(server: &Server) {
    eventually("web_search is listed", SOON, || async {
        list(server).await.tools.iter().any(|tool| tool.name == "web_search").then_some(())
    })
    .await;
}

async fn list(server: &Server) -> ListAvailableToolsResponse {
    let request = ListAvailableToolsRequest { include_hidden: true, ..ListAvailableToolsRequest::default() };
    let reply = server.tools().list_available_tools(request).await;
    reply.expect("the default namespace lists").into_inner()
}

/// A Python that has what the scripts need.
struct Python {
    program: PathBuf,
    stubs: PathBuf,
}

impl Python {
    fn find() -> Option<Self> {
        let found = env("TOOLPULSE_TEST_PYTHON").zip(env("TOOLPULSE_TEST_STUBS"));
        if found.is_none() {
            skip("python", "TOOLPULSE_TEST_PYTHON and TOOLPULSE_TEST_STUBS are not set; tests/run sets them");
        }
        found.map(|(program, stubs)| Self { program: program.into(), stubs: stubs.into() })
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(name));
        command.env("PYTHONPATH", &self.stubs).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        // A proxy of the machine's is not for calls to this machine.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        command
    }

    fn push_checks(&self, server: &Server, api_key: Option<&str>) -> Killed {
        let mut command = self.script("push_checks.py");
        command.arg(server.address()).env_remove("SEARCH_API_KEY");
        command.envs(api_key.map(|key| ("SEARCH_API_KEY", key)));
        Killed(command.spawn().expect("Python starts"))
    }
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
