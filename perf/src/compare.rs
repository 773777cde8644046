//! `oncilla-perf compare`: one mode against two brokers in turns, and how far apart they are.
//!
//! Every turn is a process of its own: this executable with the mode's arguments and `--json -`. The sides take turns
//! within a pair and the first of a pair changes from pair to pair, so that what drifts burdens both. With `--start-a`
//! and `--start-b` a broker runs only for its turn. The first turn that fails ends the comparison: figures of a side
//! that lost records are worth nothing. A turn that takes longer than it may is killed and has failed. A broker that
//! was started here is ended here, whatever happens.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::program::{Limit, ended};
use crate::report::{axis, histogram, parse};
use crate::result::{Machine, Run};
use crate::started::Broker;

/// Operations that measure each floor.
const FLOOR_COUNT: u32 = 2000;
/// What is shown of the words of a turn that failed.
const SAID_BYTES_MAX: usize = 4000;
/// Latencies that are compared: those that decide, and the longest.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Options of `compare`.
#[derive(clap::Args)]
pub struct Options {
    /// Address of side A.
    #[arg(long, value_name = "HOST:PORT")]
    a: String,
    /// Address of side B; it may be that of A when both are started for their turns.
    #[arg(long, value_name = "HOST:PORT")]
    b: String,
    /// What side A is called.
    #[arg(long, default_value = "A")]
    name_a: String,
    /// What side B is called.
    #[arg(long, default_value = "B")]
    name_b: String,
    /// Turns of each side.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Shell command that starts A for each of its turns; SIGTERM ends it.
    #[arg(long, value_name = "COMMAND")]
    start_a: Option<String>,
    /// The same for B.
    #[arg(long, value_name = "COMMAND")]
    start_b: Option<String>,
    /// Setting of the topics that are made at A, such as flush.messages=1.
    #[arg(long, value_name = "NAME=VALUE")]
    topic_config_a: Vec<String>,
    /// The same for B.
    #[arg(long, value_name = "NAME=VALUE")]
    topic_config_b: Vec<String>,
    /// More arguments for the turns of A, separated by spaces.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, default_value = "")]
    args_a: String,
    /// The same for B.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, default_value = "")]
    args_b: String,
    /// Keep the JSON of every turn in this directory, for `report`.
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Measure the floors of the disk below DIR and of this machine's TCP before the first turn.
    #[arg(long, value_name = "DIR")]
    floor: Option<PathBuf>,
    /// Longest time for one turn; it is killed then, and the comparison ends.
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..))]
    turn_seconds_max: u32,
    /// The mode and its arguments without --bootstrap, --name and --json.
    #[arg(last = true, required = true, value_name = "MODE ARGS")]
    mode: Vec<String>,
}

/// One broker of the comparison.
struct Side<'a> {
    name: &'a str,
    address: &'a str,
    start: Option<&'a str>,
    topic_config: &'a [String],
    more: &'a str,
}

/// Runs all turns; gives the page.
pub fn run(options: &Options) -> Result<String> {
    ensure!(options.name_a != options.name_b, "both sides are called {}", options.name_a);
    let sides = [
        Side {
            name: &options.name_a,
            address: &options.a,
            start: options.start_a.as_deref(),
            topic_config: &options.topic_config_a,
            more: &options.args_a,
        },
        Side {
            name: &options.name_b,
            address: &options.b,
            start: options.start_b.as_deref(),
            topic_config: &options.topic_config_b,
            more: &options.args_b,
        },
    ];
    if let Some(dir) = &options.runs {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    let (dir, count) = options.floor.as_deref().map_or((Path::new("."), 0), |dir| (dir, FLOOR_COUNT));
    let here = machine::describe(dir, count);
    let mut runs = [Vec::new(), Vec::new()];
    for pair in 0..options.pairs {
        for side in order(pair) {
            eprintln!("pair {} of {}: {}", pair + 1, options.pairs, sides[side].name);
            let mut run =
                turn(&sides[side], options).with_context(|| format!("pair {}, {}", pair + 1, sides[side].name))?;
            run.machine.get_or_insert_with(|| here.clone());
            if let Some(dir) = &options.runs {
                keep(&run, &dir.join(format!("{}-{}.json", pair + 1, ["a", "b"][side])))?;
            }
            runs[side].push(run);
        }
    }
    let [a, b] = &runs;
    page([(sides[0].name, a), (sides[1].name, b)], &options.mode, &here)
}

/// Which side goes first and second: A in the first pair, B in the second.
fn order(pair: u32) -> [usize; 2] {
    if pair.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

fn keep(run: &Run, path: &Path) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(run)? + "\n").with_context(|| format!("write {}", path.display()))
}

/// Arguments of a turn.
fn arguments(side: &Side<'_>, mode: &[String]) -> Vec<String> {
    let mut all = mode.to_vec();
    all.extend(["--bootstrap", side.address, "--name", side.name, "--json", "-"].map(str::to_owned));
    all.extend(side.topic_config.iter().flat_map(|setting| ["--topic-config".to_owned(), setting.clone()]));
    all.extend(side.more.split_whitespace().map(str::to_owned));
    all
}

fn turn(side: &Side<'_>, options: &Options) -> Result<Run> {
    let mode = &options.mode;
    let broker = side.start.map(|command| Broker::start(command, side.address)).transpose()?;
    let mut command = Command::new(std::env::current_exe().context("the path of oncilla-perf")?);
    command.args(arguments(side, mode));
    let time = Duration::from_secs(options.turn_seconds_max.into());
    let limit = Limit { time, hint: "; --turn-seconds-max gives it longer".into() };
    let done = ended(command, "this program itself", &limit)?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{} failed ({}):\n{}", mode[0], done.status, tail(&said));
    let run = parse(&String::from_utf8_lossy(&done.stdout))?;
    if let Some(broker) = broker {
        broker.stop()?;
    }
    Ok(run)
}

/// The end of a text.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SAID_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].trim()
}

/// Names and values that a run is compared by; latencies in us.
fn values(run: &Run) -> Result<Vec<(String, f64)>> {
    let mut all = Vec::new();
    for quantity in &run.quantities {
        let name = &quantity.name;
        if run.seconds > 0.0 {
            all.push((format!("{name} (per second, more is better)"), quantity.count as f64 / run.seconds));
            if quantity.bytes > 0 {
                all.push((format!("{name} (MB/s, more is better)"), quantity.bytes as f64 / 1e6 / run.seconds));
            }
        }
        let Some(latency) = histogram::decode(&quantity.latency_ns)?.filter(|latency| !latency.is_empty()) else {
            continue;
        };
        for (percentile, share) in PERCENTILES {
            // A percentile that less than one operation stands behind would be the maximum under another name.
            if latency.len() as f64 * (1.0 - share) >= 1.0 - 1e-6 {
                let us = latency.value_at_quantile(share) as f64 / 1e3;
                all.push((format!("{name} {percentile} (us, less is better)"), us));
            }
        }
        all.push((format!("{name} max (us, less is better)"), latency.max() as f64 / 1e3));
    }
    all.extend(run.figures.iter().cloned());
    Ok(all)
}

/// What several turns of one side gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// None without values.
    fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }

    fn width(self) -> f64 {
        self.max - self.min
    }

    fn shown(self) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(axis::short);
        format!("{median} ({min}-{max})")
    }
}

/// The ratio of the medians; none where it would be of nothing.
fn ratio(a: Spread, b: Spread) -> Option<f64> {
    (b.median != 0.0).then(|| a.median / b.median)
}

/// Whether the difference means anything.
fn verdict(a: Spread, b: Spread, pairs: usize) -> &'static str {
    if pairs < 2 {
        "one pair tells no spread"
    } else if a.width().max(b.width()) > (a.median - b.median).abs() {
        "spread is wider than the difference"
    } else {
        ""
    }
}

fn page(sides: [(&str, &Vec<Run>); 2], mode: &[String], here: &Machine) -> Result<String> {
    let [(name_a, runs_a), (name_b, runs_b)] = sides;
    let collect = |runs: &[Run]| runs.iter().map(values).collect::<Result<Vec<_>>>();
    let (a, b) = (collect(runs_a)?, collect(runs_b)?);
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in a.iter().chain(&b).flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let spread = |turns: &[Vec<(String, f64)>], name: &String| {
        let found: Vec<_> =
            turns.iter().flatten().filter(|(known, _)| known == name).map(|(_, value)| *value).collect();
        Spread::of(&found)
    };
    let mut out = format!("`{}`, {} pairs, median (min-max)\n\n", mode.join(" "), runs_a.len());
    let _ = writeln!(out, "| | {name_a} | {name_b} | {name_a}/{name_b} | |\n|--|--|--|--|--|");
    for name in names {
        let (of_a, of_b) = (spread(&a, name), spread(&b, name));
        let shown = |spread: Option<Spread>| spread.map_or("-".into(), Spread::shown);
        let (times, remark) = match (of_a, of_b) {
            (Some(a), Some(b)) => {
                (ratio(a, b).map_or("-".into(), |times| format!("{times:.2}")), verdict(a, b, runs_a.len()))
            }
            _ => ("-".into(), "only one side has it"),
        };
        let _ = writeln!(out, "| {name} | {} | {} | {times} | {remark} |", shown(of_a), shown(of_b));
    }
    let _ = writeln!(out, "\n{}, {} cores, kernel {}, {}", here.processor, here.cores, here.kernel, here.disk);
    for (name, run) in [(name_a, runs_a.first()), (name_b, runs_b.first())] {
        let told = |text: Option<&String>| text.map_or("not told", |text| text.as_str()).to_string();
        let target = run.map(|run| &run.target);
        let durability = told(target.and_then(|target| target.durability.as_ref()));
        let version = told(target.and_then(|target| target.version.as_ref()));
        let _ = writeln!(out, "\n- {name}: version {version}; an acknowledgement means: {durability}");
    }
    for (name, value) in &here.floors_ns {
        let _ = writeln!(out, "- floor, {name}: {}", axis::nanos(*value));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::result::{FORMAT, Quantity, Target};

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values).expect("there are values")
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(spread(&[3.0, 1.0, 10.0]), Spread { median: 3.0, min: 1.0, max: 10.0 });
        assert_eq!(spread(&[4.0, 1.0, 2.0, 10.0]), Spread { median: 3.0, min: 1.0, max: 10.0 });
        assert_eq!(spread(&[5.0]), Spread { median: 5.0, min: 5.0, max: 5.0 });
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_that_of_medians_and_none_of_nothing() {
        assert_eq!(ratio(spread(&[1.0, 2.0, 9.0]), spread(&[4.0])), Some(0.5));
        assert_eq!(ratio(spread(&[1.0]), spread(&[0.0])), None);
    }

    #[test]
    fn a_difference_inside_of_the_spread_is_said_to_be_none() {
        let (narrow, wide) = (spread(&[10.0, 11.0, 12.0]), spread(&[14.0, 20.0, 30.0]));
        assert_eq!(verdict(narrow, wide, 3), "spread is wider than the difference");
        assert_eq!(verdict(narrow, spread(&[20.0, 21.0, 22.0]), 3), "");
        assert_eq!(verdict(narrow, wide, 1), "one pair tells no spread");
    }

    #[test]
    fn the_first_of_a_pair_changes() {
        assert_eq!([0, 1, 2].map(order), [[0, 1], [1, 0], [0, 1]]);
    }

    #[test]
    fn a_turn_gets_the_mode_its_side_and_what_belongs_to_the_side() {
        let config = ["flush.messages=1".to_string()];
        let side = Side { name: "k", address: "h:1", start: None, topic_config: &config, more: "--seconds 2" };
        let mode = ["produce", "--rate", "5"].map(str::to_owned);
        let expected = "produce --rate 5 --bootstrap h:1 --name k --json - --topic-config flush.messages=1 --seconds 2";
        assert_eq!(arguments(&side, &mode).join(" "), expected);
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        let text = "\u{e4}".repeat(SAID_BYTES_MAX);
        assert!(tail(&text[..text.len() - 2]).len() <= SAID_BYTES_MAX);
        assert_eq!(tail(" short \n"), "short");
    }

    fn made(name: &str, count: u64, latency_ns: u64) -> Run {
        let mut latencies = Histogram::<u64>::new(3).unwrap();
        latencies.record_n(latency_ns, 200).unwrap();
        let latency_ns = histogram::encode(&latencies).unwrap();
        let quantity =
            Quantity { name: "produce".into(), count, bytes: count * 1000, latency_ns, ..Quantity::default() };
        Run {
            format: FORMAT,
            seconds: 10.0,
            target: Target { name: name.into(), durability: Some("fsync".into()), ..Target::default() },
            quantities: vec![quantity],
            figures: vec![("start_ms".into(), latency_ns_of(count))],
            ..Run::default()
        }
    }

    fn latency_ns_of(count: u64) -> f64 {
        count as f64 / 100.0
    }

    #[test]
    fn the_page_has_medians_spreads_ratios_and_what_only_one_side_has() {
        let a = [1000, 3000, 2000].map(|n| made("one", n, 1_000_000)).to_vec();
        let mut b = [500, 500, 500].map(|n| made("two", n, 4_000_000)).to_vec();
        b[0].figures.push(("extra".into(), 1.0));
        let machine = Machine { floors_ns: vec![("write p50".into(), 2000.0)], ..Machine::default() };
        let text = page([("one", &a), ("two", &b)], &["produce".into()], &machine).unwrap();
        let row = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
            row.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>()
        };
        let rate = row("| produce (per second");
        assert_eq!(rate[2..6], ["200 (100-300)", "50 (50-50)", "4.00", "spread is wider than the difference"]);
        assert_eq!(row("| produce p99 ")[2..6], ["1000 (1000-1000)", "4002 (4002-4002)", "0.25", ""]);
        assert!(!text.contains("p99.9"), "200 operations do not tell it: {text}");
        assert_eq!(row("| start_ms")[2..5], ["20 (10-30)", "5 (5-5)", "4.00"]);
        assert_eq!(row("| extra")[2..6], ["-", "1 (1-1)", "-", "only one side has it"]);
        assert!(text.contains("- two: version not told; an acknowledgement means: fsync"), "{text}");
        assert!(text.contains("floor, write p50: 2 us"), "{text}");
    }
}
