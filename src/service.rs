//! Between connections and APIs: reads headers, hands requests over, counts them.

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::wire::{ParsedHeader, apis, parse_header};

use crate::api;
use crate::ctx::Ctx;
use crate::net::{Answer, AnswerSlot, Peer, Request, Service};
use crate::rt::now;

/// Produce: the only API whose requests are in work together on one connection.
const PRODUCE: i16 = 0;

/// APIs whose requests wait for the other members of a group.
const JOIN_GROUP: i16 = 11;
const SYNC_GROUP: i16 = 14;

/// Serves the requests of one shard's connections.
pub struct Requests(pub Rc<Ctx>);

impl Requests {
    fn to_api(request: &Request) -> api::Request {
        api::Request {
            key: request.api_key,
            version: request.api_version,
            client_id: request.client_id.clone(),
            body: request.body.clone(),
            listener: request.peer.listener,
            peer: Some(request.peer.clone()),
        }
    }
}

impl Service for Requests {
    fn parse(&self, frame: Bytes, peer: &Rc<Peer>) -> Result<Request, String> {
        let mut body = frame;
        let header = match parse_header(&mut body).map_err(|error| error.to_string())? {
            ParsedHeader::Served(header) | ParsedHeader::UnservedApiVersions(header) => header,
        };
        Ok(Request {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            tagged_answer: apis::has_flexible_answer_header(header.api_key, header.api_version),
            body,
            peer: peer.clone(),
        })
    }

    fn overlaps(&self, api_key: i16) -> bool {
        api_key == PRODUCE
    }

    fn parks(&self, api_key: i16) -> bool {
        [JOIN_GROUP, SYNC_GROUP].contains(&api_key)
    }

    fn begin(self: &Rc<Self>, request: Request, slot: AnswerSlot) {
        api::begin_produce(&self.0, &Self::to_api(&request), slot);
    }

    async fn serve(self: &Rc<Self>, request: Request) -> Answer {
        let started = now();
        let answer = api::dispatch(&self.0, &Self::to_api(&request)).await;
        let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.metrics.request(request.api_key, elapsed_us);
        answer.into()
    }
}
