//! The machine against a cluster without reason: any code at any step, answers that contradict each other, connections
//! lost at will, calls in any order. Nothing panics, every record and every call has one outcome in its time, and all
//! memory comes back.

use std::collections::HashSet;

use super::message::{GroupMember, OffsetToCommit, PartitionAnswer};
use super::testing::{Script, metadata, op, settings};
use super::{Answer, Identity, NewRecord, PartitionMetadata, ProduceAnswer, Request, Settings};
use crate::code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

const SEEDS: u64 = 3000;
const STEPS: usize = 400;

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn code(&mut self) -> i16 {
        match self.below(30) {
            0..27 => 0,
            // DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, and what nobody knows.
            27 => [46, 59, 20, 13, 89, 999, -7][self.below(7)],
            _ => ErrorCode::ALL[self.below(ErrorCode::ALL.len())].wire(),
        }
    }

    fn identity(&mut self) -> Option<Identity> {
        let epochs = [0, 1, 5, i16::MAX - 1, i16::MAX];
        let epoch = ProducerEpoch(epochs[self.below(epochs.len())]);
        (self.below(5) > 0).then_some(Identity { id: ProducerId(7 + self.below(2) as i64), epoch })
    }
}

fn answer(rng: &mut Rng, request: &Request) -> Answer {
    let code = rng.code();
    match request {
        Request::Metadata { .. } => {
            let leaders: Vec<i32> = (0..1 + rng.below(3)).map(|_| rng.below(5) as i32 - 1).collect();
            let mut answer = metadata(&leaders);
            answer.topics[0].code = if rng.below(4) == 0 { code } else { 0 };
            if rng.below(10) == 0 {
                answer.topics[0].partitions.push(PartitionMetadata {
                    index: [-1, i32::MAX, 1][rng.below(3)],
                    leader: 1,
                    leader_epoch: rng.below(9) as i32,
                });
            }
            if rng.below(10) == 0 {
                answer.nodes.push((1 + rng.below(3) as i32, "elsewhere:9".into()));
            }
            Answer::Metadata(answer)
        }
        Request::InitProducerId { .. } | Request::EndTxn { .. } => Answer::Identity { code, identity: rng.identity() },
        Request::Produce { parts, .. } => {
            let keep = rng.below(8) > 0;
            let parts = parts.iter().filter(|_| keep).map(|part| ProduceAnswer {
                topic: part.topic.to_string(),
                partition: part.partition,
                code: rng.code(),
                base_offset: Offset([0, 100, -1, i64::MAX, i64::MIN][rng.below(5)]),
                timestamp: TimestampMs([0, -1, i64::MIN][rng.below(3)]),
                leader: (rng.below(4) == 0).then(|| (rng.below(4) as i32, rng.below(9) as i32)),
            });
            Answer::Produce(parts.collect())
        }
        Request::FindTransactionCoordinator { .. } | Request::FindGroupCoordinator { .. } => {
            Answer::Coordinator { code, node: rng.below(4) as i32 - 1, address: "node:1".into() }
        }
        Request::AddPartitions { .. } | Request::CommitOffsets { .. } => {
            let one = |code| PartitionAnswer { topic: "t".into(), partition: 0, code };
            Answer::Partitions((0..rng.below(3)).map(|_| one(rng.code())).collect())
        }
        Request::AddOffsets { .. } => Answer::Code(code),
    }
}

fn call(rng: &mut Rng, script: &mut Script, next_op: &mut u64, commits: &mut Vec<u64>) {
    *next_op += 1;
    let (now_ms, id) = (script.now_ms, op(*next_op));
    let machine = &mut script.machine;
    match rng.below(10) {
        0 => machine.init_transactions(now_ms, id),
        1 => {
            commits.push(id.0);
            machine.commit_transaction(now_ms, id);
        }
        2 => machine.abort_transaction(now_ms, id),
        3 => machine.flush(id),
        4 => {
            let offset = Offset(rng.below(3) as i64);
            let offsets = vec![OffsetToCommit { topic: "in".into(), partition: 0, offset }];
            machine.send_offsets(now_ms, id, GroupMember::simple("g"), offsets);
        }
        5 if rng.below(40) == 0 => machine.close(id),
        _ => {
            *next_op -= 1;
            let _ = machine.begin_transaction();
        }
    }
}

fn step(rng: &mut Rng, script: &mut Script, taken: &mut usize, next_op: &mut u64, commits: &mut Vec<u64>) {
    match rng.below(20) {
        0..6 => {
            let partition = (rng.below(3) > 0).then(|| rng.below(4) as i32);
            let record = NewRecord { topic: "t", partition, value: Some(b"value"), ..NewRecord::default() };
            *taken += usize::from(script.machine.send(script.now_ms, &record).is_ok());
        }
        6..14 if !script.asked.is_empty() => {
            let at = rng.below(script.asked.len());
            let asked = script.asked.remove(at).expect("in bounds");
            let answer = answer(rng, &asked.request);
            script.answer(&asked, answer);
        }
        14 if !script.asked.is_empty() => {
            let connection = script.asked[rng.below(script.asked.len())].connection;
            script.machine.lost(script.now_ms, connection, rng.below(2) == 0);
        }
        15 | 16 => call(rng, script, next_op, commits),
        17 => script.machine.learn_feature(rng.below(50) as i64, rng.below(3) as i16),
        18 => script.wait([1, 20, 300, 1500][rng.below(4)]),
        _ => script.wait(5),
    }
    script.wait(0);
}

#[test]
fn a_cluster_without_reason_costs_no_outcome() {
    let (mut delivered, mut failed, mut committed) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let transactional_id = (rng.below(3) > 0).then(|| "tx".to_owned());
        let block_ms_max = 2000;
        let settings =
            Settings { transactional_id, block_ms_max, delivery_timeout_ms: 3000, memory_bytes: 4000, ..settings() };
        let mut script = Script::new(settings);
        let (mut taken, mut next_op, mut commits) = (0, 0, Vec::new());
        for _ in 0..STEPS {
            step(&mut rng, &mut script, &mut taken, &mut next_op, &mut commits);
        }
        // Nobody answers any more.
        for _ in 0..80 {
            script.wait(100);
        }
        let both: HashSet<u64> = script.delivered.keys().chain(script.failed.keys()).copied().collect();
        assert_eq!(both.len(), taken, "seed {seed}: every record has its outcome");
        assert_eq!(script.delivered.len() + script.failed.len(), taken, "seed {seed}: and no second one");
        assert_eq!(script.done.len() as u64, next_op, "seed {seed}: every call has its result");
        let machine = &script.machine;
        assert_eq!((machine.outstanding, machine.memory_used, machine.unplaced), (0, 0, 0), "seed {seed}");
        delivered += script.delivered.len();
        failed += script.failed.len();
        committed += commits.iter().filter(|id| script.done[id].is_ok()).count();
    }
    assert!(delivered > 1000 && failed > 1000 && committed > 100, "{delivered} {failed} {committed}");
}
