//! gRPC with messages that are encoded already.

use std::marker::PhantomData;

use bytes::{BufMut as _, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstDecoder;

/// Calls a method with an encoded message, once.
///
/// # Errors
/// When the service refuses it, or does not answer.
pub(super) async fn call<A: Message + Default + 'static>(
    channel: Channel,
    method: &'static str,
    message: Request<Bytes>,
) -> Result<A, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(client.unary(message, PathAndQuery::from_static(method), Encoded(PhantomData)).await?.into_inner())
}

/// Bytes go out, and an answer `A` comes back.
struct Encoded<A>(PhantomData<A>);

impl<A: Message + Default + 'static> Codec for Encoded<A> {
    type Encode = Bytes;
    type Decode = A;
    type Encoder = AsTheyAre;
    type Decoder = ProstDecoder<A>;

    fn encoder(&mut self) -> AsTheyAre {
        AsTheyAre
    }

    fn decoder(&mut self) -> ProstDecoder<A> {
        ProstDecoder::default()
    }
}

struct AsTheyAre;

impl Encoder for AsTheyAre {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}
