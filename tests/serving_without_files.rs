//! What happens when the process runs out of files. Alone in its binary: the limit is the whole process's.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::{os::fd::AsRawFd, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tonic::service::Routes;
use toolpulse::{
    metrics::Metrics,
    serve::{self, Bound, Drain, GRACE, Protocols},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// True if the server spoke, which it does once it has accepted.
async fn is_answered(tcp: &mut TcpStream) -> bool {
    timeout(Duration::from_secs(5), tcp.read_u8()).await.is_ok_and(|read| read.is_ok())
}

/// If the accept loop turned without a pause, the paused clock would never move and this test would not end.
#[tokio::test(start_paused = true)]
async fn without_files_the_server_waits_and_then_accepts_again() {
    let bound = Bound::bind("test", "127.0.0.1:0".parse().unwrap(), 100).await.unwrap();
    let (address, drain) = (bound.address(), Drain::new(GRACE, serve::SPREAD));
    let server = tokio::spawn({
        let drain = drain.clone();
        async move { serve::serve(bound, Protocols::Grpc, Routes::default(), &Metrics::new(), &drain).await }
    });

    let before = getrlimit(Resource::Nofile);
    let socket = TcpSocket::new_v4().unwrap();
    // Descriptors are the lowest free numbers: the socket has the last one that is allowed from now on.
    let last = u64::try_from(socket.as_raw_fd()).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(last + 1), ..before }).unwrap();
    let mut tcp = socket.connect(address).await.unwrap();
    tcp.write_all(PREFACE).await.unwrap();
    let answered_without_files = is_answered(&mut tcp).await;
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(!answered_without_files);
    assert!(is_answered(&mut tcp).await, "accepted once there are files again");

    drain.kill();
    server.await.unwrap().unwrap();
}
