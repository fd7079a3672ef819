//! The demo's targets: small services that work, break or say no, as they are told.
//!
//! The HTTP ones share a port and differ in the path; on the same port `POST /TARGET/break`, `/no` and `/heal` switch any target.

use std::{collections::BTreeMap, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use tokio_stream::{Empty, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, transport::Server};

use crate::proto::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

/// The pause before a port that is taken is tried again.
const PORT_TAKEN: Duration = Duration::from_millis(100);
/// Why a target says no.
pub(super) const NO_REASON: &str = "quota used up";

/// What answers probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// HTTP.
    Search,
    /// HTTP.
    Messages,
    /// HTTP.
    Calendar,
    /// gRPC health.
    Language,
    /// TCP.
    Database,
}

impl Target {
    /// All of them.
    pub(super) const ALL: [Self; 5] =
        [Self::Search, Self::Messages, Self::Calendar, Self::Language, Self::Database];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.to_string() == name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Search => "search",
            Self::Messages => "messages",
            Self::Calendar => "calendar",
            Self::Language => "language",
            Self::Database => "database",
        })
    }
}

/// What a target does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Answers well.
    Works,
    /// Fails: HTTP 503, gRPC code UNAVAILABLE, a closed TCP port.
    Broken,
    /// Answers that its tool can't be used.
    SaysNo,
}

/// Running targets. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Targets {
    /// Where the HTTP targets and the switches are.
    pub(super) http: SocketAddr,
    /// Where the gRPC target is.
    pub(super) grpc: SocketAddr,
    /// Where the TCP target is.
    pub(super) tcp: SocketAddr,
    switches: Switches,
    _tasks: JoinSet<()>,
}

impl Targets {
    /// Starts them on free ports of loopback, working.
    pub(super) async fn start() -> io::Result<Self> {
        let free = || TcpListener::bind("127.0.0.1:0");
        let (http, grpc, tcp) = (free().await?, free().await?, free().await?);
        let switches = Switches::default();
        let addresses = (http.local_addr()?, grpc.local_addr()?, tcp.local_addr()?);

        let mut tasks = JoinSet::new();
        let routes = routes(switches.clone());
        // Where one of them ends early, its tools go, and the story says so.
        tasks.spawn(async { _ = axum::serve(http, routes).await });
        let health = HealthServer::new(HealthTarget { mode: switches.watch(Target::Language) });
        let grpc = Server::builder().add_service(health).serve_with_incoming(TcpListenerStream::new(grpc));
        tasks.spawn(async { _ = grpc.await });
        tasks.spawn(serve_tcp(tcp, addresses.2, switches.watch(Target::Database)));
        Ok(Self { http: addresses.0, grpc: addresses.1, tcp: addresses.2, switches, _tasks: tasks })
    }

    /// Switches a target, from the next probe on.
    pub(super) fn set(&self, target: Target, mode: Mode) {
        self.switches.set(target, mode);
    }
}

/// The mode of each target. Copies are one.
#[derive(Clone, Debug)]
struct Switches(Arc<BTreeMap<Target, watch::Sender<Mode>>>);

impl Default for Switches {
    fn default() -> Self {
        Self(Arc::new(Target::ALL.map(|target| (target, watch::Sender::new(Mode::Works))).into()))
    }
}

impl Switches {
    fn set(&self, target: Target, mode: Mode) {
        self.0[&target].send_replace(mode);
    }

    fn watch(&self, target: Target) -> watch::Receiver<Mode> {
        self.0[&target].subscribe()
    }
}

fn routes(switches: Switches) -> Router {
    Router::new().route("/{target}", get(answer)).route("/{target}/{mode}", post(switch)).with_state(switches)
}

async fn answer(State(switches): State<Switches>, Path(name): Path<String>) -> (StatusCode, String) {
    let Some(target) = Target::named(&name) else {
        return (StatusCode::NOT_FOUND, format!("no target {name}\n"));
    };
    let mode = *switches.watch(target).borrow();
    match mode {
        Mode::Works => (StatusCode::OK, "{\"available\": true}\n".to_owned()),
        Mode::Broken => (StatusCode::SERVICE_UNAVAILABLE, "broken\n".to_owned()),
        Mode::SaysNo => (StatusCode::OK, format!("{{\"available\": false, \"reason\": \"{NO_REASON}\"}}\n")),
    }
}

async fn switch(
    State(switches): State<Switches>,
    Path((name, word)): Path<(String, String)>,
) -> (StatusCode, String) {
    let Some(target) = Target::named(&name) else {
        let all = Target::ALL.map(|t| t.to_string()).join(", ");
        return (StatusCode::NOT_FOUND, format!("no target {name}; there are {all}\n"));
    };
    let mode = match word.as_str() {
        "break" => Mode::Broken,
        "no" if target == Target::Database => {
            return (StatusCode::BAD_REQUEST, "a TCP port can't say no; use break or heal\n".to_owned());
        }
        "no" => Mode::SaysNo,
        "heal" => Mode::Works,
        _ => return (StatusCode::NOT_FOUND, format!("can't {word}; use break, no or heal\n")),
    };
    switches.set(target, mode);
    (StatusCode::OK, format!("{target}: {word}\n"))
}

/// Answers Check by its mode.
#[derive(Clone, Debug)]
struct HealthTarget {
    mode: watch::Receiver<Mode>,
}

#[tonic::async_trait]
impl Health for HealthTarget {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let status = match *self.mode.borrow() {
            Mode::Works => ServingStatus::Serving,
            Mode::SaysNo => ServingStatus::NotServing,
            Mode::Broken => return Err(Status::unavailable("broken")),
        };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        Err(Status::unimplemented("only Check is here"))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("only Check is here"))
    }
}

/// Accepts and closes while it works; otherwise the port is closed.
async fn serve_tcp(listener: TcpListener, address: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let mut open = Some(listener);
    loop {
        tokio::select! {
            changed = mode.changed() => {
                if changed.is_err() {
                    return;
                }
                let works = *mode.borrow_and_update() == Mode::Works;
                open = match open.take().filter(|_| works) {
                    None if works => Some(listen_again(address).await),
                    kept => kept,
                };
            }
            () = accept(open.as_ref()) => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) {
    match listener {
        Some(listener) => drop(listener.accept().await),
        None => std::future::pending().await,
    }
}

/// The port was free to others for a while.
async fn listen_again(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => time::sleep(PORT_TAKEN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn the_page_switches_targets() {
        let switches = Switches::default();
        for (path, status, part) in [
            (("search", "break"), 200, "search: break"),
            (("messages", "no"), 200, "messages: no"),
            (("database", "no"), 400, "use break or heal"),
            (("nix", "heal"), 404, "there are search, messages, calendar, language, database"),
            (("search", "smash"), 404, "use break, no or heal"),
        ] {
            let (name, word) = path;
            let path = Path((name.to_owned(), word.to_owned()));
            let (code, text) = switch(State(switches.clone()), path).await;
            assert_eq!((code.as_u16(), text.contains(part)), (status, true), "{name} {word}: {text}");
        }
        for (name, status, part) in [
            ("search", 503, ""),
            ("messages", 200, NO_REASON),
            ("calendar", 200, r#""available": true"#),
            ("nix", 404, "no target"),
        ] {
            let (code, text) = answer(State(switches.clone()), Path(name.to_owned())).await;
            assert_eq!((code.as_u16(), text.contains(part)), (status, true), "{name}: {text}");
        }
    }

    #[tokio::test]
    async fn a_broken_port_is_closed_and_opens_again() {
        let targets = Targets::start().await.unwrap();
        for mode in [Mode::Works, Mode::Works, Mode::Broken, Mode::Broken, Mode::Works] {
            targets.set(Target::Database, mode);
            let as_told = async {
                while TcpStream::connect(targets.tcp).await.is_ok() != (mode == Mode::Works) {
                    tokio::task::yield_now().await;
                }
            };
            time::timeout(Duration::from_secs(20), as_told).await.unwrap();
        }
    }
}
