//! What is read ahead is what the reader asks for next, and never more than the limits.

use proptest::prelude::*;

use super::*;
use crate::ids::{LeaderEpoch, TopicId};

const CHUNK_BYTES: usize = 100;

fn reader(partition: i32, next: i64) -> Reader {
    Reader { partition: PartitionKey { topic: TopicId(1), index: partition }, next: Offset(next) }
}

/// The read of a reader at `next`: one byte a record in one segment.
fn span(next: i64) -> Span {
    let position = u64::try_from(next).unwrap();
    Span { segment: SegmentId::new(Offset(0), LeaderEpoch(0)), position, bytes: CHUNK_BYTES }
}

fn content(span: Span) -> Bytes {
    (0..span.bytes).map(|i| ((span.position as usize + i) % 251) as u8).collect::<Vec<u8>>().into()
}

const NOW: TimestampMs = TimestampMs(1_000_000);

fn later(ms: i64) -> TimestampMs {
    TimestampMs(NOW.0 + ms)
}

#[test]
fn a_first_read_is_remembered_and_the_second_has_the_third_read_ahead() {
    let mut ahead = ReadAhead::new(1000);
    assert_eq!(ahead.find(reader(0, 0), span(0)), Found::Unknown);
    assert!(ahead.answered(reader(0, 100), span(100), false, NOW).is_none());
    assert_eq!(ahead.find(reader(0, 100), span(90)), Found::Follows(Some(span(100))), "the exact place");
    let ticket = ahead.answered(reader(0, 200), span(200), true, NOW).expect("there is room");
    assert_eq!(ahead.find(reader(0, 200), span(200)), Found::InWork);
    assert_eq!(ahead.bytes_held(), CHUNK_BYTES);
    ahead.ended(ticket, Some(content(span(200))), NOW);
    assert_eq!(ahead.find(reader(0, 200), span(200)), Found::Ready(content(span(200)), span(200)));
    assert_eq!(ahead.find(reader(0, 200), span(200)), Found::Unknown, "it is handed out once");
    assert_eq!((ahead.bytes_held(), ahead.bytes_wasted()), (0, 0));
}

#[test]
fn what_was_read_of_a_segment_that_was_exchanged_is_not_handed_out() {
    let mut ahead = ReadAhead::new(1000);
    let other = Span { segment: SegmentId { generation: 1, ..span(0).segment }, ..span(0) };
    let ticket = ahead.answered(reader(0, 0), span(0), true, NOW).unwrap();
    ahead.ended(ticket, Some(content(span(0))), NOW);
    assert_eq!(ahead.find(reader(0, 0), other), Found::Follows(None));
    assert_eq!((ahead.bytes_held(), ahead.bytes_wasted()), (0, 100));

    let ticket = ahead.answered(reader(0, 0), span(0), true, NOW).unwrap();
    assert_eq!(ahead.find(reader(0, 0), other), Found::Follows(None), "also while it is in work");
    let again = ahead.answered(reader(0, 0), other, true, NOW).unwrap();
    ahead.ended(ticket, Some(content(span(0))), NOW);
    assert_eq!(ahead.find(reader(0, 0), other), Found::InWork, "the late one does not stand for the new one");
    ahead.ended(again, Some(content(other)), NOW);
    assert!(matches!(ahead.find(reader(0, 0), other), Found::Ready(..)));
    assert_eq!((ahead.bytes_held(), ahead.bytes_wasted()), (0, 200));
}

#[test]
fn a_read_that_failed_leaves_the_reader_to_itself() {
    let mut ahead = ReadAhead::new(1000);
    let ticket = ahead.answered(reader(0, 0), span(0), true, NOW).unwrap();
    ahead.ended(ticket, None, NOW);
    assert_eq!(ahead.bytes_held(), 0);
    assert_eq!(ahead.find(reader(0, 0), span(0)), Found::Follows(Some(span(0))));
}

#[test]
fn readers_that_are_alive_do_not_push_each_other_out_and_the_stale_make_room() {
    let mut ahead = ReadAhead::new(2 * CHUNK_BYTES);
    for partition in 0..2 {
        let ticket = ahead.answered(reader(partition, 0), span(0), true, later(i64::from(partition))).unwrap();
        ahead.ended(ticket, Some(content(span(0))), later(i64::from(partition)));
    }
    assert!(ahead.answered(reader(2, 0), span(0), true, later(STALE_MS - 1)).is_none());
    assert_eq!(ahead.bytes_held(), 2 * CHUNK_BYTES);
    assert!(ahead.answered(reader(3, 0), span(0), true, later(STALE_MS)).is_some());
    assert_eq!(ahead.find(reader(0, 0), span(0)), Found::Unknown, "the oldest went");
    assert_eq!(ahead.find(reader(1, 0), span(0)), Found::Ready(content(span(0)), span(0)));
    assert_eq!(ahead.find(reader(2, 0), span(0)), Found::Follows(Some(span(0))), "without room it is followed");
}

#[test]
fn no_more_readers_than_the_limit_are_followed() {
    let mut ahead = ReadAhead::new(1000);
    let count = i64::try_from(READERS_FOLLOWED_MAX).unwrap();
    for next in 0..count + 1 {
        assert!(ahead.answered(reader(0, next), span(0), false, NOW).is_none());
    }
    assert_eq!(ahead.find(reader(0, count), span(count)), Found::Unknown);
    assert!(ahead.answered(reader(0, count), span(0), false, later(STALE_MS)).is_none());
    assert_eq!(ahead.find(reader(0, count), span(0)), Found::Follows(Some(span(0))));
    assert_eq!(ahead.readers.len(), READERS_FOLLOWED_MAX - 1);
}

#[test]
fn with_no_memory_for_it_only_places_are_known() {
    let mut ahead = ReadAhead::new(0);
    assert!(ahead.answered(reader(0, 0), span(0), true, NOW).is_none());
    assert_eq!(ahead.find(reader(0, 0), span(0)), Found::Follows(Some(span(0))));
}

#[derive(Clone, Debug)]
enum Step {
    Read { partition: i32, at: i64 },
    End { which: usize, bytes: Option<usize> },
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4, 0..6i64).prop_map(|(partition, at)| Step::Read { partition, at: at * CHUNK_BYTES as i64 }),
        3 => (any::<usize>(), proptest::option::weighted(0.8, 0..=CHUNK_BYTES))
            .prop_map(|(which, bytes)| Step::End { which, bytes }),
        1 => (0..STALE_MS * 2).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn what_is_handed_out_is_what_was_asked_for_and_the_bytes_are_counted(
        steps in proptest::collection::vec(step(), 1..200), chunks in 0..5usize,
    ) {
        let bytes_max = chunks * CHUNK_BYTES;
        let mut ahead = ReadAhead::new(bytes_max);
        let (mut tickets, mut now) = (Vec::new(), NOW);
        for step in steps {
            match step {
                Step::Read { partition, at } => {
                    let follows = match ahead.find(reader(partition, at), span(at)) {
                        Found::InWork => continue,
                        Found::Unknown => false,
                        Found::Follows(known) => {
                            prop_assert_eq!(known, Some(span(at)));
                            true
                        }
                        Found::Ready(bytes, of) => {
                            prop_assert_eq!(of, span(at));
                            prop_assert!(content(of).starts_with(&bytes));
                            true
                        }
                    };
                    let next = at + CHUNK_BYTES as i64;
                    let ticket = ahead.answered(reader(partition, next), span(next), follows, now);
                    prop_assert!(ticket.is_none() || follows);
                    tickets.extend(ticket);
                }
                Step::End { which, bytes } if !tickets.is_empty() => {
                    let ticket: Ticket = tickets.swap_remove(which % tickets.len());
                    let read = bytes.map(|bytes| content(ticket.span()).slice(..bytes));
                    ahead.ended(ticket, read, now);
                }
                Step::End { .. } => {}
                Step::Wait(ms) => now.0 += ms,
            }
            let ready: usize = ahead.readers.values().map(|followed| match &followed.stage {
                Stage::Ready(bytes) => bytes.len(),
                _ => 0,
            }).sum();
            prop_assert_eq!(ahead.bytes_held(), ready + tickets.len() * CHUNK_BYTES);
            prop_assert!(ahead.bytes_held() <= bytes_max);
            prop_assert!(ahead.readers.len() <= READERS_FOLLOWED_MAX);
        }
    }
}
