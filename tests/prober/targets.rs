//! Targets: each takes connections until the test ends.

use std::{future::Future, net::SocketAddr, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use toolpulse::prober::{Prober, egress};

/// Serves each connection with `serve`.
pub(crate) async fn tcp<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Reads a request's head, then writes `answer` and closes.
pub(crate) async fn canned(answer: impl AsRef<[u8]> + Clone + Send + Sync + 'static) -> SocketAddr {
    tcp(move |mut stream| {
        let answer = answer.clone();
        async move {
            head(&mut stream).await;
            let _gone = stream.write_all(answer.as_ref()).await;
        }
    })
    .await
}

/// Reads a request's head.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// A port that was free a moment ago.
pub(crate) async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Speaks TLS as `tool.example` (also valid for 127.0.0.1).
pub(crate) fn tls(alpn: &[u8]) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("tls/tool.example.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/tool.example.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A prober that may reach loopback and trusts the test's root.
pub(crate) fn trusting() -> Prober {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("tls/root.pem")).unwrap()).unwrap();
    let allow = ["127.0.0.0/8".to_owned()];
    Prober::with_roots(egress::Policy::parse(egress::Mode::Strict, &allow).unwrap(), roots)
}
