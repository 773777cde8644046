//! Every rule and case that this repository answers for is named by a test, or by the list below with the reason.
//!
//! A name is `k21_5` or `g6_2` in a test's name, or `K21.5`, `K21.5-K21.7`, `G6.2`, `F12`, `case 17` in its text or
//! comments. Only tests count: the part of a source file behind `#[cfg(test)]`, test files, and everything under tests/
//! but the contracts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Contracts, and the sections of each that are built.
const CONTRACTS: &[(&str, &[&str])] = &[
    ("broker-contract.md", &["KC", "K0", "K3", "K18", "K19", "K20", "K21", "K22", "K23", "K32", "K44"]),
    (
        "groups-contract.md",
        &[
            "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "G15", "G16",
            "G17", "G18", "G19", "G20",
        ],
    ),
];

/// The last of the contract's test cases.
const CASE_F_LAST: u32 = 85;

/// Public reports about idempotence, transactions, reads, offsets, groups, compaction, protocol versions, recovery and
/// speed. Those about clients (142-156, 169, 170) come with the native producer.
const REPORTS: &[u32] = &[
    1, 3, 4, 5, 7, 9, 10, 13, 15, 16, 17, 18, 20, 21, 23, 24, 25, 26, 27, 28, 32, 33, 34, 36, 37, 38, 40, 41, 42, 45,
    47, 49, 50, 51, 52, 54, 56, 58, 60, 61, 62, 63, 64, 66, 67, 68, 70, 71, 73, 76, 77, 78, 80, 82, 84, 85, 87, 88, 89,
    92, 93, 94, 96, 97, 98, 99, 103, 104, 105, 107, 108, 110, 111, 113, 114, 116, 117, 119, 120, 121, 122, 123, 124,
    125, 126, 127, 129, 133, 134, 135, 136, 137, 138, 157, 158, 159, 160, 161, 162, 166, 168, 171,
];
const AUTHORIZER: &str = "an authorizer: a later issue";
const ONE_NODE: &str = "one replica on one broker: the condition cannot arise";

/// What no test names, and why.
const WITHOUT_TEST: &[(&str, &str)] = &[
    ("K0.10", ONE_NODE),
    ("K3.11", ONE_NODE),
    ("K0.8", "internal topics: made by the groups and transactions, a later issue"),
    ("K21.2", "internal topics: made by the groups and transactions, a later issue"),
    ("K0.23", "the texts of refused records are compared by the oracle, not by rule"),
    ("K19.17", "Kafka promises nothing here; that a topic is there when CreateTopics answers is K19.3 and the suites"),
    ("K32.10", "how many settings Kafka lists: a fact about Kafka, compared by the oracle"),
    ("K44.12", "eligible leader replicas: needs more than one replica"),
    ("K44.13", "broker loggers: no such resource is served"),
    ("G1.4", "internal topics: there are none, a coordinator is there when the broker serves"),
    ("G2.0", AUTHORIZER),
    ("G8.0", AUTHORIZER),
    ("G9.10", AUTHORIZER),
    ("G2.4", "share and streams groups: not served"),
    ("G8.3", "share and streams groups: not served"),
    ("G6.1", "says what Kafka never does; that an absent group is `Dead` is G7.3"),
    ("G20.5", "hidden settings of Kafka: not read"),
    ("KC.15", "quotas: none are served, every answer carries 0"),
    ("case 15", "clients that are idempotent by default run in the suites and in tests/clients"),
    ("case 20", "as K0.7 and KC.16"),
    ("case 110", "the log of group offsets: there is none, slots are checkpointed"),
    ("case 121", "SASL: a later issue"),
    ("case 134", "no listener is opened before every partition is recovered"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn tracked() -> Vec<String> {
    let args = ["ls-files", "-co", "--exclude-standard", "shards", "src", "tests"];
    let listed = Command::new("git").args(args).current_dir(root()).output().expect("git lists the files");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).expect("file names are UTF-8").lines().map(str::to_owned).collect()
}

/// The part of a file that is test; empty for what is none.
fn test_part<'a>(path: &str, text: &'a str) -> &'a str {
    let file = path.rsplit('/').next().unwrap_or_default();
    if path == "tests/coverage.rs" || path.starts_with("tests/contract/") || path.ends_with(".json") {
        return "";
    }
    let is_test = path.starts_with("tests/")
        || path.contains("/tests/")
        || file == "tests.rs"
        || file == "model.rs"
        || file.ends_with("_tests.rs");
    if is_test {
        return text;
    }
    text.find("#[cfg(test)]").map_or("", |at| &text[at..])
}

fn numbers(text: &str) -> impl Iterator<Item = (Option<char>, &str, &str)> {
    let starts = text.char_indices().zip([' '].into_iter().chain(text.chars()));
    starts.filter(|(_, before)| !before.is_alphanumeric()).map(move |((at, first), _)| {
        let rest = &text[at + first.len_utf8()..];
        (Some(first), rest, &text[at..])
    })
}

fn leading(text: &str) -> Option<(u32, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// Adds the rules, F cases and reports that a text names.
fn collect(text: &str, named: &mut BTreeSet<String>) {
    for (first, rest, here) in numbers(text) {
        match first {
            Some('k' | 'K') => collect_rule('K', rest, named),
            Some('g' | 'G') => collect_rule('G', rest, named),
            Some('f' | 'F') => {
                if let Some((number, after)) = leading(rest)
                    && !after.starts_with(|c: char| c.is_alphanumeric())
                {
                    named.insert(format!("F{number}"));
                }
            }
            Some('c') => {
                let after = ["cases_", "cases ", "case_", "case "].iter().find_map(|word| here.strip_prefix(word));
                if let Some((number, _)) = after.and_then(leading) {
                    named.insert(format!("case {number}"));
                }
            }
            _ => {}
        }
    }
}

/// `21_5`, `21.5`, `c_3`, `21.5-K21.7`, `21.5-7`, `21_5_to_7`, `21_5_to_k21_7` behind a K or G.
fn collect_rule(kind: char, rest: &str, named: &mut BTreeSet<String>) {
    let Some((section, number, after)) = rule(rest) else { return };
    named.insert(format!("{kind}{section}.{number}"));
    let range = ["-", " to ", "_to_", "–"].iter().find_map(|dash| after.strip_prefix(dash));
    let Some(range) = range else { return };
    let named_end =
        range.strip_prefix([kind, kind.to_ascii_lowercase()]).and_then(rule).filter(|(other, ..)| *other == section);
    if let Some(last) = named_end.map(|(_, last, _)| last).or_else(|| leading(range).map(|(last, _)| last)) {
        named.extend((number..=last.min(number + 40)).map(|n| format!("{kind}{section}.{n}")));
    }
}

fn rule(rest: &str) -> Option<(String, u32, &str)> {
    let (section, rest) = match rest.strip_prefix(['c', 'C']) {
        Some(rest) => ("C".to_owned(), rest),
        None => leading(rest).map(|(section, rest)| (section.to_string(), rest))?,
    };
    let (number, after) = leading(rest.strip_prefix(['.', '_'])?)?;
    Some((section, number, after))
}

/// Rules of the built sections that a contract states.
fn stated(contract: &str, sections: &[&str]) -> BTreeSet<String> {
    let contract = fs::read_to_string(root().join("tests/contract").join(contract)).expect("the contract");
    let mut all = BTreeSet::new();
    collect(&contract, &mut all);
    all.into_iter()
        .filter(|rule| rule.split_once('.').is_some_and(|(section, _)| sections.contains(&section)))
        .collect()
}

#[test]
fn every_rule_and_case_has_a_test_or_a_reason() {
    let mut named = BTreeSet::new();
    for path in tracked() {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        collect(test_part(&path, &text), &mut named);
    }
    let mut asked = BTreeSet::new();
    for (contract, sections) in CONTRACTS {
        let rules = stated(contract, sections);
        assert!(rules.len() > 120, "only {} rules were found in {contract}", rules.len());
        asked.extend(rules);
    }
    asked.extend((1..=CASE_F_LAST).map(|n| format!("F{n}")));
    asked.extend(REPORTS.iter().map(|n| format!("case {n}")));
    let excused: BTreeMap<&str, &str> = WITHOUT_TEST.iter().copied().collect();
    assert!(excused.values().all(|reason| !reason.is_empty()));
    let missing: Vec<_> = asked.iter().filter(|n| !named.contains(*n) && !excused.contains_key(n.as_str())).collect();
    assert!(missing.is_empty(), "{} are named by no test: {missing:?}", missing.len());
    let stale: Vec<_> = excused.keys().filter(|n| named.contains(**n) || !asked.contains(**n)).collect();
    assert!(stale.is_empty(), "excused although a test names them, or unknown: {stale:?}");
}

#[test]
fn names_are_found_in_every_form() {
    let named = |text: &str| {
        let mut found = BTreeSet::new();
        collect(text, &mut found);
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(named("fn k21_5_a_target() {} // K19.3"), "K19.3 K21.5");
    assert_eq!(named("K21.5-K21.7; KC.1-2; k0_3_to_4"), "K0.3 K0.4 K21.5 K21.6 K21.7 KC.1 KC.2");
    assert_eq!(named("fn g18_9_x() G6.2 g11_2_to_g11_4 o.g6 g.beat"), "G11.2 G11.3 G11.4 G18.9 G6.2");
    assert_eq!(named("case_17_x cases 3 fn f12_x F7"), "F12 F7 case 17 case 3");
    assert_eq!(named("OK21.5 0xf12 f12x ask3.1 f64 usecase 3"), "F64");
    assert_eq!(test_part("src/a.rs", "// K0.1"), "", "what is no test does not count");
    assert_eq!(test_part("src/a.rs", "K0.1 #[cfg(test)] K0.2"), "#[cfg(test)] K0.2");
    assert_eq!(test_part("src/a_tests.rs", "K0.1"), "K0.1");
}
