//! Replies that are encoded already: their bytes go out as they are, where tonic would copy or encode them for every call.
//!
//! A handler answers with [`Prepared::into_response`], or [`stream`]; [`super::rpc`] puts the bytes where the messages would
//! have been.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use prost::Message;
use tokio_stream::{Empty, Stream};
use tonic::{Response, Status, body::Body};

/// gRPC's own header of a message: not compressed, so many bytes.
const HEADER: usize = 5;

/// One encoded message, as the parts of its frame.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    head: Bytes,
    rest: Bytes,
}

impl Prepared {
    /// The message that has the fields of `message` and, encoded earlier, those of `rest`. None twice: protobuf puts a message
    /// together from its parts in any order.
    pub(super) fn new(message: &impl Message, rest: Bytes) -> Self {
        let fields = message.encode_to_vec();
        let mut head = BytesMut::with_capacity(HEADER + fields.len());
        head.put_u8(0);
        // Replies are refused long before they reach 4 GiB.
        head.put_u32(u32::try_from(fields.len() + rest.len()).unwrap_or(u32::MAX));
        head.put_slice(&fields);
        Self { head: head.freeze(), rest }
    }

    /// How long the message is.
    pub(super) fn len(&self) -> usize {
        self.head.len() - HEADER + self.rest.len()
    }

    /// The response that carries it, under an empty message that nobody will see.
    pub(super) fn into_response<M: Default>(self) -> Response<M> {
        let mut response = Response::new(M::default());
        response.extensions_mut().insert(self);
        response
    }

    /// The whole reply.
    pub(super) fn into_reply(self) -> http::Response<Body> {
        let mut response = http::Response::new(self.into_body());
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }

    fn into_body(self) -> Body {
        Body::new(PreparedBody { parts: [self.head, self.rest], ended: false })
    }

    /// Puts the prepared message, if there is one, in the place of the empty one.
    pub(super) fn unpack(response: &mut http::Response<Body>) {
        if let Some(prepared) = response.extensions_mut().remove::<Self>() {
            *response.body_mut() = prepared.into_body();
        }
        if let Some(stream) = response.extensions_mut().remove::<PreparedStream>()
            && let Some(body) = stream.0.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            *response.body_mut() = body;
        }
    }
}

/// One message as a frame.
pub(super) fn frame(message: &impl Message) -> Bytes {
    Prepared::new(message, Bytes::new()).head
}

/// A response that carries the frames of `frames`, under a stream of messages that nobody will see.
pub(super) fn stream<S, M>(frames: S) -> Response<Empty<Result<M, Status>>>
where
    S: Stream<Item = Result<Bytes, Status>> + Send + Unpin + 'static,
{
    let mut response = Response::new(tokio_stream::empty());
    let body = Body::new(StreamBody { frames, ended: false });
    response.extensions_mut().insert(PreparedStream(Arc::new(Mutex::new(Some(body)))));
    response
}

/// The body of a stream. Extensions have to be copied; the copies are one.
#[derive(Clone)]
struct PreparedStream(Arc<Mutex<Option<Body>>>);

impl fmt::Debug for PreparedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedStream").finish_non_exhaustive()
    }
}

/// Frames, and the trailers of their end.
struct StreamBody<S> {
    frames: S,
    ended: bool,
}

impl<S> HttpBody for StreamBody<S>
where
    S: Stream<Item = Result<Bytes, Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(Pin::new(&mut self.frames).poll_next(cx)) {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(Frame::data(frame)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        // Fails only on bytes that no header can hold; the texts are percent-encoded.
        let _ = status.add_header(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// The frame of one message and the trailers of success.
struct PreparedBody {
    parts: [Bytes; 2],
    ended: bool,
}

impl HttpBody for PreparedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(part) = self.parts.iter_mut().find(|part| !part.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(part)))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::proto::v1;

    #[tokio::test]
    async fn a_reply_is_put_together_from_its_parts() {
        let (early, late) = (
            v1::ListAvailableToolsResponse {
                tools_json: "[]".into(),
                etag: "e".into(),
                ..Default::default()
            },
            v1::ListAvailableToolsResponse { epoch: "now".into(), revision: 7, ..Default::default() },
        );
        let whole = v1::ListAvailableToolsResponse { epoch: "now".into(), revision: 7, ..early.clone() };
        let prepared = Prepared::new(&late, early.encode_to_vec().into());
        assert_eq!(prepared.len(), whole.encoded_len());

        let mut response = http::Response::new(Body::empty());
        *response.extensions_mut() = prepared.into_response::<()>().extensions().clone();
        Prepared::unpack(&mut response);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()[Status::GRPC_STATUS], "0");
        let bytes = body.to_bytes();
        assert_eq!(bytes[..HEADER], [0, 0, 0, 0, u8::try_from(whole.encoded_len()).unwrap()]);
        assert_eq!(v1::ListAvailableToolsResponse::decode(&bytes[HEADER..]).unwrap(), whole);
    }
}
