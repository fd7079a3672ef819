//! Settings: flags over environment over file over defaults. The only reader of the environment.

mod environment;
mod layers;
mod options;
mod parse;
mod scalar;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod yaml;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use self::{
    environment::{CONFIG_VARIABLE, Environment},
    layers::{Effective, Layers, Origin},
    options::{ClientFlags, LogFlags, OPTIONS, ServerFlags, Setting},
    parse::duration,
    tls::{ClientTls, Tls},
};
use crate::{
    core::{
        name::{Namespace, clean},
        policy::DefaultPolicy,
        probe::HostPort,
    },
    telemetry,
};

/// The shortest interval of a probe.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval of a probe.
const MAX_INTERVAL: Duration = Duration::from_secs(3_600);
/// The shortest timeout of a probe.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// The longest timeout of a probe.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a probe that has none of its own: this, or half of the interval where that is less.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest window.
const MAX_WINDOW: Duration = Duration::from_secs(24 * 3_600);
/// The shortest heartbeat and age of a watch; less would be a busy loop. Batches may follow each other at once.
const MIN_WATCH_TIME: Duration = Duration::from_millis(10);
/// Less than this would cut peers that are merely far away.
const MIN_PATIENCE: Duration = Duration::from_secs(1);
/// The longest step of a shutdown.
const MAX_DRAIN: Duration = Duration::from_secs(3_600);
/// More streams than any one process can hold.
const MAX_WATCHES: usize = 1_000_000;
/// One tool with all its JSON (192 KiB) must always fit.
const MIN_REQUEST_BYTES: usize = 256 << 10;
/// A request is held in memory as a whole.
const MAX_REQUEST_BYTES: usize = 256 << 20;

/// A setting is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// An error with its whole text: which setting, from where, what is wrong, what would be right.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Everything that the server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address of the gRPC API.
    pub listen: SocketAddr,
    /// Address of the admin port.
    pub admin_listen: SocketAddr,
    /// TLS of the gRPC API; none: plaintext.
    pub tls: Option<Tls>,
    /// Whether the API may be plaintext on an address that is not loopback.
    pub allow_plaintext: bool,
    /// Where tools are kept.
    pub store: Store,
    /// Directory of the sqlite store.
    pub data_dir: PathBuf,
    /// File of declared tools.
    pub manifest: Option<PathBuf>,
    /// How tools are probed that do not say it themselves.
    pub probe: Probing,
    /// How to log.
    pub log: Log,
    /// What the environment says about the allowlist.
    pub allowlist: AllowlistEnvironment,
    /// With CI set: how long to wait for the allowlist's names.
    pub strict_wait: Duration,
    /// What applies to agents without a policy.
    pub default_policy: DefaultPolicy,
    /// Whether agents are offered the built-in tool `gateway_status`.
    pub gateway_status_tool: bool,
    /// Whether a gateway's `degraded` is joined by the tools that do not work.
    pub degraded_capabilities: bool,
    /// How watches are served.
    pub watch: Watching,
    /// When peers are given up.
    pub patience: Patience,
    /// Largest request message.
    pub max_request_bytes: usize,
    /// How the server shuts down.
    pub drain: Drain,
}

/// Where tools are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a file of the data directory.
    Sqlite,
    /// In memory: lost at the end.
    Memory,
}

/// The server's defaults for probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// How often.
    pub interval: Duration,
    /// The one deadline of a run; none: min(3 s, interval / 2).
    pub timeout: Option<Duration>,
    /// How long a result counts without a new one.
    pub ttl: Duration,
    /// How long a success outlives errors.
    pub grace: Duration,
    /// Which targets may be probed.
    pub egress: Egress,
    /// CIDRs, addresses and hosts that may be probed besides.
    pub allow: Vec<String>,
    /// CIDRs, addresses, hosts and ports that are never probed.
    pub deny: Vec<String>,
    /// Directory of the secrets that probes may refer to.
    pub secrets_dir: Option<PathBuf>,
    /// Whether a probe may verify no certificate.
    pub insecure_tls: bool,
    /// What answers wherever the network works.
    pub canary: Option<HostPort>,
}

/// Which targets may be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Public addresses only.
    Strict,
    /// Private addresses as well.
    Cluster,
}

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A valid filter.
    pub filter: String,
    /// One JSON object a line, instead of text.
    pub json: bool,
}

/// What the environment says about the allowlist. Nothing of it is judged yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowlistEnvironment {
    /// `ALLOWED_TOOLS`.
    pub allowed_tools: Option<String>,
    /// `HERMES_ONLY_TOOLS`.
    pub hermes_only_tools: Option<String>,
    /// `CI`.
    pub ci: Option<String>,
    /// The variable that stands in for `ALLOWED_TOOLS`, and its value.
    pub custom: Option<(String, Option<String>)>,
}

/// How watches are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Shortest time between two changes.
    pub coalesce: Duration,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// Age at which a watch is ended.
    pub max_age: Duration,
    /// How many may be open.
    pub max_total: usize,
    /// How many one peer address may have open.
    pub max_per_peer: usize,
}

/// When peers are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a quiet peer is pinged.
    pub keepalive_interval: Duration,
    /// How long it may take to answer.
    pub keepalive_timeout: Duration,
    /// How long the reader of a stream may take nothing.
    pub stall: Duration,
}

/// How the server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long to go on serving while health says NOT_SERVING.
    pub lame_duck: Duration,
    /// Over how long the ends of streams are spread.
    pub spread: Duration,
    /// How long calls in flight may take.
    pub grace: Duration,
}

/// Everything that a command is told which talks to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The server's URL.
    pub server: String,
    /// How TLS is spoken, if the URL asks for it.
    pub tls: ClientTls,
    /// The namespace to work in.
    pub namespace: Namespace,
    /// Whether somebody named the namespace.
    pub namespace_given: bool,
    /// JSON instead of tables.
    pub json: bool,
}

impl Layers {
    /// The server's settings.
    ///
    /// # Errors
    /// The first wrong setting.
    pub fn server(&self) -> Result<Settings, Error> {
        Ok(Settings {
            listen: self.get("listen", parse::address)?,
            admin_listen: self.get("admin_listen", parse::address)?,
            tls: self.tls()?,
            allow_plaintext: self.get("allow_plaintext", parse::boolean)?,
            store: self.get("store", store)?,
            data_dir: self.data_dir()?,
            manifest: self.optional("manifest", parse::path)?,
            probe: self.probing()?,
            log: self.log()?,
            allowlist: self.allowlist()?,
            strict_wait: self.duration("strict_wait", Duration::ZERO, MAX_INTERVAL)?,
            default_policy: self.get("default_policy", |t| {
                parse::word(t, &[("allow", DefaultPolicy::Allow), ("deny", DefaultPolicy::Deny)])
            })?,
            gateway_status_tool: self.get("gateway_status_tool", parse::boolean)?,
            degraded_capabilities: self.get("degraded_capabilities", parse::boolean)?,
            watch: self.watching()?,
            patience: Patience {
                keepalive_interval: self.duration("keepalive_interval", MIN_PATIENCE, MAX_INTERVAL)?,
                keepalive_timeout: self.duration("keepalive_timeout", MIN_PATIENCE, MAX_INTERVAL)?,
                stall: self.duration("watch_stall", MIN_PATIENCE, MAX_INTERVAL)?,
            },
            max_request_bytes: self
                .get("max_request_bytes", |t| parse::size(t, MIN_REQUEST_BYTES..=MAX_REQUEST_BYTES))?,
            drain: Drain {
                lame_duck: self.duration("drain_lame_duck", Duration::ZERO, MAX_DRAIN)?,
                spread: self.duration("drain_spread", Duration::ZERO, MAX_DRAIN)?,
                grace: self.duration("drain_grace", Duration::ZERO, MAX_DRAIN)?,
            },
        })
    }

    /// The settings of a command that talks to a server.
    ///
    /// # Errors
    /// The first wrong setting.
    pub fn client(&self) -> Result<ClientSettings, Error> {
        let server = self.get("server", parse::server)?;
        Ok(ClientSettings {
            tls: self.client_tls(&server)?,
            server,
            namespace: self.get("namespace", parse::namespace)?,
            namespace_given: self.effective("namespace")?.origin != Origin::Default,
            json: self.get("output", |t| parse::word(t, &[("table", false), ("json", true)]))?,
        })
    }

    /// How to log.
    ///
    /// # Errors
    /// The first wrong setting.
    pub fn log(&self) -> Result<Log, Error> {
        Ok(Log {
            filter: self.get("log", |text| telemetry::filter(text).map(|_| text.to_owned()))?,
            json: self.get("log_format", |t| parse::word(t, &[("text", false), ("json", true)]))?,
        })
    }

    /// The directory of the sqlite store.
    ///
    /// # Errors
    /// It is no path.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.get("data_dir", parse::path)
    }

    /// Variables that look like settings and are none, each with a warning.
    pub fn warnings(&self) -> Vec<String> {
        let allowlist_var = self.effective("allowlist_var").ok().map(|e| e.text.as_str());
        self.environment().unknown(allowlist_var)
    }

    /// What the environment says about the allowlist.
    ///
    /// # Errors
    /// A value is not Unicode, or the custom variable's name is none.
    pub fn allowlist(&self) -> Result<AllowlistEnvironment, Error> {
        let environment = self.environment();
        let custom = match self.optional("allowlist_var", parse::variable_name)? {
            Some(name) if name != "ALLOWED_TOOLS" => {
                let value = environment.get(&name)?;
                Some((name, value))
            }
            _ => None,
        };
        Ok(AllowlistEnvironment {
            allowed_tools: environment.get("ALLOWED_TOOLS")?,
            hermes_only_tools: environment.get("HERMES_ONLY_TOOLS")?,
            ci: environment.get("CI")?,
            custom,
        })
    }

    fn probing(&self) -> Result<Probing, Error> {
        let interval = self.duration("probe_interval", MIN_INTERVAL, MAX_INTERVAL)?;
        let timeout = self.optional("probe_timeout", |t| parse::duration_in(t, MIN_TIMEOUT..=MAX_TIMEOUT))?;
        let words = [("strict", Egress::Strict), ("cluster", Egress::Cluster)];
        Ok(Probing {
            interval,
            timeout,
            ttl: self.window("probe_ttl", interval, timeout)?,
            grace: self.window("probe_grace", interval, timeout)?,
            egress: self.get("probe_egress", |t| parse::word(t, &words))?,
            allow: self.get("probe_allow", parse::list)?,
            deny: self.get("probe_deny", parse::list)?,
            secrets_dir: self.optional("secrets_dir", parse::path)?,
            insecure_tls: self.get("probe_insecure_tls", parse::boolean)?,
            canary: self.optional("probe_canary", parse::host_port)?,
        })
    }

    /// A window must outlast the time from one result to the next, or tools would flap between two good probes.
    /// One that nobody set grows with the interval, so that it only breaks against a long timeout.
    fn window(
        &self,
        key: &'static str,
        interval: Duration,
        timeout: Option<Duration>,
    ) -> Result<Duration, Error> {
        let window = self.duration(key, Duration::ZERO, MAX_WINDOW)?;
        let effective = self.effective(key)?;
        let in_force = match effective.origin {
            Origin::Default => window.max(interval * 3),
            _ => window,
        };
        let timeout = timeout.unwrap_or_else(|| DEFAULT_TIMEOUT.min(interval / 2));
        let least = interval.mul_f64(1.05) + timeout;
        if in_force > least {
            return Ok(window);
        }
        let [in_force, interval, timeout, least] =
            [in_force, interval, timeout, least].map(|d| humantime::format_duration(d).to_string());
        Err(Error::new(format!(
            "{effective}: {in_force} is too short; it must be greater than 1.05 x probe_interval ({interval}) + \
             probe_timeout ({timeout}) = {least}"
        )))
    }

    fn watching(&self) -> Result<Watching, Error> {
        let max_total = self.get("max_watches", |t| parse::count(t, 1..=MAX_WATCHES))?;
        Ok(Watching {
            coalesce: self.duration("watch_coalesce", Duration::ZERO, MAX_TIMEOUT)?,
            heartbeat: self.duration("watch_heartbeat", MIN_WATCH_TIME, MAX_INTERVAL)?,
            max_age: self.duration("watch_max_age", MIN_WATCH_TIME, MAX_WINDOW)?,
            max_total,
            max_per_peer: self.get("max_watches_per_peer", |t| parse::count(t, 1..=MAX_WATCHES))?,
        })
    }

    fn duration(&self, key: &'static str, low: Duration, high: Duration) -> Result<Duration, Error> {
        self.get(key, |text| parse::duration_in(text, low..=high))
    }
}

fn store(text: &str) -> Result<Store, String> {
    // A URL may hold a password: it is never repeated.
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!(
            "a store at {}:// is not supported yet; use sqlite or memory",
            clean(scheme, 20)
        ));
    }
    parse::word(text, &[("sqlite", Store::Sqlite), ("memory", Store::Memory)])
}
