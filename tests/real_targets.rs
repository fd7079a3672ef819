//! Probes against servers that we did not write, killed, started again and frozen under them.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, getuid, kill_process};
use support::{SOON, Server, env, eventually, skip};
use tempfile::TempDir;
use tokio::time::Instant;
use toolpulse::proto::v1::{
    ErrorClass, GetToolRequest, GrpcProbe, HttpProbe, ProbeSpec, RegisterToolRequest, RegisterToolsRequest,
    TcpProbe, Tool, ToolSpec, Verdict, probe_spec::Kind,
};

mod support;

#[tokio::test(flavor = "multi_thread")]
async fn tcp_probe_of_a_redis_server() {
    follows_the_target(|port, dir| {
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(port.to_string());
        redis.arg("--dir").arg(dir.path()).stdout(Stdio::null());
        let kind = Kind::Tcp(TcpProbe { address: format!("127.0.0.1:{port}") });
        Some((redis, kind))
    })
    .await;
}

/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;

#[tokio::test(flavor = "multi_thread")]
async fn tcp_probe_of_a_postgresql_server() {
    follows_the_target(|port, dir| {
        let Some(programs) = postgresql() else {
            skip("postgresql", "not installed");
            return None;
        };
        let run = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if getuid().is_root() {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        if getuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = dir.path().join("data");
        let made = run("initdb").args(["--no-sync", "--auth=trust", "-D"]).arg(&data).status().unwrap();
        assert!(made.success(), "{made}");
        let mut server = run("postgres");
        server.arg("-D").arg(&data).arg("-p").arg(port.to_string());
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c"]);
        server.arg(format!("unix_socket_directories={}", dir.path().display()));
        let kind = Kind::Tcp(TcpProbe { address: format!("127.0.0.1:{port}") });
        Some((server, kind))
    })
    .await;
}

/// Where Debian keeps its programs.
fn postgresql() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|dir| dir.join("initdb").exists()).max()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_probe_of_nginx() {
    follows_the_target(|port, dir| {
        let Some(program) = env("TOOLPULSE_TEST_NGINX") else {
            skip("nginx", "TOOLPULSE_TEST_NGINX is not set; tests/run --with-system-packages sets it");
            return None;
        };
        let config = dir.path().join("nginx.conf");
        fs::write(&config, nginx_config(port, dir.path())).unwrap();
        let mut nginx = Command::new(program);
        nginx.arg("-c").arg(&config).args(["-e", "stderr"]).arg("-p").arg(dir.path());
        nginx.stdout(Stdio::null()).stderr(Stdio::null());
        let kind = Kind::Http(HttpProbe { url: format!("http://127.0.0.1:{port}/"), ..HttpProbe::default() });
        Some((nginx, kind))
    })
    .await;
}

fn nginx_config(port: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
            uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
            server {{ listen 127.0.0.1:{port}; location / {{ return 200 'well'; }} }}
        }}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn http_probe_of_pythons_http_server() {
    follows_the_target(|port, dir| {
        let mut python = Command::new("python3");
        python.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(dir.path());
        python.arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let kind = Kind::Http(HttpProbe { url: format!("http://127.0.0.1:{port}/"), ..HttpProbe::default() });
        Some((python, kind))
    })
    .await;
}

/// Python's own gRPC stack, with its health servicer.
const HEALTH_SERVER: &str = r#"
import sys
from concurrent import futures
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
server = grpc.server(futures.ThreadPoolExecutor(), options=[("grpc.so_reuseport", 0)])
servicer = health.HealthServicer()
health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
servicer.set("search", health_pb2.HealthCheckResponse.SERVING)
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn grpc_probe_of_a_grpcio_health_server() {
    follows_the_target(|port, _| {
        let Some(program) = env("TOOLPULSE_TEST_PYTHON") else {
            skip("python", "TOOLPULSE_TEST_PYTHON is not set; tests/run sets it");
            return None;
        };
        let mut python = Command::new(program);
        python.args(["-c", HEALTH_SERVER]).arg(port.to_string());
        let kind = Kind::Grpc(GrpcProbe {
            target: format!("127.0.0.1:{port}"),
            service: "search".into(),
            ..GrpcProbe::default()
        });
        Some((python, kind))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tools_of_one_target_are_one_probe_to_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let port = free_port();
    let log = dir.path().join("requests.log");
    let requests = || std::fs::read_to_string(&log).unwrap_or_default().matches("\"GET /").count();
    let mut python = Command::new("python3");
    python.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(dir.path());
    python.arg(port.to_string()).stderr(File::create(&log).expect("a file for the target's log"));
    let Some(mut target) = Target::start(python) else { return };
    target.listens(port).await;

    let server = Server::start(|_| {}).await;
    let probe = HttpProbe { url: format!("http://127.0.0.1:{port}/"), ..HttpProbe::default() };
    let tool = |n| ToolSpec {
        name: format!("tool_{n}"),
        probes: vec![ProbeSpec { kind: Some(Kind::Http(probe.clone())), ..ProbeSpec::default() }],
        interval: Some(seconds(1.0)),
        ..ToolSpec::default()
    };
    let began = Instant::now();
    let request = RegisterToolsRequest {
        tools: (0..1000).map(tool).collect(),
        wait_for_probe: Some(seconds(10.0)),
        ..RegisterToolsRequest::default()
    };
    let reply = server.tools().register_tools(request).await.expect("a batch is registered").into_inner();
    assert_eq!(reply.results.iter().filter(|r| r.verdict() == Verdict::Available).count(), 1000);

    // The first request comes at once, the others on the timer: 1 s apart less the spread of 5 %.
    eventually("the target is asked on and on", SOON, || async { (requests() >= 6).then_some(()) }).await;
    assert!(
        began.elapsed() >= Duration::from_secs_f64(4.0 * 0.95),
        "6 requests within {:?}",
        began.elapsed()
    );
}

/// Starts a target, registers a tool that is probed there, kills the target, and starts it again: last-good first, then
/// hidden when the grace ends, then back. One that freezes is noticed as well, but by `tcp`: there the kernel takes connections.
async fn follows_the_target(target: impl FnOnce(u16, &TempDir) -> Option<(Command, Kind)>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let port = free_port();
    let Some((command, kind)) = target(port, &dir) else { return };
    let answers = !matches!(kind, Kind::Tcp(_));
    let Some(mut running) = Target::start(command) else { return };
    running.listens(port).await;

    let server = Server::start(|_| {}).await;
    let request = RegisterToolRequest {
        tool: Some(ToolSpec {
            name: "tool".into(),
            probes: vec![ProbeSpec { name: String::new(), kind: Some(kind) }],
            interval: Some(seconds(1.0)),
            timeout: Some(seconds(0.5)),
            ttl: Some(seconds(3.0)),
            grace: Some(seconds(3.0)),
            ..ToolSpec::default()
        }),
        wait_for_probe: Some(seconds(10.0)),
        ..RegisterToolRequest::default()
    };
    let registered =
        server.tools().register_tool(request).await.expect("the tool is registered").into_inner();
    let status = registered.tool.and_then(|t| t.status).expect("a tool has a status");
    assert_eq!(status.verdict(), Verdict::Available, "{status:?}");

    running.kill();
    let last_good = |tool: &Tool| tool.status.as_ref().is_some_and(|s| s.last_good);
    let tool = until(&server, "the dead target's tool is last-good", last_good).await;
    assert_eq!(verdict(&tool), Verdict::Available);
    let tool = until(&server, "the grace ends", |t| verdict(t) == Verdict::Unavailable).await;
    assert_eq!(tool.status.map(|s| s.reason).as_deref(), Some("PROBE_ERROR"));

    running.start_again();
    running.listens(port).await;
    until(&server, "the tool is back", |t| verdict(t) == Verdict::Available).await;

    if answers {
        running.signal(Signal::STOP);
        let tool = until(&server, "the frozen target's tool is last-good", last_good).await;
        assert_eq!(tool.status.unwrap().error_class(), ErrorClass::Timeout);
        running.signal(Signal::CONT);
        until(&server, "the tool is well", |t| verdict(t) == Verdict::Available && !last_good(t)).await;
    }
}

fn verdict(tool: &Tool) -> Verdict {
    tool.status.as_ref().map(|s| s.verdict()).unwrap_or_default()
}

async fn until(server: &Server, what: &str, check: impl Fn(&Tool) -> bool) -> Tool {
    eventually(what, SOON, || async {
        let request = GetToolRequest { name: "tool".into(), ..GetToolRequest::default() };
        let reply = server.tools().get_tool(request).await.expect("the tool is there").into_inner();
        reply.tool.filter(|tool| check(tool))
    })
    .await
}

fn seconds(n: f64) -> prost_types::Duration {
    Duration::from_secs_f64(n).try_into().expect("a small duration")
}

/// A port that was free a moment ago; these programs take none that is picked for them.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// A target's process. Dropping it kills it.
struct Target {
    command: Command,
    child: Child,
}

impl Target {
    /// None, and a skip noted, if the program is not installed.
    fn start(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Self { command, child }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let program = command.get_program().to_string_lossy().into_owned();
                skip(&program, "not installed; tests/run --with-system-packages installs it");
                None
            }
            Err(e) => panic!("{:?} does not start: {e}", command.get_program()),
        }
    }

    async fn listens(&mut self, port: u16) {
        let child = &mut self.child;
        let ended = |child: &mut Child| child.try_wait().expect("our own child can be waited for");
        assert!(ended(child).is_none(), "the target ended at once");
        eventually("the target listens", SOON, || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
    }

    fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child takes signals");
    }

    fn start_again(&mut self) {
        self.child = self.command.spawn().expect("what started once starts again");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail only if it ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
