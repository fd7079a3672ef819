//! A log that nobody reads holds up nothing.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};
use toolpulse::proto::v1::{
    GetToolRequest, tool_registry_service_client::ToolRegistryServiceClient as Client,
};

use crate::support::server::clean_command;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_the_log_that_stops_does_not_stop_the_server() {
    let data = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::from(clean_command());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log", "trace"])
        .arg("--data-dir")
        .arg(data.path())
        .stdout(Stdio::piped())
        // A pipe holds 64 KiB; it is never read.
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let address = line.strip_prefix("listening on ").unwrap().to_owned();
    let mut client = Client::connect(format!("http://{address}")).await.unwrap();
    for i in 0..2_000 {
        let request = GetToolRequest { name: format!("t{i}"), ..GetToolRequest::default() };
        let answered = timeout(Duration::from_secs(10), client.get_tool(request)).await;
        assert!(answered.is_ok(), "call {i} was not answered");
    }
    let pid = rustix::process::Pid::from_raw(server.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = timeout(Duration::from_secs(15), server.wait()).await;
    assert!(ended.expect("it ends").unwrap().success());
}
