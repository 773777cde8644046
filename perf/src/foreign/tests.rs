//! Which programs a foreign run makes of its options, and what it makes of their words. Nothing is started here.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use clap::Parser;

use super::{Options, durability, finish, kept, last_line, measured, table};
use crate::result::Run;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(line: &str) -> Result<Options, String> {
    let words = ["foreign"].into_iter().chain(line.split(' ')).chain(["--bootstrap", "h:1"]);
    let options = Line::try_parse_from(words).map_err(|error| error.to_string())?.options;
    options.check().map_err(|error| error.to_string())?;
    Ok(options)
}

fn output(said: &str) -> Output {
    Output { status: ExitStatus::from_raw(0), stdout: said.as_bytes().to_vec(), stderr: Vec::new() }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is() {
    let refusal = |line: &str| options(line).expect_err("it is refused");
    assert!(refusal("java produce").contains("--rate or --saturate"));
    assert!(refusal("java produce --rate 5 --saturate").contains("--saturate"));
    assert!(refusal("java e2e").contains("needs --rate"));
    assert!(refusal("java fetch").contains("needs --topic"));
    assert!(refusal("java txn --rate 5").contains("it saturates"));
    assert!(refusal("librdkafka e2e --rate 5").contains("no e2e through librdkafka"));
    assert!(refusal("librdkafka txn --producers 2").contains("one producer"));
    assert!(refusal("java produce --rate 5 -X linger.ms").contains("name=value"));
    assert!(refusal("go produce --rate 5").contains("java"));
}

#[test]
fn a_result_tells_the_options_that_counted() {
    let told = |line: &str| {
        let told = options(line).unwrap().told(4);
        told.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        told("java produce --rate 500 --topic-config a=1 -X linger.ms=5"),
        "record-bytes=1024 partitions=4 seconds=10 warmup-seconds=2 rate=500 topic-config=a=1 X=linger.ms=5"
    );
    assert_eq!(
        told("librdkafka produce --saturate --records 7"),
        "record-bytes=1024 partitions=4 records=7 saturate=true"
    );
    assert_eq!(told("java fetch --topic x"), "record-bytes=1024 partitions=4 saturate=true");
}

#[test]
fn quantities_come_from_kept_latencies_and_failures_from_the_last_line() {
    let dir = tempfile::tempdir().unwrap();
    let pair: Vec<u8> = [5_i64.to_be_bytes(), 2_000_000_i64.to_be_bytes()].concat();
    for name in ["txn", "send", "commit"] {
        std::fs::write(dir.path().join(name), pair.repeat(3)).unwrap();
    }
    let options = options("java txn --records-per-txn 10 --record-bytes 100").unwrap();
    let told = last_line(&output("words\n{\"failed\":2,\"version\":\"4.3.1\"}\n")).unwrap();
    let measured = measured(&options, &told, dir.path()).unwrap();
    let shown: Vec<_> = measured.quantities.iter().map(|q| (q.name.as_str(), q.count, q.bytes, q.failed)).collect();
    assert_eq!(shown, [("txn", 3, 3000, 2), ("send", 3, 3000, 0), ("commit", 3, 0, 0)]);
    assert_eq!((measured.failed, measured.client_version.as_str()), (2, "4.3.1"));
    let run = Run { seconds: 10.0, quantities: measured.quantities, ..Run::default() };
    let table = table(&run).unwrap();
    assert!(table.contains("txn: 0.3/s, 0 MB/s, p50 2 ms, p90 2 ms, p99 2 ms"), "{table}");
}

#[test]
fn an_aborting_run_keeps_aborts() {
    let names = |line: &str| kept(&options(line).unwrap()).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("java txn --abort"), ["txn", "send", "abort"]);
    assert_eq!(names("java e2e --rate 1"), ["e2e"]);
    assert!(names("java fetch --topic x").is_empty());
}

#[test]
fn a_program_that_is_missing_fails_or_says_nothing_is_told() {
    let given = options("java produce --rate 1").unwrap();
    let error = format!("{:#}", finish(Command::new("/no/such/java"), "a Java is needed", &given.limit()).unwrap_err());
    assert!(error.contains("/no/such/java") && error.contains("a Java is needed"), "{error}");
    let mut fails = Command::new("sh");
    fails.args(["-c", "echo the reason >&2; exit 4"]);
    let error = finish(fails, "", &given.limit()).unwrap_err().to_string();
    assert!(error.contains("the reason") && error.contains("exit status: 4"), "{error}");
    assert!(last_line(&output("nothing\n")).unwrap_err().to_string().contains("no result"));
    let missing = measured(&given, &serde_json::json!({"failed": 0}), Path::new("/no/such")).err().unwrap();
    assert!(missing.to_string().contains("produce"), "{missing}");
}

#[test]
fn a_program_that_does_not_end_is_killed_and_the_error_says_what_to_do() {
    let given = options("java produce --rate 1 --seconds 1 --warmup-seconds 0 --grace-seconds 0").unwrap();
    let mut hangs = Command::new("sh");
    hangs.args(["-c", "echo it is $$; exec sleep 600"]);
    let error = finish(hangs, "", &given.limit()).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "sh did not end within 1 s and was killed (--seconds 1, --warmup-seconds 0, --grace-seconds 0);"
        ),
        "{error}"
    );
    assert!(error.contains("--grace-seconds gives it longer"), "{error}");
    let (_, process) = error.split_once("it is ").expect("its words");
    assert!(!Path::new("/proc").join(process.trim()).exists(), "{error}");
    assert_eq!(options("java produce --rate 1").unwrap().limit().time.as_secs(), 312);
}

#[test]
fn durability_says_no_more_than_the_topic_does() {
    assert!(durability(Some("1")).unwrap().contains("before each answer"));
    assert!(durability(Some("9223372036854775807")).unwrap().contains("not set"));
    assert_eq!(durability(Some("500")).unwrap(), "flush.messages=500");
    assert_eq!(durability(None), None);
}
