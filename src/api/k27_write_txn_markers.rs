//! WriteTxnMarkers (key 27), versions 1 and 2: contract B7's receiving side, for an administrator who ends a hanging
//! transaction. The coordinator's own markers do not come this way.
//!
//! Without an authorizer everyone may. Failure: each partition has its own code.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kafka_protocol::messages::WriteTxnMarkersResponse;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ProducerId, ShardId};
use oncilla_shards::partition::EndMarker;
use oncilla_shards::wire::write_txn_markers::{self, TxnMarker};

use super::locate::locate;
use super::{Answer, Request, codec};
use crate::ctx::Ctx;
use crate::partitions::write_markers;

/// Whose marker for which partition: what has one answer, for the entries of one producer are merged.
type Place = (ProducerId, StrBytes, i32);

/// Markers of one shard, with what they answer.
type Part = Vec<(Place, PartitionKey, EndMarker)>;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    match write_txn_markers::decode(request.version, &request.body) {
        Ok(markers) => codec::encode(&respond(ctx, markers).await, request),
        Err(error) => Answer::Close(format!("WriteTxnMarkers {} does not parse: {error}", request.version)),
    }
}

async fn respond(ctx: &Rc<Ctx>, markers: Vec<TxnMarker>) -> WriteTxnMarkersResponse {
    let image = ctx.image();
    let mut codes: BTreeMap<Place, ErrorCode> = BTreeMap::new();
    let mut parts: BTreeMap<ShardId, Part> = BTreeMap::new();
    for marker in &markers {
        let end = end_marker(marker);
        let named = marker.topics.iter().flat_map(|(topic, indexes)| indexes.iter().map(move |index| (topic, *index)));
        // A partition that is named twice is marked and answered once.
        for (topic, index) in named.collect::<BTreeSet<_>>() {
            let place = (marker.producer_id, topic.clone(), index);
            match locate(ctx, &image, topic, index) {
                Ok((owner, key)) => parts.entry(owner).or_default().push((place, key, end)),
                Err(code) => drop(codes.insert(place, code)),
            }
        }
    }
    for (owner, part) in parts {
        let wanted: Vec<_> = part.iter().map(|(_, key, end)| (*key, *end)).collect();
        let answers = ctx.call(owner, move |ctx| async move { write_markers(&ctx, wanted).await }).await;
        codes.extend(part.into_iter().zip(answers).map(|((place, ..), answer)| (place, answer.code)));
    }
    WriteTxnMarkersResponse::default().with_markers(grouped(codes))
}

fn end_marker(marker: &TxnMarker) -> EndMarker {
    EndMarker {
        producer_id: marker.producer_id,
        epoch: marker.epoch,
        coordinator_epoch: marker.coordinator_epoch,
        transaction_version: i16::from(marker.transaction_version),
        kind: if marker.commits { ControlKind::Commit } else { ControlKind::Abort },
    }
}

/// Results by producer and topic.
fn grouped(codes: BTreeMap<Place, ErrorCode>) -> Vec<WritableTxnMarkerResult> {
    let mut results: Vec<WritableTxnMarkerResult> = Vec::new();
    for ((producer_id, topic, index), code) in codes {
        if results.last().is_none_or(|last| last.producer_id.0 != producer_id.0) {
            results.push(WritableTxnMarkerResult::default().with_producer_id(producer_id.0.into()));
        }
        let topics = &mut results.last_mut().expect("one was just made").topics;
        if topics.last().is_none_or(|last| *last.name != topic) {
            topics.push(WritableTxnMarkerTopicResult::default().with_name(topic.into()));
        }
        let result =
            WritableTxnMarkerPartitionResult::default().with_partition_index(index).with_error_code(code.wire());
        topics.last_mut().expect("one was just made").partitions.push(result);
    }
    results
}
