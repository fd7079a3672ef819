//! One accepted connection, which can be cut from outside.
//!
//! HTTP servers end gracefully only if every peer cooperates. A peer that sent nothing, one that is frozen and one that never
//! reads would keep them for ever, so the last word is had here, below HTTP: once the switch is thrown every read and write fails.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::{OPENING_TIMEOUT, Protocols, drain::Drain, gather::Gather, tls::Transport};

/// Who is at the other end. Every request carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's address.
    pub address: SocketAddr,
    close: CancellationToken,
}

impl Peer {
    /// Cuts the connection, with all that runs on it. For a peer that takes nothing any more. False: it was cut already.
    pub fn close(&self) -> bool {
        let first = !self.close.is_cancelled();
        self.close.cancel();
        first
    }
}

/// An accepted connection.
pub(super) struct Conn {
    transport: Gather<Transport>,
    peer: Peer,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    opening: Option<Opening>,
    /// Its place under the cap; free again when the connection is dropped.
    _place: OwnedSemaphorePermit,
}

/// The state until the peer has said which protocol it speaks: nothing is lost if such a connection is closed.
struct Opening {
    /// So many bytes are still to come.
    missing: usize,
    timeout: Pin<Box<Sleep>>,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Conn {
    pub(super) fn new(
        transport: Transport,
        address: SocketAddr,
        protocols: Protocols,
        drain: &Drain,
        place: OwnedSemaphorePermit,
    ) -> Self {
        // A token of its own: the connections do not contend for one lock, and each can be cut alone.
        let close = drain.kill_token().child_token();
        Self {
            transport: Gather::new(transport, protocols == Protocols::Grpc),
            closed: Box::pin(close.clone().cancelled_owned()),
            peer: Peer { address, close },
            opening: Some(Opening {
                missing: protocols.opening_bytes(),
                timeout: Box::pin(sleep(OPENING_TIMEOUT)),
                drain: Box::pin(drain.begun_token().clone().cancelled_owned()),
            }),
            _place: place,
        }
    }

    /// Fails if the switch was thrown, else makes sure that the task hears of it.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed the connection"))
            }
            Poll::Pending => Ok(()),
        }
    }

    /// What came of reading or writing; while it waits, the opening may end.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut self.opening {
            Some(opening) if outcome.is_pending() => opening.poll_end(cx).map(Err),
            _ => outcome,
        }
    }
}

impl Opening {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.timeout.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the peer did not begin"));
        }
        self.drain.as_mut().poll(cx).map(|()| {
            io::Error::new(io::ErrorKind::ConnectionAborted, "the peer did not begin before the drain")
        })
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.transport).poll_read(cx, buf);
        let came = buf.filled().len() - before;
        if let Some(opening) = &mut self.opening {
            opening.missing = opening.missing.saturating_sub(came);
            if opening.missing == 0 {
                self.opening = None;
            }
        }
        self.in_time(cx, read)
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = Pin::new(&mut self.transport).poll_write(cx, buf);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = Pin::new(&mut self.transport).poll_write_vectored(cx, bufs);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let flushed = Pin::new(&mut self.transport).poll_flush(cx);
        self.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

impl Connected for Conn {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}
