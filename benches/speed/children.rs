//! The processes of a run, each on its core. They end with the run.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::time::{Instant, sleep};
use toolpulse::proto::health::{HealthCheckRequest, health_client::HealthClient};

/// The cores of a run: the first two that this process might use when it was asked first.
pub(crate) fn cores() -> (usize, usize) {
    static CORES: OnceLock<(usize, usize)> = OnceLock::new();
    *CORES.get_or_init(find_cores)
}

fn find_cores() -> (usize, usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    match (allowed.next(), allowed.next()) {
        (Some(server), Some(load)) => (server, load),
        _ => panic!("the server and the load need a core each: run this where there are two"),
    }
}

/// Keeps this process, and what it turns into, on a core.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// A command that runs on a core.
pub(crate) fn pinned(core: usize, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("pinned").arg(core.to_string()).arg(program).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A program on the servers' core; with a file, under valgrind, which counts into it once it is told to.
fn counted(program: impl AsRef<OsStr>, count: Option<&Path>) -> Command {
    let Some(count) = count else { return pinned(cores().0, program) };
    let mut command = pinned(cores().0, "valgrind");
    command.args(["--quiet", "--tool=callgrind", "--instr-atstart=no"]);
    command.arg(format!("--callgrind-out-file={}", count.display())).arg(program.as_ref());
    command
}

/// A running server. The last clone ends it.
#[derive(Clone)]
pub(crate) struct Child(Arc<Process>);

struct Process {
    child: std::process::Child,
    address: String,
    admin: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Child {
    fn spawn(mut command: Command, has_admin: bool) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut find = |prefix| {
            let found = lines.find_map(|line| Some(line.ok()?.strip_prefix(prefix)?.to_owned()));
            found.expect("the server did not start")
        };
        let address = find("listening on ");
        let admin = if has_admin { find("admin on ") } else { String::new() };
        // The rest is read to the end, so that the server never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self(Arc::new(Process { child, address, admin }))
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// `host:port` of the admin port; empty where it has none.
    pub(crate) fn admin(&self) -> &str {
        &self.0.admin
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.child.id()
    }

    /// How long its threads ran so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.child.id())).unwrap();
        let ran = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(ran.sum())
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }
}

/// A server of this program's own.
pub(crate) async fn own(args: &[&str], count: Option<&Path>) -> Child {
    let mut command = counted(std::env::current_exe().unwrap(), count);
    command.args(args);
    Child::spawn(command, false)
}

/// The real binary with an empty store of a kind, ready.
pub(crate) async fn toolpulse(store: &str, data: &Path, count: Option<&Path>) -> Child {
    toolpulse_with(store, data, count, &[]).await
}

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// Another program takes the place of the one that was built with this.
pub(crate) fn use_binary(path: &str) {
    // Fails only if there is one already.
    let _ = BINARY.set(path.into());
}

/// The program under test.
pub(crate) fn binary() -> &'static Path {
    BINARY.get_or_init(|| env!("CARGO_BIN_EXE_toolpulse").into())
}

/// The same with further flags.
pub(crate) async fn toolpulse_with(store: &str, data: &Path, count: Option<&Path>, flags: &[&str]) -> Child {
    let mut command = counted(binary(), count);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store", store]);
    command.arg("--data-dir").arg(data).args(["--log", "error"]).args(flags);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TOOLPULSE_") || matches!(&*text, "CI" | "ALLOWED_TOOLS" | "HERMES_ONLY_TOOLS") {
            command.env_remove(name);
        }
    }
    let server = Child::spawn(command, true);
    let mut health = HealthClient::connect(format!("http://{}", server.address())).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while health.check(HealthCheckRequest::default()).await.is_ok_and(|reply| reply.get_ref().status != 1) {
        assert!(Instant::now() < deadline, "the server is not ready");
        sleep(Duration::from_millis(10)).await;
    }
    server
}
