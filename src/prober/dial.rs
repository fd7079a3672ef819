//! From a host and port to a stream: resolve, let the guard check every address, connect to exactly a checked one.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Semaphore,
    time::sleep,
};
use tokio_rustls::TlsConnector;

use super::{Failure, Parts, Progress, Resolve, Stage, carry, egress};
use crate::core::{
    name::quote,
    probe::{ErrorClass, HostPort, Tls},
};

/// Lookups at once: each holds a thread of the runtime's blocking pool (512) until the resolver gives up, which can be
/// long after its run.
const MAX_LOOKUPS: usize = 64;
/// Addresses of one name that are tried, so that a name with thousands of them is no way to scan.
const MAX_ADDRESSES: usize = 8;
/// Head start of an address over the next one (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// Opens connections.
pub(super) struct Dialer {
    egress: egress::Policy,
    rules: carry::Rules,
    roots: Arc<RootCertStore>,
    http: Arc<ClientConfig>,
    grpc: Arc<ClientConfig>,
    resolve: Resolve,
    lookups: Arc<Semaphore>,
}

/// A connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The protocol that TLS offers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alpn {
    Http1,
    Http2,
}

impl Alpn {
    fn protocol(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

type Attempt<'a> = Pin<Box<dyn Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send + 'a>>;

impl Dialer {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { egress, rules, roots, resolve } = parts;
        let roots = Arc::new(roots);
        let config = |alpn: Alpn| Arc::new(client_config(roots.clone(), alpn.protocol()));
        let (http, grpc) = (config(Alpn::Http1), config(Alpn::Http2));
        Self { egress, rules, roots, http, grpc, resolve, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }

    /// What probes may carry.
    pub(super) fn rules(&self) -> &carry::Rules {
        &self.rules
    }

    pub(super) fn egress(&self) -> &egress::Policy {
        &self.egress
    }

    /// Connects, and speaks TLS if `tls` is given. References are read before anything is sent.
    pub(super) async fn open(
        &self,
        target: &HostPort,
        tls: Option<&Tls>,
        alpn: Alpn,
        progress: &mut Progress,
    ) -> Result<Box<dyn Stream>, Failure> {
        let Some(tls) = tls else { return Ok(Box::new(self.tcp(target, progress).await?)) };
        let config = self.config(target, tls, alpn).await?;
        let name = tls.server_name.as_deref().unwrap_or(&target.host);
        let stream = self.tcp(target, progress).await?;
        handshake(stream, name, config, progress).await
    }

    /// How TLS is spoken with `target`.
    pub(super) async fn config(
        &self,
        target: &HostPort,
        tls: &Tls,
        alpn: Alpn,
    ) -> Result<Arc<ClientConfig>, Failure> {
        Ok(if tls.ca.is_some() || tls.client.is_some() || tls.insecure_skip_verify {
            let audience = carry::audience(target, true, Some(tls));
            Arc::new(carry::tls_config(&self.rules, tls, &audience, &self.roots, alpn.protocol()).await?)
        } else {
            match alpn {
                Alpn::Http1 => Arc::clone(&self.http),
                Alpn::Http2 => Arc::clone(&self.grpc),
            }
        })
    }

    /// Connects by TCP.
    pub(super) async fn tcp(&self, target: &HostPort, progress: &mut Progress) -> Result<TcpStream, Failure> {
        progress.stage = Stage::Resolving;
        let addresses = self.checked(target).await?;
        progress.stage = Stage::Connecting;
        let (stream, address) = race(&addresses).await.map_err(|e| {
            Failure::new(
                ErrorClass::Connect,
                format!("can't connect to {}: {}", quote(&target.to_string()), e.kind()),
            )
        })?;
        progress.address = Some(address);
        progress.stage = Stage::Answering;
        Ok(stream)
    }

    /// The addresses of a target that the guard permits; at least one.
    async fn checked(&self, target: &HostPort) -> Result<Vec<SocketAddr>, Failure> {
        let found = match target.host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, target.port)],
            Err(_) => self.look_up(target).await?,
        };
        let mut refused = None;
        let mut good = Vec::new();
        for address in found {
            match self.egress.check(&target.host, address) {
                Ok(()) if good.len() < MAX_ADDRESSES => good.push(address),
                Ok(()) => {}
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        if !good.is_empty() {
            return Ok(good);
        }
        Err(match refused {
            Some(why) => Failure::new(ErrorClass::Blocked, why),
            None => Failure::new(ErrorClass::Dns, format!("{} has no address", quote(&target.host))),
        })
    }

    async fn look_up(&self, target: &HostPort) -> Result<Vec<SocketAddr>, Failure> {
        let failed = |why: &dyn fmt::Display| {
            Failure::new(ErrorClass::Dns, format!("can't resolve {}: {why}", quote(&target.host)))
        };
        let permit = self.lookups.clone().acquire_owned().await.map_err(|e| failed(&e))?;
        let (host, port, resolve) = (target.host.clone(), target.port, Arc::clone(&self.resolve));
        // The permit goes with the lookup, not with the run: a resolver that hangs keeps its thread after the run is
        // over, and the cap must count it.
        let lookup = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            resolve(&host, port)
        });
        lookup.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// Speaks TLS over a connection, and verifies that the peer is `name`.
pub(super) async fn handshake(
    stream: TcpStream,
    name: &str,
    config: Arc<ClientConfig>,
    progress: &mut Progress,
) -> Result<Box<dyn Stream>, Failure> {
    progress.stage = Stage::Handshaking;
    // Certificates and SNI know no trailing dot.
    let server = ServerName::try_from(name.strip_suffix('.').unwrap_or(name).to_owned())
        .map_err(|_| Failure::new(ErrorClass::Tls, format!("{} is no name for TLS", quote(name))))?;
    let stream = TlsConnector::from(config).connect(server, stream).await.map_err(|e| {
        Failure::new(ErrorClass::Tls, format!("TLS handshake with {} failed: {e}", quote(name)))
    })?;
    progress.stage = Stage::Answering;
    Ok(Box::new(stream))
}

fn client_config(roots: Arc<RootCertStore>, alpn: &[u8]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    // Each run stands alone: a resumed session would skip the certificate.
    config.resumption = rustls::client::Resumption::disabled();
    config
}

/// The first connection that is made. The next address is tried when one failed or its head start is over.
async fn race(addresses: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
    let mut waiting = addresses.iter();
    let mut attempts: Vec<Attempt<'_>> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match waiting.next() {
            Some(address) => attempts.push(Box::pin(connect(*address))),
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        tokio::select! {
            biased;
            done = first(&mut attempts) => match done {
                Ok(connected) => return Ok(connected),
                Err(error) => last = error,
            },
            () = sleep(STAGGER), if waiting.len() > 0 => {}
        }
    }
}

/// The next attempt that ends; it is taken out.
async fn first(attempts: &mut Vec<Attempt<'_>>) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|cx| {
        for at in 0..attempts.len() {
            if let Poll::Ready(done) = attempts[at].as_mut().poll(cx) {
                drop(attempts.swap_remove(at));
                return Poll::Ready(done);
            }
        }
        Poll::Pending
    })
    .await
}

/// Connects to an address that the guard has checked.
pub(super) async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(address).await?;
    // A closed port in the ephemeral range of this very machine can be connected with itself; nobody listens there.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

#[cfg(test)]
mod tests {
    use tokio::{
        net::{TcpListener, TcpSocket},
        time::{Instant, timeout},
    };

    use super::*;

    async fn open() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_address_gives_way_at_once() {
        let (_listener, good) = open().await;
        let closed = open().await.1;
        let start = Instant::now();
        assert_eq!(race(&[closed, closed, good]).await.unwrap().1, good);
        assert!(start.elapsed() < STAGGER, "{:?}", start.elapsed());
        assert_eq!(race(&[closed, closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_has_its_head_start() {
        let (_listener, good) = open().await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let silent = full.local_addr().unwrap();
        // Nobody accepts: with its queue full, the listener drops what comes.
        let mut held = Vec::new();
        while let Ok(stream) = timeout(STAGGER, TcpStream::connect(silent)).await {
            held.push(stream.unwrap());
        }
        let start = Instant::now();
        assert_eq!(race(&[silent, silent, good]).await.unwrap().1, good);
        let took = start.elapsed();
        assert!((STAGGER * 2..STAGGER * 3).contains(&took), "{took:?}");
    }
}
