//! A name server for the network of one test.

use std::net::Ipv4Addr;

use tokio::{net::UdpSocket, task::JoinHandle};

/// The one name that it knows.
pub(crate) const KNOWN: &str = "target.test";

/// Answers `KNOWN` with an address, and everything else with NXDOMAIN.
#[derive(Debug)]
pub(crate) struct NameServer(JoinHandle<()>);

impl NameServer {
    /// Starts on loopback, on the port where one is expected.
    pub(crate) async fn start(address: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).await.unwrap();
        Self(tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
                let _ = socket.send_to(&answer(&bytes[..length], address), from).await;
            }
        }))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// RFC 1035, as far as one question goes: the header, the question again, and a record that refers to its name.
fn answer(query: &[u8], address: Ipv4Addr) -> Vec<u8> {
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let (name, kind) = (&query[12..name_end], &query[name_end..name_end + 2]);
    let labels =
        KNOWN.split('.').flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat());
    let known: Vec<u8> = labels.chain([0]).collect();
    let is_known = name.eq_ignore_ascii_case(&known);
    let is_address = is_known && kind == [0, 1];

    let mut reply = query[..2].to_vec();
    reply.extend([0x81, if is_known { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    reply.extend(&query[12..name_end + 4]);
    if is_address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(address.octets());
    }
    reply
}
