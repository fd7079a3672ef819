//! What holds for every call, whatever the service: an error has details, a deadline ends the call, and its end is counted.
//!
//! tonic answers some calls before a service sees them (unknown methods, undecodable or over-long requests), without details
//! and partly under codes that mislead. It also lets a deadline end a call only until the reply begins, not a stream.

mod body;
mod foreign;
mod methods;
mod stall;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, Response, StatusCode, header};
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};

pub use self::stall::Stalls;
use self::{
    body::CallBody,
    methods::{Method, Methods},
};
use super::{deadline, error, prepared::Prepared};
use crate::{grpc_code::code_name, metrics::Metrics, serve::Peer};

/// A deadline, once it is known when it falls.
type Deadline = Option<Pin<Box<Sleep>>>;

/// Wraps all services of a port.
#[derive(Clone, Debug)]
pub struct RpcLayer {
    methods: Arc<Methods>,
    stalls: Stalls,
}

impl RpcLayer {
    /// Counts into `metrics`; streams are among `stalls` while they live.
    pub fn new(metrics: &Metrics, stalls: Stalls) -> Self {
        Self { methods: Arc::new(Methods::load(metrics)), stalls }
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = Rpc<S>;

    fn layer(&self, inner: S) -> Rpc<S> {
        Rpc { inner, layer: self.clone() }
    }
}

/// The wrapped services.
#[derive(Clone, Debug)]
pub struct Rpc<S> {
    inner: S,
    layer: RpcLayer,
}

impl<S> Service<Request<Body>> for Rpc<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = self.layer.methods.find(request.uri().path());
        if !is_grpc(request.headers()) {
            // Plain HTTP is none of ours, except where it calls a method of ours.
            return match method.known {
                true => CallFuture::Done(Some(unsupported_media_type())),
                false => CallFuture::Plain(self.inner.call(request)),
            };
        }
        let call = Call {
            path: (!method.known).then(|| request.uri().path().to_owned()),
            peer: request.extensions().get::<Peer>().cloned(),
            method,
            stalls: self.layer.stalls.clone(),
            counted: false,
        };
        // Made before tonic makes its own timer of the same length: this one fires first, and answers with the right code.
        let deadline = deadline::of_headers(request.headers()).map(|d| Box::pin(sleep(d)));
        CallFuture::Running { inner: self.inner.call(request), call: Some(call), deadline }
    }
}

/// A call that has not been answered yet.
#[derive(Debug)]
pub enum CallFuture<F> {
    /// Answered without asking anybody.
    Done(Option<Response<Body>>),
    /// Not gRPC.
    Plain(F),
    /// At the service.
    Running {
        /// The service's answer.
        inner: F,
        /// What is needed to judge it.
        call: Option<Call>,
        /// When it must be there.
        deadline: Option<Pin<Box<Sleep>>>,
    },
}

impl<F> Future for CallFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Done(response) => Poll::Ready(Ok(response.take().unwrap_or_default())),
            Self::Plain(inner) => Pin::new(inner).poll(cx),
            Self::Running { inner, call, deadline } => {
                let response = match Pin::new(inner).poll(cx) {
                    Poll::Ready(Ok(response)) => response,
                    Poll::Pending => {
                        ready!(poll_deadline(deadline, cx));
                        deadline_exceeded().into_http()
                    }
                };
                let Some(call) = call.take() else { return Poll::Pending };
                Poll::Ready(Ok(call.judge(response, deadline.take())))
            }
        }
    }
}

/// One call, until its end is counted.
#[derive(Debug)]
pub struct Call {
    method: Method,
    /// The path, where it is not one of our methods.
    path: Option<String>,
    peer: Option<Peer>,
    stalls: Stalls,
    counted: bool,
}

impl Call {
    /// Completes an answer, or has its body watched where the end is yet to come.
    fn judge(mut self, mut response: Response<Body>, deadline: Deadline) -> Response<Body> {
        if response.headers().contains_key(Status::GRPC_STATUS) {
            self.complete(response.headers_mut());
            return response;
        }
        Prepared::unpack(&mut response);
        let stall = match self.peer.take() {
            Some(peer) if self.method.streams => Some(self.stalls.watch(peer)),
            _ => None,
        };
        response.map(|body| Body::new(CallBody::new(body, self, deadline, stall)))
    }

    /// Completes headers or trailers that hold the final status, and counts it.
    fn complete(&mut self, trailers: &mut HeaderMap) {
        let mut code = code_of(trailers);
        if code != Code::Ok && !trailers.contains_key(Status::GRPC_STATUS_DETAILS) {
            let status = Status::from_header_map(trailers).unwrap_or_else(|| Status::new(code, ""));
            let status = foreign::complete(&status, self.path.as_deref());
            code = status.code();
            // Fails only on bytes that no header can hold; the texts are percent-encoded.
            let _ = status.add_header(trailers);
        }
        self.count(code);
    }

    fn count(&mut self, code: Code) {
        if !self.counted {
            self.counted = true;
            self.method.calls.ended(code_name(code));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Dropped before its end: the client went away.
        self.count(Code::Cancelled);
    }
}

fn poll_deadline(deadline: &mut Deadline, cx: &mut Context<'_>) -> Poll<()> {
    match deadline {
        Some(deadline) => deadline.as_mut().poll(cx),
        None => Poll::Pending,
    }
}

fn deadline_exceeded() -> Status {
    error::status(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "the call's own deadline is over", [])
}

fn code_of(headers: &HeaderMap) -> Code {
    headers.get(Status::GRPC_STATUS).map_or(Code::Unknown, |v| Code::from_bytes(v.as_bytes()))
}

/// Whether a request is gRPC. gRPC-Web shares the prefix, and is something else.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

fn unsupported_media_type() -> Response<Body> {
    let text = "this is a gRPC method: send content-type application/grpc\n";
    let mut response = Response::new(Body::new(text.to_owned()));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
