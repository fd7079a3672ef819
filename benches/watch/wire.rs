//! The least of an HTTP/2 client that watches need: it counts messages and decodes next to nothing, so that thousands of
//! watchers cost less than the server that they watch. It knows just what gRPC servers send.

use std::{cell::Cell, cell::RefCell, io, rc::Rc, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const GRPC_HEADER: usize = 5;
/// What HTTP/2 lets a client send before it is allowed more.
const FIRST_CREDIT: i64 = 65_535;
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// Nothing is ever split.
const MAX_FRAME: u32 = (1 << 24) - 1;
/// The connection's window is opened again after so many bytes.
const REOPEN: u32 = 1 << 24;
const CHUNK: usize = 256 * 1024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What all watchers of one kind do.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) method: &'static str,
    /// A message with one of these fields tells a state.
    pub(crate) states: &'static [u32],
    /// The request ends with its messages.
    pub(crate) closes: bool,
    /// Whether the socket is read.
    pub(crate) reads: bool,
    /// The window of each stream.
    pub(crate) window: u32,
}

impl Shape {
    /// Readers as they should be.
    pub(crate) fn new(method: &'static str, states: &'static [u32], closes: bool) -> Self {
        Self { method, states, closes, reads: true, window: MAX_WINDOW }
    }
}

/// What the watchers of a group got.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Streams that were answered.
    pub(crate) answered: Cell<usize>,
    /// First states.
    pub(crate) ready: Cell<usize>,
    /// Later states.
    pub(crate) delivered: Cell<usize>,
    /// Their bytes.
    pub(crate) bytes: Cell<usize>,
    /// How long after `began` they came.
    pub(crate) taken: RefCell<Vec<Duration>>,
    pub(crate) began: Cell<Instant>,
    lost: Cell<usize>,
    news: Notify,
}

impl Tally {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            answered: Cell::default(),
            ready: Cell::default(),
            delivered: Cell::default(),
            bytes: Cell::default(),
            taken: RefCell::default(),
            began: Cell::new(Instant::now()),
            lost: Cell::default(),
            news: Notify::new(),
        })
    }

    /// Waits until a count is reached, exactly.
    pub(crate) async fn until(&self, what: &str, of: impl Fn(&Self) -> usize, count: usize, limit: Duration) {
        let reached = async {
            while of(self) < count {
                self.news.notified().await;
                assert_eq!(self.lost.get(), 0, "watches ended while waiting for: {what}");
            }
        };
        let waited = timeout(limit, reached).await;
        assert!(waited.is_ok(), "{} of {count} after {limit:?}: {what}", of(self));
        assert_eq!(of(self), count, "{what}");
    }
}

fn add(cell: &Cell<usize>, more: usize) {
    cell.set(cell.get() + more);
}

/// One connection with a stream for each entry of `requests`, which holds its messages.
pub(crate) struct Connection {
    tcp: TcpStream,
    shape: Shape,
    tally: Rc<Tally>,
    authority: String,
    requests: std::vec::IntoIter<Vec<Bytes>>,
    next: Option<(usize, Bytes)>,
    streams: Vec<Watcher>,
    out: BytesMut,
    credit: i64,
    eaten: u32,
}

/// One stream.
struct Watcher {
    /// So many states are first ones.
    firsts: usize,
    /// The beginning of a message whose rest is yet to come.
    partial: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(
        address: &str,
        shape: Shape,
        requests: Vec<Vec<Bytes>>,
        tally: Rc<Tally>,
    ) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut out = BytesMut::new();
        out.put_slice(PREFACE);
        frame(&mut out, SETTINGS, 0, 0, 12);
        out.put_u16(4);
        out.put_u32(shape.window);
        out.put_u16(5);
        out.put_u32(MAX_FRAME);
        reopen(&mut out, MAX_WINDOW - 65_535);
        let (authority, requests) = (address.to_owned(), requests.into_iter());
        let (credit, streams) = (FIRST_CREDIT, Vec::new());
        Ok(Self { tcp, shape, tally, authority, requests, next: None, streams, out, credit, eaten: 0 })
    }

    /// Watches until the connection ends.
    pub(crate) async fn run(mut self) {
        // However it ends: its streams are lost, and whoever waits for them says so.
        let _ = self.talk().await;
        add(&self.tally.lost, self.streams.len());
        self.tally.news.notify_one();
    }

    async fn talk(&mut self) -> io::Result<()> {
        let mut input = BytesMut::with_capacity(CHUNK);
        loop {
            self.subscribe();
            if !self.out.is_empty() {
                self.tcp.write_all_buf(&mut self.out).await?;
            }
            if !self.shape.reads {
                std::future::pending::<()>().await;
            }
            input.reserve(CHUNK);
            if self.tcp.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            let now = Instant::now();
            let mut at = 0;
            while let Some(rest) = input.get(at..).filter(|rest| rest.len() >= FRAME_HEADER) {
                let (mut length, kind, flags) = (&rest[..3], rest[3], rest[4]);
                let length = FRAME_HEADER + usize::try_from(length.get_uint(3)).unwrap();
                let stream = u32::from_be_bytes(rest[5..9].try_into().unwrap());
                let Some(payload) = rest.get(FRAME_HEADER..length) else { break };
                self.frame(kind, flags, stream, payload, now);
                at += length;
            }
            input.advance(at);
            self.tally.news.notify_one();
        }
    }

    /// Opens streams, as many as the server's window has room for.
    fn subscribe(&mut self) {
        loop {
            if self.next.is_none() {
                let Some(messages) = self.requests.next() else { return };
                let mut body = BytesMut::new();
                for message in &messages {
                    body.put_u8(0);
                    body.put_u32(u32::try_from(message.len()).unwrap());
                    body.put_slice(message);
                }
                self.next = Some((messages.len(), body.freeze()));
            }
            let room = self.credit;
            let Some((firsts, body)) = self.next.take_if(|(_, body)| body.len() as i64 <= room) else {
                return;
            };
            self.credit -= body.len() as i64;
            let stream = u32::try_from(2 * self.streams.len() + 1).unwrap();
            let headers = self.headers();
            frame(&mut self.out, HEADERS, END_HEADERS, stream, headers.len());
            self.out.put_slice(&headers);
            frame(&mut self.out, DATA, if self.shape.closes { END_STREAM } else { 0 }, stream, body.len());
            self.out.put_slice(&body);
            self.streams.push(Watcher { firsts, partial: Vec::new() });
        }
    }

    /// HPACK without any table of its own, and without Huffman.
    fn headers(&self) -> Vec<u8> {
        // `:method: POST` and `:scheme: http` are in the static table, as are the next three names.
        let mut block = vec![0x83, 0x86];
        let text = |block: &mut Vec<u8>, text: &str| {
            block.push(u8::try_from(text.len()).ok().filter(|&len| len < 127).unwrap());
            block.extend(text.as_bytes());
        };
        block.push(4);
        text(&mut block, self.shape.method);
        block.push(1);
        text(&mut block, &self.authority);
        block.extend([0x0f, 0x10]);
        text(&mut block, "application/grpc");
        block.push(0);
        text(&mut block, "te");
        text(&mut block, "trailers");
        block
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, mut payload: &[u8], now: Instant) {
        match kind {
            DATA => {
                self.eaten += u32::try_from(payload.len()).unwrap();
                if self.eaten > REOPEN {
                    reopen(&mut self.out, self.eaten);
                    self.eaten = 0;
                }
                self.data(stream, payload, now);
            }
            HEADERS if flags & END_STREAM == 0 => add(&self.tally.answered, 1),
            HEADERS | RST_STREAM | GOAWAY => add(&self.tally.lost, 1),
            SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, 0),
            PING if flags & ACK == 0 => {
                frame(&mut self.out, PING, ACK, 0, payload.len());
                self.out.put_slice(payload);
            }
            WINDOW_UPDATE if stream == 0 => self.credit += i64::from(payload.get_u32()),
            _ => {}
        }
    }

    fn data(&mut self, stream: u32, payload: &[u8], now: Instant) {
        let watcher = &mut self.streams[stream as usize / 2];
        let joined;
        let mut rest = if watcher.partial.is_empty() {
            payload
        } else {
            watcher.partial.extend(payload);
            joined = std::mem::take(&mut watcher.partial);
            &joined
        };
        while let Some(message) = take_message(&mut rest) {
            if !has_field(message, self.shape.states) {
                continue;
            }
            if watcher.firsts > 0 {
                watcher.firsts -= 1;
                add(&self.tally.ready, 1);
            } else {
                add(&self.tally.delivered, 1);
                add(&self.tally.bytes, message.len());
                self.tally.taken.borrow_mut().push(now.saturating_duration_since(self.tally.began.get()));
            }
        }
        watcher.partial.extend(rest);
    }
}

fn frame(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, length: usize) {
    out.put_uint(length as u64, 3);
    out.put_slice(&[kind, flags]);
    out.put_u32(stream);
}

fn reopen(out: &mut BytesMut, by: u32) {
    frame(out, WINDOW_UPDATE, 0, 0, 4);
    out.put_u32(by);
}

/// The next whole message.
fn take_message<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut length = rest.get(1..GRPC_HEADER)?;
    let end = GRPC_HEADER + length.get_u32() as usize;
    let message = rest.get(GRPC_HEADER..end)?;
    *rest = &rest[end..];
    Some(message)
}

fn has_field(mut message: &[u8], wanted: &[u32]) -> bool {
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).unwrap();
        if wanted.contains(&tag) {
            return true;
        }
        skip_field(wire, tag, &mut message, DecodeContext::default()).unwrap();
    }
    false
}
