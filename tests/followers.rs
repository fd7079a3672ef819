//! Clients in other languages follow an agent's tools: through a proxy that cuts idle streams, and over a freeze.
//!
//! `tests/run` installs what they need, and says where it is. `TOOLPULSE_TEST_LONG=yes` has the proxy's real limit (60 s), the
//! server's real heartbeat (15 s) and five quiet minutes; nextest would end that as too slow, `cargo test` does not.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use support::{SOON, Server, env, eventually, inproc::tool, skip};
use tempfile::TempDir;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, timeout},
};
use toolpulse::proto::v1::RegisterToolRequest;

mod support;

/// How long nothing changes, and what the proxy and the server do meanwhile.
struct Times {
    quiet: Duration,
    idle_limit: &'static str,
    heartbeat: &'static str,
}

const SHORT: Times = Times { quiet: Duration::from_secs(10), idle_limit: "3s", heartbeat: "1s" };
const LONG: Times = Times { quiet: Duration::from_secs(305), idle_limit: "60s", heartbeat: "15s" };

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_cuts_idle_streams_is_held_by_heartbeats_alone() {
    let times = if env("TOOLPULSE_TEST_LONG").is_some() { LONG } else { SHORT };
    let Some(nginx) = find_nginx() else { return };
    // nginx takes a ping for a sign of life; most balancers do not. Here there are none.
    let serve = async |heartbeat| {
        Server::start(|config| {
            config.store("memory").args(["--keepalive-interval", "1h", "--watch-heartbeat", heartbeat]);
        })
        .await
    };
    let alive = serve(times.heartbeat).await;
    // The same without heartbeats shows that it is they that count.
    let silent = serve("1h").await;
    let (mut held, mut cut) = (Vec::new(), Vec::new());
    let mut proxies = Vec::new();
    for (server, followers) in [(&alive, &mut held), (&silent, &mut cut)] {
        register(server, "first").await;
        let proxy = Nginx::start(&nginx, server.address(), times.idle_limit).await;
        followers.extend(
            Language::ALL.map(|language| Follower::start(language, &proxy.address)).into_iter().flatten(),
        );
        proxies.push(proxy);
    }
    for follower in held.iter_mut().chain(&mut cut) {
        assert_eq!(follower.next().await, ["first"], "{}", follower.log());
    }
    sleep(times.quiet).await;
    for server in [&alive, &silent] {
        register(server, "second").await;
    }
    for follower in &mut held {
        assert_eq!(follower.next().await, ["first", "second"], "{}", follower.log());
        assert_eq!(follower.log(), "", "one stream, all the time");
    }
    for follower in &mut cut {
        // It had to come back, with what it had, and goes on all the same.
        assert_eq!(follower.next().await, ["first", "second"], "{}", follower.log());
        assert!(follower.log().contains("again in"), "{}", follower.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_frozen_is_dropped_and_comes_back() {
    let server = Server::start(|config| {
        config.store("memory").args(["--keepalive-interval", "1s", "--keepalive-timeout", "1s"]);
    })
    .await;
    register(&server, "first").await;
    let mut followers: Vec<_> =
        Language::ALL.iter().filter_map(|language| Follower::start(*language, server.address())).collect();
    for follower in &mut followers {
        assert_eq!(follower.next().await, ["first"], "{}", follower.log());
        follower.signal(Signal::STOP);
    }
    let began = Instant::now();
    eventually("frozen clients are dropped", SOON, async || {
        let metrics = server.admin_get("/metrics").await.unwrap().1;
        metrics.contains("toolpulse_watchers 0\n").then_some(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    register(&server, "second").await;
    for follower in &mut followers {
        follower.signal(Signal::CONT);
        assert_eq!(follower.next().await, ["first", "second"], "{}", follower.log());
    }
}

async fn register(server: &Server, name: &str) {
    let request = RegisterToolRequest { tool: Some(tool(name)), ..Default::default() };
    server.tools().register_tool(request).await.unwrap();
}

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

impl Language {
    const ALL: [Self; 2] = [Self::Python, Self::Node];

    /// The client, without its address; none: what it needs is not there.
    fn command(self) -> Option<Command> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        match self {
            Self::Python => {
                let found = env("TOOLPULSE_TEST_PYTHON").zip(env("TOOLPULSE_TEST_STUBS"));
                if found.is_none() {
                    let why =
                        "TOOLPULSE_TEST_PYTHON and TOOLPULSE_TEST_STUBS are not set; tests/run sets them";
                    skip("python", why);
                }
                let (python, stubs) = found?;
                let mut command = Command::new(python);
                command.arg(tests.join("python/watch_tools.py"));
                command.env("PYTHONPATH", stubs).env("PYTHONDONTWRITEBYTECODE", "1");
                Some(command)
            }
            Self::Node => {
                let modules = env("TOOLPULSE_TEST_NODE_MODULES");
                if modules.is_none() {
                    skip("node", "TOOLPULSE_TEST_NODE_MODULES is not set; tests/run sets it where npm is");
                }
                let mut command = Command::new("node");
                command.arg(tests.join("node/watch_tools.js")).env("NODE_PATH", modules?);
                Some(command)
            }
        }
    }
}

/// A client that prints the names of its tools each time that they changed. Dropping it kills it.
struct Follower {
    child: Child,
    states: UnboundedReceiver<Vec<String>>,
    log: PathBuf,
    _files: TempDir,
}

impl Follower {
    fn start(language: Language, address: &str) -> Option<Self> {
        let mut command = language.command()?;
        let files = tempfile::tempdir().unwrap();
        let log = files.path().join("stderr.log");
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        // A proxy of the machine's is not for calls to this machine.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        let mut child = command.spawn().expect("the client starts");
        let (sender, states) = unbounded_channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody listens any more: read on all the same.
                let _ = sender.send(serde_json::from_str(&line).expect("a list of names"));
            }
        });
        Some(Self { child, states, log, _files: files })
    }

    /// The next state.
    async fn next(&mut self) -> Vec<String> {
        let state = timeout(SOON, self.states.recv()).await;
        state.ok().flatten().unwrap_or_else(|| panic!("no state: {}", self.log()))
    }

    /// What it said of its streams' ends.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("our own child takes signals");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn find_nginx() -> Option<PathBuf> {
    let found = env("TOOLPULSE_TEST_NGINX").map(PathBuf::from);
    if found.is_none() {
        skip("nginx", "TOOLPULSE_TEST_NGINX is not set; tests/run --with-system-packages sets it");
    }
    found
}

/// A proxy in front of a server. Dropping it kills it.
struct Nginx {
    child: Child,
    address: String,
    _files: TempDir,
}

impl Nginx {
    async fn start(program: &Path, upstream: &str, idle_limit: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let dir = files.path().display();
        // A port that was free a moment ago; nginx takes none that is picked for it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log stderr;
            events {{}}
            http {{
                access_log off;
                client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
                uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
                server {{
                    listen {address} http2;
                    location / {{
                        grpc_pass grpc://{upstream};
                        grpc_read_timeout {idle_limit};
                        grpc_send_timeout {idle_limit};
                    }}
                }}
            }}"
        );
        let path = files.path().join("nginx.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(&path).args(["-e", "stderr"]).arg("-p").arg(files.path());
        let log = File::create(files.path().join("stderr.log")).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("nginx starts");
        let proxy = Self { child, address, _files: files };
        eventually("nginx listens", SOON, async || tokio::net::TcpStream::connect(&proxy.address).await.ok())
            .await;
        proxy
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // Both fail only if it ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}
