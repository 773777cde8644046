//! One record through the native producer's machine: taken, copied into the batch of its partition, and its share of
//! what a batch costs: decided, finished with its checksum, answered, told.

use oncilla_shards::client::{
    Answer, CallId, Identity, Machine, MetadataAnswer, NewRecord, Output, PartitionMetadata, ProduceAnswer, Request,
    Settings, TopicMetadata,
};
use oncilla_shards::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};
use oncilla_shards::wire::Body;

use crate::{NOW, Path, TOPIC_NAME};

/// The partition that is written.
const INDEX: i32 = 0;

/// A producer with the default settings, whose records come too fast for its linger.
#[derive(Debug)]
pub struct NativeSend {
    machine: Machine,
    value: Vec<u8>,
    sent: i64,
    delivered: usize,
}

impl Default for NativeSend {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl NativeSend {
    /// A producer of records with values of so many bytes.
    #[must_use]
    pub fn new(value_bytes: usize) -> Self {
        let machine = Machine::new(Settings::default(), &["seed:1".to_owned()]);
        Self { machine, value: vec![7; value_bytes], sent: 0, delivered: 0 }
    }

    /// Does what the machine wants done, as its edge would, with a cluster that answers at once.
    fn pump(&mut self) {
        while self.machine.is_due() {
            self.machine.poll(0);
            for output in self.machine.take_outputs() {
                match output {
                    Output::Send { call, request, .. } => self.answer(call, request),
                    Output::Delivered { records, .. } => self.delivered += records.len(),
                    other => panic!("nothing fails here: {other:?}"),
                }
            }
        }
    }

    /// The request is gone when its answer comes, and with it what it held of the batch.
    fn answer(&mut self, call: CallId, request: Request) {
        let answer = match &request {
            Request::Metadata { .. } => {
                let partitions = vec![PartitionMetadata { index: INDEX, leader: 1, leader_epoch: 0 }];
                let topics = vec![TopicMetadata { name: TOPIC_NAME.to_owned(), code: 0, partitions }];
                Answer::Metadata(MetadataAnswer { nodes: vec![(1, "node:1".to_owned())], topics })
            }
            Request::InitProducerId { .. } => {
                let identity = Identity { id: ProducerId(9), epoch: ProducerEpoch(0) };
                Answer::Identity { code: 0, identity: Some(identity) }
            }
            Request::Produce { parts, .. } => {
                let [part] = &parts[..] else { panic!("one partition") };
                assert!(part.records.bytes().len() > self.value.len(), "the batch is finished to be sent");
                Answer::Produce(vec![ProduceAnswer {
                    topic: part.topic.to_string(),
                    partition: part.partition,
                    code: 0,
                    base_offset: Offset(self.sent),
                    timestamp: TimestampMs(-1),
                    leader: None,
                }])
            }
            other => panic!("not asked: {other:?}"),
        };
        drop(request);
        self.machine.answered(0, call, answer);
    }
}

impl Path for NativeSend {
    type Input = ();

    fn prepare(&mut self) {}

    fn serve(&mut self, (): &mut ()) -> Body {
        let value = Some(&self.value[..]);
        let record = NewRecord { topic: TOPIC_NAME, value, timestamp: NOW, ..NewRecord::default() };
        self.machine.send(0, &record).expect("there is room");
        self.sent += 1;
        self.pump();
        Body::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_leave_in_full_batches_and_are_told() {
        let mut path = NativeSend::default();
        for _ in 0..1000 {
            path.serve(&mut ());
        }
        // The last batch is open, and the one before it may have become full with the last record.
        assert!((1000 - 2 * 16..1000).contains(&path.delivered), "{}", path.delivered);
    }
}
