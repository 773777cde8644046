//! Between the wire and the types of kafka-protocol.
//!
//! A body is decoded only behind the preflight, because that crate allocates what a length field claims.

use bytes::BytesMut;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use oncilla_shards::ids::TopicId;
use oncilla_shards::image::topics::Refusal;
use oncilla_shards::wire::{Body, apis, schema};
use uuid::Uuid;

use super::{Answer, Request};

/// Decodes a request, answers it, and encodes the answer.
pub async fn serve<Q: Decodable, R: Encodable>(request: &Request, respond: impl AsyncFnOnce(Q) -> R) -> Answer {
    match decode(request) {
        Ok(decoded) => encode(&respond(decoded).await, request),
        Err(unreadable) => unreadable.into(),
    }
}

/// Why a body does not parse.
#[derive(Debug)]
pub struct Unreadable(pub String);

impl From<Unreadable> for Answer {
    fn from(Unreadable(why): Unreadable) -> Self {
        Self::Close(why)
    }
}

/// Decodes the body of a request; one that does not parse closes the connection (contract KC.6).
pub fn decode<Q: Decodable>(request: &Request) -> Result<Q, Unreadable> {
    let close = |why: String| {
        Unreadable(format!("a request of key {} version {} does not parse: {why}", request.key, request.version))
    };
    let mut body =
        schema::checked(request.key, request.version, &request.body).map_err(|error| close(error.to_string()))?;
    Q::decode(&mut body, apis::codec_version(request.key, request.version)).map_err(|error| close(error.to_string()))
}

/// Encodes the answer of a request.
pub fn encode<R: Encodable>(response: &R, request: &Request) -> Answer {
    let version = apis::codec_version(request.key, request.version);
    let mut bytes = BytesMut::with_capacity(response.compute_size(version).unwrap_or(0));
    match response.encode(&mut bytes, version) {
        Ok(()) => Answer::Body(Body::from(bytes.freeze())),
        Err(error) => Answer::Close(format!("the answer to key {} version {version}: {error}", request.key)),
    }
}

/// Text for an answer.
pub fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// Code and message of a result as answers carry them; success and a refusal without words have a null message.
pub fn outcome<T>(result: &Result<T, Refusal>) -> (i16, Option<StrBytes>) {
    match result {
        Ok(_) => (0, None),
        Err(refusal) if refusal.message.is_empty() => (refusal.code.wire(), None),
        Err(refusal) => (refusal.code.wire(), Some(text(refusal.message.as_str()))),
    }
}

/// A topic id on the wire.
pub fn uuid(id: TopicId) -> Uuid {
    Uuid::from_u128(id.0)
}

/// A topic id from the wire.
pub fn topic_id(id: Uuid) -> TopicId {
    TopicId(id.as_u128())
}
