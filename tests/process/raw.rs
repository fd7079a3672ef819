//! HTTP/2 by hand, for clients that do not behave: real ones open their windows and heed GOAWAY.

use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What every connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(crate) const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];

/// A connection. It answers settings and pings while it is read, and never opens a window.
#[derive(Debug)]
pub(crate) struct Raw {
    tcp: TcpStream,
}

impl Raw {
    /// Connects; each stream may send `window` bytes, if it is given, else the protocol's 65,535.
    pub(crate) async fn connect(address: &str, window: Option<u32>) -> Self {
        let mut raw = Self { tcp: TcpStream::connect(address).await.unwrap() };
        // A call is two writes; the second must not wait for the server's delayed ACK.
        raw.tcp.set_nodelay(true).unwrap();
        let window = window.map(|size| [&INITIAL_WINDOW_SIZE[..], &size.to_be_bytes()].concat());
        raw.send(PREFACE).await;
        raw.send(&frame(SETTINGS, 0, 0, &window.unwrap_or_default())).await;
        raw
    }

    /// Sends bytes as they are. What becomes of them is seen where it reads.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.tcp.write_all(bytes).await;
    }

    /// Sends a whole call.
    pub(crate) async fn call(&mut self, stream: u32, path: &str, message: &impl Message) {
        self.send(&headers(stream, path)).await;
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.send(&frame(DATA, END_STREAM, stream, &[&[0][..], &length, &message].concat())).await;
    }

    /// The type of the next frame but settings and pings; none: the connection ended.
    pub(crate) async fn next(&mut self) -> Option<u8> {
        loop {
            let mut head = [0; 9];
            self.tcp.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.tcp.read_exact(&mut payload).await.ok()?;
            match kind {
                SETTINGS | PING if flags & ACK != 0 => {}
                SETTINGS => self.send(&frame(SETTINGS, ACK, 0, &[])).await,
                PING => self.send(&frame(PING, ACK, 0, &payload)).await,
                _ => return Some(kind),
            }
        }
    }

    /// Reads on until a frame of this type.
    pub(crate) async fn until(&mut self, kind: u8) {
        while self.next().await.expect("the connection is open") != kind {}
    }

    /// Reads on until the connection ends.
    pub(crate) async fn stay(mut self) {
        while self.next().await.is_some() {}
    }

    /// Vanishes without a word.
    pub(crate) fn vanish(self) {
        self.tcp.set_zero_linger().unwrap();
    }
}

/// The headers of a call that is not ended by them.
pub(crate) fn headers(stream: u32, path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal without indexing and without Huffman code.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|len| *len < 127).expect("a short text"));
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
