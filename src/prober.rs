//! The probe transports: one run of one probe, under one deadline, through the egress guard.
//!
//! Who is due is not decided here: `core::schedule` does that, and the owner task starts the runs.

pub mod carry;
mod dial;
pub mod egress;
pub mod grpc;
pub mod http;
pub mod mcp;
pub mod secrets;
mod tcp;

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use rustls::RootCertStore;
use tokio::time::{Instant, timeout_at};

use self::dial::Dialer;
use crate::core::probe::{ErrorClass, Outcome, ProbeKind, Run, Secret, Why};

/// How the probes name themselves to their targets.
const USER_AGENT: &str = concat!("toolpulse-probe/", env!("CARGO_PKG_VERSION"));

/// Runs probes. Copies are cheap and share one egress policy and one cap on lookups.
#[derive(Clone, Debug)]
pub struct Prober(Arc<Dialer>, Arc<mcp::Exchanges>);

/// Answers a name with addresses; may block.
pub type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// What a prober is made of.
pub struct Parts {
    /// Where probes may go.
    pub egress: egress::Policy,
    /// What they may carry.
    pub rules: carry::Rules,
    /// Whom they trust, where a probe says nothing else.
    pub roots: RootCertStore,
    /// How names are resolved.
    pub resolve: Resolve,
}

impl Parts {
    /// The public roots, the system's resolver and no secrets.
    pub fn new(egress: egress::Policy) -> Self {
        Self {
            egress,
            rules: carry::Rules::default(),
            roots: webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
            resolve: Arc::new(|host, port| (host, port).to_socket_addrs().map(Vec::from_iter)),
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("egress", &self.egress)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Prober {
    /// A prober that trusts the public roots and carries no secret.
    pub fn new(egress: egress::Policy) -> Self {
        Self::of(Parts::new(egress))
    }

    /// A prober of these parts.
    pub fn of(parts: Parts) -> Self {
        Self(Arc::new(Dialer::new(parts)), Arc::default())
    }

    /// The guard that every run goes through.
    pub fn egress(&self) -> &egress::Policy {
        self.0.egress()
    }

    /// One run, in at most `timeout` for the lookup, the connection, TLS and the answer together. It never panics.
    ///
    /// Nothing is spawned but the lookup, so dropping the future closes the socket with it; an MCP server is told that its
    /// session is over first, in at most twice `mcp::LINGER`.
    pub async fn run(&self, kind: &ProbeKind, timeout: Duration) -> Run {
        let start = Instant::now();
        let mut progress = Progress {
            address: None,
            stage: Stage::Resolving,
            deadline: start + timeout,
            told: carry::said(kind),
        };
        let outcome = match timeout_at(progress.deadline, self.ask(kind, &mut progress)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let timeout = humantime::format_duration(timeout);
                let text = format!("no answer within {timeout}: {}", progress.stage.text());
                Outcome::error(ErrorClass::Timeout, &text)
            }
        };
        let outcome = untold(outcome, &progress.told);
        Run { outcome, duration: start.elapsed(), address: progress.address }
    }

    async fn ask(&self, kind: &ProbeKind, progress: &mut Progress) -> Outcome {
        let asked = match kind {
            ProbeKind::Http(probe) => http::run(&self.0, probe, progress).await,
            ProbeKind::Grpc(probe) => grpc::run(&self.0, probe, progress).await,
            ProbeKind::Tcp(probe) => tcp::run(&self.0, probe, progress).await,
            ProbeKind::Mcp(probe) => mcp::run(&self.0, &self.1, probe, progress).await,
            ProbeKind::Report => Err(Failure::new(ErrorClass::Protocol, "a report probe is not run")),
        };
        asked.unwrap_or_else(|failure| Outcome::error(failure.class, &failure.message))
    }
}

/// An outcome whose message repeats nothing that the target was told.
fn untold(outcome: Outcome, told: &[Secret]) -> Outcome {
    let clean = |why: Why| Why { message: carry::scrub(&why.message, told).into(), ..why };
    match outcome {
        Outcome::Pass => Outcome::Pass,
        Outcome::No(why) => Outcome::No(clean(why)),
        Outcome::Error(class, why) => Outcome::Error(class, clean(why)),
    }
}

/// How far a run came; outlives a run that its deadline ends.
#[derive(Debug)]
struct Progress {
    address: Option<SocketAddr>,
    stage: Stage,
    deadline: Instant,
    /// What the target is told that may be a credential.
    told: Vec<Secret>,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Resolving,
    Connecting,
    Handshaking,
    Answering,
    Initializing,
    Pinging,
}

impl Stage {
    fn text(self) -> &'static str {
        match self {
            Self::Resolving => "the name was still being resolved",
            Self::Connecting => "not connected",
            Self::Handshaking => "connected, and the TLS handshake did not end",
            Self::Answering => "connected, and the answer did not end",
            Self::Initializing => "connected, and initialize was not answered",
            Self::Pinging => "initialized, and ping was not answered",
        }
    }
}

/// What kept a run from asking.
#[derive(Debug)]
struct Failure {
    class: ErrorClass,
    message: String,
}

impl Failure {
    fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// A connection that broke after it was made: TLS where TLS broke it, else the protocol.
    fn broken(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = what.to_owned();
        let mut class = ErrorClass::Protocol;
        let mut next = Some(error);
        while let Some(error) = next {
            message = format!("{message}: {error}");
            let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            if inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) {
                class = ErrorClass::Tls;
            }
            next = error.source();
        }
        Self { class, message }
    }
}
