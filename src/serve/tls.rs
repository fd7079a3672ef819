//! TLS of the API port: certificate, key and the clients' authorities come from files, which are read again when they change.
//!
//! A connection keeps what it began with, so a rotation ends nobody's stream. Files that can't be used leave the old ones in
//! force, with an error in the log and a count.

use std::{
    fs::File,
    future::Future,
    io::{self, Read},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::{TlsAcceptor, server::FallibleAccept, server::TlsStream};

use crate::{core::name::clean, metrics::Metrics};

/// Time between two looks at the files. A change counts when two looks agree: a certificate and its key are two files, and
/// who writes them is not done with both at once.
const POLL: Duration = Duration::from_secs(1);

/// Largest file: a bundle of all public authorities is a quarter of it.
const MAX_FILE: u64 = 1 << 20;

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's certificate, and those between it and its authority, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
    /// The authorities of clients, as PEM, and whether each client has to have a certificate of theirs.
    pub clients: Option<(PathBuf, bool)>,
}

/// What is in force. Copies are one.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Files,
    current: Arc<ArcSwap<ServerConfig>>,
    /// The content of the files that were judged last.
    judged: [u8; 32],
    metrics: Metrics,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn load(files: Files, metrics: Metrics) -> Result<Self, String> {
        let read = Contents::read(&files);
        let judged = read.hash();
        let config = read.config()?;
        Ok(Self { files, current: Arc::new(ArcSwap::from_pointee(config)), judged, metrics })
    }

    /// Follows the files, for ever.
    pub async fn follow(mut self) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut candidate = self.judged;
        loop {
            ticks.tick().await;
            let files = self.files.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || Contents::read(&files)).await else {
                continue;
            };
            let seen = read.hash();
            let settled = seen == std::mem::replace(&mut candidate, seen);
            if settled && seen != self.judged {
                self.judged = seen;
                self.judge(&read);
            }
        }
    }

    fn judge(&self, read: &Contents) {
        match read.config() {
            Ok(config) => {
                self.current.store(Arc::new(config));
                self.metrics.tls_reload("ok");
                tracing::info!("the files of TLS changed: new connections use the new ones");
            }
            Err(error) => {
                self.metrics.tls_reload("failed");
                tracing::error!(%error, "the files of TLS changed and can't be used: the old ones stay in force");
            }
        }
    }

    /// A connection that begins with a handshake.
    pub(super) fn accept(&self, tcp: TcpStream) -> Transport {
        let accept = TlsAcceptor::from(self.current.load_full()).accept(tcp).into_fallible();
        Transport::Handshake(Box::new((accept, self.metrics.clone())))
    }
}

/// What one look at the files saw: their contents, or why they can't be read.
struct Contents {
    certificate: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
    clients: Option<(Result<Vec<u8>, String>, bool)>,
}

impl Contents {
    fn read(files: &Files) -> Self {
        Self {
            certificate: content("tls_cert", &files.certificate),
            key: content("tls_key", &files.key),
            clients: files
                .clients
                .as_ref()
                .map(|(path, required)| (content("tls_client_ca", path), *required)),
        }
    }

    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let clients = self.clients.as_ref().map(|(content, _)| content);
        for one in [Some(&self.certificate), Some(&self.key), clients].into_iter().flatten() {
            let (kind, bytes) = match one {
                Ok(bytes) => (b'+', bytes.as_slice()),
                Err(why) => (b'-', why.as_bytes()),
            };
            hash.update([kind]);
            hash.update(Sha256::digest(bytes));
        }
        hash.finalize().into()
    }

    fn config(&self) -> Result<ServerConfig, String> {
        let chain = certificates("tls_cert", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_ref().map_err(Clone::clone)?)
            // The error of a key's file says nothing of the file.
            .map_err(|_| "tls_key: the file holds no private key in PEM".to_owned())?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some((bundle, required)) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates("tls_client_ca", bundle)? {
                    roots.add(authority).map_err(|e| format!("tls_client_ca: {e}"))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if *required { verifier } else { verifier.allow_unauthenticated() };
                builder
                    .with_client_cert_verifier(verifier.build().map_err(|e| format!("tls_client_ca: {e}"))?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|e| format!("tls_cert and tls_key can't be used together: {e}"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn content(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let shown = clean(&path.display().to_string(), 200);
    let bytes = read().map_err(|e| format!("{setting}: cannot read {shown}: {e}"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("{setting}: {shown} has more than {} KiB", MAX_FILE >> 10));
    }
    Ok(bytes)
}

fn certificates(
    setting: &str,
    pem: &Result<Vec<u8>, String>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.as_ref().map_err(Clone::clone)?).collect();
    let all = all.map_err(|e| format!("{setting}: {e}"))?;
    if all.is_empty() {
        return Err(format!("{setting}: the file holds no certificate in PEM"));
    }
    Ok(all)
}

/// The bytes of a connection, with or without TLS. The handshake is part of the first read or write.
pub(super) enum Transport {
    Plain(TcpStream),
    Handshake(Box<(FallibleAccept<TcpStream>, Metrics)>),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake failed, and the peer was told why. To close at once could take that from it: by then it may have sent more,
    /// and a connection that is closed with something unread is reset. So that is read, until the peer closes.
    Refused(TcpStream),
}

impl Transport {
    /// Ready once bytes can flow.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Handshake(handshake) = self else { return Poll::Ready(Ok(())) };
        match ready!(Pin::new(&mut handshake.0).poll(cx)) {
            Ok(stream) => {
                *self = Self::Tls(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Err((error, mut tcp)) => {
                handshake.1.tls_handshake_failed();
                tracing::debug!(%error, "a TLS handshake failed");
                // A failure means that the peer has gone: reading will tell.
                let _ = Pin::new(&mut tcp).poll_shutdown(cx);
                *self = Self::Refused(tcp);
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Calls a method of the stream that a connection is made of; `refused` is what happens where its handshake failed.
macro_rules! forward {
    ($self:ident, $cx:ident, $stream:ident => $call:expr, refused $tcp:ident => $refused:expr) => {{
        let this = $self.get_mut();
        ready!(this.poll_open($cx))?;
        match this {
            Transport::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
            Transport::Refused($tcp) => $refused,
            Transport::Handshake(_) => unreachable!("it is open"),
        }
    }};
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, cx, stream => stream.poll_read(cx, buf), refused tcp => poll_end(tcp, cx))
    }
}

/// Ready when the peer of a refused connection has closed it.
fn poll_end(tcp: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut sink = [0; 1024];
    loop {
        let mut sink = ReadBuf::new(&mut sink);
        ready!(Pin::new(&mut *tcp).poll_read(cx, &mut sink))?;
        if sink.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, cx, stream => stream.poll_write_vectored(cx, bufs), refused _tcp => {
            // For nobody.
            Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
        })
    }

    /// Both kinds take several buffers at once.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, cx, stream => stream.poll_flush(cx), refused _tcp => Poll::Ready(Ok(())))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(*self, Self::Handshake(_)) {
            // Nothing was said that could be ended; the connection is closed when it is dropped.
            return Poll::Ready(Ok(()));
        }
        forward!(self, cx, stream => stream.poll_shutdown(cx), refused _tcp => Poll::Ready(Ok(())))
    }
}
