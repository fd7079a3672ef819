//! The stage: a real server on a store in a temporary directory, its targets, and the owner of the tools.

use std::{ffi::OsStr, net::SocketAddr, path::Path, time::Duration};

use tempfile::TempDir;
use tokio::{task::JoinHandle, time};
use tokio_util::task::AbortOnDropHandle;

use super::{
    super::{Failure, client},
    api::{Api, until},
    signals::Signals,
    targets::Targets,
};
use crate::{
    app::{self, Stop},
    config::{ClientSettings, Environment, Layers, Settings},
    manifest::{Defaults, Manifest},
    proto::v1::SchemaFormat,
};

/// Probes run this often, so that the story is short.
pub(super) const INTERVAL: &str = "1s";
/// A result counts for this long without a new one.
pub(super) const TTL: &str = "5s";
/// A success outlives errors by this.
pub(super) const GRACE: &str = "5s";
/// The tools as their owner wrote them.
const TOOLS: &str = include_str!("tools.yaml");
/// The tool whose results its owner pushes, and how often it does; less than the TTL.
const REPORTED: &str = "transcribe_audio";
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Everything that runs. [`Stage::strike`] ends it; the directory goes when this is dropped.
#[derive(Debug)]
pub(super) struct Stage {
    /// The server's API.
    pub(super) api: Api,
    /// What its probes ask.
    pub(super) targets: Targets,
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// Where its admin port is.
    pub(super) admin: SocketAddr,
    stop: Stop,
    /// None once its end was told.
    server: Option<JoinHandle<Result<(), app::Error>>>,
    directory: TempDir,
    owner: Option<AbortOnDropHandle<()>>,
}

impl Stage {
    /// Starts server and targets.
    pub(super) async fn build() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("toolpulse-demo-")
            .tempdir()
            .map_err(|e| Failure::Failed(format!("cannot make a temporary directory: {e}")))?;
        let targets = Targets::start()
            .await
            .map_err(|e| Failure::Failed(format!("cannot start the targets of the demo: {e}")))?;
        let running =
            Box::pin(app::start(settings(directory.path())?)).await.map_err(app::Error::into_failure)?;
        let (address, admin, stop) = (running.address, running.admin, running.stop.clone());
        let server = Some(tokio::spawn(running.ended()));
        let api = Api::new(client::channel(&client_settings(address)?).await?);
        Ok(Self { api, targets, address, admin, stop, server, directory, owner: None })
    }

    /// Where the store is.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Registers the tools, and pushes the results of the one that only its owner can check. How many they are.
    pub(super) async fn register(&mut self) -> Result<usize, Failure> {
        let text = TOOLS
            .replace("{HTTP}", &self.targets.http.to_string())
            .replace("{GRPC}", &self.targets.grpc.to_string())
            .replace("{TCP}", &self.targets.tcp.to_string());
        let manifest = Manifest::parse("tools.yaml", &text, Defaults::default())
            .map_err(|e| Failure::Failed(e.to_string()))?;
        let tools: Vec<_> = manifest.tools.into_iter().map(|(_, spec)| spec).collect();
        let count = tools.len();
        until("all tools are accepted", async || self.api.register(&manifest.owner, tools.clone()).await)
            .await?;
        self.owner = Some(AbortOnDropHandle::new(tokio::spawn(push_reports(self.api.clone()))));
        Ok(count)
    }

    /// Waits until an agent's list has exactly so many tools.
    pub(super) async fn all_listed(&self, count: usize) -> Result<Vec<String>, Failure> {
        until(&format!("all {count} tools are listed"), async || {
            let list = self.api.list(SchemaFormat::Mcp, None).await?;
            let names: Vec<String> = list.tools.into_iter().map(|tool| tool.name).collect();
            if names.len() == count { Ok(names) } else { Err(format!("the list is {}", names.join(", "))) }
        })
        .await
    }

    /// Waits until the server has ended, although nobody asked for that.
    pub(super) async fn broken(&mut self) -> Failure {
        let Some(server) = &mut self.server else { return std::future::pending().await };
        let ended = server.await;
        self.server = None;
        match ended {
            Ok(Err(error)) => error.into_failure(),
            ended => Failure::Failed(format!("the server ended by itself: {ended:?}")),
        }
    }

    /// Drains the server, as a signal would; a further signal cuts its connections.
    pub(super) async fn strike(mut self, signals: &mut Signals) -> Result<(), Failure> {
        self.owner = None;
        // Its connection ends with it; the server need not wait.
        drop(self.api);
        if let Some(mut server) = self.server {
            self.stop.gently();
            let ended = tokio::select! {
                ended = &mut server => ended,
                () = signals.next() => {
                    self.stop.now();
                    server.await
                }
            };
            let ended = ended.unwrap_or_else(|panic| Err(app::Error::Failed(panic.to_string())));
            ended.map_err(app::Error::into_failure)?;
        }
        let removed = self.directory.close();
        removed.map_err(|e| Failure::Failed(format!("cannot remove the temporary directory: {e}")))
    }
}

/// The settings of `toolpulse serve` in an environment that has just these variables: a pipeline's `CI`, or an allowlist of
/// the user's own, would tell another story.
fn settings(directory: &Path) -> Result<Settings, Failure> {
    let environment = [
        ("TOOLPULSE_LISTEN", OsStr::new("127.0.0.1:0")),
        ("TOOLPULSE_ADMIN_LISTEN", OsStr::new("127.0.0.1:0")),
        ("TOOLPULSE_STORE", OsStr::new("sqlite")),
        ("TOOLPULSE_DATA_DIR", directory.as_os_str()),
        ("TOOLPULSE_PROBE_ALLOW", OsStr::new("127.0.0.0/8")),
        ("TOOLPULSE_PROBE_INTERVAL", OsStr::new(INTERVAL)),
        ("TOOLPULSE_PROBE_TTL", OsStr::new(TTL)),
        ("TOOLPULSE_PROBE_GRACE", OsStr::new(GRACE)),
        ("TOOLPULSE_GATEWAY_STATUS_TOOL", OsStr::new("true")),
        ("TOOLPULSE_DEGRADED_CAPABILITIES", OsStr::new("true")),
    ];
    Ok(Layers::read(&[], None, &Environment::from_pairs(environment))?.server()?)
}

/// The settings of a command that talks to the server.
fn client_settings(address: SocketAddr) -> Result<ClientSettings, Failure> {
    let environment = [("TOOLPULSE_SERVER", address.to_string())];
    Ok(Layers::read(&[], None, &Environment::from_pairs(environment))?.client()?)
}

/// The owner of a tool that no network probe can ask: it looks for itself, and says what it found.
async fn push_reports(api: Api) {
    let mut timer = time::interval(REPORT_EVERY);
    loop {
        timer.tick().await;
        if let Err(error) = api.report_pass(REPORTED, "the speech model is loaded").await {
            tracing::debug!(error, "the report did not arrive; the next one may");
        }
    }
}
