use proptest::prelude::*;

use super::*;
use crate::batch::build::refresh_crc;
use crate::batch::xerial::frame_xerial;
use crate::batch::{BatchBuilder, Patch, records::Records, write_patched};
use crate::ids::{LeaderEpoch, Offset};

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
const VERSION: i16 = 9;

fn check(records: &[u8], rules: &AppendRules) -> Result<Accepted, Refused> {
    validate(records, VERSION, rules, NOW)
}

/// The code and whether the log start offset is named.
fn refusal(records: &[u8]) -> (ErrorCode, bool) {
    let refused = check(records, &AppendRules::default()).expect_err("this batch is refused");
    (refused.code, refused.reached_log)
}

fn at(ms: i64) -> TimestampMs {
    TimestampMs(ms)
}

fn stamped(timestamps: &[i64]) -> BatchBuilder {
    timestamps.iter().fold(BatchBuilder::new(), |batch, &ms| batch.record_at(at(ms), Some(b"k"), Some(b"v"), &[]))
}

/// A batch whose header bytes are changed behind the builder's back, with the right CRC.
fn edited(batch: BatchBuilder, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = batch.build();
    edit(&mut bytes);
    refresh_crc(&mut bytes);
    bytes
}

fn stored(batch: &[u8], accepted: &Accepted) -> Vec<u8> {
    let mut out = vec![0; accepted.bytes];
    let patch = Patch::new(&accepted.stored, Offset(500), LeaderEpoch(1));
    write_patched(&batch[..accepted.bytes], &patch, &mut out);
    out
}

#[test]
fn k0_21_a_right_batch_is_stored_as_it_was_sent() {
    let batch = stamped(&[NOW.0, NOW.0 + 5]).producer(9, 0, 3).build();
    let accepted = check(&batch, &AppendRules::default()).expect("a right batch");
    assert_eq!(accepted.bytes, batch.len());
    assert_eq!(accepted.stored.crc, accepted.header.crc, "nothing under the CRC changes");
    assert_eq!(stored(&batch, &accepted)[16..], batch[16..]);
}

#[test]
fn case_16_no_batch_or_two_of_them_are_87() {
    let batch = BatchBuilder::new().records(1).build();
    let early = (ErrorCode::InvalidRecord, false);
    assert_eq!(refusal(&[]), early);
    for cut in [1, 11, 12, 17, 60, batch.len() - 1] {
        assert_eq!(refusal(&batch[..cut]), early, "cut at {cut}");
    }
    assert_eq!(refusal(&[batch.clone(), batch.clone()].concat()), early, "f13: two batches for a partition");
}

#[test]
fn a2_4_a_cut_second_batch_is_dropped_and_an_impossible_one_is_2() {
    let batch = BatchBuilder::new().records(2).build();
    for cut in 1..batch.len() {
        let both = [&batch[..], &batch[..cut]].concat();
        assert_eq!(check(&both, &AppendRules::default()).map(|ok| ok.bytes), Ok(batch.len()), "cut at {cut}");
    }
    let mut short = batch.clone();
    short[8..12].copy_from_slice(&13i32.to_be_bytes());
    assert_eq!(refusal(&[batch, short].concat()), (ErrorCode::CorruptMessage, false));
}

#[test]
fn case_124_old_formats_are_87() {
    for magic in [0, 1] {
        let mut batch = BatchBuilder::new().records(1).build();
        batch[16] = magic;
        assert_eq!(refusal(&batch), (ErrorCode::InvalidRecord, false));
    }
}

#[test]
fn case_122_zstd_needs_produce_7() {
    let batch = BatchBuilder::new().codec(Codec::Zstd).records(3).build();
    for version in [3, 6] {
        let refused = validate(&batch, version, &AppendRules::default(), NOW).expect_err("too old");
        assert_eq!((refused.code, refused.reached_log), (ErrorCode::UnsupportedCompressionType, false));
    }
    assert!(validate(&batch, 7, &AppendRules::default(), NOW).is_ok());
    let gzip = BatchBuilder::new().codec(Codec::Gzip).records(3).build();
    assert!(validate(&gzip, 3, &AppendRules::default(), NOW).is_ok());
}

#[test]
fn case_17_lying_headers_are_87_and_a_bad_crc_is_2() {
    let late = (ErrorCode::InvalidRecord, true);
    assert_eq!(refusal(&BatchBuilder::new().records(3).last_offset_delta(5).build()), late);
    assert_eq!(refusal(&BatchBuilder::new().records(3).record_count(4).last_offset_delta(3).build()), late);
    assert_eq!(refusal(&BatchBuilder::new().records(3).record_count(2).last_offset_delta(1).build()), late);
    assert_eq!(refusal(&BatchBuilder::new().record_count(0).last_offset_delta(-1).build()), late);
    assert_eq!(
        refusal(&BatchBuilder::new().records(1).record_count(i32::MIN).last_offset_delta(i32::MAX).build()),
        late
    );
    assert_eq!(refusal(&BatchBuilder::new().records(1).base_offset(Offset(7)).build()), late);
    let mut bad_crc = BatchBuilder::new().records(1).build();
    bad_crc[17] ^= 1;
    assert_eq!(refusal(&bad_crc), (ErrorCode::CorruptMessage, false));
    // Too short for a header, but long enough to be framed (A2.5).
    let mut short = vec![0; 30];
    short[8..12].copy_from_slice(&18i32.to_be_bytes());
    short[16] = 2;
    assert_eq!(refusal(&short), (ErrorCode::CorruptMessage, false));
}

#[test]
fn case_18_a_forged_marker_is_87() {
    let record = crate::batch::ControlRecord { kind: crate::batch::ControlKind::Commit, coordinator_epoch: 0 };
    let marker = crate::batch::build::control_batch(
        crate::ids::ProducerId(4),
        crate::ids::ProducerEpoch(0),
        record,
        NOW,
        TimestampType::CreateTime,
    );
    assert_eq!(refusal(&marker), (ErrorCode::InvalidRecord, true), "f13: client sends a control batch");
}

#[test]
fn case_5_a_negative_sequence_with_a_producer_is_87() {
    for sequence in [-1, -5, i32::MIN] {
        let batch = BatchBuilder::new().producer(4, 0, sequence).records(1).build();
        assert_eq!(refusal(&batch), (ErrorCode::InvalidRecord, true), "f13: sequence {sequence}");
    }
    assert_eq!(refusal(&BatchBuilder::new().producer(4, -1, 0).records(1).build()), (ErrorCode::InvalidRecord, true));
    let no_producer = BatchBuilder::new().producer(-2, -1, -9).records(1).build();
    assert!(check(&no_producer, &AppendRules::default()).is_ok(), "k0_26: kept as sent when there is no producer");
}

#[test]
fn case_125_the_limit_is_on_the_bytes_as_sent() {
    let batch = BatchBuilder::new().records(1).build();
    let mut rules = AppendRules { max_message_bytes: batch.len() as i32, ..AppendRules::default() };
    assert!(check(&batch, &rules).is_ok(), "equal passes");
    rules.max_message_bytes -= 1;
    let refused = check(&batch, &rules).expect_err("one byte too many");
    assert_eq!((refused.code, refused.reached_log), (ErrorCode::MessageTooLarge, false));
}

#[test]
fn k0_11_to_k0_19_the_first_check_that_fails_decides() {
    let tight = AppendRules { max_message_bytes: 10, segment_bytes: 10, ..AppendRules::default() };
    let code = |batch: &[u8], rules: &AppendRules| check(batch, rules).expect_err("refused").code;
    let mut batch = stamped(&[NOW.0 + 1_000_000_000]).producer(4, 0, -1).base_offset(Offset(1)).build();
    batch[17] ^= 1;
    assert_eq!(code(&batch, &tight), ErrorCode::InvalidRecord, "base offset before size");
    batch[..8].fill(0);
    assert_eq!(code(&batch, &tight), ErrorCode::MessageTooLarge, "size before CRC");
    let roomy = AppendRules { max_message_bytes: 1000, ..tight };
    assert_eq!(code(&batch, &roomy), ErrorCode::CorruptMessage, "CRC before sequence");
    refresh_crc(&mut batch);
    assert_eq!(code(&batch, &roomy), ErrorCode::InvalidRecord, "sequence before timestamps");
    let batch = stamped(&[NOW.0 + 1_000_000_000]).build();
    assert_eq!(code(&batch, &roomy), ErrorCode::InvalidTimestamp, "timestamps before segment size");
    let refused = check(&stamped(&[NOW.0]).build(), &roomy).expect_err("larger than a segment");
    assert_eq!((refused.code, refused.reached_log), (ErrorCode::RecordListTooLarge, false));
}

#[test]
fn k0_15_records_that_do_not_fill_the_batch_are_87() {
    let late = (ErrorCode::InvalidRecord, true);
    let good = [12, 0, 0, 0, 1, 0, 0]; // A record of six bytes: null key, empty value, no header.
    assert!(check(&BatchBuilder::new().raw_record(&good).build(), &AppendRules::default()).is_ok());
    for (name, bad) in [
        ("a byte left over", &[12, 0, 0, 0, 1, 0, 0, 9][..]),
        ("a byte missing", &[12, 0, 0, 0, 1, 0]),
        ("length beyond the batch", &[14, 0, 0, 0, 1, 0, 0]),
        ("length below the fields", &[10, 0, 0, 0, 1, 0, 0]),
        ("negative length", &[1, 0, 0, 0, 1, 0, 0]),
        ("key length -2", &[12, 0, 0, 0, 3, 0, 0]),
        ("value length beyond the record", &[12, 0, 0, 0, 1, 2, 0]),
        ("header count -1", &[12, 0, 0, 0, 1, 0, 1]),
        ("header count beyond the record", &[12, 0, 0, 0, 1, 0, 2]),
        ("endless varint", &[0xff; 20]),
    ] {
        for codec in Codec::ALL {
            let batch = BatchBuilder::new().codec(codec).raw_record(bad).build();
            assert_eq!(refusal(&batch), late, "{name}, {codec:?}");
        }
    }
}

#[test]
fn k0_15_wrong_offset_deltas_and_unknown_codecs_are_87() {
    let late = (ErrorCode::InvalidRecord, true);
    for codec in Codec::ALL {
        let twice = BatchBuilder::new().codec(codec);
        let twice = twice.record(None, None).record_with_delta(0, at(-1), None, None, &[]);
        assert_eq!(refusal(&twice.build()), late, "k0_27: {codec:?}");
    }
    for codec in 5..8 {
        let batch = BatchBuilder::new().attributes(Attributes(codec)).records(1).build();
        assert_eq!(refusal(&batch), late, "codec {codec}");
    }
}

#[test]
fn case_129_null_and_empty_stay_distinct_and_a_null_header_name_is_87() {
    let fields = [None, Some(&b""[..]), Some(b"data")];
    for codec in Codec::ALL {
        let mut batch = BatchBuilder::new().codec(codec);
        for key in fields {
            for value in fields {
                let headers = [(&b"twice"[..], value), (b"", None), (b"twice", Some(b""))];
                batch = batch.record_at(NOW, key, value, &headers);
            }
        }
        let batch = batch.record_at(NOW, None, None, &vec![(&b"h"[..], None); 1000]).build();
        let accepted = check(&batch, &AppendRules::default()).expect("right");
        let stored = stored(&batch, &accepted);
        let records = Records::open(&stored).expect("readable");
        let read: Vec<_> = records.iter().map(|record| record.expect("readable")).collect();
        for (n, record) in read[..9].iter().enumerate() {
            let (key, value) = (fields[n / 3], fields[n % 3]);
            assert_eq!((record.key, record.value, record.offset), (key, value, Offset(500 + n as i64)));
            let headers: Vec<_> = record.headers.collect();
            assert_eq!(headers, [(&b"twice"[..], value), (b"", None), (b"twice", Some(b""))]);
        }
        assert_eq!((read[9].headers.len(), read[9].headers.count()), (1000, 1000));
        let null_name = [20, 0, 0, 0, 1, 0, 2, 1, 2, b'v'];
        let mut null_name = null_name.to_vec();
        null_name[0] = 2 * (null_name.len() as u8 - 1);
        let bad = BatchBuilder::new().codec(codec).raw_record(&null_name).build();
        assert_eq!(refusal(&bad), (ErrorCode::InvalidRecord, true));
        null_name[7] = 0; // The same with an empty name is right.
        let good = BatchBuilder::new().codec(codec).raw_record(&null_name).build();
        assert!(check(&good, &AppendRules::default()).is_ok());
    }
}

#[test]
fn case_123_every_codec_is_stored_unchanged_and_inner_damage_is_refused() {
    let plain = BatchBuilder::new().records(3);
    let body = plain.clone().build()[BATCH_HEADER_BYTES..].to_vec();
    let xerial = plain.clone().codec(Codec::Snappy).build_with_body(&frame_xerial(&body));
    let mut batches: Vec<_> = Codec::ALL.iter().map(|&codec| plain.clone().codec(codec).build()).collect();
    batches.push(xerial);
    for batch in batches {
        let accepted = check(&batch, &AppendRules::default()).expect("a known encoding");
        assert_eq!(stored(&batch, &accepted)[16..], batch[16..], "byte-identical");
        let cut = BatchHeader::parse(&batch).expect("a header");
        let cut = plain.clone().attributes(cut.attributes).build_with_body(&batch[BATCH_HEADER_BYTES..batch.len() - 1]);
        assert_eq!(refusal(&cut), (ErrorCode::InvalidRecord, true));
    }
}

#[test]
fn case_127_the_largest_timestamp_is_computed_from_the_records() {
    for codec in Codec::ALL {
        for sent in [-1, 0, i64::MAX] {
            let batch = stamped(&[100, 150, 120]).codec(codec).max_timestamp(at(sent)).build();
            let accepted = check(&batch, &AppendRules::default()).expect("right");
            assert_eq!(accepted.stored.max_timestamp, at(150));
            assert!(crc_matches(&stored(&batch, &accepted)), "the CRC follows");
        }
    }
    let unstamped = stamped(&[-1, -1]).max_timestamp(at(5)).build();
    assert_eq!(check(&unstamped, &AppendRules::default()).map(|ok| ok.stored.max_timestamp), Ok(at(-1)));
}

#[test]
fn case_127_timestamps_that_overflow_do_not_panic() {
    let outcome = |base: i64, other: i64| {
        let batch = stamped(&[base, other]).build();
        check(&batch, &AppendRules::default()).map(|ok| ok.stored.max_timestamp).map_err(|refused| refused.code)
    };
    assert_eq!(outcome(i64::MIN, i64::MIN), Ok(at(-1)));
    assert_eq!(outcome(i64::MIN, NOW.0), Ok(NOW));
    assert_eq!(outcome(i64::MAX, 0), Err(ErrorCode::InvalidTimestamp));
    // The second delta wraps past i64::MAX.
    let wraps = edited(stamped(&[1, i64::MAX]), |bytes| bytes[27..35].copy_from_slice(&10i64.to_be_bytes()));
    assert!(check(&wraps, &AppendRules::default()).is_ok());
}

#[test]
fn k0_17_every_record_outside_the_limits_is_named() {
    let rules = AppendRules { before_max_ms: 1000, after_max_ms: 500, ..AppendRules::default() };
    let n = NOW.0;
    for codec in Codec::ALL {
        let batch = stamped(&[n, n - 1000, n - 1001, n + 500, n + 501, -1]).codec(codec).build();
        let refused = check(&batch, &rules).expect_err("two are outside");
        assert_eq!((refused.code, refused.reached_log), (ErrorCode::InvalidTimestamp, true));
        let named: Vec<_> = refused.record_errors.iter().map(|error| error.index).collect();
        assert_eq!(named, [2, 4]);
        assert!(refused.message.is_some());
    }
    assert!(check(&stamped(&[n - 1000, n + 500, -1]).build(), &rules).is_ok());
}

#[test]
fn k0_18_every_record_without_a_key_is_named_and_timestamps_decide_the_code() {
    let compacted = AppendRules { compacted: true, ..AppendRules::default() };
    let keyless = |ms: i64| {
        BatchBuilder::new()
            .record_at(NOW, Some(b""), None, &[])
            .record_at(NOW, None, Some(b"v"), &[])
            .record_at(at(ms), Some(b"k"), Some(b"v"), &[])
            .record_at(NOW, None, Some(b"v"), &[])
            .build()
    };
    let refused = check(&keyless(NOW.0), &compacted).expect_err("two have no key");
    assert_eq!((refused.code, refused.reached_log), (ErrorCode::InvalidRecord, true));
    assert_eq!(refused.record_errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1, 3]);
    assert!(refused.message.is_some_and(|text| text.contains('2')));
    let both = check(&keyless(NOW.0 + 10_000_000), &compacted).expect_err("both kinds");
    assert_eq!(both.code, ErrorCode::InvalidTimestamp);
    assert_eq!(both.record_errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(check(&keyless(NOW.0), &AppendRules::default()).is_ok());
}

#[test]
fn a_record_that_does_not_parse_outweighs_bad_timestamps() {
    let batch = stamped(&[NOW.0 + 10_000_000]).raw_record(&[0xff]).build();
    let refused = check(&batch, &AppendRules::default()).expect_err("refused");
    assert_eq!((refused.code, refused.record_errors.len()), (ErrorCode::InvalidRecord, 0));
}

#[test]
fn the_list_of_bad_records_is_bounded() {
    let compacted = AppendRules { compacted: true, max_message_bytes: i32::MAX, ..AppendRules::default() };
    let count = RECORD_ERRORS_MAX as i32 + 10;
    let batch = (0..count).fold(BatchBuilder::new(), |batch, _| batch.record(None, None));
    let refused = check(&batch.codec(Codec::Zstd).build(), &compacted).expect_err("no keys");
    assert_eq!(refused.record_errors.len(), RECORD_ERRORS_MAX);
    assert!(refused.message.is_some_and(|text| text.contains(&count.to_string())), "all are counted");
}

#[test]
fn k0_16_log_append_time_is_the_brokers_to_set() {
    let topic = AppendRules { timestamp_type: TimestampType::LogAppendTime, ..AppendRules::default() };
    let forged = stamped(&[NOW.0]).timestamp_type(TimestampType::LogAppendTime).build();
    let refused = check(&forged, &topic).expect_err("the bit is set");
    assert_eq!((refused.code, refused.reached_log), (ErrorCode::InvalidTimestamp, true));
    // On a CreateTime topic the bit is cleared (A2.5).
    let accepted = check(&forged, &AppendRules::default()).expect("cleared");
    assert_eq!(Attributes(accepted.stored.attributes).timestamp_type(), TimestampType::CreateTime);
    assert!(crc_matches(&stored(&forged, &accepted)));
}

#[test]
fn k0_26_log_append_time_stores_the_brokers_time_and_keeps_the_base() {
    let topic = AppendRules {
        timestamp_type: TimestampType::LogAppendTime,
        before_max_ms: 0,
        after_max_ms: 0,
        ..AppendRules::default()
    };
    let batch = stamped(&[5, 9]).attributes(Attributes(0x40)).build();
    let accepted = check(&batch, &topic).expect("limits do not apply");
    assert_eq!(accepted.stored.max_timestamp, NOW);
    let stored = stored(&batch, &accepted);
    assert!(crc_matches(&stored));
    let records = Records::open(&stored).expect("readable");
    assert_eq!(records.header().base_timestamp, at(5));
    assert_eq!(records.header().attributes, Attributes(0x48), "other bits are kept as sent");
    assert!(records.iter().all(|record| record.is_ok_and(|record| record.timestamp == NOW)));
}

#[test]
fn a_bomb_is_refused_in_bounded_memory() {
    // One record claims what the cap does not allow; the stream is stopped there.
    let mut body = vec![];
    crate::batch::varint::put_varint(&mut body, 1 << 30);
    body.resize(BATCH_UNPACKED_BYTES_MAX + 1, 0);
    let packed = crate::batch::compression::compress(Codec::Zstd, &body);
    assert!(packed.len() < 64 << 10);
    let batch = BatchBuilder::new().codec(Codec::Zstd).raw_record(&[]).build_with_body(&packed);
    assert_eq!(refusal(&batch), (ErrorCode::InvalidRecord, true));
}

fn any_batch() -> impl Strategy<Value = Vec<u8>> {
    let record = (any::<i64>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0usize..3);
    let records = prop::collection::vec(record, 0..8);
    (records, prop::sample::select(Codec::ALL.to_vec()), any::<i16>(), any::<i32>()).prop_map(
        |(records, codec, epoch, sequence)| {
            let mut batch = BatchBuilder::new().codec(codec).producer(7, epoch, sequence);
            for (ms, key, headers) in records {
                batch = batch.record_at(at(ms), key.as_deref(), Some(b"value"), &vec![(&b"h"[..], None); headers]);
            }
            batch.build()
        },
    )
}

proptest! {
    #[test]
    fn anything_is_answered_and_what_is_accepted_can_be_read(
        batch in any_batch(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        fresh_crc in any::<bool>(),
        compacted in any::<bool>(),
    ) {
        let mut bytes = batch;
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if fresh_crc && bytes.len() >= BATCH_HEADER_BYTES {
            refresh_crc(&mut bytes);
        }
        let rules = AppendRules { compacted, after_max_ms: i64::MAX, ..AppendRules::default() };
        if let Ok(accepted) = check(&bytes, &rules) {
            let stored = stored(&bytes, &accepted);
            prop_assert!(crc_matches(&stored));
            let records = Records::open(&stored).expect("an accepted batch is readable");
            let read: Vec<_> = records.iter().collect::<Result<_, _>>().expect("every record is readable");
            prop_assert_eq!(read.len() as i32, accepted.header.record_count);
            let largest = read.iter().map(|record| record.timestamp.0).max().unwrap_or(-1).max(-1);
            prop_assert_eq!(accepted.stored.max_timestamp.0, largest);
        }
    }

    #[test]
    fn noise_is_answered(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(2), any::<u8>()], 0..200)) {
        let _ = check(&bytes, &AppendRules::default());
        let _ = crate::batch::peek(&bytes);
        let _ = Records::open(&bytes).map(|records| records.iter().count());
    }
}
