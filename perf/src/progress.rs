//! What is shown while a run goes on and when it has ended: a line each second on a terminal, then a table.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::recorder::{Measured, Recorder};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Works off the seconds of recorders until `ended`, and shows the first of them on a terminal.
pub fn watch(recorders: &[Arc<Recorder>], ended: impl Fn() -> bool) {
    let terminal = std::io::stderr().is_terminal();
    let mut shown = false;
    while !ended() {
        std::thread::sleep(LOOK_AGAIN);
        for (at, recorder) in recorders.iter().enumerate() {
            let Some(second) = recorder.tick() else { continue };
            if at == 0 && terminal {
                let [p50, p99, max] = [second.p50_ns, second.p99_ns, second.max_ns].map(ms);
                let (count, mb) = (second.count, mb(second.bytes));
                // Whoever closed the terminal still gets the result.
                let _ = write!(
                    std::io::stderr(),
                    "\r\x1b[K{count} /s  {mb:.2} MB/s  p50 {p50:.2}  p99 {p99:.2}  max {max:.2} ms"
                );
                shown = true;
            }
        }
    }
    if shown {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn latency_cells(out: &mut String, latency: &Histogram<u64>) {
    for (_, quantile) in QUANTILES {
        let cell = match latency.is_empty() {
            true => "-".to_owned(),
            false => format!("{:.3}", ms(latency.value_at_quantile(quantile))),
        };
        let _ = write!(out, " {cell:>10}");
    }
}

/// The table of a run: a line for each quantity, latencies in ms.
pub fn table(measured: &[Measured], figures: &[(String, f64)]) -> String {
    let mut out = format!("{:<22} {:>11} {:>7} {:>11} {:>9}", "", "count", "failed", "/s", "MB/s");
    for (name, _) in QUANTILES {
        let _ = write!(out, " {:>10}", format!("{name} ms"));
    }
    out.push('\n');
    for one in measured {
        let quantity = &one.quantity;
        let rate = quantity.count as f64 / one.seconds;
        let throughput = mb(quantity.bytes) / one.seconds;
        let (count, failed) = (quantity.count, quantity.failed);
        let _ = write!(out, "{:<22} {count:>11} {failed:>7} {rate:>11.1} {throughput:>9.2}", quantity.name);
        latency_cells(&mut out, &one.total);
        out.push('\n');
    }
    for (name, value) in figures {
        let _ = writeln!(out, "{name:<34} {value:>11.3}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::Window;

    #[test]
    fn the_table_shows_percentiles_rate_and_throughput() {
        let second_ns = 1_000_000_000;
        let recorder = Recorder::new("produce", Window { begin_ns: 0, end_ns: 2 * second_ns }, false);
        // 1 to 1000 ms, each once.
        (1..=1000).for_each(|ms: u64| recorder.done(0, ms * 1_000_000, 2_000));
        let counted = Measured::count("read", 500, 0, 2.0);
        let text = table(&[recorder.finish(2 * second_ns), counted], &[("late_p99_us".to_owned(), 12.5)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..5], ["produce", "1000", "0", "500.0", "1.00"], "{text}");
        let shown: Vec<f64> = lines[1][5..].iter().map(|cell| cell.parse().expect("a number")).collect();
        let wanted = [500.0, 900.0, 990.0, 999.0, 1000.0, 1000.0];
        assert!(shown.iter().zip(wanted).all(|(shown, wanted)| (shown / wanted - 1.0).abs() < 0.002), "{text}");
        assert_eq!(lines[2], ["read", "500", "0", "250.0", "0.00", "-", "-", "-", "-", "-", "-"], "{text}");
        assert_eq!(lines[3], ["late_p99_us", "12.500"], "{text}");
    }
}
