//! The body of a reply: watched until its trailers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Code, Status, body::Body};

use super::{Call, Deadline, deadline_exceeded, poll_deadline, stall::Stall};

pub(super) struct CallBody {
    inner: Body,
    call: Call,
    deadline: Deadline,
    stall: Option<Stall>,
    ended: bool,
}

impl CallBody {
    pub(super) fn new(inner: Body, call: Call, deadline: Deadline, stall: Option<Stall>) -> Self {
        Self { inner, call, deadline, stall, ended: false }
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.ended = true;
        let mut trailers = HeaderMap::new();
        // Fails only on bytes that no header can hold; the texts are percent-encoded.
        let _ = status.add_header(&mut trailers);
        self.call.complete(&mut trailers);
        Frame::trailers(trailers)
    }
}

impl HttpBody for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(stall) = &this.stall {
            stall.wanted();
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Pending => {
                poll_deadline(&mut this.deadline, cx).map(|()| Some(Ok(this.end(&deadline_exceeded()))))
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    this.ended = true;
                    this.call.complete(trailers);
                } else if let Some(stall) = &this.stall {
                    stall.sent();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(status))) => {
                this.ended = true;
                this.call.count(status.code());
                Poll::Ready(Some(Err(status)))
            }
            Poll::Ready(None) => {
                // A reply without trailers is broken by the protocol's own rule.
                this.ended = true;
                this.call.count(Code::Unknown);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
