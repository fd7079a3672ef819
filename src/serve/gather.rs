//! Writes that wait for each other.
//!
//! HTTP/2 carries many streams on one connection, each a task of its own, and the connection's task runs after each of them. With
//! a system call for each message, most of the time of a change that all watchers are told would go into the kernel.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that are held back.
const MAX_HELD: usize = 32 * 1024;

/// A write of so many bytes goes out at once: it is worth its system call, and to copy it would cost more than it saves.
const LARGE: usize = 4 * 1024;

/// Holds small writes back until its task runs next, which it sees to: by then the other streams, which wait in the same queue,
/// have said what they have to say. For a task that reads whenever it runs, as one of HTTP/2 does.
pub(super) struct Gather<T> {
    inner: T,
    /// Off: everything goes through as it is.
    on: bool,
    held: Vec<u8>,
}

impl<T> Gather<T> {
    pub(super) fn new(inner: T, on: bool) -> Self {
        Self { inner, on, held: Vec::new() }
    }
}

impl<T: AsyncWrite + Unpin> Gather<T> {
    /// Takes all of it, if there is room.
    fn hold(&mut self, cx: &Context<'_>, bufs: &[io::IoSlice<'_>], size: usize) -> usize {
        if self.held.is_empty() {
            cx.waker().wake_by_ref();
        }
        bufs.iter().for_each(|buf| self.held.extend_from_slice(buf));
        size
    }

    /// Writes what is held.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = 0;
        let result = loop {
            if written == self.held.len() {
                break Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.inner).poll_write(cx, &self.held[written..]) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => written += n,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if written == self.held.len() {
            // An idle connection keeps no buffer.
            self.held = Vec::new();
        } else {
            self.held.drain(..written);
        }
        result
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gather<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_held(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gather<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        let large = !self.on || size >= LARGE;
        if large || self.held.len() + size > MAX_HELD {
            ready!(self.poll_held(cx))?;
        }
        match large {
            true => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
            false => Poll::Ready(Ok(self.hold(cx, bufs, size))),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// What is held has woken the task already.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_held(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    use std::task::{Wake, Waker};

    use super::*;

    /// Takes so many bytes, and remembers each write.
    #[derive(Default)]
    struct Pipe {
        room: usize,
        writes: Vec<Vec<u8>>,
    }

    impl AsyncRead for Pipe {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.room);
            if taken == 0 {
                return Poll::Pending;
            }
            self.room -= taken;
            self.writes.push(buf[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(gather: &mut Gather<Pipe>, cx: &mut Context<'_>, bytes: &[u8]) -> Option<usize> {
        match Pin::new(gather).poll_write(cx, bytes) {
            Poll::Ready(written) => Some(written.unwrap()),
            Poll::Pending => None,
        }
    }

    fn run_again(gather: &mut Gather<Pipe>, cx: &mut Context<'_>) {
        assert!(Pin::new(gather).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])).is_pending());
    }

    #[test]
    fn small_writes_go_out_together_when_the_task_runs_again() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let mut gather = Gather::new(Pipe { room: 1 << 20, ..Pipe::default() }, true);
        for text in ["a", "bc", "d"] {
            assert_eq!(write(&mut gather, cx, text.as_bytes()), Some(text.len()));
        }
        assert!(Pin::new(&mut gather).poll_flush(cx).is_ready());
        assert_eq!((gather.inner.writes.len(), wakes.0.load(Ordering::Relaxed)), (0, 1), "woken once");
        run_again(&mut gather, cx);
        assert_eq!(gather.inner.writes, [b"abcd"]);
        assert_eq!(gather.held.capacity(), 0);

        // A large one goes out at once, after what was before it.
        write(&mut gather, cx, b"e");
        assert_eq!(write(&mut gather, cx, &[7; LARGE]), Some(LARGE));
        assert_eq!(gather.inner.writes[1..].iter().map(Vec::len).collect::<Vec<_>>(), [1, LARGE]);

        write(&mut gather, cx, b"last");
        assert!(Pin::new(&mut gather).poll_shutdown(cx).is_ready());
        assert_eq!(gather.inner.writes.last().unwrap(), b"last");
    }

    #[test]
    fn a_peer_that_takes_little_bounds_what_is_held_and_loses_nothing() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut gather = Gather::new(Pipe::default(), true);
        let mut sent = Vec::new();
        for i in 0..1_000u32 {
            let bytes = i.to_be_bytes().repeat(100);
            let Some(written) = write(&mut gather, cx, &bytes) else { break };
            sent.extend_from_slice(&bytes[..written]);
        }
        assert!(gather.held.len() <= MAX_HELD && gather.held.len() > MAX_HELD - 400);
        while gather.inner.writes.concat().len() < sent.len() {
            gather.inner.room = 777;
            run_again(&mut gather, cx);
        }
        assert_eq!(gather.inner.writes.concat(), sent);
    }

    #[test]
    fn switched_off_it_is_not_there() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut gather = Gather::new(Pipe { room: 10, ..Pipe::default() }, false);
        assert_eq!(write(&mut gather, cx, b"now"), Some(3));
        assert_eq!(gather.inner.writes, [b"now"]);
    }
}
