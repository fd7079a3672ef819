//! A name server for the network of one test.

use std::{collections::BTreeMap, net::Ipv4Addr};

use tokio::{net::UdpSocket, task::JoinHandle};

/// Bytes of a query before its one question.
const HEADER: usize = 12;

/// Answers the names that it knows with an address, and everything else with NXDOMAIN.
#[derive(Debug)]
pub(crate) struct NameServer(JoinHandle<()>);

impl NameServer {
    /// Starts on the port where a name server is expected. Names are in lower case.
    pub(crate) async fn start(on: Ipv4Addr, names: BTreeMap<String, Ipv4Addr>) -> Self {
        let socket = UdpSocket::bind((on, 53)).await.unwrap();
        Self(tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
                let _ = socket.send_to(&answer(&bytes[..length], &names), from).await;
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
fn answer(query: &[u8], names: &BTreeMap<String, Ipv4Addr>) -> Vec<u8> {
    let (mut at, mut labels) = (HEADER, Vec::new());
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    let question = &query[HEADER..at + 5];
    let known = names.get(&labels.join("."));
    // A known name has no address of another kind.
    let address = known.filter(|_| query[at + 1..at + 3] == [0, 1]);

    let mut reply = query[..2].to_vec();
    reply.extend([0x81, if known.is_some() { 0x80 } else { 0x83 }]);
    reply.extend([0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    reply.extend(question);
    if let Some(address) = address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(address.octets());
    }
    reply
}
