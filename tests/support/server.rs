//! The real binary, as a child process.

use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, timeout_at},
};
use tonic::transport::{Channel, Endpoint};
use toolpulse::proto::{
    health::health_client::HealthClient,
    v1::{
        gateway_status_service_client::GatewayStatusServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};

use super::{SOON, http_get};

/// Path of the binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_toolpulse");

/// How a server under test is started. Its ports are always free ones, on loopback unless a test says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    listen: String,
    store: String,
    data_dir: PathBuf,
    probe_allow: Option<String>,
    wait_ready: bool,
    max_files: Option<u32>,
}

impl ServerConfig {
    fn new(data_dir: PathBuf) -> Self {
        Self {
            args: Vec::new(),
            env: Vec::new(),
            listen: "127.0.0.1:0".into(),
            store: "sqlite".into(),
            data_dir,
            // The tests' own targets are on loopback, where the egress guard lets no probe go by itself.
            probe_allow: Some("127.0.0.0/8".into()),
            wait_ready: true,
            max_files: None,
        }
    }

    /// Adds command-line arguments to `serve`.
    pub(crate) fn args<I: IntoIterator<Item: Into<OsString>>>(&mut self, args: I) -> &mut Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the server's environment.
    pub(crate) fn env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Another address of the API than a free port on loopback.
    pub(crate) fn listen(&mut self, address: &str) -> &mut Self {
        self.listen = address.into();
        self
    }

    /// Another store than `sqlite`.
    pub(crate) fn store(&mut self, store: &str) -> &mut Self {
        self.store = store.into();
        self
    }

    /// A data directory of the test's own, instead of a fresh one that goes with the server.
    pub(crate) fn data_dir(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.data_dir = path.into();
        self
    }

    /// What probes may reach besides public addresses; none: the default of the server.
    pub(crate) fn probe_allow(&mut self, allow: Option<&str>) -> &mut Self {
        self.probe_allow = allow.map(Into::into);
        self
    }

    /// Does not wait for `/readyz`: for servers that are not to become ready soon.
    pub(crate) fn without_waiting(&mut self) -> &mut Self {
        self.wait_ready = false;
        self
    }

    /// At most so many open files.
    pub(crate) fn max_files(&mut self, max: u32) -> &mut Self {
        self.max_files = Some(max);
        self
    }

    fn command(&self) -> Command {
        let mut command = match self.max_files {
            Some(max) => {
                let mut shell = clean(Command::new("sh"));
                shell.args(["-c", &format!("ulimit -n {max} && exec \"$0\" \"$@\""), BINARY]);
                shell
            }
            None => clean_command(),
        };
        command.arg("serve");
        command.args(["--listen", &self.listen, "--admin-listen", "127.0.0.1:0", "--store", &self.store]);
        command.arg("--data-dir").arg(&self.data_dir);
        if let Some(allow) = &self.probe_allow {
            command.args(["--probe-allow", allow]);
        }
        command.args(&self.args).envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }
}

/// The binary under test with nothing in its environment that would change what it does: a pipeline sets `CI`, a
/// developer may have set anything.
pub(crate) fn clean_command() -> Command {
    clean(Command::new(BINARY))
}

fn clean(mut command: Command) -> Command {
    let own = std::env::vars_os().map(|(name, _)| name);
    let ours = |name: &OsString| name.to_string_lossy().starts_with("TOOLPULSE_");
    for name in own.filter(ours).chain(["CI", "ALLOWED_TOOLS", "HERMES_ONLY_TOOLS"].map(OsString::from)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// How a server ended that was meant to.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// Everything it wrote to stderr.
    pub(crate) log: String,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    config: ServerConfig,
    files: TempDir,
    child: Child,
    starts: usize,
    listen: String,
    admin: String,
    channel: Channel,
}

impl Server {
    /// Starts a server and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready; with its log.
    pub(crate) async fn start(configure: impl FnOnce(&mut ServerConfig)) -> Self {
        match Self::try_start(configure).await {
            Ok(server) => server,
            Err(ended) => {
                panic!("the server ended with {} instead of starting:\n{}", ended.status, ended.log)
            }
        }
    }

    /// Starts a server; how it ended, if it ended before it was listening.
    pub(crate) async fn try_start(configure: impl FnOnce(&mut ServerConfig)) -> Result<Self, Ended> {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut config = ServerConfig::new(files.path().join("data"));
        configure(&mut config);
        let (child, addresses) = spawn(&config, &log_path(files.path(), 1)).await?;
        let mut server = Self {
            config,
            files,
            child,
            starts: 1,
            channel: channel(&addresses.listen),
            listen: addresses.listen,
            admin: addresses.admin,
        };
        match server.wait_ready().await {
            Ok(()) => Ok(server),
            Err(status) => Err(Ended { status, log: server.log() }),
        }
    }

    /// Starts a server that must refuse to start.
    ///
    /// # Panics
    /// If it starts all the same.
    pub(crate) async fn refuse(configure: impl FnOnce(&mut ServerConfig)) -> Ended {
        match Self::try_start(configure).await {
            Ok(server) => panic!("the server started although it should not:\n{}", server.log()),
            Err(ended) => ended,
        }
    }

    /// `host:port` of the API.
    pub(crate) fn address(&self) -> &str {
        &self.listen
    }

    /// `host:port` of the admin port.
    pub(crate) fn admin_address(&self) -> &str {
        &self.admin
    }

    /// The directory that the server keeps its data in.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.config.data_dir
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server wrote to stderr since its last start.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(log_path(self.files.path(), self.starts)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log says so: lines are written by a thread of their own, a moment after what they tell.
    pub(crate) async fn logs(&self, text: &str) {
        let deadline = Instant::now() + SOON;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "'{text}' is not in the log within {SOON:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The one connection that all clients from here share.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A client of the registry.
    pub(crate) fn tools(&self) -> ToolRegistryServiceClient<Channel> {
        ToolRegistryServiceClient::new(self.channel())
    }

    /// A client of the gateways' status.
    pub(crate) fn gateways(&self) -> GatewayStatusServiceClient<Channel> {
        GatewayStatusServiceClient::new(self.channel())
    }

    /// A client of the API port's health service.
    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel())
    }

    /// Another connection, for what must not share one.
    pub(crate) fn new_channel(&self) -> Channel {
        channel(&self.listen)
    }

    /// One GET on the admin port.
    pub(crate) async fn admin_get(&self, path: &str) -> std::io::Result<(u16, String)> {
        http_get(&self.admin, path).await
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("our own child takes signals");
    }

    /// SIGKILL, and the process is gone when this returns.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    /// If it still runs after `within`.
    pub(crate) async fn wait_exit(&mut self, within: Duration) -> ExitStatus {
        let child = &mut self.child;
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = child.try_wait().expect("our own child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server still runs after {within:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops the server as an orchestrator would, and starts it again on the same data. It has new addresses then.
    pub(crate) async fn restart(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait_exit(SOON).await;
        assert!(status.success(), "the server ended with {status} on SIGTERM:\n{}", self.log());
        self.start_again().await;
    }

    /// Kills the server with SIGKILL, and starts it again on the same data. It has new addresses then.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.kill9();
        self.start_again().await;
    }

    /// Starts the server again after it ended, with the same configuration.
    pub(crate) async fn start_again(&mut self) {
        self.starts += 1;
        let started = spawn(&self.config, &log_path(self.files.path(), self.starts)).await;
        let (child, addresses) = started.unwrap_or_else(|ended| {
            panic!("the server ended with {} instead of starting again:\n{}", ended.status, ended.log)
        });
        self.child = child;
        self.channel = channel(&addresses.listen);
        self.listen = addresses.listen;
        self.admin = addresses.admin;
        if let Err(status) = self.wait_ready().await {
            panic!("the server ended with {status} before it was ready:\n{}", self.log());
        }
    }

    /// The error is how the process ended before it was ready.
    async fn wait_ready(&mut self) -> Result<(), ExitStatus> {
        let deadline = Instant::now() + SOON;
        while self.config.wait_ready {
            match http_get(&self.admin, "/readyz").await {
                Ok((200, _)) => break,
                last => assert!(Instant::now() < deadline, "not ready within {SOON:?}, /readyz: {last:?}"),
            }
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                return Err(status);
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("---- log of the server ----\n{}---- end of the log ----", self.log());
        }
    }
}

/// Where a server listens.
struct Addresses {
    listen: String,
    admin: String,
}

/// Starts the process and waits for the two lines that name its addresses.
async fn spawn(config: &ServerConfig, log: &Path) -> Result<(Child, Addresses), Ended> {
    let stderr = File::create(log).expect("a file for the log");
    let mut command = config.command();
    let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary can be started");
    let mut lines = stdout_lines(&mut child);
    let deadline = Instant::now() + SOON;
    let (mut listen, mut admin) = (None, None);
    while listen.is_none() || admin.is_none() {
        match timeout_at(deadline, lines.recv()).await {
            Ok(Some(line)) => {
                listen = listen.or_else(|| line.strip_prefix("listening on ").map(str::to_owned));
                admin = admin.or_else(|| line.strip_prefix("admin on ").map(str::to_owned));
            }
            // stdout ended: so does the process.
            Ok(None) => return Err(reap(child, log)),
            Err(_) => {
                let _ = child.kill();
                let ended = reap(child, log);
                panic!("the server named no addresses within {SOON:?}:\n{}", ended.log);
            }
        }
    }
    let addresses = Addresses { listen: listen.unwrap_or_default(), admin: admin.unwrap_or_default() };
    Ok((child, addresses))
}

fn reap(mut child: Child, log: &Path) -> Ended {
    let status = child.wait().expect("our own child can be waited for");
    let log = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    Ended { status, log }
}

/// Reads stdout to its end, so that the server never blocks on a full pipe.
fn stdout_lines(child: &mut Child) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    let stdout = child.stdout.take().expect("stdout is piped");
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Nobody listens any more: read on all the same.
            let _ = sender.send(line);
        }
    });
    receiver
}

fn log_path(files: &Path, start: usize) -> PathBuf {
    files.join(format!("stderr-{start}.log"))
}

/// Calls on it fail after a while instead of hanging a test; a stream, once it began, may go on for ever.
fn channel(address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address makes an endpoint");
    endpoint.connect_timeout(SOON).timeout(SOON).connect_lazy()
}
