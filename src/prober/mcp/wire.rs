//! One HTTP/1.1 connection to an MCP server, kept over several requests.

use std::{
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::Instant};

use super::super::{
    Failure, Progress, Stage,
    dial::{self, Stream},
    http::{MAX_HEAD, MAX_HEADERS, broken},
};
use crate::core::probe::ErrorClass;

/// What moves the bytes. It has to be polled with everything that waits for them.
type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where an exchange goes.
pub(super) struct Target {
    /// The address that the guard has checked; all connections go there.
    pub(super) address: SocketAddr,
    /// The name to verify, and how; none for plaintext.
    pub(super) tls: Option<(String, Arc<ClientConfig>)>,
    pub(super) deadline: Instant,
}

impl Target {
    /// One more connection.
    pub(super) async fn connect(&self) -> Result<Wire, Failure> {
        let (tcp, _) = dial::connect(self.address).await.map_err(|e| {
            let address = self.address;
            Failure::new(ErrorClass::Connect, format!("can't connect to {address} once more: {}", e.kind()))
        })?;
        // Nobody asks how far this one comes.
        let mut progress =
            Progress { address: None, stage: Stage::Handshaking, deadline: self.deadline, told: Vec::new() };
        self.speak(tcp, &mut progress).await
    }

    /// HTTP over a connection, and TLS in between for `https`.
    pub(super) async fn speak(&self, tcp: TcpStream, progress: &mut Progress) -> Result<Wire, Failure> {
        match &self.tls {
            None => Wire::open(Box::new(tcp)).await,
            Some((name, config)) => {
                Wire::open(dial::handshake(tcp, name, Arc::clone(config), progress).await?).await
            }
        }
    }
}

/// A connection that is idle, or whose last answer is being read.
pub(super) struct Wire {
    sender: SendRequest<Full<Bytes>>,
    connection: Option<Connection>,
    /// Whether it has carried a request: then the server may have closed it since.
    pub(super) used: bool,
}

impl Wire {
    async fn open(stream: Box<dyn Stream>) -> Result<Self, Failure> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        let connection: Connection = Box::pin(async move {
            // How it ended shows in what was asked over it.
            let _ended = connection.await;
        });
        Ok(Self { sender, connection: Some(connection), used: false })
    }

    /// Sends a request when the connection is idle; the answer's head.
    pub(super) async fn request(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let sender = &mut self.sender;
        let asked = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let answer = driven(&mut self.connection, asked).await;
        self.used = true;
        answer
    }

    /// Waits for something that comes over this connection.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        driven(&mut self.connection, work).await
    }
}

/// The connection may end before the last of a body is taken from it.
async fn driven<T>(connection: &mut Option<Connection>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Some(running) = connection {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = running => {}
        }
        *connection = None;
    }
    work.await
}
