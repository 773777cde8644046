//! Latencies as the programs of foreign clients keep them, and the quantities made of them.
//!
//! A file for each quantity: pairs of two 64-bit integers, most significant byte first: the ns since the beginning of
//! the measured part at which an operation ended, and the ns that it took. A file that is cut is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::report::histogram;
use crate::result::{Quantity, Second};

const PAIR_BYTES: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// A second of a run that lies further from its beginning is no result but a fault of the clock.
const SECONDS_MAX: u64 = 1_000_000;

/// The quantity `name` of the file with this name in `dir`; each operation is worth `operation_bytes`.
pub fn quantity(dir: &Path, name: &str, operation_bytes: u64) -> Result<Quantity> {
    let path = dir.join(name);
    let bytes = fs::read(&path).with_context(|| format!("latencies of {name}"))?;
    of_bytes(name, &bytes, operation_bytes).with_context(|| format!("latencies of {name}"))
}

fn of_bytes(name: &str, bytes: &[u8], operation_bytes: u64) -> Result<Quantity> {
    ensure!(bytes.len().is_multiple_of(PAIR_BYTES), "{} bytes are no whole number of pairs", bytes.len());
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("half of a pair"));
    let mut all = Histogram::<u64>::new(3)?;
    let mut seconds: BTreeMap<u64, Histogram<u64>> = BTreeMap::new();
    for pair in bytes.chunks_exact(PAIR_BYTES) {
        let (ended, took) = (number(&pair[..8]), number(&pair[8..]));
        // Clocks of threads may differ by a little: what ends before it is due took no time.
        let (ended, took) = (u64::try_from(ended).unwrap_or(0), u64::try_from(took).unwrap_or(0));
        let second = ended / NANOS_PER_SECOND;
        ensure!(second < SECONDS_MAX, "an operation is told to have ended after {second} s");
        all.record(took)?;
        let of_second = match seconds.entry(second) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => free.insert(Histogram::new(3)?),
        };
        of_second.record(took)?;
    }
    let last = seconds.keys().next_back().map_or(0, |last| last + 1);
    let by_second = (0..last).map(|at| seconds.get(&at).map_or(Second::default(), |h| second(h, operation_bytes)));
    Ok(Quantity {
        name: name.to_owned(),
        count: all.len(),
        failed: 0,
        bytes: all.len() * operation_bytes,
        latency_ns: histogram::encode(&all)?,
        by_second: by_second.collect(),
    })
}

fn second(latencies: &Histogram<u64>, operation_bytes: u64) -> Second {
    Second {
        count: latencies.len(),
        bytes: latencies.len() * operation_bytes,
        p50_ns: latencies.value_at_quantile(0.5),
        p99_ns: latencies.value_at_quantile(0.99),
        max_ns: latencies.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(pairs: &[(i64, i64)]) -> Vec<u8> {
        pairs.iter().flat_map(|(ended, took)| [ended.to_be_bytes(), took.to_be_bytes()].concat()).collect()
    }

    #[test]
    fn every_operation_is_in_its_second_and_in_the_whole() {
        let second = 1_000_000_000;
        let made = bytes(&[(5, 1000), (second - 1, 3000), (2 * second, 5000), (-3, -1)]);
        let quantity = of_bytes("produce", &made, 100).unwrap();
        assert_eq!((quantity.count, quantity.bytes, quantity.by_second.len()), (4, 400, 3));
        let counts: Vec<_> = quantity.by_second.iter().map(|second| (second.count, second.bytes)).collect();
        assert_eq!(counts, [(3, 300), (0, 0), (1, 100)]);
        let all = histogram::decode(&quantity.latency_ns).unwrap().unwrap();
        assert_eq!((all.len(), all.min()), (4, 0));
        assert!(all.equivalent(all.max(), 5000));
    }

    #[test]
    fn what_is_cut_or_out_of_time_is_refused() {
        let whole = bytes(&[(1, 2)]);
        assert!(of_bytes("x", &whole[..15], 0).unwrap_err().to_string().contains("15 bytes"));
        let late = bytes(&[(i64::MAX, 2)]);
        assert!(of_bytes("x", &late, 0).unwrap_err().to_string().contains("ended after"));
        assert_eq!(of_bytes("x", &[], 0).unwrap().count, 0);
    }
}
