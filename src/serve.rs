//! Both ports: bind, accept, speak HTTP/2, drain within a bound.

mod accept;
mod conn;
mod drain;
mod gather;
pub mod tls;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tonic::{service::Routes, transport::Server};

use self::accept::Incoming;
pub use self::{
    accept::connection_cap,
    conn::Peer,
    drain::{Drain, SPREAD, Signal, retry_after},
};
use crate::{
    metrics::Metrics,
    service::rpc::{RpcLayer, Stalls},
};

/// How long calls and streams may take to end by themselves. With all else an exit takes less than 15 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// The same of the admin port, which ends last and holds nothing worth waiting for.
pub const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// Connections of the admin port: kubelets, scrapers and a few people.
pub const ADMIN_CONNECTIONS: usize = 256;

/// A connection must begin to speak its protocol within this time, or it is closed: it may be a port scan or a broken balancer.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls at once on one connection; more wait at the client.
const MAX_CONCURRENT_STREAMS: u32 = 200;

/// Headers of one request. Ours are small; hyper's default of 16 KiB would do, and is stated here.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// After the kill every connection fails at its next read or write; this much later nothing is waited for any more.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// How long a peer may be gone, or there and of no use, until its connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a quiet peer is pinged. Below the idle timeouts of common balancers (60 s and more), so that quiet connections
    /// are not cut by them.
    pub keepalive_interval: Duration,
    /// How long it may take to answer. A peer that is gone without a word is found within the sum of these two.
    pub keepalive_timeout: Duration,
    /// How long a reader of a stream may take nothing; it is cut when that is over, or up to a quarter later.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(10),
            stall: Duration::from_secs(60),
        }
    }
}

/// A listening socket: the port is taken, nothing is accepted yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    max_connections: usize,
    patience: Patience,
    tls: Option<tls::Tls>,
}

impl Bound {
    /// Takes `address`. `setting` is where it came from, for the error; `max_connections` caps the open connections.
    pub async fn bind(setting: &str, address: SocketAddr, max_connections: usize) -> io::Result<Self> {
        let named = |e: io::Error| {
            io::Error::new(e.kind(), format!("cannot listen on {address} ({setting}): {}", reason(&e)))
        };
        let listener = TcpListener::bind(address).await.map_err(named)?;
        let address = listener.local_addr().map_err(named)?;
        Ok(Self { listener, address, max_connections, patience: Patience::default(), tls: None })
    }

    /// Another patience than the default one.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// With TLS.
    #[must_use]
    pub fn with_tls(self, tls: Option<tls::Tls>) -> Self {
        Self { tls, ..self }
    }

    /// The address with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there; stop it or choose another address (port 0 picks a free one)"
                .into()
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
        io::ErrorKind::PermissionDenied => "this user may not open that port; choose one from 1024 on".into(),
        _ => error.to_string(),
    }
}

/// Which protocols a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2 without negotiation, as gRPC clients speak it.
    Grpc,
    /// HTTP/1.1 as well, told apart by the first bytes.
    HttpAndGrpc,
}

impl Protocols {
    /// How many bytes a connection begins with at least: the preface of HTTP/2, or the shortest request of HTTP/1. Keepalive
    /// works only after them.
    fn opening_bytes(self) -> usize {
        match self {
            Self::Grpc => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len(),
            Self::HttpAndGrpc => b"GET / HTTP/1.0\r\n\r\n".len(),
        }
    }
}

/// Serves until the drain, and through it. Returns at once where nothing is open, and in any case `AFTER_KILL` after the grace.
pub async fn serve(
    bound: Bound,
    protocols: Protocols,
    routes: Routes,
    metrics: &Metrics,
    drain: &Drain,
) -> Result<(), tonic::transport::Error> {
    let Bound { listener, address, max_connections, patience, tls } = bound;
    let places = Arc::new(Semaphore::new(max_connections));
    let incoming = Incoming::new(listener, protocols, tls, Arc::clone(&places), drain.clone());
    let begun = drain.signal();
    let stalls = Stalls::default();
    let server = Server::builder()
        .accept_http1(protocols == Protocols::HttpAndGrpc)
        .http2_keepalive_interval(Some(patience.keepalive_interval))
        .http2_keepalive_timeout(Some(patience.keepalive_timeout))
        .http2_adaptive_window(Some(false))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .layer(RpcLayer::new(metrics, stalls.clone()))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move { begun.begun().await });
    let mut server = pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = end_of_grace(drain) => {}
        // Never ends: it works beside the others.
        () = stalls.cut(patience.stall) => {}
    }
    let left = max_connections - places.available_permits();
    tracing::warn!(%address, connections = left, "closing connections that did not end by themselves");
    drain.kill();
    match timeout(AFTER_KILL, server).await {
        Ok(ended) => ended,
        Err(_) => {
            let left = max_connections - places.available_permits();
            tracing::error!(%address, connections = left, "connections are left behind");
            Ok(())
        }
    }
}

async fn end_of_grace(drain: &Drain) {
    drain.begun_token().cancelled().await;
    tokio::select! {
        () = sleep(drain.grace()) => {}
        () = drain.kill_token().cancelled() => {}
    }
}
