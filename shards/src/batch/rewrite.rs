//! What compaction makes of a stored batch: the same batch with fewer records, or its header alone.
//!
//! Offsets, sequences, producer, leader epoch and the other attributes stay; base offset and last offset delta still
//! span what the batch spanned, so neither offsets nor sequences lose their place. Records are packed again in the
//! batch's codec. A delete horizon (attribute bit 6) takes the place of the base timestamp, from which the records'
//! times then count. Failure: none; the caller has opened the batch.

use crate::batch::compression::{Codec, compress};
use crate::batch::header::{BatchHeader, CRC_AT, LENGTH_PREFIX_BYTES, TimestampType};
use crate::batch::patch::crc_of;
use crate::batch::records::{Record, Records};
use crate::batch::varint::put_varint;
use crate::ids::{ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::limits::BATCH_HEADER_BYTES;

/// The batch with the records that `keep` wants; with `horizon`, that one is set. Records that do not parse end it:
/// whoever calls this has walked them all.
#[must_use]
pub fn retain(records: &Records<'_>, horizon: Option<TimestampMs>, keep: impl Fn(&Record<'_>) -> bool) -> Vec<u8> {
    let mut header = *records.header();
    if let Some(horizon) = horizon {
        header.attributes = header.attributes.with_delete_horizon(true);
        header.base_timestamp = horizon;
    }
    let (mut body, mut count, mut newest) = (Vec::new(), 0, TimestampMs(-1));
    let mut one = Vec::new();
    for record in records.iter().map_while(Result::ok).filter(|record| keep(record)) {
        one.clear();
        put_record(&mut one, &record, header.base_timestamp);
        put_varint(&mut body, one.len() as i64);
        body.extend_from_slice(&one);
        count += 1;
        newest = newest.max(record.timestamp);
    }
    header.record_count = count;
    if header.attributes.timestamp_type() == TimestampType::CreateTime {
        header.max_timestamp = newest;
    }
    let body = match header.attributes.codec() {
        None | Some(Codec::None) => body,
        Some(codec) => compress(codec, &body),
    };
    finish(header, &body)
}

/// The batch without records, for what its header says: who wrote, up to which sequence and when.
#[must_use]
pub fn emptied(header: &BatchHeader) -> Vec<u8> {
    let mut header = *header;
    header.record_count = 0;
    header.base_timestamp = header.max_timestamp;
    header.attributes = header.attributes.with_codec(Codec::None).with_delete_horizon(false);
    finish(header, &[])
}

/// A batch that holds nothing but the offsets of `header`, so that the log still reaches behind them.
#[must_use]
pub fn placeholder(header: &BatchHeader) -> Vec<u8> {
    let attributes = header.attributes.with_transactional(false).with_control(false);
    emptied(&BatchHeader {
        attributes,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        ..*header
    })
}

fn put_record(out: &mut Vec<u8>, record: &Record<'_>, base: TimestampMs) {
    out.push(0);
    put_varint(out, record.timestamp.0.wrapping_sub(base.0));
    put_varint(out, i64::from(record.offset_delta));
    for field in [record.key, record.value] {
        put_varint(out, field.map_or(-1, |bytes| bytes.len() as i64));
        out.extend_from_slice(field.unwrap_or_default());
    }
    put_varint(out, record.headers.left as i64);
    out.extend_from_slice(record.headers.bytes);
}

fn finish(mut header: BatchHeader, body: &[u8]) -> Vec<u8> {
    let length = BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES + body.len();
    header.batch_length = i32::try_from(length).expect("a batch of what fitted one is below 2 GiB");
    let mut batch = header.to_bytes().to_vec();
    batch.extend_from_slice(body);
    let crc = crc_of(&batch);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Attributes, BatchBuilder, crc_matches};
    use crate::ids::{LeaderEpoch, Offset};

    type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn seen(batch: &[u8]) -> Vec<Seen> {
        let records = Records::open(batch).expect("opens");
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let one = |r: Record<'_>| {
            let headers = r.headers.map(|(name, value)| (name.to_vec(), own(value))).collect();
            (r.offset.0, r.timestamp.0, own(r.key), own(r.value), headers)
        };
        records.iter().map(|record| one(record.expect("parses"))).collect()
    }

    fn sample(codec: Codec) -> Vec<u8> {
        BatchBuilder::new()
            .base_offset(Offset(100))
            .leader_epoch(LeaderEpoch(3))
            .producer(9, 2, 50)
            .transactional()
            .codec(codec)
            .record_at(TimestampMs(1000), Some(b"a"), Some(b"1"), &[(b"h", Some(b"x")), (b"h", None)])
            .record_at(TimestampMs(5000), Some(b"b"), None, &[])
            .record_at(TimestampMs(900), Some(b""), Some(b""), &[(b"", Some(b""))])
            .build()
    }

    #[test]
    fn a10_what_is_kept_keeps_everything_of_its_own_in_every_codec() {
        for codec in Codec::ALL {
            for horizon in [None, Some(TimestampMs(77_000_000))] {
                let before = sample(codec);
                let records = Records::open(&before).expect("opens");
                let after = retain(&records, horizon, |record| record.offset != Offset(101));
                assert!(crc_matches(&after));
                let expected: Vec<_> = seen(&before).into_iter().filter(|record| record.0 != 101).collect();
                assert_eq!(seen(&after), expected, "{codec:?}");
                let (old, new) = (records.header(), BatchHeader::parse(&after).expect("a header"));
                assert_eq!((new.base_offset, new.next_offset()), (old.base_offset, old.next_offset()));
                assert_eq!((new.base_sequence, new.last_sequence()), (old.base_sequence, old.last_sequence()));
                assert_eq!((new.leader_epoch, new.record_count), (LeaderEpoch(3), 2));
                assert_eq!(new.max_timestamp, TimestampMs(1000), "of what is left");
                assert_eq!(new.delete_horizon(), horizon);
                assert_eq!(new.attributes.codec(), Some(codec));
                assert!(new.attributes.is_transactional());
            }
        }
    }

    #[test]
    fn a10_an_emptied_batch_still_says_who_wrote_and_up_to_where() {
        let before = BatchHeader::parse(&sample(Codec::Zstd)).expect("a header");
        let after = emptied(&before);
        let header = BatchHeader::parse(&after).expect("a header");
        assert!(crc_matches(&after) && after.len() == BATCH_HEADER_BYTES);
        assert_eq!((header.next_offset(), header.last_sequence()), (before.next_offset(), before.last_sequence()));
        assert_eq!((header.producer_id, header.max_timestamp), (before.producer_id, before.max_timestamp));
        assert_eq!((header.record_count, header.newest_timestamp()), (0, TimestampMs(-1)));
        assert_eq!(header.attributes, Attributes(0).with_transactional(true));
        assert!(seen(&after).is_empty());
        let nobody = BatchHeader::parse(&placeholder(&before)).expect("a header");
        assert!(!nobody.is_idempotent() && nobody.attributes == Attributes(0));
        assert_eq!((nobody.base_offset, nobody.next_offset()), (before.base_offset, before.next_offset()));
    }

    #[test]
    fn a_batch_of_the_brokers_time_keeps_it() {
        let log_append = Attributes(0).with_timestamp_type(TimestampType::LogAppendTime);
        let batch = BatchBuilder::new().attributes(log_append).max_timestamp(TimestampMs(70)).records(2).build();
        let records = Records::open(&batch).expect("opens");
        let after = retain(&records, Some(TimestampMs(90)), |record| record.offset == Offset(1));
        assert_eq!(seen(&after).iter().map(|record| record.1).collect::<Vec<_>>(), [70]);
    }
}
