//! The world around one shard: clients, writers, readers, the clock and the power switch.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::scan::{Scan, scan};
use oncilla_shards::batch::{AppendRules, BatchHeader, ControlRecord};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{LeaderEpoch, Offset, PartitionKey, TimestampMs, TopicId};
use oncilla_shards::partition::{LogRules, Partition, Rebuild, WaiterId, WritePlan};
use oncilla_shards::producers::Producers;
use oncilla_shards::session::Sessions;
use oncilla_shards::shard::{Appended, Effect, Effects, Sent, Shard};

use crate::client::{Client, IN_FLIGHT_MAX};
use crate::disk::Disk;
use crate::rng::Rng;
use crate::totals::Totals;

const PARTITIONS: usize = 3;
const CLIENTS: usize = 4;
/// The partition whose topic does not make every write durable: it may lose records at a crash, never twist them.
const RELAXED: usize = 2;
/// The partition whose records are deleted; the log of the others is whole.
const SHORTENED: usize = 1;

/// Partitions that a start opens only when clients are served already.
const LATE_PERCENT: usize = 30;

#[derive(Clone, Debug, Default)]
struct Truth {
    /// Values that a client was told are written, by offset.
    acknowledged: BTreeMap<i64, u64>,
    /// Values that a reader saw, by offset.
    seen: BTreeMap<i64, u64>,
    high_watermark: i64,
}

/// One run.
pub struct World {
    rng: Rng,
    now: TimestampMs,
    disk: Disk,
    shard: Shard,
    boots: i32,
    clients: Vec<Client>,
    writing: BTreeMap<usize, (WritePlan, Vec<u8>)>,
    writers: BTreeSet<usize>,
    waiters: BTreeMap<u64, (usize, usize, i32)>,
    waiter_next: u64,
    value_next: u64,
    truth: Vec<Truth>,
    totals: Totals,
}

fn key(partition: usize) -> PartitionKey {
    PartitionKey { topic: TopicId(1), index: partition as i32 }
}

fn rules(partition: usize) -> LogRules {
    LogRules {
        append: AppendRules { segment_bytes: 4_000, after_max_ms: i64::MAX, ..AppendRules::default() },
        segment_ms: 60_000,
        retention_ms: -1,
        retention_bytes: -1,
        flush_messages: if partition == RELAXED { 20 } else { 1 },
        flush_ms: 1_000,
        deletes: true,
        compaction: None,
        producer_ids_max: 1_000,
    }
}

impl World {
    /// A world with an empty disk.
    pub fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            now: TimestampMs(1_700_000_000_000),
            disk: Disk::default(),
            shard: Shard::new(0, Sessions::new(1, 1)),
            boots: 0,
            clients: (0..CLIENTS).map(|i| Client::new(1_000 + i as i64, PARTITIONS)).collect(),
            writing: BTreeMap::new(),
            writers: BTreeSet::new(),
            waiters: BTreeMap::new(),
            waiter_next: 0,
            value_next: 1,
            truth: vec![Truth::default(); PARTITIONS],
            totals: Totals::default(),
        };
        world.boot();
        world
    }

    /// One event.
    pub fn step(&mut self) {
        self.now.0 += self.rng.below(5) as i64;
        match self.rng.below(1000) {
            0..250 => self.produce_new(),
            250..450 => self.send_unsent(),
            450..490 => self.send_again(),
            490..495 => self.renew(),
            495..500 => {
                self.open_next();
            }
            500..520 => self.bump(),
            520..540 => self.zombie(),
            540..700 => self.begin_write(),
            700..900 => self.complete_write(),
            900..940 => self.read(),
            940..960 => self.hear(),
            960..975 => self.delete_records(),
            975..985 => self.now.0 += self.rng.below(100_000) as i64,
            985..990 => self.fill_disk(),
            _ => {
                if self.rng.percent(60) {
                    self.crash();
                }
            }
        }
    }

    /// Lets everything in flight end, then checks the whole log.
    pub fn finish(mut self) -> Totals {
        self.crash();
        while self.open_next() {}
        for _ in 0..200 {
            self.send_unsent_of_all();
            for partition in 0..PARTITIONS {
                self.begin_write_of(partition);
                self.complete_write_of(partition);
            }
        }
        for client in &self.clients {
            assert!(client.lanes.iter().all(|lane| lane.in_flight.is_empty()), "everything is acknowledged in the end");
        }
        for partition in 0..PARTITIONS {
            self.check_log(partition);
        }
        self.totals
    }

    fn values(&mut self) -> Vec<u64> {
        let count = 1 + self.rng.below(6) as u64;
        let first = self.value_next;
        self.value_next += count;
        (first..first + count).collect()
    }

    fn produce_new(&mut self) {
        let (client, lane) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        if self.clients[client].lanes[lane].in_flight.len() < IN_FLIGHT_MAX {
            let values = self.values();
            let now = self.now;
            self.clients[client].make(lane, values, now);
        }
        if self.rng.percent(70) {
            self.send_next(client, lane);
        }
    }

    fn send_unsent(&mut self) {
        let (client, lane) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        self.send_next(client, lane);
    }

    fn send_unsent_of_all(&mut self) {
        for client in 0..CLIENTS {
            for lane in 0..PARTITIONS {
                while self.send_next(client, lane) {}
            }
        }
    }

    /// Sends the first batch of a lane that was not sent; later ones wait for it.
    fn send_next(&mut self, client: usize, lane: usize) -> bool {
        let unsent = self.clients[client].lanes[lane].in_flight.iter().position(|batch| !batch.sent);
        unsent.is_some_and(|at| self.send(client, lane, at))
    }

    fn send_again(&mut self) {
        let (client, lane) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        let in_flight = &self.clients[client].lanes[lane].in_flight;
        if let Some(at) = in_flight.iter().position(|batch| batch.sent) {
            self.send(client, lane, at);
        }
    }

    fn send(&mut self, client: usize, lane: usize, at: usize) -> bool {
        let batch = self.clients[client].lanes[lane].in_flight[at].clone();
        let waiter = WaiterId(self.waiter_next);
        self.waiter_next += 1;
        let mut effects = Effects::new();
        let sent = Sent::unchecked(&batch.bytes, 13);
        let answer = self.shard.append(&key(lane), sent, self.now, Some(waiter), &mut effects);
        let (placed, durable) = match answer {
            Appended::Refused(refusal) => {
                self.refused(client, lane, at, refusal.code);
                return false;
            }
            Appended::Durable(placed) => (placed, true),
            Appended::Waiting(placed) => (placed, false),
        };
        assert_eq!(placed.end.0 - placed.base.0, batch.values.len() as i64);
        let known = &mut self.clients[client].lanes[lane].in_flight[at];
        if let Some(base) = known.base {
            assert_eq!(base, placed.base, "a duplicate gets the offset of its original");
            assert!(placed.duplicate);
        }
        known.base = Some(placed.base);
        known.sent = true;
        known.refused = false;
        self.totals.duplicates += usize::from(placed.duplicate);
        if durable {
            self.acknowledge(client, lane, batch.sequence);
        } else {
            self.waiters.insert(waiter.0, (client, lane, batch.sequence));
        }
        self.carry_out(effects);
        true
    }

    /// A partition whose disk failed refuses an honest client, which comes back with the next start. So does one that
    /// is not open, and later what was sent behind a batch whose refusal the client has not heard of.
    fn refused(&mut self, client: usize, lane: usize, at: usize, code: ErrorCode) {
        if code == ErrorCode::KafkaStorageError {
            return;
        }
        let in_flight = &mut self.clients[client].lanes[lane].in_flight;
        let is_behind = in_flight.iter().take(at).any(|batch| batch.refused);
        let is_early = code == ErrorCode::NotLeaderOrFollower;
        let is_expected = is_early || (is_behind && code == ErrorCode::OutOfOrderSequenceNumber);
        assert!(is_expected, "{code:?} at {at} of {in_flight:?}");
        self.totals.came_early += 1;
        in_flight[at].sent = true;
        in_flight[at].refused = true;
    }

    fn hear(&mut self) {
        let (client, lane) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        self.clients[client].hear(lane);
    }

    fn renew(&mut self) {
        let client = self.rng.below(CLIENTS);
        let producer_id = 10_000 + self.value_next as i64;
        self.value_next += 1;
        self.clients[client].renew(producer_id);
    }

    fn acknowledge(&mut self, client: usize, lane: usize, sequence: i32) {
        // Answers come in the order of their requests.
        self.clients[client].hear(lane);
        let in_flight = &mut self.clients[client].lanes[lane].in_flight;
        let Some(at) = in_flight.iter().position(|batch| batch.sequence == sequence && batch.sent) else { return };
        let batch = in_flight.remove(at).expect("found above");
        let base = batch.base.expect("it was sent").0;
        for (offset, value) in (base..).zip(&batch.values) {
            let before = self.truth[lane].acknowledged.insert(offset, *value);
            assert!(before.is_none(), "two records were acknowledged at offset {offset}");
            self.totals.acknowledged += 1;
        }
    }

    fn bump(&mut self) {
        let (client, lane) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        // A lane that never wrote has nothing to fence.
        if self.clients[client].lanes[lane].in_flight.is_empty() && self.clients[client].lanes[lane].next_sequence > 0 {
            self.clients[client].bump(lane, self.now);
        }
    }

    fn zombie(&mut self) {
        let (client, at) = (self.rng.below(CLIENTS), self.rng.below(PARTITIONS));
        let lane = &self.clients[client].lanes[at];
        // The broker knows of the new epoch once a batch of it is durable; before that the old one is legal.
        let told = lane.next_sequence > 0 && lane.in_flight.is_empty() && at != RELAXED;
        let Some(bytes) = lane.stale.clone().filter(|_| told) else { return };
        let mut effects = Effects::new();
        match self.shard.append(&key(at), Sent::unchecked(&bytes, 13), self.now, None, &mut effects) {
            Appended::Refused(refusal)
                if [ErrorCode::KafkaStorageError, ErrorCode::NotLeaderOrFollower].contains(&refusal.code) => {}
            Appended::Refused(refusal) => {
                assert_eq!(refusal.code, ErrorCode::InvalidProducerEpoch);
                self.totals.fenced += 1;
            }
            other => panic!("a batch of an old epoch was taken: {other:?}"),
        }
        assert!(effects.is_empty());
    }

    fn carry_out(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::StartWriter(at) => {
                    assert!(self.writers.insert(at.index as usize), "one writer a partition");
                }
                Effect::Settled(waiter, result) => {
                    let (client, lane, sequence) = self.waiters.remove(&waiter.0).expect("who waits is known");
                    match result {
                        Ok(()) => self.acknowledge(client, lane, sequence),
                        Err(code) => assert_eq!(code, ErrorCode::KafkaStorageError),
                    }
                }
                Effect::Wake(_) => {}
                Effect::Snapshot(at, offset, bytes) => {
                    if self.rng.percent(80) {
                        self.disk.put_snapshot(at, offset, bytes);
                    }
                }
            }
        }
    }

    fn begin_write(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        self.begin_write_of(partition);
    }

    fn begin_write_of(&mut self, partition: usize) {
        if !self.writers.contains(&partition) || self.writing.contains_key(&partition) {
            return;
        }
        let Some(plan) = self.shard.take_write(&key(partition), self.now) else {
            self.writers.remove(&partition);
            return;
        };
        if let Some(sealed) = plan.seal {
            let segments = self.shard.partition(&key(partition)).expect("it is there").segments().all();
            let bytes = segments.iter().find(|segment| segment.id == sealed).expect("it was active").bytes();
            self.disk.seal(key(partition), sealed, bytes);
        }
        self.totals.rolls += usize::from(plan.create);
        let bytes = self.disk.begin(key(partition), &plan);
        self.writing.insert(partition, (plan, bytes));
    }

    fn complete_write(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        self.complete_write_of(partition);
    }

    fn complete_write_of(&mut self, partition: usize) {
        let Some((plan, bytes)) = self.writing.remove(&partition) else { return };
        self.disk.complete(key(partition), plan.segment, plan.durable);
        let mut effects = Effects::new();
        let charge = bytes.len();
        self.shard.wrote(&key(partition), Bytes::from(bytes), charge, &mut effects);
        self.carry_out(effects);
        let now = self.shard.partition(&key(partition)).expect("it is there").high_watermark().0;
        let truth = &mut self.truth[partition];
        assert!(now >= truth.high_watermark, "the high watermark never falls");
        truth.high_watermark = now;
    }

    /// The disk takes no more for one write: the partition goes offline until the next start.
    fn fill_disk(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        if self.writing.remove(&partition).is_none() {
            return;
        }
        self.totals.disk_full += 1;
        self.writers.remove(&partition);
        let mut effects = Effects::new();
        self.shard.write_failed(&key(partition), &mut effects);
        self.carry_out(effects);
        for client in 0..CLIENTS {
            for batch in &mut self.clients[client].lanes[partition].in_flight {
                batch.sent = false;
                batch.base = None;
            }
        }
    }

    fn delete_records(&mut self) {
        let partition = SHORTENED;
        let Some(log) = self.shard.partition(&key(partition)) else { return };
        let span = (log.high_watermark().0 - log.log_start().0) as usize;
        if span < 100 {
            return;
        }
        let asked = Offset(log.log_start().0 + self.rng.below(span / 2) as i64);
        let target = log.delete_target(asked).expect("it is in range");
        // No segment is deleted that no snapshot covers, and none is taken of what a crash may take back.
        let gone_end = log.segments().all().iter().map(|s| s.next_offset()).filter(|end| *end <= target).max();
        let newest = self.disk.snapshots(key(partition)).first().map(|(offset, _)| *offset);
        if gone_end > newest {
            if log.next_offset() > log.high_watermark() {
                return;
            }
            self.disk.put_snapshot(key(partition), log.next_offset(), log.producers().snapshot());
        }
        self.disk.put_log_start(key(partition), target);
        let mut effects = Effects::new();
        let gone = self.shard.set_log_start(&key(partition), target, &mut effects);
        self.disk.delete(key(partition), &gone);
        self.carry_out(effects);
        self.totals.deletes += 1;
    }

    fn read(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        let Some(log) = self.shard.partition(&key(partition)) else { return };
        let span = (log.high_watermark().0 - log.log_start().0) as usize;
        if span == 0 {
            return;
        }
        let from = Offset(log.log_start().0 + self.rng.below(span) as i64);
        let bytes_max = [0, 100, 1_000, 100_000][self.rng.below(4)];
        let records = self.fetch(partition, from, bytes_max);
        assert!(!records.is_empty(), "a reader below the high watermark makes progress");
        self.check_seen(partition, &records);
    }

    fn check_seen(&mut self, partition: usize, records: &[(i64, u64)]) {
        let truth = &mut self.truth[partition];
        for (offset, value) in records {
            let before = truth.seen.insert(*offset, *value);
            assert!(before.is_none_or(|before| before == *value), "offset {offset} changed under a reader");
            let told = truth.acknowledged.get(offset);
            assert!(told.is_none_or(|told| told == value), "offset {offset} holds what was not acknowledged there");
        }
    }

    /// Reads whole batches from an offset on as a consumer would.
    fn fetch(&self, partition: usize, from: Offset, bytes_max: usize) -> Vec<(i64, u64)> {
        let log = self.shard.partition(&key(partition)).expect("it is there");
        let limit = log.high_watermark();
        let chunks = self.disk.fetch(key(partition), log, from, limit, bytes_max);
        chunks.iter().flat_map(records_of).filter(|(offset, _)| *offset >= from.0).collect()
    }

    fn crash(&mut self) {
        self.totals.crashes += 1;
        let damage = self.disk.crash(&mut self.rng);
        self.totals.torn += damage.torn;
        self.totals.lost += damage.lost;
        self.writing.clear();
        self.writers.clear();
        self.waiters.clear();
        for client in &mut self.clients {
            client.disconnected();
        }
        self.boot();
    }

    fn boot(&mut self) {
        self.boots += 1;
        let cache_bytes = [0, 2_000, 1 << 20][self.rng.below(3)];
        self.shard = Shard::new(cache_bytes, Sessions::new(1, 1));
        for partition in 0..PARTITIONS {
            // What a relaxed one has lost its clients have to know before they go on.
            if partition != RELAXED && self.boots > 1 && self.rng.percent(LATE_PERCENT) {
                self.shard.opening.expect(key(partition));
            } else {
                self.open(partition);
            }
        }
    }

    /// Opens a partition that the start has left; false if there is none.
    fn open_next(&mut self) -> bool {
        let Some(next) = self.shard.opening.take() else { return false };
        assert!(self.shard.opening.opened(&next), "nobody has deleted it");
        self.totals.opened_late += 1;
        self.open(next.index as usize);
        true
    }

    fn open(&mut self, partition: usize) {
        let found = self.recover(partition);
        let log = Partition::recovered(rules(partition), LeaderEpoch(self.boots), found);
        let end = log.high_watermark().0;
        let truth = &mut self.truth[partition];
        if partition == RELAXED {
            truth.acknowledged.split_off(&end);
            truth.seen.split_off(&end);
            self.forget_lost_sequences(partition);
        } else {
            assert!(end >= truth.high_watermark, "what was durable is there after a crash");
        }
        self.truth[partition].high_watermark = end;
        self.shard.insert(key(partition), log);
    }

    /// A relaxed topic may have lost acknowledged batches; its clients start over with a new epoch, as real ones do.
    fn forget_lost_sequences(&mut self, partition: usize) {
        for client in &mut self.clients {
            let lane = &mut client.lanes[partition];
            lane.in_flight.clear();
            if lane.next_sequence > 0 {
                client.bump(partition, self.now);
                client.lanes[partition].stale = None;
            }
        }
    }

    fn recover(&mut self, partition: usize) -> oncilla_shards::partition::Recovered {
        let at = key(partition);
        let segments = self.disk.segments(at);
        let log_start = self.disk.log_start(at);
        let end = valid_end(&segments);
        self.disk.drop_snapshots_beyond(at, end);
        let restored =
            self.disk.snapshots(at).into_iter().filter_map(|(_, bytes)| Producers::restore(&bytes).ok()).next();
        self.totals.snapshots_used += usize::from(restored.is_some());
        let mut rebuild = Rebuild::new(restored.unwrap_or_default().limited_to(1_000));
        let mut replayed = Producers::new().limited_to(1_000);
        for (id, bytes) in &segments {
            if partition != SHORTENED {
                assert_eq!(rebuild.end(), id.base, "a segment begins where the one before ends");
            }
            rebuild.begin(*id, self.now);
            let mut batches = Scan::after(bytes, id.base);
            for (position, header) in batches.by_ref() {
                let batch = &bytes[position..position + header.total_bytes()];
                rebuild.batch(&header, ControlRecord::of_batch(batch));
                replayed.replay(&header, ControlRecord::of_batch(batch));
            }
            let valid = batches.end() as u64;
            self.disk.seal(at, *id, valid);
        }
        let found = rebuild.finish(log_start);
        if partition != SHORTENED {
            assert!(found.producers.snapshot() == replayed.snapshot(), "a snapshot tells what the log tells");
        }
        found
    }

    fn check_log(&mut self, partition: usize) {
        let log = self.shard.partition(&key(partition)).expect("it is there");
        let (start, end) = (log.log_start(), log.high_watermark());
        let mut from = start;
        let mut all = Vec::new();
        while from < end {
            let records = self.fetch(partition, from, 10_000);
            from = Offset(records.last().expect("progress").0 + 1);
            all.extend(records);
        }
        self.check_seen(partition, &all);
        let values: BTreeSet<u64> = all.iter().map(|(_, value)| *value).collect();
        assert_eq!(values.len(), all.len(), "no record is there twice");
        let log: BTreeMap<i64, u64> = all.into_iter().collect();
        for (offset, value) in self.truth[partition].acknowledged.range(start.0..) {
            assert_eq!(log.get(offset), Some(value), "partition {partition} lost offset {offset}");
        }
    }
}

fn valid_end(segments: &[(oncilla_shards::partition::SegmentId, Vec<u8>)]) -> Offset {
    let ends = segments.iter().map(|(id, bytes)| {
        let mut batches = Scan::after(bytes, id.base);
        while batches.next().is_some() {}
        batches.next_offset()
    });
    ends.max().unwrap_or(Offset(0))
}

fn records_of(chunk: &Bytes) -> Vec<(i64, u64)> {
    let mut records = Vec::new();
    for (position, header) in scan(chunk) {
        let header: BatchHeader = header;
        let batch = &chunk[position..position + header.total_bytes()];
        let opened = Records::open(batch).expect("what is stored can be read");
        for record in opened.iter() {
            let record = record.expect("what is stored can be read");
            let value = record.value.expect("every record has a value");
            let value = u64::from_be_bytes(value.try_into().expect("eight bytes"));
            records.push((header.base_offset.0 + i64::from(record.offset_delta), value));
        }
    }
    records
}
