//! Fetch (key 1), versions 4 to 18: contract C1, with sessions (KIP-227) and long polls.
//!
//! A request is answered at once when it has enough bytes, nothing to wait for, or an error that ends the wait; else it
//! is parked: it watches its partitions, and looks again when one of them moves, until its time is over, its client
//! goes away or the broker stops. Limits: bytes by `fetch.max.bytes`, parked requests by the connections.

mod read;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future;
use oncilla_shards::batch::headers;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::{PartitionKey, ShardId};
use oncilla_shards::image::Image;
use oncilla_shards::session::{Begun, FetchPartition, Outcome, SessionId, SessionRequest, TopicKey};
use oncilla_shards::wire::fetch::{self, FetchAnswer, FetchPartitionAnswer, FetchRequest, encode};
use oncilla_shards::wire::{CurrentLeader, NodeEndpoint};

use super::topic_ref::{resolve, topic_key, topic_ref};
use super::{Answer, Request, nodes};
use crate::ctx::Ctx;
use crate::partitions::{unwatch, watch};
use crate::rt::{Notify, now, now_ms, sleep};
use read::{Budget, Item, read_group};

/// First version that names topics by id.
const BY_ID_FROM: i16 = 13;

/// First version whose answer names the leader beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.
const LEADER_FROM: i16 = 16;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    let decoded = match fetch::decode(request.version, &request.body) {
        Ok(decoded) => decoded,
        Err(error) => return Answer::Close(format!("a Fetch request does not parse: {error}")),
    };
    let by_id = request.version >= BY_ID_FROM;
    let session = SessionRequest { id: SessionId(decoded.session_id), epoch: decoded.session_epoch, by_id };
    let asked = decoded.partitions.iter().map(asked_partition).collect();
    let forgotten: Vec<(TopicKey, i32)> =
        decoded.forgotten.iter().map(|forgotten| (topic_key(&forgotten.topic), forgotten.index)).collect();
    let begun = ctx.shard.borrow_mut().sessions.begin(session, asked, &forgotten, now_ms());
    ctx.metrics.fetch_sessions.set(ctx.shard.borrow().sessions.len() as u64);
    let (partitions, id, incremental) = match begun {
        Begun::Full { partitions, id } => (partitions, id, false),
        Begun::Incremental { partitions, id } => (partitions, id, true),
        Begun::Refused(code) => {
            let answer = FetchAnswer { throttle_time_ms: 0, code, session_id: 0, partitions: &[], node_endpoints: &[] };
            return Answer::Body(encode(request.version, &answer));
        }
    };
    let mut poll = Poll { ctx, request, decoded: &decoded, partitions: &partitions };
    let mut answers = poll.wait().await;
    let mut bytes = 0;
    for (partition, answer) in partitions.iter().zip(&mut answers) {
        let outcome = outcome_of(answer);
        bytes += outcome.bytes;
        let tell = ctx.shard.borrow_mut().sessions.note(id, partition, outcome);
        answer.tell = tell || !incremental;
    }
    ctx.metrics.fetched_bytes.add(bytes as u64);
    let chunks = answers.iter().flat_map(|part| &part.answer.records);
    let counts = chunks.flat_map(|chunk| headers(chunk)).map(|header| u64::from(header.record_count.unsigned_abs()));
    ctx.metrics.records_fetched.add(counts.sum());
    let told: Vec<FetchPartitionAnswer> =
        answers.into_iter().filter(|part| part.tell).map(|part| part.answer).collect();
    let node_endpoints = endpoints(ctx, request, &told);
    let answer = FetchAnswer {
        throttle_time_ms: 0,
        code: ErrorCode::None,
        session_id: id.0,
        partitions: &told,
        node_endpoints: &node_endpoints,
    };
    Answer::Body(encode(request.version, &answer))
}

fn asked_partition(partition: &fetch::FetchPartition) -> FetchPartition {
    FetchPartition {
        topic: topic_key(&partition.topic),
        index: partition.index,
        offset: partition.fetch_offset,
        current_epoch: partition.current_leader_epoch.0,
        last_fetched_epoch: partition.last_fetched_epoch.0,
        bytes_max: partition.max_bytes,
    }
}

fn outcome_of(part: &Part) -> Outcome {
    let answer = &part.answer;
    Outcome {
        notable: answer.code != ErrorCode::None || answer.diverging.is_some(),
        bytes: part.bytes(),
        high_watermark: answer.high_watermark,
        log_start: answer.log_start_offset,
    }
}

fn endpoints(ctx: &Ctx, request: &Request, answers: &[FetchPartitionAnswer]) -> Vec<NodeEndpoint> {
    let mut list: Vec<NodeEndpoint> = Vec::new();
    for leader in answers.iter().filter_map(|answer| answer.current_leader) {
        if let Some(node) = nodes::all(ctx, request).iter().find(|node| node.id == leader.leader)
            && !list.iter().any(|endpoint| endpoint.id == node.id)
        {
            list.push(nodes::endpoint(node));
        }
    }
    list
}

/// One partition's answer with what decides about waiting.
#[derive(Debug)]
struct Part {
    answer: FetchPartitionAnswer,
    tell: bool,
}

impl Part {
    fn bytes(&self) -> usize {
        self.answer.records.iter().map(bytes::Bytes::len).sum()
    }

    /// Whether it ends the wait of the whole request (contract C1, waits).
    fn ends_wait(&self) -> bool {
        let code = self.answer.code;
        let waits_on = matches!(
            code,
            ErrorCode::None
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::TopicAuthorizationFailed
                | ErrorCode::UnknownTopicId
                | ErrorCode::InconsistentTopicId
        );
        !waits_on || self.answer.diverging.is_some()
    }
}

/// C1: an isolation level or a byte limit that does not exist is -1 for every partition. Kafka refuses such a level
/// before it looks at any partition, and its answer then has an empty list where others have none.
fn refused_by_kafka_too(asked: &FetchPartition, level_exists: bool) -> Part {
    let mut answer = FetchPartitionAnswer::refused(topic_ref(&asked.topic), asked.index, ErrorCode::UnknownServerError);
    answer.aborted = (!level_exists).then(Vec::new);
    Part { answer, tell: true }
}

/// A request while it is read and waited for.
struct Poll<'a> {
    ctx: &'a Rc<Ctx>,
    request: &'a Request,
    decoded: &'a FetchRequest,
    partitions: &'a [FetchPartition],
}

impl Poll<'_> {
    /// Reads until there is enough or the time is over.
    async fn wait(&mut self) -> Vec<Part> {
        let level_exists = (0..=1).contains(&self.decoded.isolation_level);
        if !level_exists || self.decoded.max_bytes < 0 {
            return self.partitions.iter().map(|asked| refused_by_kafka_too(asked, level_exists)).collect();
        }
        let parts = self.read_all().await;
        let deadline = match u64::try_from(self.decoded.max_wait_ms) {
            Ok(wait_ms) if wait_ms > 0 => now() + Duration::from_millis(wait_ms),
            _ => return parts,
        };
        if self.is_enough(&parts) {
            return parts;
        }
        self.ctx.metrics.parked_fetches.add(1);
        let parts = self.park(deadline).await;
        self.ctx.metrics.parked_fetches.sub(1);
        parts
    }

    async fn park(&mut self, deadline: Instant) -> Vec<Part> {
        let notify = Rc::new(Notify::new());
        let id = self.ctx.watches.open(notify.clone());
        let mut watched: BTreeMap<ShardId, Vec<PartitionKey>> = BTreeMap::new();
        for (owner, item) in self.readable(&self.ctx.image()) {
            watched.entry(owner).or_default().push(item.key);
        }
        let parts = loop {
            for (owner, keys) in &watched {
                watch(self.ctx, *owner, keys.clone(), id);
            }
            let woken = notify.notified();
            // Between the look before and the watch something may have come: look again before waiting.
            let parts = self.read_all().await;
            let over = now() >= deadline || self.ctx.stopping.get() || self.request.peer_is_done();
            if over || self.is_enough(&parts) {
                break parts;
            }
            drop(parts);
            let left = deadline.saturating_duration_since(now());
            future::or(woken, future::or(sleep(left), self.request.peer_ended())).await;
        };
        for (owner, keys) in watched {
            unwatch(self.ctx, owner, keys, id);
        }
        self.ctx.watches.close(id);
        parts
    }

    fn is_enough(&self, parts: &[Part]) -> bool {
        if self.decoded.min_bytes <= 0 || parts.iter().any(Part::ends_wait) {
            return true;
        }
        // Nothing that exists is asked: there is nothing to wait for.
        if !parts.iter().any(|part| part.answer.code == ErrorCode::None) {
            return true;
        }
        let wanted = self.decoded.min_bytes.min(self.decoded.max_bytes.max(1));
        let bytes: usize = parts.iter().map(Part::bytes).sum();
        bytes >= usize::try_from(wanted).unwrap_or(0)
    }

    /// The partitions that some shard can read, with their owners.
    fn readable(&self, image: &Image) -> Vec<(ShardId, Item)> {
        let mut items = Vec::with_capacity(self.partitions.len());
        for (at, asked) in self.partitions.iter().enumerate() {
            let Ok(topic) = resolve(image, &topic_ref(&asked.topic)) else { continue };
            if !topic.has(asked.index) {
                continue;
            }
            let owner = image.owner(topic, asked.index);
            if owner == self.ctx.id || self.ctx.forwards() {
                let key = PartitionKey { topic: topic.id, index: asked.index };
                items.push((owner, Item { at, key, asked: asked.clone() }));
            }
        }
        items
    }

    /// Reads every partition once, in the order of the request, until the bytes are used up.
    async fn read_all(&self) -> Vec<Part> {
        let image = self.ctx.image();
        let mut parts: Vec<Part> = self.partitions.iter().map(|asked| self.unreadable(&image, asked)).collect();
        let mut groups: Vec<(ShardId, Vec<Item>)> = Vec::new();
        for (owner, item) in self.readable(&image) {
            match groups.iter_mut().find(|(shard, _)| *shard == owner) {
                Some((_, items)) => items.push(item),
                None => groups.push((owner, vec![item])),
            }
        }
        let mut budget = Budget {
            left: usize::try_from(self.decoded.max_bytes).unwrap_or(0).min(self.ctx.config.fetch_max_bytes),
            first_whole: true,
        };
        let committed = self.decoded.isolation_level == 1;
        for (owner, items) in groups {
            let given = budget;
            let (answers, rest) = if owner == self.ctx.id {
                read_group(self.ctx, items, given, committed).await
            } else {
                self.ctx.call(owner, move |ctx| async move { read_group(&ctx, items, given, committed).await }).await
            };
            budget = rest;
            for (at, answer) in answers {
                parts[at] = Part { answer, tell: true };
            }
        }
        for part in &mut parts {
            self.name_leader(&image, part);
        }
        parts
    }

    /// What a partition answers that no shard reads.
    fn unreadable(&self, image: &Image, asked: &FetchPartition) -> Part {
        let topic = topic_ref(&asked.topic);
        let code = match resolve(image, &topic) {
            Ok(found) if found.has(asked.index) => ErrorCode::NotLeaderOrFollower,
            Ok(_) => ErrorCode::UnknownTopicOrPartition,
            Err(code) => code,
        };
        let mut answer = FetchPartitionAnswer::refused(topic, asked.index, code);
        // C1: 3, 29 and 100 carry an empty list at both levels, the other errors none.
        if code != ErrorCode::NotLeaderOrFollower {
            answer.aborted = Some(Vec::new());
        }
        Part { answer, tell: true }
    }

    fn name_leader(&self, image: &Image, part: &mut Part) {
        let told = matches!(part.answer.code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        if !told || self.request.version < LEADER_FROM {
            return;
        }
        if let Ok(topic) = resolve(image, &part.answer.topic) {
            let leader = nodes::leader(self.ctx, self.request, image, topic, part.answer.index);
            part.answer.current_leader = Some(CurrentLeader { leader, epoch: self.ctx.boot_epoch });
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_request::{FetchPartition as AskedPartition, FetchTopic};
    use kafka_protocol::messages::{FetchRequest, FetchResponse};

    use crate::api::codec::text;
    use oncilla_shards::ids::TopicId;

    use crate::api::codec::uuid;
    use crate::api::testing::{ask, create_topic, ctx, ctx_of_shards};
    use crate::config::ListenerMode;

    /// Code of the partition, and whether there is a list of aborted transactions.
    fn fetched(level: i8, bytes_max: i32, partition_bytes_max: i32, epoch: i32) -> (i16, bool) {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 1);
        let partition =
            AskedPartition::default().with_current_leader_epoch(epoch).with_partition_max_bytes(partition_bytes_max);
        let asked = FetchRequest::default()
            .with_isolation_level(level)
            .with_max_bytes(bytes_max)
            .with_session_epoch(-1)
            .with_topics(vec![FetchTopic::default().with_topic(text("t").into()).with_partitions(vec![partition])]);
        let answer: FetchResponse = ask(&ctx, 1, 12, &asked);
        let told = &answer.responses[0].partitions[0];
        assert!(told.error_code == 0 || told.high_watermark == -1, "C1: an error tells no offsets");
        (told.error_code, told.aborted_transactions.is_some())
    }

    #[test]
    fn c1_negative_byte_limits_and_levels_that_do_not_exist_are_minus_one() {
        assert_eq!([0, 1].map(|level| fetched(level, 0, 0, -1)), [(0, false), (0, true)]);
        assert_eq!(fetched(0, -1, 0, -1), (-1, false));
        assert_eq!(fetched(0, 0, -1, -1), (-1, false));
        assert_eq!([-1, 2].map(|level| fetched(level, 0, 0, -1)), [(-1, true); 2]);
    }

    #[test]
    fn c1_another_cores_partition_is_6_and_names_its_node() {
        let ctx = ctx_of_shards(3, ListenerMode::PerCore);
        let asked = |version: i16| {
            let topic = FetchTopic::default().with_topic_id(uuid(TopicId(1)));
            let topic = topic.with_partitions(vec![AskedPartition::default().with_partition(1)]);
            let asked = FetchRequest::default().with_session_epoch(-1).with_topics(vec![topic]);
            let answer: FetchResponse = ask(&ctx, 1, version, &asked);
            let told = &answer.responses[0].partitions[0];
            let nodes: Vec<i32> = answer.node_endpoints.iter().map(|node| node.node_id.0).collect();
            (told.error_code, told.current_leader.leader_id.0, nodes)
        };
        assert_eq!(asked(13), (6, -1, vec![]), "before v16 there is no room for it");
        assert_eq!(asked(16), (6, 2, vec![2]));
    }

    #[test]
    fn c1_a_negative_leader_epoch_is_none() {
        assert_eq!([-1, -5, 7, 6, 8].map(|epoch| fetched(0, 0, 0, epoch).0), [0, 0, 0, 74, 75]);
    }
}
