//! The batches of segments: a line each, and a last line where a segment is damaged.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use oncilla_shards::batch::BatchHeader;
use serde_json::json;

use super::segment::{self, End};
use super::{Args, segments};
use crate::cli::output::Format;

/// Prints every batch.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut damaged = false;
    for path in &args.paths {
        for file in segments(path)? {
            let shown = file.display().to_string();
            if args.format == Format::Table {
                writeln!(out, "{shown}\n{}", heading())?;
            }
            let end = segment::walk(&file, |position, header, _| {
                writeln!(out, "{}", one(args.format, &shown, position, header, true))
            });
            let end = end.with_context(|| format!("segment {shown}"))?;
            if let Some(suspect) = &end.suspect {
                writeln!(out, "{}", one(args.format, &shown, end.position, suspect, false))?;
            }
            writeln!(out, "{}", last(args.format, &shown, &end))?;
            damaged |= !end.is_clean();
        }
    }
    out.flush()?;
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn heading() -> String {
    line([
        "position",
        "bytes",
        "base",
        "last",
        "records",
        "codec",
        "producer",
        "epoch",
        "seq",
        "leader",
        "crc",
        "max time, kind",
    ])
}

fn line(columns: [&str; 12]) -> String {
    let [position, bytes, base, last, records, codec, producer, epoch, sequence, leader, crc, time] = columns;
    format!(
        "{position:>10} {bytes:>8} {base:>10} {last:>10} {records:>7} {codec:>6} {producer:>14} {epoch:>5} \
         {sequence:>10} \
         {leader:>6} {crc:>3}  {time}"
    )
}

fn one(format: Format, file: &str, position: u64, header: &BatchHeader, crc_ok: bool) -> String {
    let codec = header.attributes.codec().map_or("?", |codec| codec.name());
    let (transactional, control) = (header.attributes.is_transactional(), header.attributes.is_control());
    if format == Format::Json {
        let batch = json!({
            "file": file, "position": position, "bytes": header.total_bytes(),
            "base_offset": header.base_offset, "last_offset": header.last_offset(), "records": header.record_count,
            "codec": codec, "producer_id": header.producer_id, "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence, "leader_epoch": header.leader_epoch,
            "crc_ok": crc_ok, "base_timestamp": header.base_timestamp, "max_timestamp": header.max_timestamp,
            "transactional": transactional, "control": control,
        });
        return batch.to_string();
    }
    let kind =
        format!("{}{}", if transactional { " transactional" } else { "" }, if control { " control" } else { "" });
    line([
        &position.to_string(),
        &header.total_bytes().to_string(),
        &header.base_offset.to_string(),
        &header.last_offset().to_string(),
        &header.record_count.to_string(),
        codec,
        &header.producer_id.to_string(),
        &header.producer_epoch.to_string(),
        &header.base_sequence.to_string(),
        &header.leader_epoch.to_string(),
        if crc_ok { "ok" } else { "BAD" },
        &format!("{}{kind}", time(header.max_timestamp.0)),
    ])
}

fn last(format: Format, file: &str, end: &End) -> String {
    let why = format!("{:?}", end.stop).to_lowercase();
    if format == Format::Json {
        return json!({ "file": file, "end": end.position, "why": why, "clean": end.is_clean() }).to_string();
    }
    let what = if end.is_clean() { "ends" } else { "DAMAGED: right batches end" };
    format!("{what} at byte {} ({why})\n", end.position)
}

/// As people read it; a time that no calendar has as the number it is.
pub(in crate::cli) fn time(timestamp_ms: i64) -> String {
    /// The end of the year 9999.
    const CALENDAR_MS_MAX: u64 = 253_402_300_799_999;
    match u64::try_from(timestamp_ms) {
        Ok(ms @ ..=CALENDAR_MS_MAX) => {
            humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
        }
        _ => timestamp_ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::batch::{BatchBuilder, Codec};
    use oncilla_shards::ids::{Offset, TimestampMs};

    use super::*;

    #[test]
    fn a_batch_is_a_line_of_columns_or_an_object() {
        let batch = BatchBuilder::new()
            .base_offset(Offset(5))
            .producer(4000, 2, 9)
            .codec(Codec::Lz4)
            .record_at(TimestampMs(1_700_000_000_123), None, Some(b"v"), &[])
            .record_at(TimestampMs(1_700_000_000_124), None, Some(b"w"), &[])
            .build();
        let header = BatchHeader::parse(&batch).expect("a batch");
        let text = one(Format::Table, "f", 61, &header, true);
        let columns: Vec<_> = text.split_whitespace().collect();
        let bytes = batch.len().to_string();
        assert_eq!(
            columns,
            ["61", &bytes, "5", "6", "2", "lz4", "4000", "2", "9", "-1", "ok", "2023-11-14T22:13:20.124Z"]
        );
        let text = one(Format::Json, "f", 61, &header, false);
        let object: serde_json::Value = serde_json::from_str(&text).expect("an object");
        assert_eq!((&object["base_sequence"], &object["crc_ok"]), (&json!(9), &json!(false)));
        assert_eq!(object["max_timestamp"], json!(1_700_000_000_124_i64));
    }

    #[test]
    fn a_time_beyond_the_calendar_is_a_number() {
        assert_eq!(time(-1), "-1");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
    }
}
