//! Markers on the partitions of this shard: for the coordinator and for an administrator.
//!
//! All markers of one call are enqueued before the first write, so each partition makes those that are due durable
//! together. Limits: what the caller holds. Failure: each marker has its own code; none is answered NONE before it is
//! durable.

use std::rc::Rc;

use oncilla_shards::batch::ControlKind;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::PartitionKey;
use oncilla_shards::partition::{EndMarker, MarkerRefusal};
use oncilla_shards::shard::Effects;
use oncilla_shards::txn::{Marker, MarkerAnswer, Outcome, TxnKey};

use crate::ctx::Ctx;
use crate::rt::{OneshotReceiver, now_ms, oneshot};

/// A marker on its way to the disk.
struct OnItsWay {
    partition: PartitionKey,
    durable: Result<OneshotReceiver<Result<(), ErrorCode>>, MarkerRefusal>,
}

impl OnItsWay {
    async fn answer(self) -> MarkerAnswer {
        let partition = self.partition;
        match self.durable {
            Ok(durable) => {
                let code = durable.await.expect("every append is settled").err().unwrap_or(ErrorCode::None);
                MarkerAnswer { partition, code, coordinator_epoch: -1 }
            }
            Err(MarkerRefusal { code, coordinator_epoch }) => MarkerAnswer { partition, code, coordinator_epoch },
        }
    }
}

fn begin(ctx: &Ctx, partition: PartitionKey, marker: &EndMarker, effects: &mut Effects) -> OnItsWay {
    let (sender, receiver) = oneshot();
    let waiter = ctx.produces.open(sender);
    let appended = ctx.shard.borrow_mut().append_marker(&partition, marker, now_ms(), waiter, effects);
    let durable = match appended {
        Ok(_) => Ok(receiver),
        Err(refusal) => {
            ctx.produces.close(waiter);
            Err(refusal)
        }
    };
    OnItsWay { partition, durable }
}

/// Writes markers to partitions of this shard; the answers come in their order, when all are durable or refused.
pub async fn write_markers(ctx: &Rc<Ctx>, markers: Vec<(PartitionKey, EndMarker)>) -> Vec<MarkerAnswer> {
    let mut effects = Effects::new();
    let begun: Vec<OnItsWay> =
        markers.iter().map(|(partition, marker)| begin(ctx, *partition, marker, &mut effects)).collect();
    ctx.carry_out(effects);
    let mut answers = Vec::with_capacity(begun.len());
    for marker in begun {
        answers.push(marker.answer().await);
    }
    answers
}

/// Writes a coordinator's markers, `MarkerBatch::markers`, and gives the answers to each for `Transactions::marked`.
pub async fn append_markers(ctx: &Rc<Ctx>, markers: Vec<Marker>) -> Vec<(TxnKey, Vec<MarkerAnswer>)> {
    let mut flat = Vec::new();
    for marker in &markers {
        let end = EndMarker {
            producer_id: marker.producer.producer_id,
            epoch: marker.producer.epoch,
            coordinator_epoch: marker.coordinator_epoch,
            transaction_version: i16::from(marker.version),
            kind: match marker.outcome {
                Outcome::Commit => ControlKind::Commit,
                Outcome::Abort => ControlKind::Abort,
            },
        };
        flat.extend(marker.partitions.iter().map(|partition| (*partition, end)));
    }
    let mut answers = write_markers(ctx, flat).await.into_iter();
    let mut of = |marker: Marker| (marker.txn, answers.by_ref().take(marker.partitions.len()).collect());
    markers.into_iter().map(&mut of).collect()
}
