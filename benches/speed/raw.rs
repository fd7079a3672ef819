//! Calls whose messages are bytes already.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};

/// The method that nearly everything here is about.
pub(crate) const LIST: &str = "/toolpulse.v1.ToolRegistryService/ListAvailableTools";

const MAX_REPLY: usize = 64 << 20;

pub(crate) fn client(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(MAX_REPLY)
}

/// One call; the reply's bytes.
pub(crate) async fn call_to(client: &mut Grpc<Channel>, method: &'static str, request: &Bytes) -> Bytes {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    client.unary(Request::new(request.clone()), path, RawCodec).await.unwrap().into_inner()
}

/// Messages as bytes, both ways.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buf.copy_to_bytes(buf.remaining())))
    }
}
