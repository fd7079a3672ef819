//! The processes of a run. They end with it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

/// The real binary with its store in memory.
pub(crate) struct Server {
    child: Child,
    address: String,
    admin: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolpulse"));
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--store",
            "memory",
        ]);
        command.args(["--probe-allow", "127.0.0.0/8", "--log", "error"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TOOLPULSE_") {
                command.env_remove(name);
            }
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut find = |prefix| {
            let found = lines.find_map(|line| Some(line.ok()?.strip_prefix(prefix)?.to_owned()));
            found.expect("the server did not start")
        };
        let (address, admin) = (find("listening on "), find("admin on "));
        Self { child, address, admin }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// `host:port` of the admin port.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// How long its threads ran so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let ran = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(ran.sum())
    }

    /// Its resident memory.
    pub(crate) fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// All targets, in one process.
pub(crate) struct Targets {
    child: Child,
    orders: ChildStdin,
    addresses: Vec<String>,
}

impl Targets {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("targets").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses = line.split_whitespace().map(str::to_owned).collect();
        let orders = child.stdin.take().unwrap();
        Self { child, orders, addresses }
    }

    /// Where they listen.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Every other port accepts and never answers from now on.
    pub(crate) fn half_die(&mut self) {
        self.orders.write_all(b"die\n").unwrap();
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // Both fail only if it is gone already.
    let _ = child.kill();
    let _ = child.wait();
}
