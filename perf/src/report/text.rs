//! The words and tables of a report, in Markdown.
//!
//! What was not told is shown as not told: a reader must not take a missing durability for a good one.

use std::fmt::Write as _;

use anyhow::Result;

use super::axis::{count, nanos, short};
use super::curves::name_of;
use super::histogram;
use crate::result::{Machine, Quantity, Run};

const PERCENTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// What stands above the results.
const RESULTS: &str = "## Results\n\nAt a rate, latencies count from the time at which an operation was due; at \
                       saturation, from its begin.\n\n";

/// What stands above the floors.
const FLOORS: &str = "Floors of the machine: what a durable write and a round trip cost without a broker.\n\n";

/// The whole report; `plots` are titles and files beside it.
pub fn markdown(runs: &[Run], labels: &[String], plots: &[(String, &str)]) -> Result<String> {
    let mut out = String::from("# Measurements\n\n");
    sides(&mut out, runs, labels);
    results(&mut out, runs, labels)?;
    figures(&mut out, runs, labels);
    for (title, file) in plots {
        let _ = write!(out, "## {title}\n\n![{title}]({file})\n\n");
    }
    machines(&mut out, runs, labels);
    options(&mut out, runs, labels);
    Ok(out)
}

/// Text inside of a table.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn row(out: &mut String, cells: &[String]) {
    let cells: Vec<_> = cells.iter().map(|text| cell(text)).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn head(out: &mut String, names: &[&str]) {
    row(out, &names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>());
    let _ = writeln!(out, "|{}", "--|".repeat(names.len()));
}

fn told(text: Option<&String>) -> String {
    text.filter(|text| !text.is_empty()).cloned().unwrap_or_else(|| "not told".into())
}

/// Who was measured by whom.
fn sides(out: &mut String, runs: &[Run], labels: &[String]) {
    head(
        out,
        &["run", "mode", "target", "its version", "an acknowledgement means", "client", "began (UTC)", "seconds"],
    );
    for (run, label) in runs.iter().zip(labels) {
        let target = if run.target.name == run.target.bootstrap || run.target.name.is_empty() {
            run.target.bootstrap.clone()
        } else {
            format!("{} at {}", run.target.name, run.target.bootstrap)
        };
        row(
            out,
            &[
                label.clone(),
                run.mode.clone(),
                target,
                told(run.target.version.as_ref()),
                told(run.target.durability.as_ref()),
                format!("{} {}", run.client, run.client_version).trim().to_string(),
                utc(run.began_ms),
                short(run.seconds),
            ],
        );
    }
    out.push('\n');
}

fn results(out: &mut String, runs: &[Run], labels: &[String]) -> Result<()> {
    out.push_str(RESULTS);
    let mut names = vec!["run: operation", "done", "failed", "per second", "MB/s"];
    names.extend(PERCENTILES.map(|(name, _)| name));
    names.push("max");
    head(out, &names);
    for (run, label) in runs.iter().zip(labels) {
        for quantity in &run.quantities {
            let rate = |amount: f64| if run.seconds > 0.0 { count(amount / run.seconds) } else { "-".into() };
            let bytes = if quantity.bytes == 0 { "-".into() } else { rate(quantity.bytes as f64 / 1e6) };
            let mut cells = vec![
                name_of(label, quantity),
                quantity.count.to_string(),
                quantity.failed.to_string(),
                rate(quantity.count as f64),
                bytes,
            ];
            cells.extend(latencies(quantity)?);
            row(out, &cells);
        }
    }
    out.push('\n');
    Ok(())
}

/// The percentiles that so many operations can tell, and the longest.
fn latencies(quantity: &Quantity) -> Result<Vec<String>> {
    let Some(all) = histogram::decode(&quantity.latency_ns)?.filter(|all| !all.is_empty()) else {
        return Ok(vec!["-".into(); PERCENTILES.len() + 1]);
    };
    let told = |share: f64| all.len() as f64 * (1.0 - share) >= 1.0 - 1e-6;
    let value = |share| if told(share) { nanos(all.value_at_quantile(share) as f64) } else { "-".to_string() };
    let mut cells: Vec<_> = PERCENTILES.iter().map(|(_, share)| value(*share)).collect();
    cells.push(nanos(all.max() as f64));
    Ok(cells)
}

fn figures(out: &mut String, runs: &[Run], labels: &[String]) {
    if runs.iter().all(|run| run.figures.is_empty()) {
        return;
    }
    head(out, &["run", "figure", "value"]);
    for (run, label) in runs.iter().zip(labels) {
        for (name, value) in &run.figures {
            row(out, &[label.clone(), name.clone(), short(*value)]);
        }
    }
    out.push('\n');
}

/// Each machine once, with the runs that it made.
fn machines(out: &mut String, runs: &[Run], labels: &[String]) {
    out.push_str("## Machine of the client\n\n");
    let mut seen: Vec<(&Machine, Vec<&str>)> = Vec::new();
    let mut without = Vec::new();
    for (run, label) in runs.iter().zip(labels) {
        match &run.machine {
            None => without.push(label.as_str()),
            Some(machine) => match seen.iter_mut().find(|(known, _)| same(known, machine)) {
                Some((_, users)) => users.push(label),
                None => seen.push((machine, vec![label])),
            },
        }
    }
    for (machine, users) in &seen {
        let _ = writeln!(out, "{}:\n", users.join("; "));
        head(out, &["", ""]);
        let pairs = [
            ("processor", machine.processor.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", format!("{} GiB", short(machine.memory_bytes as f64 / f64::from(1 << 30)))),
            ("kernel", machine.kernel.clone()),
            ("clock source", machine.clock_source.clone()),
            ("disk", machine.disk.clone()),
        ];
        for (name, value) in pairs {
            row(out, &[name.into(), value]);
        }
        out.push('\n');
    }
    if !without.is_empty() {
        let _ = writeln!(out, "{}: not told.\n", without.join("; "));
    }
    floors(out, runs, labels);
}

/// Floors are measured anew beside each run and differ a little; the rest tells whether it is the same machine.
fn same(a: &Machine, b: &Machine) -> bool {
    let key = |m: &Machine| {
        let texts = [&m.processor, &m.kernel, &m.clock_source, &m.disk].map(String::clone);
        (texts, m.cores, m.memory_bytes)
    };
    key(a) == key(b)
}

fn floors_of(run: &Run) -> &[(String, f64)] {
    run.machine.as_ref().map_or(&[], |machine| &machine.floors_ns)
}

/// Runs that were told the same floors share a table.
fn floors(out: &mut String, runs: &[Run], labels: &[String]) {
    let mut seen: Vec<(&Run, Vec<&str>)> = Vec::new();
    for (run, label) in runs.iter().zip(labels) {
        match seen.iter_mut().find(|(known, _)| floors_of(known) == floors_of(run)) {
            Some((_, users)) => users.push(label),
            None => seen.push((run, vec![label])),
        }
    }
    out.push_str(FLOORS);
    for (run, users) in seen {
        let (told, users) = (floors_of(run), users.join("; "));
        if told.is_empty() {
            let _ = writeln!(out, "{users}: no floors were measured.\n");
            continue;
        }
        let _ = writeln!(out, "{users}:\n");
        head(out, &["floor", "time"]);
        told.iter().for_each(|(name, value)| row(out, &[name.clone(), nanos(*value)]));
        out.push('\n');
    }
}

fn options(out: &mut String, runs: &[Run], labels: &[String]) {
    out.push_str("## Options\n");
    for (run, label) in runs.iter().zip(labels) {
        let _ = writeln!(out, "\n{label}:\n");
        for (name, value) in &run.options {
            let _ = writeln!(out, "- {name} = {value}");
        }
        if run.options.is_empty() {
            out.push_str("- none were told\n");
        }
    }
}

/// `2026-01-31 12:00:00` of ms since 1970 (days to dates as in the proleptic Gregorian calendar).
fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (mut year, mut day) = (1970_u64, seconds / 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(utc(1_798_761_599_999), "2026-12-31 23:59:59");
        assert_eq!(utc(1_735_689_600_000), "2025-01-01 00:00:00");
    }

    #[test]
    fn a_cell_cannot_break_its_table() {
        let mut out = String::new();
        row(&mut out, &["a|b".into(), "c\nd".into()]);
        assert_eq!(out, "| a\\|b | c d |\n");
    }
}
