//! What one call costs in instructions, counted by valgrind: unlike times, they repeat on a busy machine.

use std::{path::Path, process::Command, time::Duration};

use toolpulse::proto::v1;

use super::{
    children::{self, Child},
    load::Load,
    tools,
};

/// Valgrind makes programs some 50 times slower: enough for hundreds of calls.
const SLICE: Duration = Duration::from_secs(2);

/// Prints a table: kinds of calls by servers.
pub(crate) async fn report(files: &Path) {
    let dump = files.join("toolpulse.callgrind");
    let toolpulse = children::toolpulse("memory", &files.join("counted"), Some(&dump)).await;
    tools::register(toolpulse.address(), 1_000).await;
    let twenty = tools::request_for_twenty(1_000);
    let etag = tools::list(toolpulse.address(), &twenty).await.etag;
    let not_modified = v1::ListAvailableToolsRequest { if_etag: etag, ..twenty.clone() };

    println!("{:26} {:>10} {:>10} {:>10}", "instructions a call", "toolpulse", "bare", "plain");
    for (name, request) in [("20 of 1,000 tools", twenty), ("the same, not modified", not_modified)] {
        let reply = tools::list_raw(toolpulse.address(), &request).await;
        let file = files.join("reply");
        std::fs::write(&file, reply).unwrap();
        let ours = count(&toolpulse, &dump, &request, files).await;
        let mut others = Vec::new();
        for kind in ["serve-bare", "serve-plain"] {
            let dump = files.join(format!("{kind}.callgrind"));
            let server = children::own(&[kind, file.to_str().unwrap()], Some(&dump)).await;
            others.push(count(&server, &dump, &request, files).await);
        }
        println!("  {name:24} {ours:>10.0} {:>10.0} {:>10.0}", others[0], others[1]);
    }
}

async fn count(server: &Child, dump: &Path, request: &v1::ListAvailableToolsRequest, files: &Path) -> f64 {
    let load = Load::new(server.address(), request, files);
    load.closed(SLICE).await;
    control(server, "--zero");
    let calls = load.closed(SLICE).await.calls;
    control(server, "--dump");
    // Dumps are numbered; each has the count since the one before.
    let prefix = dump.file_name().unwrap().to_string_lossy().into_owned();
    let dumps = std::fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path());
    let dumps = dumps.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
    let newest = dumps.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let text = std::fs::read_to_string(newest).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
    total.trim().parse::<f64>().unwrap() / calls as f64
}

fn control(server: &Child, what: &str) {
    let output = Command::new("callgrind_control").arg(what).arg(server.id().to_string()).output().unwrap();
    assert!(output.status.success(), "callgrind_control {what}: {output:?}");
}
