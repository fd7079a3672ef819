//! The servers to compare with: they know one reply.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io::Write,
    marker::PhantomData,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use prost::Message;
use tokio::net::TcpListener;
use tonic::{
    Status,
    body::Body,
    codec::Codec,
    server::{Grpc, NamedService, UnaryService},
    transport::{Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use toolpulse::proto::v1::{ListAvailableToolsRequest, ListAvailableToolsResponse};
use tower::Service;

use super::raw::RawCodec;

/// Hands out the bytes of a file as they are.
pub(crate) async fn bare(reply: &Path) {
    serve(Fixed::<RawCodec, _>::new(std::fs::read(reply).unwrap().into())).await;
}

/// Clones the message of a file and encodes it, as services do.
pub(crate) async fn plain(reply: &Path) {
    let reply = ListAvailableToolsResponse::decode(&*std::fs::read(reply).unwrap()).unwrap();
    serve(Fixed::<ProstCodec<ListAvailableToolsResponse, ListAvailableToolsRequest>, _>::new(reply)).await;
}

async fn serve<C, T>(service: Fixed<C, T>)
where
    C: Codec<Encode = T> + Default + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("listening on {}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
}

/// Answers every call with a clone of one message: what tonic generates for a service, less the service.
struct Fixed<C, T> {
    reply: T,
    codec: PhantomData<fn() -> C>,
}

impl<C, T> Fixed<C, T> {
    fn new(reply: T) -> Self {
        Self { reply, codec: PhantomData }
    }
}

impl<C, T: Clone> Clone for Fixed<C, T> {
    fn clone(&self) -> Self {
        Self::new(self.reply.clone())
    }
}

impl<C, T> NamedService for Fixed<C, T> {
    const NAME: &'static str = "toolpulse.v1.ToolRegistryService";
}

impl<C, T> Service<Request<Body>> for Fixed<C, T>
where
    C: Codec<Encode = T> + Default + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let handler = Handler(self.reply.clone());
        Box::pin(async move { Ok(Grpc::new(C::default()).unary(handler, request).await) })
    }
}

struct Handler<T>(T);

impl<T, R> UnaryService<R> for Handler<T>
where
    T: Clone,
{
    type Response = T;
    type Future = Ready<Result<tonic::Response<T>, Status>>;

    fn call(&mut self, _: tonic::Request<R>) -> Self::Future {
        ready(Ok(tonic::Response::new(self.0.clone())))
    }
}
