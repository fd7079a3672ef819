//! Targets: each takes connections until the test ends.

use std::{future::Future, net::SocketAddr, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use toolpulse::prober::{Parts, Prober, egress};

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

/// The identities that targets show; all are for `tool.example` and 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Identity {
    /// Signed by the test's root.
    Good,
    /// Signed by the zoo's root, which a probe trusts by reference only.
    Zoo,
    /// Signed by the zoo's root, and valid in 2020 alone.
    Expired,
    /// Signed by itself.
    SelfSigned,
}

/// The root of `Zoo` and `Expired`, in PEM.
pub(crate) const ZOO_ROOT: &str = include_str!("tls/zoo-root.pem");

/// Speaks TLS as `tool.example` (also valid for 127.0.0.1).
pub(crate) fn tls(alpn: &[u8]) -> TlsAcceptor {
    tls_as(Identity::Good, alpn, false)
}

/// Speaks TLS, and may ask for a certificate that the zoo's root signed.
pub(crate) fn tls_as(identity: Identity, alpn: &[u8], asks: bool) -> TlsAcceptor {
    let (chain, key): (&[u8], &[u8]) = match identity {
        Identity::Good => (include_bytes!("tls/tool.example.pem"), include_bytes!("tls/tool.example.key")),
        Identity::Zoo => (include_bytes!("tls/served.pem"), include_bytes!("tls/served.key")),
        Identity::Expired => (include_bytes!("tls/expired.pem"), include_bytes!("tls/expired.key")),
        Identity::SelfSigned => {
            (include_bytes!("tls/self-signed.pem"), include_bytes!("tls/self-signed.key"))
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(chain).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = match asks {
        false => builder.unwrap().with_no_client_auth(),
        true => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ZOO_ROOT.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.unwrap().with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A prober that may reach loopback and trusts the test's root.
pub(crate) fn trusting() -> Prober {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("tls/root.pem")).unwrap()).unwrap();
    let allow = ["127.0.0.0/8".to_owned()];
    let egress = egress::Policy::parse(egress::Mode::Strict, &allow).unwrap();
    Prober::of(Parts { roots, ..Parts::new(egress) })
}
