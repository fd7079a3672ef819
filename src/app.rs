//! The composition root, the only file that knows every part: bind, run, drain with a deadline.

use std::{io::Write, net::SocketAddr, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{
    admin::{self, Pending, Readiness},
    catalog::{self, Catalog, Reader},
    cli::Failure,
    clock::Clock,
    config::{self, Settings},
    core::{
        allowlist::{self, ServerAllowlist},
        availability,
        hash::hex,
        name::ToolKey,
    },
    manifest,
    metrics::Metrics,
    owner::{Canary, Handle, Owner, Parts},
    prober::{self, Prober, carry, egress, secrets::Secrets},
    proto::v1::{
        agent_policy_service_server::AgentPolicyServiceServer,
        gateway_status_service_server::GatewayStatusServiceServer,
    },
    serve::{self, Bound, Drain, Protocols},
    service::{
        gateway::GatewayService,
        health::HealthState,
        policy::PolicyService,
        reflection,
        tools::{Judge, Shortcut, ToolService},
        watch::{WatchSettings, Watches},
    },
    store::{Location, Store},
};

mod declared;
mod signals;
mod strict;

/// Why the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that was asked for can't be right.
    #[error("{0}")]
    Configuration(String),
    /// Something went wrong.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// As the command line tells it.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Configuration(text) => Failure::Usage(text),
            Self::Failed(text) => Failure::Failed(text),
        }
    }
}

/// A server that is up.
#[derive(Debug)]
pub struct Running {
    /// Where the API listens.
    pub address: SocketAddr,
    /// Where the admin port listens.
    pub admin: SocketAddr,
    /// Stops it.
    pub stop: Stop,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Waits until it has ended.
    ///
    /// # Errors
    /// Why it ended, if nobody asked for that.
    pub async fn ended(self) -> Result<(), Error> {
        self.task.await.unwrap_or_else(|panic| Err(Error::Failed(panic.to_string())))
    }
}

/// Stops a server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: CancellationToken,
    drain: Drain,
}

impl Stop {
    /// Begins the drain.
    pub fn gently(&self) {
        self.asked.cancel();
    }

    /// Cuts all connections.
    pub fn now(&self) {
        self.asked.cancel();
        self.drain.kill();
    }
}

/// Runs the server until a signal stops it.
///
/// # Errors
/// Why it did not start, or ended.
pub async fn serve(settings: Settings) -> Result<(), Error> {
    let running = start(settings).await?;
    // Scripts and tests read these lines to learn the real ports. A closed stdout is no reason to stop.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "listening on {}\nadmin on {}", running.address, running.admin);
    let _ = out.flush();
    let signals = tokio::spawn(signals::stop(running.stop.clone()));
    let ended = running.ended().await;
    signals.abort();
    ended
}

/// Starts a server: binds both ports, loads store and manifest, and serves.
///
/// # Errors
/// Why it did not start.
pub async fn start(settings: Settings) -> Result<Running, Error> {
    start_with(settings, Clock::start()).await
}

/// Like [`start`], with a clock of the caller's.
///
/// # Errors
/// Why it did not start.
pub async fn start_with(settings: Settings, clock: Clock) -> Result<Running, Error> {
    let (allowlist, lines) =
        ServerAllowlist::from_environment(&environment(&settings)).map_err(Error::Configuration)?;
    log(&lines);
    let defaults = defaults(&settings);
    let metrics = Metrics::new();
    let tls = tls(&settings, &metrics)?;
    let (policy, rules) = (egress_policy(&settings)?, carry_rules(&settings));
    let bound = bind("TOOLPULSE_LISTEN", settings.listen, serve::connection_cap()).await?;
    let bound = bound.with_patience(patience(&settings)).with_tls(tls.clone());
    let admin = bind("TOOLPULSE_ADMIN_LISTEN", settings.admin_listen, serve::ADMIN_CONNECTIONS).await?;
    let (address, admin_address) = (bound.address(), admin.address());
    let policy = policy.without(&[address, admin_address]);
    let declared = settings.manifest.as_deref().map(manifest::load).transpose();
    let declared = declared.map_err(|e| Error::Configuration(e.to_string()))?;

    let health = HealthState::default();
    let (readiness, starting) = Readiness::new(health.clone());
    let (store, loaded) =
        Store::open(&location(&settings)).await.map_err(|e| Error::Failed(e.to_string()))?;
    let first = Catalog::empty(epoch().into(), loaded.revision, settings.gateway_status_tool)
        .with_default_policy(settings.default_policy);
    let (publisher, reader) = catalog::channel(first, allowlist);
    let stop_owner = CancellationToken::new();
    let parts = Parts {
        clock: clock.clone(),
        defaults,
        store,
        loaded,
        has_manifest: declared.is_some(),
        prober: Prober::of(prober::Parts { rules: rules.clone(), ..prober::Parts::new(policy.clone()) }),
        canary: settings.probe.canary.clone().map_or(Canary::Own(admin_address), Canary::Given),
        publisher,
        metrics: metrics.clone(),
        stop: stop_owner.clone(),
    };
    let (owner, handle) = Owner::new(parts).await.map_err(|e| Error::Failed(e.to_string()))?;
    let owner = tokio::spawn(owner.run());

    let judge = Judge { defaults, egress: policy, rules };
    let follower = match declared {
        Some((manifest, follower)) => {
            declared::declare(&handle, &judge, manifest).await.map_err(Error::Configuration)?;
            Some(follower)
        }
        None => None,
    };
    handle.started().await.map_err(|refusal| Error::Failed(refusal.to_string()))?;
    let strict = strict::begin(&reader, &settings, &readiness)?;

    let drain = Drain::new(settings.drain.grace, settings.drain.spread);
    let watches = Watches::new(watch_settings(&settings), drain.signal(), metrics.clone());
    let tools = ToolService::new(
        handle.clone(),
        reader.clone(),
        clock.clone(),
        judge.clone(),
        watches.clone(),
        &metrics,
    );
    let gateways = GatewayService::new(
        handle.clone(),
        reader.clone(),
        clock.clone(),
        watches,
        settings.degraded_capabilities,
    );
    let policies = PolicyService::new(handle.clone(), reader.clone());
    let routes = routes(tools, policies, gateways, &health, settings.max_request_bytes)?;
    let admin_routes = admin::routes(readiness.clone(), metrics.clone(), reader.clone(), clock);
    let server = Server {
        stop: Stop { asked: CancellationToken::new(), drain: drain.clone() },
        drain,
        lame_duck: settings.drain.lame_duck,
        health,
        owner,
        stop_owner,
        background: JoinSet::new(),
    };
    let stop = server.stop.clone();
    let task = tokio::spawn(server.run(
        Ports { bound, admin, routes, admin_routes, readiness, metrics },
        Work { handle, judge, reader, follower, strict, starting, tls },
    ));
    Ok(Running { address, admin: admin_address, stop, task })
}

/// What ends with the server.
struct Server {
    stop: Stop,
    drain: Drain,
    lame_duck: Duration,
    health: HealthState,
    owner: JoinHandle<()>,
    stop_owner: CancellationToken,
    background: JoinSet<Result<(), Error>>,
}

/// The two ports and what they serve.
struct Ports {
    bound: Bound,
    admin: Bound,
    routes: Routes,
    admin_routes: Routes,
    readiness: Readiness,
    metrics: Metrics,
}

/// What goes on beside serving.
struct Work {
    handle: Handle,
    judge: Judge,
    reader: Reader,
    follower: Option<manifest::Follower>,
    strict: Option<strict::Waiting>,
    starting: Pending,
    tls: Option<serve::tls::Tls>,
}

impl Server {
    async fn run(mut self, ports: Ports, work: Work) -> Result<(), Error> {
        let Ports { bound, admin, routes, admin_routes, readiness, metrics } = ports;
        self.begin(work, readiness);
        let admin_drain = Drain::new(serve::ADMIN_GRACE, Duration::ZERO);
        let mut admin_server = tokio::spawn({
            let (metrics, drain) = (metrics.clone(), admin_drain.clone());
            async move { serve::serve(admin, Protocols::HttpAndGrpc, admin_routes, &metrics, &drain).await }
        });
        let mut api = tokio::spawn({
            let drain = self.drain.clone();
            async move { serve::serve(bound, Protocols::Grpc, routes, &metrics, &drain).await }
        });

        let asked = self.stop.asked.clone();
        let outcome = tokio::select! {
            () = asked.cancelled() => Ok(()),
            ended = &mut api => Err(Error::Failed(format!("the API port ended: {ended:?}"))),
            ended = &mut admin_server => Err(Error::Failed(format!("the admin port ended: {ended:?}"))),
            ended = &mut self.owner => Err(Error::Failed(format!("the owner ended: {ended:?}"))),
            error = first_error(&mut self.background) => Err(error),
        };
        tracing::info!("draining");
        self.health.drain();
        if outcome.is_ok() {
            tokio::select! {
                () = tokio::time::sleep(self.lame_duck) => {}
                () = self.drain.killed() => {}
            }
        }
        self.drain.begin();
        if !api.is_finished() {
            let _ = api.await;
        }
        self.background.shutdown().await;
        self.stop_owner.cancel();
        if !self.owner.is_finished() {
            let _ = self.owner.await;
        }
        admin_drain.begin();
        if !admin_server.is_finished() {
            let _ = admin_server.await;
        }
        tracing::info!("stopped");
        outcome
    }

    /// Starts what goes on beside serving.
    fn begin(&mut self, work: Work, readiness: Readiness) {
        let Work { handle, judge, reader, follower, strict, starting, tls } = work;
        if let Some(tls) = tls {
            self.background.spawn(async move {
                tls.follow().await;
                Ok(())
            });
        }
        if let Some(follower) = follower {
            let (events, changes) = mpsc::channel(1);
            self.background.spawn(async move {
                tokio::join!(follower.run(events), declared::follow(handle, judge, changes));
                Ok(())
            });
        }
        if let Some(waiting) = strict {
            self.background.spawn(waiting.run(reader.clone()));
        }
        // From here on what is pending has its own name: whoever asks first hears no other.
        let settling = readiness.pending("settling");
        drop(starting);
        self.background.spawn(ready_while_settled(reader, readiness, settling));
    }
}

/// Keeps the server unready as long as the registry settles, at the start and whenever it stood still.
async fn ready_while_settled(reader: Reader, readiness: Readiness, settling: Pending) -> Result<(), Error> {
    let mut settled = reader.settled();
    let mut pending = Some(settling);
    loop {
        let now_settled = *settled.borrow_and_update();
        match (now_settled, &pending) {
            (true, Some(_)) => {
                pending = None;
                tracing::info!("ready");
            }
            (false, None) => pending = Some(readiness.pending("settling")),
            _ => {}
        }
        if settled.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The first task that fails; those that end well are done.
async fn first_error(tasks: &mut JoinSet<Result<(), Error>>) -> Error {
    loop {
        match tasks.join_next().await {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => return error,
            Some(Err(panic)) => return Error::Failed(panic.to_string()),
            None => std::future::pending().await,
        }
    }
}

fn routes(
    tools: ToolService,
    policies: PolicyService,
    gateways: GatewayService,
    health: &HealthState,
    max_request_bytes: usize,
) -> Result<Routes, Error> {
    let mut routes = Routes::builder();
    routes
        .add_service(Shortcut::new(tools, max_request_bytes))
        .add_service(AgentPolicyServiceServer::new(policies).max_decoding_message_size(max_request_bytes))
        .add_service(GatewayStatusServiceServer::new(gateways))
        .add_service(health.service());
    reflection::add_to(&mut routes).map_err(|e| Error::Failed(format!("reflection: {e}")))?;
    Ok(routes.routes())
}

async fn bind(setting: &str, address: SocketAddr, max_connections: usize) -> Result<Bound, Error> {
    Bound::bind(setting, address, max_connections).await.map_err(|e| Error::Failed(e.to_string()))
}

fn environment(settings: &Settings) -> allowlist::Environment {
    let config::AllowlistEnvironment { allowed_tools, hermes_only_tools, ci, custom } =
        settings.allowlist.clone();
    allowlist::Environment { allowed_tools, hermes_only_tools, ci, custom }
}

fn defaults(settings: &Settings) -> availability::Defaults {
    let longest = availability::Defaults::default().timeout;
    let config::Probing { interval, timeout, ttl, grace, .. } = &settings.probe;
    availability::Defaults {
        interval: *interval,
        timeout: timeout.unwrap_or(longest),
        ttl: *ttl,
        grace: *grace,
    }
}

/// What judges specs under these settings.
///
/// # Errors
/// The settings of the egress guard are wrong.
pub fn judge(settings: &Settings) -> Result<Judge, Error> {
    Ok(Judge { defaults: defaults(settings), egress: egress_policy(settings)?, rules: carry_rules(settings) })
}

fn carry_rules(settings: &Settings) -> carry::Rules {
    let config::Probing { secrets_dir, insecure_tls, .. } = &settings.probe;
    carry::Rules { secrets: Secrets::new(secrets_dir.clone()), insecure_tls: *insecure_tls }
}

fn egress_policy(settings: &Settings) -> Result<egress::Policy, Error> {
    let mode = match settings.probe.egress {
        config::Egress::Strict => egress::Mode::Strict,
        config::Egress::Cluster => egress::Mode::Cluster,
    };
    egress::Policy::parse(mode, &settings.probe.allow)
        .and_then(|policy| policy.denying(&settings.probe.deny))
        .map_err(Error::Configuration)
}

/// TLS of the API, if it is asked for. Without it nobody may listen but on loopback, or where an operator said so.
fn tls(settings: &Settings, metrics: &Metrics) -> Result<Option<serve::tls::Tls>, Error> {
    let Some(config::Tls { cert, key, client_ca, client_required }) = settings.tls.clone() else {
        if settings.allow_plaintext || settings.listen.ip().to_canonical().is_loopback() {
            return Ok(None);
        }
        return Err(Error::Configuration(format!(
            "listen={}: without TLS everybody on the way can read and change what is said there; set tls_cert and tls_key, or \
             allow_plaintext=true where something in front of the server speaks TLS",
            settings.listen
        )));
    };
    let clients = client_ca.map(|path| (path, client_required));
    let files = serve::tls::Files { certificate: cert, key, clients };
    serve::tls::Tls::load(files, metrics.clone()).map(Some).map_err(Error::Configuration)
}

fn watch_settings(settings: &Settings) -> WatchSettings {
    let config::Watching { coalesce, heartbeat, max_age, max_total, max_per_peer } = settings.watch;
    WatchSettings { coalesce, heartbeat, max_age, max_watches: max_total, max_watches_per_peer: max_per_peer }
}

fn patience(settings: &Settings) -> serve::Patience {
    let config::Patience { keepalive_interval, keepalive_timeout, stall } = settings.patience;
    serve::Patience { keepalive_interval, keepalive_timeout, stall }
}

fn location(settings: &Settings) -> Location {
    match settings.store {
        config::Store::Memory => Location::Memory,
        config::Store::Sqlite => Location::Sqlite { dir: settings.data_dir.clone() },
    }
}

/// A history of its own for each start.
fn epoch() -> String {
    let random: [u8; 8] = fastrand::u64(..).to_be_bytes();
    hex(&random)
}

fn log(lines: &[allowlist::Line]) {
    for line in lines {
        match line.level {
            allowlist::Level::Debug => tracing::debug!("{}", line.text),
            allowlist::Level::Info => tracing::info!("{}", line.text),
            allowlist::Level::Warn => tracing::warn!("{}", line.text),
        }
    }
}

/// All tools that allowlists may name.
fn registered(reader: &Reader) -> Vec<ToolKey> {
    reader.load().registered()
}
