//! What one call costs in instructions, counted by valgrind: unlike times, they repeat on a busy machine.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use prost::Message;
use toolpulse::proto::v1;

use super::Run;
use crate::{
    children::{self, Child, own},
    load::Load,
    raw::LIST,
    table::{
        Line,
        Target::{AtMost, None},
    },
    tools,
};

/// Valgrind makes programs some 50 times slower: enough for hundreds of calls.
const SLICE: Duration = Duration::from_secs(2);
const UNIT: &str = "instructions";

pub(super) async fn instructions(run: &Run) -> Vec<Line> {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("instructions: left out, valgrind is not installed");
        return Vec::new();
    }
    let many = if run.effort.quick { 10_000 } else { 100_000 };
    let few = Counted::toolpulse(run, 1_000).await;
    tools::list_each(few.server.address(), 1_000, v1::SchemaFormat::Mcp).await;
    // The same 20 tools of both.
    let request = tools::request_for_twenty(1_000);
    let listed = tools::ask(few.server.address(), LIST, &request).await;
    let if_etag = v1::ListAvailableToolsResponse::decode(listed.clone()).unwrap().etag;
    let not_modified = v1::ListAvailableToolsRequest { if_etag, ..request.clone() };
    let short = tools::ask(few.server.address(), LIST, &not_modified).await;

    let ours = few.count(run, &few.load(run, &request)).await;
    let ours_short = few.count(run, &few.load(run, &not_modified)).await;
    let new = Load::of_new_selections(few.server.address(), LIST, 1_000);
    let ours_new = few.count(run, &new).await;
    drop(few);
    let large = Counted::toolpulse(run, many).await;
    let grown = large.count(run, &large.load(run, &request)).await;
    drop(large);
    let [bare, bare_short] = {
        let (long, short) =
            (Counted::own(run, "bare", &listed).await, Counted::own(run, "bare", &short).await);
        [long.count(run, &long.load(run, &request)).await, short.count(run, &short.load(run, &request)).await]
    };
    let plain = Counted::own(run, "plain", &listed).await;
    let plain = plain.count(run, &plain.load(run, &request)).await;
    vec![
        Line::plain("a warm list of 20", UNIT, ours, AtMost(60_000.0)),
        Line::ratio(format!("the same of {many} tools"), UNIT, grown, ("of 1,000", ours), AtMost(1.03)),
        Line::ratio("the same", UNIT, ours, ("bare", bare), None),
        Line::ratio("the same", UNIT, ours, ("plain", plain), None),
        Line::ratio("not modified", UNIT, ours_short, ("bare", bare_short), None),
        Line::ratio("a selection that is new", UNIT, ours_new, ("bare", bare), None),
    ]
}

/// A server under valgrind.
struct Counted {
    server: Child,
    dump: PathBuf,
}

impl Counted {
    async fn toolpulse(run: &Run, count: usize) -> Self {
        let dump = run.files.join(format!("toolpulse-{count}.callgrind"));
        let server = children::toolpulse("memory", &run.files.join("unused"), Some(&dump)).await;
        tools::register(server.address(), count).await;
        Self { server, dump }
    }

    async fn own(run: &Run, kind: &str, reply: &[u8]) -> Self {
        let dump = run.files.join(format!("{kind}-{}.callgrind", reply.len()));
        let file = run.files.join("reply");
        std::fs::write(&file, reply).unwrap();
        let server = own(&[&format!("serve-{kind}"), file.to_str().unwrap()], Some(&dump)).await;
        Self { server, dump }
    }

    fn load(&self, run: &Run, request: &v1::ListAvailableToolsRequest) -> Load {
        Load::new(self.server.address(), LIST, request, &run.files)
    }

    /// Instructions of one call of a load.
    async fn count(&self, run: &Run, load: &Load) -> f64 {
        self.control(&["--instr=on"]);
        load.closed(SLICE).await;
        self.control(&["--zero"]);
        let calls = load.closed(SLICE).await.calls;
        self.control(&["--dump"]);
        self.control(&["--instr=off"]);
        total(&newest(&run.files, &self.dump)) / calls as f64
    }

    fn control(&self, what: &[&str]) {
        let output =
            Command::new("callgrind_control").args(what).arg(self.server.id().to_string()).output().unwrap();
        assert!(output.status.success(), "callgrind_control {what:?}: {output:?}");
    }
}

/// Dumps are numbered; each has the count since the one before.
fn newest(files: &Path, dump: &Path) -> PathBuf {
    let prefix = dump.file_name().unwrap().to_string_lossy().into_owned();
    let all = files.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let dumps = all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
    dumps.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

fn total(dump: &Path) -> f64 {
    let text = std::fs::read_to_string(dump).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
    total.trim().parse().unwrap()
}
