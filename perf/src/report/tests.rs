//! Reports of a recorded run and of runs made here.

use std::fs;

use hdrhistogram::Histogram;

use super::{add_floors, histogram, labels, load, parse, run, write};
use crate::report::Options;
use crate::result::{FORMAT, Machine, Quantity, Run, Second, Target};

const RECORDED: &str = include_str!("recorded.json");

fn made(target: &str, client: &str, base_ns: u64) -> Run {
    let mut latencies = Histogram::<u64>::new(3).unwrap();
    for n in 0..10_000 {
        latencies.record(base_ns + n * 10).unwrap();
    }
    let second = |n: u64| Second {
        count: 5000 + n,
        bytes: 5_000_000,
        p50_ns: base_ns,
        p99_ns: base_ns * 2,
        max_ns: base_ns * 3,
    };
    Run {
        format: FORMAT,
        mode: "produce".into(),
        client: client.into(),
        target: Target { name: target.into(), bootstrap: "127.0.0.1:1".into(), ..Target::default() },
        seconds: 2.0,
        quantities: vec![Quantity {
            name: "produce".into(),
            count: 10_000,
            bytes: 10_240_000,
            latency_ns: histogram::encode(&latencies).unwrap(),
            by_second: (0..2).map(second).collect(),
            ..Quantity::default()
        }],
        ..Run::default()
    }
}

#[test]
fn a_report_of_a_recorded_run_states_what_was_measured_and_on_what() {
    let out = tempfile::tempdir().unwrap();
    let recorded = parse(RECORDED).unwrap();
    let page = write(std::slice::from_ref(&recorded), out.path()).unwrap();
    let page = fs::read_to_string(page).unwrap();
    let machine = recorded.machine.as_ref().unwrap();
    let target = &recorded.target;
    let mut wanted = vec![&machine.processor, &machine.kernel, &machine.clock_source, &machine.disk];
    wanted.extend([target.durability.as_ref().unwrap(), target.version.as_ref().unwrap(), &recorded.client_version]);
    wanted.extend(recorded.options.iter().map(|(name, _)| name));
    for text in wanted {
        assert!(!text.is_empty() && page.contains(text.as_str()), "{text} is not in\n{page}");
    }
    assert!(page.contains("durable 4 KiB write p50"), "{page}");
    for name in ["percentiles.svg", "throughput.svg", "p99.svg"] {
        let svg = fs::read_to_string(out.path().join(name)).unwrap();
        roxmltree::Document::parse(&svg).expect("it is well formed");
        assert!(page.contains(&format!("]({name})")), "{page}");
    }
}

#[test]
fn all_runs_are_in_every_plot_and_percentiles_are_those_of_the_histogram() {
    let out = tempfile::tempdir().unwrap();
    let runs = [made("one", "oncilla", 100_000), made("two & more", "java", 3_000_000)];
    let page = fs::read_to_string(write(&runs, out.path()).unwrap()).unwrap();
    for name in ["percentiles.svg", "throughput.svg", "p99.svg"] {
        let svg = fs::read_to_string(out.path().join(name)).unwrap();
        let document = roxmltree::Document::parse(&svg).expect("it is well formed");
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for label in ["one, oncilla: produce", "two & more, java: produce"] {
            assert!(texts.contains(&label), "{label} is not in {name}");
        }
    }
    let row = page.lines().find(|line| line.starts_with("| one, oncilla: produce")).unwrap();
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[2..6], ["10000", "0", "5000", "5.12"]);
    assert_eq!(cells[6..12], ["150 us", "190 us", "199 us", "200 us", "200 us", "200 us"]);
    assert!(page.contains("not told"), "durability and version of nobody are not told: {page}");
    assert!(page.contains("one, oncilla; two & more, java: no floors were measured"), "{page}");
}

#[test]
fn what_too_few_operations_cannot_tell_is_left_out() {
    let out = tempfile::tempdir().unwrap();
    let mut one = made("one", "oncilla", 100_000);
    let mut few = Histogram::<u64>::new(3).unwrap();
    few.record_n(1_000_000, 150).unwrap();
    one.quantities[0].latency_ns = histogram::encode(&few).unwrap();
    one.quantities.push(Quantity { name: "bare".into(), count: 3, ..Quantity::default() });
    one.figures = vec![("first_answer_ms".into(), 12.5)];
    let page = fs::read_to_string(write(&[one], out.path()).unwrap()).unwrap();
    let cells = |name: &str| {
        let row = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {page}"));
        row.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(cells("| one: produce")[6..12], ["1 ms", "1 ms", "1 ms", "-", "-", "1 ms"]);
    assert_eq!(cells("| one: bare")[5..12], ["-"; 7]);
    assert!(page.contains("| one | first_answer_ms | 12.5 |"), "{page}");
}

#[test]
fn a_run_without_latencies_gets_no_empty_plots() {
    let out = tempfile::tempdir().unwrap();
    let mut one = made("one", "librdkafka", 100_000);
    one.quantities[0].latency_ns.clear();
    one.quantities[0].by_second.clear();
    let page = fs::read_to_string(write(&[one], out.path()).unwrap()).unwrap();
    assert!(!page.contains(".svg"), "{page}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

#[test]
fn runs_are_told_apart_by_what_differs() {
    let (a, b) = (made("a", "oncilla", 1000), made("b", "oncilla", 1000));
    assert_eq!(labels(&[a.clone(), b.clone()]), ["a", "b"]);
    assert_eq!(labels(&[a.clone(), a.clone(), b.clone()]), ["a #1", "a #2", "b"]);
    let fetch = Run { mode: "fetch".into(), client: "java".into(), ..b };
    assert_eq!(labels(&[a, fetch]), ["a, oncilla, produce", "b, java, fetch"]);
}

#[test]
fn floors_are_added_only_to_runs_without() {
    let mut runs = [made("a", "oncilla", 1000), made("b", "oncilla", 1000)];
    let told = vec![("x".to_string(), 1.0)];
    runs[0].machine = Some(Machine { floors_ns: told.clone(), processor: "P".into(), ..Machine::default() });
    // Beside the sources: a directory for temporary files may be in memory, where O_DIRECT is refused.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    add_floors(&mut runs, dir.path(), 20);
    assert_eq!(runs[0].machine.as_ref().unwrap().floors_ns, told);
    let added = runs[1].machine.as_ref().unwrap();
    assert!(!added.kernel.is_empty());
    // A file system without O_DIRECT has none; those that there are tell when they were measured.
    assert!(added.floors_ns.iter().all(|(name, _)| name.ends_with("when the report was made")), "{added:?}");
}

#[test]
fn what_is_no_run_is_refused_by_name_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, newer, out) = (dir.path().join("bad.json"), dir.path().join("newer.json"), dir.path().join("out"));
    fs::write(&bad, "{\"half\":").unwrap();
    fs::write(&newer, serde_json::to_string(&Run { format: FORMAT + 1, ..Run::default() }).unwrap()).unwrap();
    let told = |path: &std::path::PathBuf| {
        let options = Options { runs: vec![path.clone()], out: out.clone(), floor: None };
        format!("{:#}", run(&options).expect_err("it is refused"))
    };
    assert!(told(&bad).contains("bad.json") && told(&bad).contains("no run"), "{}", told(&bad));
    assert!(told(&newer).contains("format 2"), "{}", told(&newer));
    assert!(told(&dir.path().join("none.json")).contains("none.json"));
    assert!(!out.exists());
    assert!(load(&bad).is_err());
}

#[test]
fn a_damaged_histogram_is_told_with_its_run() {
    let mut one = made("one", "oncilla", 1000);
    one.quantities[0].latency_ns = "AAAA".into();
    let out = tempfile::tempdir().unwrap();
    let error = format!("{:#}", write(&[one], out.path()).expect_err("it is damaged"));
    assert!(error.contains("one: produce"), "{error}");
}
