//! The way of a list that was asked for before in the very same bytes: its request is not decoded again.
//!
//! Agents ask before every turn, and nothing changes in between. To decode and to sort the names of 20 tools costs as much as
//! all that is left of such a call. What a request's bytes mean never changes, so nothing here can be outdated; what it is
//! answered with is looked up each time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use prost::Message;
use rpds::HashTrieMapSync;
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

use super::{ToolService, available::Known};
use crate::{
    proto::v1::{self, tool_registry_service_server::ToolRegistryServiceServer},
    service::prepared::Prepared,
};

const LIST: &str = "/toolpulse.v1.ToolRegistryService/ListAvailableTools";
/// gRPC's own header of a message: not compressed, so many bytes.
const HEADER: usize = 5;
/// Most requests that are known. When one more comes, all are forgotten: those in use are soon known again.
const MAX_KNOWN: usize = 4_096;
/// Larger requests are always decoded; with those above, this bounds what is kept.
const MAX_BYTES: usize = 4 * 1024;

/// The service, with a shorter way for what it was asked before.
#[derive(Clone, Debug)]
pub struct Shortcut {
    inner: ToolRegistryServiceServer<ToolService>,
    tools: Arc<ToolService>,
    known: Arc<ArcSwap<HashTrieMapSync<Bytes, Arc<Known>>>>,
    seen: Arc<Seen>,
}

impl Shortcut {
    /// Serves `tools`, which takes requests of so many bytes.
    pub fn new(tools: ToolService, max_request_bytes: usize) -> Self {
        let tools = Arc::new(tools);
        let inner = ToolRegistryServiceServer::from_arc(Arc::clone(&tools));
        Self {
            inner: inner.max_decoding_message_size(max_request_bytes),
            tools,
            known: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// The answer to a request that is known, if its list is ready.
    fn answer(&self, message: &Bytes) -> Option<Prepared> {
        let known = self.known.load();
        match known.get(message) {
            Some(known) => self.tools.answer_known(known),
            None => {
                if self.seen.again(message) {
                    self.learn(message);
                }
                None
            }
        }
    }

    /// What its bytes mean, unless something is wrong with them: only what is without fault has a list.
    fn learn(&self, message: &Bytes) {
        let Ok(request) = v1::ListAvailableToolsRequest::decode(message.clone()) else { return };
        let Some(known) = self.tools.known(request).map(Arc::new) else { return };
        // The bytes of the frame may be a part of a larger buffer.
        let message = Bytes::copy_from_slice(message);
        self.known.rcu(|all| match all.size() < MAX_KNOWN {
            true => all.insert(message.clone(), Arc::clone(&known)),
            false => HashTrieMapSync::default(),
        });
    }
}

impl NamedService for Shortcut {
    const NAME: &'static str = ToolRegistryServiceServer::<ToolService>::NAME;
}

impl Service<Request<Body>> for Shortcut {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != LIST {
            return self.inner.call(request);
        }
        let mut this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let read = Read::first(body).await;
            if let Some(message) = read.message()
                && let Some(prepared) = this.answer(&message)
            {
                return Ok(prepared.into_reply());
            }
            this.inner.call(Request::from_parts(parts, Body::new(read))).await
        })
    }
}

/// What was asked lately, as far as there is room: to learn a request costs as much as to decode it, and most that come once never
/// come again.
#[derive(Debug)]
struct Seen {
    hashes: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Seen {
    fn default() -> Self {
        Self { hashes: (0..MAX_KNOWN).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }
}

impl Seen {
    /// Whether it was seen before; now it was.
    fn again(&self, message: &Bytes) -> bool {
        let hash = self.hasher.hash_one(message);
        let place = &self.hashes[usize::try_from(hash % MAX_KNOWN as u64).unwrap_or(0)];
        place.swap(hash, Ordering::Relaxed) == hash
    }
}

/// A body whose beginning was read.
struct Read {
    frames: VecDeque<Result<Frame<Bytes>, Status>>,
    rest: Body,
    ended: bool,
}

impl Read {
    /// Reads the first frame, and what follows it: nothing, where it is a whole request.
    async fn first(mut body: Body) -> Self {
        let mut frames = VecDeque::with_capacity(2);
        while frames.len() < 2 {
            match body.frame().await {
                // Clients say with one that nothing follows.
                Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                Some(frame) => frames.push_back(frame),
                None => return Self { frames, rest: body, ended: true },
            }
        }
        Self { frames, rest: body, ended: false }
    }

    /// The message, if it is the whole body, and neither compressed nor large.
    fn message(&self) -> Option<Bytes> {
        let (1, true, Some(Ok(frame))) = (self.frames.len(), self.ended, self.frames.front()) else {
            return None;
        };
        let data = frame.data_ref()?;
        let mut length = data.get(1..HEADER)?;
        let whole = data[0] == 0 && length.get_u32() as usize == data.len() - HEADER;
        (whole && data.len() <= MAX_BYTES).then(|| data.slice(HEADER..))
    }
}

impl HttpBody for Read {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if self.ended => Poll::Ready(None),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && (self.ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
