//! Accepting connections, at most so many, and never in a spin.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{Sleep, sleep},
};
use tokio_stream::Stream;

use super::{
    Protocols,
    conn::Conn,
    drain::Drain,
    tls::{Tls, Transport},
};

/// How long to wait after an accept that failed for want of something (files, memory). The connection stays in the queue, so
/// that an immediate try would fail the same way and burn a core.
const BACKOFF: Duration = Duration::from_millis(100);

/// As many connections as there may be watches, each on its own connection.
const WANTED_CONNECTIONS: u64 = 20_000;

/// More than this is not allowed even where the limit on files is: an idle connection costs some 20 KiB.
const MAX_CONNECTIONS: u64 = 65_536;

/// Files that are not connections of ours: probes in flight (1,024), the store, listeners, logs, and some air.
const RESERVED_FILES: u64 = 1_280;

/// The stream of accepted connections.
pub(super) struct Incoming {
    listener: TcpListener,
    protocols: Protocols,
    tls: Option<Tls>,
    places: Arc<Semaphore>,
    drain: Drain,
    backoff: Option<Pin<Box<Sleep>>>,
    /// Whether the newest accept found no place, to log the transition and not each connection.
    full: bool,
    failing: bool,
}

impl Incoming {
    pub(super) fn new(
        listener: TcpListener,
        protocols: Protocols,
        tls: Option<Tls>,
        places: Arc<Semaphore>,
        drain: Drain,
    ) -> Self {
        Self { listener, protocols, tls, places, drain, backoff: None, full: false, failing: false }
    }

    /// The connection, or nothing where there is no place for it: a client that is told at once can go elsewhere.
    fn admit(&mut self, tcp: tokio::net::TcpStream, address: std::net::SocketAddr) -> Option<Conn> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if self.full != place.is_none() {
            self.full = place.is_none();
            if self.full {
                tracing::warn!(%address, "too many connections: new ones are closed");
            } else {
                tracing::info!("there is room for connections again");
            }
        }
        // Small replies must not wait for the peer's delayed ACK. A failure means that the peer has gone: reading will tell.
        let _ = tcp.set_nodelay(true);
        let place = place?;
        let transport = match &self.tls {
            Some(tls) => tls.accept(tcp),
            None => Transport::Plain(tcp),
        };
        Some(Conn::new(transport, address, self.protocols, &self.drain, place))
    }
}

impl Stream for Incoming {
    type Item = io::Result<Conn>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(backoff) = &mut self.backoff {
                ready!(backoff.as_mut().poll(cx));
                self.backoff = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((tcp, address)) => {
                    self.failing = false;
                    if let Some(conn) = self.admit(tcp, address) {
                        return Poll::Ready(Some(Ok(conn)));
                    }
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if !self.failing {
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    self.failing = true;
                    self.backoff = Some(Box::pin(sleep(BACKOFF)));
                }
            }
        }
    }
}

/// Whether the connection broke before it was accepted, which says nothing of the next one.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// How many connections the process's limit on open files allows. Raises the soft limit first where it is too low for
/// `WANTED_CONNECTIONS` and the hard one permits.
pub fn connection_cap() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let mut files = limit.current;
    if let Some(raised) = raised_limit(&limit) {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
            Ok(()) => files = Some(raised),
            Err(error) => tracing::warn!(%error, wanted = raised, "cannot raise the limit on open files"),
        }
    }
    cap_for(files)
}

fn raised_limit(limit: &Rlimit) -> Option<u64> {
    let wanted = (WANTED_CONNECTIONS + RESERVED_FILES).min(limit.maximum.unwrap_or(u64::MAX));
    (limit.current? < wanted).then_some(wanted)
}

fn cap_for(files: Option<u64>) -> usize {
    let files = files.unwrap_or(u64::MAX);
    // Half of a small limit: something for each side is better than a server without connections.
    let cap = files.saturating_sub(RESERVED_FILES).max(files / 2).clamp(1, MAX_CONNECTIONS);
    usize::try_from(cap).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_follows_the_limit_on_files() {
        let cases = [
            (Some(64), 32),
            (Some(1_024), 512),
            (Some(4_096), 2_816),
            (Some(21_280), 20_000),
            (Some(1_048_576), 65_536),
            (None, 65_536),
        ];
        for (files, cap) in cases {
            assert_eq!(cap_for(files), cap, "{files:?}");
        }
    }

    #[test]
    fn soft_limit_is_raised_only_as_far_as_needed_and_allowed() {
        let cases = [
            (Some(1_024), Some(1_048_576), Some(21_280)),
            (Some(1_024), Some(4_096), Some(4_096)),
            (Some(1_024), None, Some(21_280)),
            (Some(4_096), Some(4_096), None),
            (Some(65_536), Some(1_048_576), None),
            (None, None, None),
        ];
        for (current, maximum, raised) in cases {
            assert_eq!(raised_limit(&Rlimit { current, maximum }), raised, "{current:?} of {maximum:?}");
        }
    }
}
