//! The rules of the house that a machine can check: the arrows of the architecture, lengths, banned words.
//!
//! Every rule is a function from one file to what is wrong with it, and is shown here to notice what it forbids.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 120;

/// A file as the rules see it: its path from the root of the repository and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Lines of code with their numbers: comments and what follows `//` are left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, before_comment(line)))
            .filter(|(_, line)| !line.is_empty())
    }

    /// Problems, one for each line of code that contains one of `words`.
    fn forbid(&self, words: &[&str], why: &str) -> Vec<String> {
        let hits = self.code().flat_map(|(at, line)| words.iter().filter(|w| has_word(line, w)).map(move |w| (at, *w)));
        hits.map(|(at, word)| format!("{}:{at}: `{word}`: {why}", self.path)).collect()
    }
}

/// The part of a line before `//`, unless the slashes belong to an address in a string.
fn before_comment(line: &str) -> &str {
    let end = line.match_indices("//").map(|(at, _)| at).find(|&at| !line[..at].ends_with(':'));
    line[..end.unwrap_or(line.len())].trim_end()
}

/// Whether `word` stands in `line` and is not the end or the middle of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts = !word.starts_with(name) || !before.is_some_and(name);
        let ends = !word.ends_with(name) || !after.is_some_and(name);
        starts && ends
    })
}

fn core_names_no_outside(file: &File) -> Vec<String> {
    if !file.path.starts_with("shards/src/") || is_test_file(&file.path) {
        return Vec::new();
    }
    let outside =
        ["std::fs", "std::net", "std::thread", "std::process", "std::time::Instant", "Instant::now", "SystemTime"];
    let crates = ["glommio", "tokio", "rand", "rustix", "println!", "eprintln!", "print!", "eprint!", "std::env"];
    file.forbid(&[&outside[..], &crates[..]].concat(), "the core decides and touches nothing (architecture, idea 2)")
}

fn only_rt_names_glommio(file: &File) -> Vec<String> {
    if !file.is_rust() || !file.path.starts_with("src/") || file.path.starts_with("src/rt") {
        return Vec::new();
    }
    file.forbid(&["glommio"], "only src/rt names the runtime")
}

/// `k00_produce` of `src/api/k00_produce.rs` and of `src/api/k00_produce/answer.rs`.
fn api_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("src/api/")?.split(['/', '.']).next()?;
    is_api_name(name).then_some(name)
}

fn is_api_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() > 4 && bytes[0] == b'k' && bytes[1].is_ascii_digit() && bytes[2].is_ascii_digit() && bytes[3] == b'_'
}

/// Names of API modules in a line that are part of a path: tests may be named after rules (`k19_1_...`).
fn apis_in_paths(line: &str) -> impl Iterator<Item = &str> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    line.split(move |c: char| !name(c)).filter(move |word| {
        let at = word.as_ptr() as usize - line.as_ptr() as usize;
        is_api_name(word) && (line[..at].ends_with("::") || line[at + word.len()..].starts_with("::"))
    })
}

fn apis_do_not_read_each_other(file: &File) -> Vec<String> {
    let Some(own) = api_of(&file.path) else { return Vec::new() };
    let words = file.code().flat_map(|(at, line)| apis_in_paths(line).map(move |word| (at, word)));
    let foreign = words.filter(|(_, word)| *word != own);
    let why = "what two APIs share stands in a file of its own";
    foreign.map(|(at, word)| format!("{}:{at}: reads {word}: {why}", file.path)).collect()
}

/// Who may not be named by whom: an arrow of the architecture that would point upwards.
const UPWARDS: &[(&str, &[&str])] = &[
    ("src/rt", &["crate::net", "crate::api", "crate::disk", "crate::volume", "crate::web", "crate::cli"]),
    ("src/disk", &["crate::net", "crate::api", "crate::web", "crate::cli", "crate::ctx"]),
    ("src/volume", &["crate::net", "crate::api", "crate::web", "crate::cli", "crate::ctx"]),
    ("src/net", &["crate::api", "crate::disk", "crate::volume", "crate::web", "crate::cli"]),
    (
        "src/config",
        &["crate::net", "crate::api", "crate::disk", "crate::volume", "crate::web", "crate::rt", "crate::ctx"],
    ),
    // What a request and an answer are stands in net, which calls the APIs through a trait of its own.
    ("src/api", &["crate::web", "crate::cli"]),
    ("shards/src", &["oncilla::"]),
];

fn arrows_point_down(file: &File) -> Vec<String> {
    if !file.is_rust() || is_test_file(&file.path) {
        return Vec::new();
    }
    let inside = |room: &str| file.path.strip_prefix(room).is_some_and(|rest| rest.starts_with(['/', '.']));
    let rooms = UPWARDS.iter().filter(|(room, _)| inside(room));
    rooms.flat_map(|(room, above)| file.forbid(above, &format!("{room} stands below it"))).collect()
}

fn lengths(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let lines = file.text.lines().count();
    let long_file = (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines, one concept a file", file.path));
    let columns = |line: &str| line.chars().count();
    let long_lines = file.text.lines().enumerate().filter(|(_, line)| columns(line) > LINE_COLUMNS_MAX);
    long_file
        .into_iter()
        .chain(long_lines.map(|(at, line)| format!("{}:{}: {} columns", file.path, at + 1, columns(line))))
        .collect()
}

fn no_unfinished_code(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    // Put together here, so that this file does not contain what it looks for.
    let words = ["todo", "unimplemented", "dbg"].map(|w| format!("{w}!"));
    let mut list: Vec<&str> = words.iter().map(String::as_str).collect();
    let ignored = format!("#[{}", "ignore");
    list.push(&ignored);
    file.forbid(&list, "unfinished, or a test that never runs")
}

fn no_remarks_or_machine_paths(file: &File) -> Vec<String> {
    let remarks = ["TO", "FIX", "XX"].iter().zip(["DO", "ME", "X"]).map(|(a, b)| format!("{a}{b}"));
    let places = ["work", "farm", "root"].iter().map(|place| format!("/{place}/")).chain([format!("../{}", "shared")]);
    let words: Vec<String> = remarks.chain(places).collect();
    let hits = file.text.lines().enumerate().flat_map(|(at, line)| {
        words.iter().filter(|word| has_word(line, word)).map(move |word| (at + 1, word.clone()))
    });
    hits.map(|(at, word)| format!("{}:{at}: `{word}`: a leftover remark, or a path of one machine", file.path))
        .collect()
}

fn modules_say_what_they_are(file: &File) -> Vec<String> {
    let missing = file.is_rust() && !is_test_file(&file.path) && !file.text.trim_start().starts_with("//!");
    missing.then(|| format!("{}: begins without a `//!` comment", file.path)).into_iter().collect()
}

const TOP_LEVEL: &[&str] =
    &["src", "shards", "benches", "perf", "tests", "fuzz", ".ci", ".cargo", ".config", ".github"];

fn top_level_is_fixed(file: &File) -> Vec<String> {
    let Some((folder, _)) = file.path.split_once('/') else { return Vec::new() };
    let known = TOP_LEVEL.contains(&folder);
    (!known).then(|| format!("{}: the folder {folder} is not part of the layout", file.path)).into_iter().collect()
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file that belongs to the repository: what git knows or would add.
fn files() -> Vec<File> {
    let listed = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the repository");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("file names are UTF-8");
    names.lines().filter_map(|name| read(name, &root().join(name))).collect()
}

fn read(name: &str, path: &Path) -> Option<File> {
    // A file that is deleted but not yet committed, or that is no text, is not looked at.
    fs::read_to_string(path).ok().map(|text| File { path: name.into(), text })
}

fn holds(rule: impl Fn(&File) -> Vec<String>) {
    let all = files();
    assert!(all.len() > 10, "only {} files were found: the rule would hold for nothing", all.len());
    let wrong: Vec<String> = all.iter().flat_map(rule).collect();
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

fn notices(rule: impl Fn(&File) -> Vec<String>, path: &str, text: &str) {
    assert_eq!(rule(&File::new(path, text)).len(), 1, "{path}: {text}");
}

fn passes(rule: impl Fn(&File) -> Vec<String>, path: &str, text: &str) {
    assert_eq!(rule(&File::new(path, text)), Vec::<String>::new(), "{path}: {text}");
}

#[test]
fn nothing_in_the_core_names_the_outside() {
    holds(core_names_no_outside);
    for text in
        ["use std::fs;", "let now = std::time::Instant::now;", "println!(\"x\");", "use glommio::x;", "rand::x()"]
    {
        let found = core_names_no_outside(&File::new("shards/src/partition.rs", text));
        assert!(!found.is_empty(), "{text}");
    }
    passes(core_names_no_outside, "shards/src/partition.rs", "let operand = 1; // std::fs is not for here");
    passes(core_names_no_outside, "src/disk/mod.rs", "use std::fs;");
}

#[test]
fn only_rt_names_the_runtime() {
    holds(only_rt_names_glommio);
    notices(only_rt_names_glommio, "src/net/mod.rs", "use glommio::net::TcpListener;");
    passes(only_rt_names_glommio, "src/rt/mod.rs", "use glommio::net::TcpListener;");
}

#[test]
fn no_api_reads_another() {
    holds(apis_do_not_read_each_other);
    notices(apis_do_not_read_each_other, "src/api/k00_produce.rs", "use super::k01_fetch;");
    notices(apis_do_not_read_each_other, "src/api/k00_produce/answer.rs", "crate::api::k22_init_producer_id::handle()");
    passes(apis_do_not_read_each_other, "src/api/k00_produce.rs", "mod k00_produce; // unlike k01_fetch");
    passes(apis_do_not_read_each_other, "src/api/k19_create_topics.rs", "fn k20_like_a_rule_of_another() {}");
    passes(apis_do_not_read_each_other, "src/api/mod.rs", "mod k00_produce; mod k01_fetch;");
}

#[test]
fn no_arrow_points_upwards() {
    holds(arrows_point_down);
    notices(arrows_point_down, "src/net/conn.rs", "use crate::api::Router;");
    notices(arrows_point_down, "src/disk/mod.rs", "use crate::net::Frame;");
    notices(arrows_point_down, "src/rt/mod.rs", "crate::disk::open()");
    notices(arrows_point_down, "src/api/mod.rs", "use crate::cli::Args;");
    passes(arrows_point_down, "src/api/mod.rs", "use crate::disk::Log;");
    passes(arrows_point_down, "src/network.rs", "use crate::api::Router;");
}

#[test]
fn files_and_lines_are_short() {
    holds(lengths);
    notices(lengths, "src/a.rs", &"x\n".repeat(FILE_LINES_MAX + 1));
    notices(lengths, "src/a.rs", &"x".repeat(LINE_COLUMNS_MAX + 1));
    passes(lengths, "src/a.rs", &format!("{}\n", "ä".repeat(LINE_COLUMNS_MAX)).repeat(FILE_LINES_MAX));
}

#[test]
fn nothing_is_left_unfinished() {
    holds(no_unfinished_code);
    notices(no_unfinished_code, "src/a.rs", &format!("{}!()", "todo"));
    notices(no_unfinished_code, "src/a.rs", &format!("let x = {}!(y);", "dbg"));
    notices(no_unfinished_code, "src/a.rs", &format!("#[{}]", "ignore"));
    passes(no_unfinished_code, "src/a.rs", "// nothing here is a todo\nlet ignore = 1;");
}

#[test]
fn no_remark_and_no_machine_path_is_left() {
    holds(no_remarks_or_machine_paths);
    notices(no_remarks_or_machine_paths, "README.md", &format!("see {}{} later", "TO", "DO"));
    notices(no_remarks_or_machine_paths, "tests/all", &format!("cd /{}/main", "work"));
    notices(no_remarks_or_machine_paths, "src/a.rs", &format!("// as in ../{}/x", "shared"));
    passes(no_remarks_or_machine_paths, "src/a.rs", "framework/mode, shared/x");
}

#[test]
fn every_module_says_what_it_is() {
    holds(modules_say_what_they_are);
    notices(modules_say_what_they_are, "src/a.rs", "use std::fs;");
    passes(modules_say_what_they_are, "src/a.rs", "//! One thing.\n");
    passes(modules_say_what_they_are, "src/a_tests.rs", "use super::*;");
}

#[test]
fn the_top_level_is_the_layout() {
    holds(top_level_is_fixed);
    notices(top_level_is_fixed, "scripts/run", "x");
    passes(top_level_is_fixed, "README.md", "x");
}
