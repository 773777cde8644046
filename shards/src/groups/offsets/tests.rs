use super::*;
use crate::groups::{Ask, Effect, Groups, Now, Reply};
use crate::ids::{BrokerId, ProducerEpoch, ProducerId};
use crate::image::{BrokerSettings, Change};
use crate::partition::WaiterId;
use crate::slot::slot_of;

const DAY_MS: i64 = 86_400_000;

pub(super) fn key(topic: u128, index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId(topic), index }
}

pub(super) fn partition(topic: u128, index: i32, offset: i64) -> CommitPartition {
    CommitPartition { key: key(topic, index), offset, leader_epoch: -1, metadata: None }
}

pub(super) fn commit(partitions: Vec<CommitPartition>) -> Commit {
    Commit { version: 9, generation: -1, retention_ms: -1, partitions, ..Commit::default() }
}

pub(super) fn fetch(partitions: Option<Vec<PartitionKey>>) -> FetchOffsets {
    FetchOffsets { member_id: None, member_epoch: -1, require_stable: false, partitions }
}

/// Topics 1 to 3 with ten partitions each.
pub(super) fn image() -> Image {
    let change = |id: u128| Change::CreateTopic {
        id: TopicId(id),
        name: format!("t{id}"),
        partitions: 10,
        placement: 0,
        overrides: Default::default(),
    };
    Image::new("c", BrokerId(0), 1, BrokerSettings::default()).apply(&(1..=3).map(change).collect::<Vec<_>>())
}

/// One group's offsets with what a turn needs.
struct Fixture {
    offsets: Offsets,
    journal: Journal,
    settings: GroupSettings,
    image: Image,
    now_ms: i64,
    group: Arc<str>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            offsets: Offsets::default(),
            journal: Journal::default(),
            settings: GroupSettings::default(),
            image: image(),
            now_ms: 1_000,
            group: "g".into(),
        }
    }

    fn turn<R>(&mut self, step: impl FnOnce(&mut Offsets, &Arc<str>, &mut Turn<'_>) -> R) -> R {
        let now = Now { wall: TimestampMs(self.now_ms), mono_ms: 0 };
        let mut replies = Vec::new();
        let (image, settings, journal) = (&self.image, &self.settings, &mut self.journal);
        let mut turn = Turn { now, image, settings, journal, replies: &mut replies };
        step(&mut self.offsets, &self.group, &mut turn)
    }

    fn commit(&mut self, commit: &Commit) -> Vec<ErrorCode> {
        self.turn(|offsets, group, turn| offsets.commit(group, commit, None, Ok(()), turn))
    }

    /// Producer 5 has an offset pending.
    fn pend(&mut self, key: PartitionKey) {
        let producer = Identity { producer_id: ProducerId(5), epoch: ProducerEpoch(0) };
        let row = OffsetRow(key.index, 1, -1, String::new());
        self.offsets.pending.get_or_insert_default().insert(producer, key, TimestampMs(self.now_ms), row);
    }

    fn one(&mut self, topic: u128, index: i32, offset: i64) {
        assert_eq!(self.commit(&commit(vec![partition(topic, index, offset)])), [ErrorCode::None]);
    }

    fn delete(&mut self, keys: &[PartitionKey], subscribed: &Subscribed) -> Vec<ErrorCode> {
        self.turn(|offsets, group, turn| offsets.delete(group, keys, subscribed, turn))
    }

    fn expire(&mut self, retention: &Retention) -> Vec<(PartitionKey, i64)> {
        self.turn(|offsets, group, turn| offsets.expire(group, retention, turn));
        self.offsets.committed_offsets().collect()
    }

    fn read(&self, topic: u128, index: i32) -> (i64, i32, String) {
        let mut read = self.offsets.fetch(&fetch(Some(vec![key(topic, index)]))).partitions;
        let one = read.remove(0);
        (one.offset, one.leader_epoch, one.metadata)
    }
}

fn since_commit() -> Retention {
    Retention::SinceCommit(Subscribed::Nothing)
}

#[test]
fn g8_10_a_commit_reads_back_as_sent_and_null_metadata_as_empty() {
    let mut at = Fixture::new();
    for (offset, leader_epoch, metadata) in [(0, 3, None), (-1, -1, Some("")), (-5, 7, Some("m")), (i64::MAX, 0, None)]
    {
        let sent = CommitPartition { offset, leader_epoch, metadata: metadata.map(Into::into), ..partition(1, 0, 0) };
        assert_eq!(at.commit(&commit(vec![sent])), [ErrorCode::None]);
        assert_eq!(at.read(1, 0), (offset, leader_epoch, metadata.unwrap_or_default().to_owned()));
    }
}

#[test]
fn g8_10_of_two_entries_for_a_partition_both_are_accepted_and_the_last_is_kept() {
    let mut at = Fixture::new();
    let twice = commit(vec![partition(1, 4, 10), partition(2, 0, 1), partition(1, 4, 8)]);
    assert_eq!(at.commit(&twice), [ErrorCode::None; 3]);
    assert_eq!(at.read(1, 4).0, 8);
    assert_eq!(at.journal.end().0, 1, "one entry for a request");
}

#[test]
fn g8_8_and_case_92_metadata_is_measured_in_utf_16_units() {
    let mut at = Fixture::new();
    let long = |text: &str, count: usize| Some(text.repeat(count));
    // One unit each for one, two and three bytes, two units for four bytes.
    for text in ["a", "\u{e9}", "\u{20ac}"] {
        for (count, code) in [(4096, ErrorCode::None), (4097, ErrorCode::OffsetMetadataTooLarge)] {
            let sent = CommitPartition { metadata: long(text, count), ..partition(1, 0, 1) };
            assert_eq!(at.commit(&commit(vec![sent, partition(1, 1, 5)])), [code, ErrorCode::None], "{count} {text}");
        }
        assert_eq!(at.read(1, 0).2, text.repeat(4096), "unchanged");
    }
    for (count, code) in [(2048, ErrorCode::None), (2049, ErrorCode::OffsetMetadataTooLarge)] {
        let sent = CommitPartition { metadata: long("\u{1f600}", count), ..partition(1, 0, 1) };
        assert_eq!(at.commit(&commit(vec![sent])), [code]);
    }
    at.settings.offset_metadata_units_max = 0;
    let sent = CommitPartition { metadata: Some("a".into()), ..partition(1, 0, 1) };
    assert_eq!(at.commit(&commit(vec![sent])), [ErrorCode::OffsetMetadataTooLarge]);
}

#[test]
fn g8_16_a_commit_that_fits_no_batch_stores_nothing() {
    let mut at = Fixture::new();
    let named = |index: i32| CommitPartition { metadata: Some("m".repeat(100)), ..partition(1, index, 1) };
    let large = commit((0..20_000).map(named).collect());
    assert_eq!(at.commit(&large), vec![ErrorCode::UnknownServerError; 20_000]);
    assert!(!at.offsets.any() && at.journal.end().0 == 0);
    let fitting = commit((0..5_000).map(named).collect());
    assert_eq!(at.commit(&fitting), vec![ErrorCode::None; 5_000]);
}

#[test]
fn g8_9_a_refused_commit_stores_nothing_and_writes_nothing() {
    let mut at = Fixture::new();
    let asked = commit(vec![partition(1, 0, 1), partition(1, 1, 1)]);
    let codes =
        at.turn(|offsets, group, turn| offsets.commit(group, &asked, None, Err(ErrorCode::UnknownMemberId), turn));
    assert_eq!(codes, [ErrorCode::UnknownMemberId; 2]);
    assert!(!at.offsets.any() && at.journal.end().0 == 0);
}

#[test]
fn g9_2_and_case_94_nothing_committed_is_minus_one_and_never_zero() {
    let mut at = Fixture::new();
    assert_eq!(at.read(1, 0), (-1, -1, String::new()));
    at.one(1, 1, 0);
    assert_eq!((at.read(1, 0).0, at.read(1, 1).0), (-1, 0));
}

#[test]
fn g9_3_all_are_those_with_a_committed_value_in_order() {
    let mut at = Fixture::new();
    let mixed = [(3, 1), (1, 9), (1, 2), (2, 0)];
    at.commit(&commit(mixed.iter().map(|(topic, index)| partition(*topic, *index, 5)).collect()));
    at.one(1, 5, 6);
    let all: Vec<_> = at.offsets.fetch(&fetch(None)).partitions.iter().map(|one| one.key).collect();
    assert_eq!(all, [key(1, 2), key(1, 5), key(1, 9), key(2, 0), key(3, 1)]);
}

#[test]
fn g9_6_and_c5_a_pending_offset_is_unstable_and_left_out_of_all_without_a_committed_one() {
    let mut at = Fixture::new();
    at.one(1, 0, 7);
    for index in [0, 1] {
        at.pend(key(1, index));
    }
    let stable = |partitions| FetchOffsets { require_stable: true, ..fetch(partitions) };
    let asked = Some(vec![key(1, 0), key(1, 1), key(1, 2)]);
    let read = at.offsets.fetch(&stable(asked.clone())).partitions;
    let codes: Vec<_> = read.iter().map(|one| (one.code, one.offset, one.leader_epoch)).collect();
    let unstable = (ErrorCode::UnstableOffsetCommit, -1, -1);
    assert_eq!(codes, [unstable, unstable, (ErrorCode::None, -1, -1)]);
    assert_eq!(at.offsets.fetch(&fetch(asked)).partitions[0].offset, 7, "unstable ones are told to who asks so");
    let all = at.offsets.fetch(&stable(None)).partitions;
    assert_eq!(all.iter().map(|one| (one.key, one.code)).collect::<Vec<_>>(), [(key(1, 0), unstable.0)]);
}

#[test]
fn g10_3_and_g10_4_only_subscribed_topics_refuse_deletion() {
    let mut at = Fixture::new();
    at.commit(&commit(vec![partition(1, 0, 1), partition(1, 1, 1), partition(2, 0, 1)]));
    let subscribed = Subscribed::Topics([TopicId(2)].into());
    let codes = at.delete(&[key(1, 0), key(2, 0), key(3, 3)], &subscribed);
    assert_eq!(codes, [ErrorCode::None, ErrorCode::GroupSubscribedToTopic, ErrorCode::None]);
    assert_eq!(at.offsets.committed_offsets().collect::<Vec<_>>(), [(key(1, 1), 1), (key(2, 0), 1)]);
    assert_eq!(at.delete(&[key(1, 1)], &Subscribed::Everything), [ErrorCode::GroupSubscribedToTopic]);
    let end = at.journal.end();
    at.delete(&[key(3, 3)], &Subscribed::Nothing);
    assert_eq!(at.journal.end(), end, "nothing to write about what was not there");
}

#[test]
fn g10_5_deletion_discards_pending_offsets() {
    let mut at = Fixture::new();
    at.pend(key(1, 0));
    assert!(at.offsets.any());
    assert_eq!(at.delete(&[key(1, 0)], &Subscribed::Nothing), [ErrorCode::None]);
    assert!(!at.offsets.any());
}

#[test]
fn g10_6_a_deleted_topic_takes_its_offsets_along() {
    let mut at = Fixture::new();
    at.commit(&commit(vec![partition(1, 0, 1), partition(2, 0, 1), partition(2, 5, 1), partition(3, 0, 1)]));
    let (journal, group) = (&mut at.journal, at.group.clone());
    at.offsets.topics_deleted(&group, &[TopicId(2), TopicId(9)], journal);
    assert_eq!(at.offsets.committed_offsets().collect::<Vec<_>>(), [(key(1, 0), 1), (key(3, 0), 1)]);
    let image = at.image.apply(&[Change::DeleteTopic { id: TopicId(3) }]);
    at.offsets.keep_topics(&group, &image, journal);
    assert_eq!(at.offsets.committed_offsets().collect::<Vec<_>>(), [(key(1, 0), 1)]);
}

#[test]
fn g10_7_an_offset_goes_when_its_age_reaches_the_retention_and_no_sooner() {
    let mut at = Fixture::new();
    at.one(1, 0, 1);
    at.now_ms += 10;
    at.one(1, 1, 2);
    at.now_ms = 1_000 + 7 * DAY_MS - 1;
    assert_eq!(at.expire(&since_commit()).len(), 2);
    at.now_ms += 1;
    assert_eq!(at.expire(&since_commit()), [(key(1, 1), 2)]);
    at.now_ms += 10;
    assert_eq!(at.expire(&since_commit()), []);
    assert!(!at.offsets.any());
}

#[test]
fn g10_7_a_new_commit_starts_the_age_anew() {
    let mut at = Fixture::new();
    at.one(1, 0, 1);
    at.now_ms += 6 * DAY_MS;
    at.one(1, 0, 1);
    at.now_ms += 6 * DAY_MS;
    assert_eq!(at.expire(&since_commit()).len(), 1);
}

#[test]
fn g10_7_offsets_of_an_empty_group_expire_together_also_later_ones() {
    let mut at = Fixture::new();
    at.one(1, 0, 1);
    at.now_ms = 1_000 + 3 * DAY_MS;
    at.one(2, 0, 1);
    at.now_ms = 1_000 + 7 * DAY_MS;
    assert_eq!(at.expire(&Retention::Since(TimestampMs(1_001))).len(), 2);
    assert_eq!(at.expire(&Retention::Since(TimestampMs(1_000))), []);
}

#[test]
fn g10_7_subscribed_topics_and_unsettled_groups_keep_their_offsets() {
    let mut at = Fixture::new();
    at.one(1, 0, 1);
    let retained = Commit { version: 2, retention_ms: 5, ..commit(vec![partition(2, 0, 1)]) };
    at.commit(&retained);
    at.now_ms += 30 * DAY_MS;
    assert_eq!(at.expire(&Retention::Forever).len(), 2);
    assert_eq!(at.expire(&Retention::SinceCommit(Subscribed::Everything)).len(), 2);
    let subscribed = Subscribed::Topics([TopicId(2)].into());
    assert_eq!(at.expire(&Retention::SinceCommit(subscribed)), [(key(2, 0), 1)]);
}

#[test]
fn g8_14_a_retention_of_the_request_replaces_the_groups_both_ways() {
    let mut at = Fixture::new();
    for (index, retention_ms) in [(0, 100), (1, 30 * DAY_MS), (2, -1), (3, 0), (4, i64::MAX)] {
        at.commit(&Commit { version: 4, retention_ms, ..commit(vec![partition(1, index, 1)]) });
    }
    let mut left = |now_ms: i64, retention: &Retention| -> Vec<i32> {
        at.now_ms = now_ms;
        at.expire(retention).into_iter().map(|(key, _)| key.index).collect()
    };
    assert_eq!(left(1_099, &since_commit()), [0, 1, 2, 4]);
    assert_eq!(left(1_100, &since_commit()), [1, 2, 4]);
    assert_eq!(left(1_000 + 7 * DAY_MS, &since_commit()), [1, 4]);
    assert_eq!(left(999 + 30 * DAY_MS, &Retention::Since(TimestampMs(0))), [1, 4]);
    assert_eq!(left(1_000 + 30 * DAY_MS, &since_commit()), [4]);
}

#[test]
fn g10_8_a_pending_offset_keeps_the_partition_and_the_group() {
    let mut at = Fixture::new();
    at.one(1, 0, 1);
    at.one(1, 1, 1);
    at.pend(key(1, 0));
    at.pend(key(3, 0));
    at.now_ms += 8 * DAY_MS;
    assert_eq!(at.expire(&since_commit()), [(key(1, 0), 1)]);
    assert!(at.offsets.any());
}

#[test]
fn an_offset_takes_32_bytes_and_empty_metadata_none() {
    assert_eq!(size_of::<Committed>(), 32);
    assert_eq!(size_of::<Offsets>(), 32);
    let mut at = Fixture::new();
    at.commit(&commit((0..10).map(|index| partition(1, index, 1)).collect()));
    let partitions = &at.offsets.topics[0].partitions;
    assert!(partitions.iter().all(|one| one.rare.is_none()));
    assert_eq!((partitions.len(), partitions.capacity()), (10, 10));
    assert_eq!(at.offsets.topics.capacity(), 1);
}

/// What `groups` answers to one request, with everything durable.
pub(super) fn ask(groups: &mut Groups, group: &str, ask: Ask, now_ms: i64) -> Result<Reply, ErrorCode> {
    let mut effects = Vec::new();
    let now = Now { wall: TimestampMs(now_ms), mono_ms: 0 };
    groups.ask(group, ask, WaiterId(1), now, &image(), &mut effects);
    let id = slot_of(group.as_bytes());
    if effects.contains(&Effect::StartWriter(id)) {
        let journal = groups.journal_mut(id).expect("owned");
        while journal.take_write().is_some() {
            journal.wrote();
        }
        groups.settled(id, &mut effects);
    }
    let reply = effects.into_iter().find_map(|effect| match effect {
        Effect::Reply(_, reply) => Some(reply),
        Effect::StartWriter(_) => None,
    });
    reply.expect("an answer")
}

fn owner_of(group: &str) -> Groups {
    let mut groups = Groups::new(GroupSettings::default());
    let now = Now { wall: TimestampMs(0), mono_ms: 0 };
    groups.insert(slot_of(group.as_bytes()), Journal::default(), [], now);
    groups
}

#[test]
fn g8_2_a_simple_commit_creates_the_group_and_a_generation_needs_one() {
    let mut groups = owner_of("g");
    for (version, code) in [(8, ErrorCode::IllegalGeneration), (9, ErrorCode::GroupIdNotFound)] {
        let asked = Commit { version, generation: 0, ..commit(vec![partition(1, 0, 1)]) };
        assert_eq!(ask(&mut groups, "g", Ask::Commit(asked), 0), Ok(Reply::Commit(vec![code])));
    }
    let none = Ask::Commit(commit(Vec::new()));
    assert_eq!(ask(&mut groups, "g", none, 0), Ok(Reply::Commit(Vec::new())), "G8.15");
    assert!(groups.list(&Default::default()).is_empty());
    let asked = Commit { member_id: "m".into(), ..commit(vec![partition(1, 0, 1)]) };
    assert_eq!(ask(&mut groups, "g", Ask::Commit(asked), 0), Ok(Reply::Commit(vec![ErrorCode::None])));
    let listed = groups.list(&Default::default());
    assert_eq!((listed[0].state, listed[0].protocol_type.as_str(), listed[0].kind), ("Empty", "", "classic"));
}

#[test]
fn g10_9_a_group_goes_with_its_last_offset() {
    let mut groups = owner_of("g");
    ask(&mut groups, "g", Ask::Commit(commit(vec![partition(1, 0, 1)])), 0).expect("accepted");
    let mut look = |now_ms: i64| {
        let mut effects = Vec::new();
        groups.expire_offsets(Now { wall: TimestampMs(now_ms), mono_ms: 0 }, &image(), &mut effects);
        groups.list(&Default::default()).len()
    };
    assert_eq!((look(7 * DAY_MS - 1), look(7 * DAY_MS)), (1, 0));
}
