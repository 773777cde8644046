//! One connection of the producer: a task that sends requests in the order of their tickets and reads answers in the
//! same order.
//!
//! Failure: whatever is wrong with the connection or with what comes over it ends it, with one event. Limits: an answer
//! above [`ANSWER_BYTES_MAX`] ends it, and memory for one grows with what arrives, not with what is promised.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request as Wire, StrBytes};
use oncilla_shards::client::{Answer, CallId, ConnectionId, Request};
use oncilla_shards::code::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::codec::{Encoder, Shape, Unsendable, Versions, decode};
use super::outbound::Outbound;

/// Longest answer: a producer's answers are short.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Version of ApiVersions with the finalized features (contract D1); a broker that does not know it says which it does.
const API_VERSIONS: i16 = 3;

/// The feature that says which transaction protocol is served.
const TRANSACTION_VERSION: &str = "transaction.version";

/// Bytes of requests that are written in one go.
const WRITE_BYTES: usize = 256 << 10;

/// Room for what is read in one go, and what has to be left of it: answers are short, and many come together.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MIN: usize = 1 << 10;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub ticket: u64,
    pub call: CallId,
    pub request: Request,
}

/// What a connection tells.
#[derive(Debug)]
pub(super) enum Event {
    /// Epoch of the finalized features, and the level of transaction.version.
    Feature(i64, i16),
    /// An answer.
    Answered(CallId, Answer),
    /// It is gone; `reached` if anything may have been sent.
    Lost { connection: ConnectionId, reached: bool, why: String },
}

/// What the task needs.
pub(super) struct Link {
    pub connection: ConnectionId,
    pub address: Arc<str>,
    pub client_id: StrBytes,
    pub timeout: Duration,
    pub outgoing: UnboundedReceiver<Outgoing>,
    pub events: UnboundedSender<Event>,
}

/// An answer that is to come.
struct Expected {
    call: CallId,
    shape: Shape,
    correlation_id: i32,
}

impl Link {
    /// Runs until the connection ends, or nobody sends on it any more.
    pub async fn run(self) {
        let (connection, events) = (self.connection, self.events.clone());
        let connected = tokio::time::timeout(self.timeout, self.connect()).await;
        let (reached, why) = match connected {
            Err(_) => (false, "no connection in time".to_owned()),
            Ok(Err(error)) => (false, format!("{error:#}")),
            Ok(Ok((stream, versions))) => match self.serve(stream, versions).await {
                Ok(()) => return,
                Err(error) => (true, format!("{error:#}")),
            },
        };
        let _ = events.send(Event::Lost { connection, reached, why });
    }

    async fn connect(&self) -> anyhow::Result<(TcpStream, Versions)> {
        let mut stream = TcpStream::connect(&*self.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("oncilla"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let header = RequestHeader::default()
            .with_request_api_key(ApiVersionsRequest::KEY)
            .with_request_api_version(API_VERSIONS)
            .with_client_id(Some(self.client_id.clone()));
        let mut frame = BytesMut::from(&[0; 4][..]);
        header.encode(&mut frame, ApiVersionsRequest::header_version(API_VERSIONS))?;
        request.encode(&mut frame, API_VERSIONS)?;
        let length = i32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&frame).await?;
        let mut buffer = BytesMut::new();
        let answer = api_versions(next_frame(&mut stream, &mut buffer).await?)?;
        ensure!(buffer.is_empty(), "an answer that nobody asked for");
        let level = answer.finalized_features.iter().find(|feature| *feature.name == *TRANSACTION_VERSION);
        let level = level.map_or(0, |feature| feature.max_version_level);
        let _ = self.events.send(Event::Feature(answer.finalized_features_epoch, level));
        let range = |api: &kafka_protocol::messages::api_versions_response::ApiVersion| {
            (api.api_key, (api.min_version, api.max_version))
        };
        Ok((stream, answer.api_keys.iter().map(range).collect()))
    }

    async fn serve(mut self, stream: TcpStream, versions: Versions) -> anyhow::Result<()> {
        let (input, output) = stream.into_split();
        let (expected, to_come) = unbounded_channel();
        let events = self.events.clone();
        tokio::select! {
            sent = self.send_all(output, &versions, &expected) => sent,
            read = read_all(input, to_come, &events) => read,
        }
    }

    async fn send_all(
        &mut self,
        mut output: OwnedWriteHalf,
        versions: &Versions,
        expected: &UnboundedSender<Expected>,
    ) -> anyhow::Result<()> {
        let mut correlation_id = 0;
        let mut due = 0;
        let mut buffer = Outbound::default();
        while let Some(first) = self.outgoing.recv().await {
            let mut next = Some(first);
            while let Some(Outgoing { ticket, call, request }) = next {
                assert_eq!(ticket, due, "requests go onto a connection in the order in which they were decided");
                due += 1;
                correlation_id += 1;
                let encoder = Encoder { client_id: &self.client_id, versions, correlation_id };
                match encoder.encode(&request, &mut buffer) {
                    Ok(shape) => {
                        let _ = expected.send(Expected { call, shape, correlation_id });
                    }
                    Err(Unsendable::Version(answer)) => {
                        let _ = self.events.send(Event::Answered(call, answer));
                    }
                    Err(Unsendable::Broken(why)) => bail!("a request cannot be written: {why}"),
                }
                next = if buffer.len() < WRITE_BYTES { self.outgoing.try_recv().ok() } else { None };
            }
            buffer.finish();
            output.write_all_buf(&mut buffer).await.context("write")?;
        }
        Ok(())
    }
}

async fn read_all(
    mut input: OwnedReadHalf,
    mut expected: UnboundedReceiver<Expected>,
    events: &UnboundedSender<Event>,
) -> anyhow::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let frame = next_frame(&mut input, &mut buffer).await?;
        let Ok(Expected { call, shape, correlation_id }) = expected.try_recv() else {
            bail!("an answer that nobody asked for");
        };
        let answer = decode(shape, frame, correlation_id)?;
        let _ = events.send(Event::Answered(call, answer));
    }
}

/// The next frame without its length.
async fn next_frame(input: &mut (impl AsyncReadExt + Unpin), buffer: &mut BytesMut) -> anyhow::Result<Bytes> {
    loop {
        if let Some(length) = buffer.first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
            if buffer.len() >= 4 + length {
                buffer.advance(4);
                return Ok(buffer.split_to(length).freeze());
            }
        }
        if buffer.capacity() - buffer.len() < READ_BYTES_MIN {
            buffer.reserve(READ_BYTES);
        }
        let read = input.read_buf(buffer).await.context("read")?;
        ensure!(read > 0, "the node closed the connection");
    }
}

/// A broker that does not know the version answers in version 0 which ones it knows, of all APIs.
fn api_versions(mut frame: Bytes) -> anyhow::Result<ApiVersionsResponse> {
    let header = ResponseHeader::decode(&mut frame, ApiVersionsResponse::header_version(API_VERSIONS))?;
    ensure!(header.correlation_id == 0, "an answer to another request");
    let code = frame.first_chunk::<2>().map(|code| i16::from_be_bytes(*code));
    let version = if code == Some(ErrorCode::UnsupportedVersion.wire()) { 0 } else { API_VERSIONS };
    let answer = ApiVersionsResponse::decode(&mut frame, version)?;
    let code = answer.error_code;
    ensure!(code == 0 || version == 0, "ApiVersions is answered with error {code}");
    Ok(answer)
}
