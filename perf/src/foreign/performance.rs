//! `rdkafka_performance`, the load generator that comes with librdkafka, and the table that it prints.
//!
//! It tells totals and no percentiles, so quantities made of it have none.

use anyhow::{Context, Result, ensure};

/// What its last row says.
#[derive(Debug, PartialEq)]
pub struct Totals {
    /// Records that were delivered or read.
    pub count: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Records that were asked for and not delivered, or read with an error.
    pub failed: u64,
    /// Time of the whole run.
    pub seconds: f64,
}

/// Reads the table (`-u`) of a run of `records`: rows of cells that begin with a bar, the names of the columns first.
pub fn totals(said: &str, records: u64, record_bytes: u64) -> Result<Totals> {
    let cells = |line: &str| line.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<_> = said.lines().filter(|line| line.starts_with('|')).map(cells).collect();
    ensure!(rows.len() > 1, "rdkafka_performance printed no table:\n{}", said.trim());
    let (head, last) = (&rows[0], &rows[rows.len() - 1]);
    let cell = |name: &str| {
        let at = head.iter().position(|known| known == name)?;
        last.get(at)?.parse::<u64>().ok()
    };
    let needed = |name: &str| cell(name).with_context(|| format!("rdkafka_performance's table has no {name}"));
    let elapsed_ms = needed("elapsed")?;
    // A producer counts what it handed over and, apart, what was delivered. Its tx_err is no count of failures: nearly
    // all of them are records that found the client's queue full and were taken a moment later.
    let (count, bytes, failed) = match cell("dr") {
        Some(delivered) => (delivered, delivered * record_bytes, records.saturating_sub(delivered)),
        None => (needed("msgs")?, needed("bytes")?, needed("rx_err")?),
    };
    ensure!(elapsed_ms > 0, "the run was too short to be measured: more --records");
    Ok(Totals { count, bytes, failed, seconds: elapsed_ms as f64 / 1e3 })
}

/// Version in what it prints about its use.
pub fn version(usage: &str) -> Option<String> {
    let (_, rest) = usage.split_once("librdkafka version ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCED: &str = "\
%% Sending messages
|    elapsed |       msgs |      bytes |        rtt |         dr |     dr_m/s |    dr_MB/s |     dr_err |     tx_err |
|       1000 |      50000 |   51200000 |          0 |      49000 |      49000 |      50.18 |          0 |          0 |
|       2500 |     100000 |  102400000 |          0 |      99990 |      39996 |      40.96 |         10 |        212 |
";
    const READ: &str = "\
|    elapsed |       msgs |      bytes |        rtt |        m/s |       MB/s |     rx_err |     offset |
|        500 |      20000 |   20480000 |          0 |      40000 |      40.96 |          0 |      20000 |
";

    #[test]
    fn a_producer_is_counted_by_what_was_delivered_and_a_reader_by_what_came() {
        let produced = totals(PRODUCED, 100_000, 1024).unwrap();
        assert_eq!(produced, Totals { count: 99_990, bytes: 99_990 * 1024, failed: 10, seconds: 2.5 });
        let read = totals(READ, 20_000, 1024).unwrap();
        assert_eq!(read, Totals { count: 20_000, bytes: 20_480_000, failed: 0, seconds: 0.5 });
    }

    #[test]
    fn what_is_no_table_is_shown() {
        assert!(totals("cannot connect\n", 1, 1).unwrap_err().to_string().contains("cannot connect"));
        assert!(totals("| a | b |\n| 1 | 2 |\n", 1, 1).unwrap_err().to_string().contains("no elapsed"));
        let instant = PRODUCED.replace("2500", "   0");
        assert!(totals(&instant, 1, 1).unwrap_err().to_string().contains("too short"));
    }

    #[test]
    fn the_version_stands_in_its_usage() {
        assert_eq!(version("Usage: x\n\nlibrdkafka version 2.12.1 (0x020c01ff)\n").as_deref(), Some("2.12.1"));
        assert_eq!(version("nothing"), None);
    }
}
