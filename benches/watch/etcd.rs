//! What of etcd's API is needed to watch a key and to put it. Field numbers are those of `etcdserverpb`.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, sleep};
use tonic::transport::Endpoint;

use super::{
    children::{cores, pinned},
    raw::{call_to, client},
};

pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const PUT: &str = "/etcdserverpb.KV/Put";
/// Of a WatchResponse: `created` and `events`.
pub(crate) const STATES: &[u32] = &[3, 11];
const KEY: &[u8] = b"toolpulse/bench";

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Watches the key.
pub(crate) fn watch() -> Bytes {
    let create = WatchCreateRequest { key: KEY.into() };
    WatchRequest { create: Some(create) }.encode_to_vec().into()
}

/// Puts a value of a size.
pub(crate) fn put(size: usize) -> Bytes {
    PutRequest { key: KEY.into(), value: vec![b'x'; size] }.encode_to_vec().into()
}

/// A running etcd, alone in its cluster. Dropping it ends it.
pub(crate) struct Etcd {
    child: Child,
    pub(crate) address: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Etcd {
    /// None where there is no such program.
    pub(crate) async fn start(program: &str, data: &Path) -> Option<Self> {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().ok()?;
        // It can't pick ports itself.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (address, peers) = (free(), format!("http://{}", free()));
        let clients = format!("http://{address}");
        let mut command = pinned(cores().0, program);
        command.arg("--data-dir").arg(data);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let etcd = Self { child, address };
        let deadline = Instant::now() + Duration::from_secs(20);
        let endpoint = Endpoint::from_shared(clients).unwrap();
        let channel = loop {
            assert!(Instant::now() < deadline, "etcd does not start");
            sleep(Duration::from_millis(100)).await;
            if let Ok(channel) = endpoint.connect().await {
                break channel;
            }
        };
        call_to(&mut client(&channel), PUT, &put(1)).await;
        Some(etcd)
    }
}
