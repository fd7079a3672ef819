//! The canary: one thing that must answer whatever becomes of the tools. It is asked only while the prober suspects itself, and
//! never goes through the egress guard, as no owner chooses it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use crate::core::probe::HostPort;

/// A canary that takes longer does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What must answer.
#[derive(Clone, Debug)]
pub enum Canary {
    /// The server's own admin port. It tells of this process and machine, and nothing of the network beyond.
    Own(SocketAddr),
    /// What the operator named: it takes connections wherever the network works.
    Given(HostPort),
}

impl Canary {
    /// Whether it tells of the network.
    pub(super) fn tells_of_the_network(&self) -> bool {
        matches!(self, Self::Given(_))
    }

    /// For operators.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Own(address) => {
                format!("the server's own port {address}, which tells nothing of the network,")
            }
            Self::Given(place) => format!("the canary {place}"),
        }
    }

    /// Whether it answers.
    pub(super) async fn ask(self) -> bool {
        let asked = async {
            match self {
                Self::Own(address) => lives(address).await,
                Self::Given(place) => {
                    TcpStream::connect((place.host.as_str(), place.port)).await.map(|_| true)
                }
            }
        };
        matches!(timeout(TIMEOUT, asked).await, Ok(Ok(true)))
    }
}

/// Waits for the canary that is asked, if one is.
pub(super) async fn answer(run: &mut Option<JoinHandle<bool>>) -> bool {
    let Some(asked) = run else { return std::future::pending().await };
    let answers = asked.await.unwrap_or(false);
    *run = None;
    answers
}

/// Whether an admin port says that its server lives. A kernel takes connections for a process that stands still.
async fn lives(address: SocketAddr) -> std::io::Result<bool> {
    // A port on all addresses is reached over loopback.
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let mut stream = TcpStream::connect((ip, address.port())).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: canary\r\nconnection: close\r\n\r\n").await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(&head == b"HTTP/1.1 200")
}
