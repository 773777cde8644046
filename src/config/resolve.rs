//! Who wins: a flag over the environment over the file over the default; where each value came from is kept.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::file;
use super::machine::Machine;
use super::table::{self, DefaultValue, Kind, Row, TABLE};
use super::value;

/// Variables with the prefix of settings that belong to the command line.
const ENV_OF_THE_COMMAND: [&str; 2] = ["ONCILLA_CONFIG", "ONCILLA_BOOTSTRAP"];

/// Where a value came from, weakest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The settings file, at this line.
    File(usize),
    /// This environment variable.
    Env(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(line) => write!(f, "file line {line}"),
            Self::Env(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// One setting with the value that holds.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its row in the table.
    pub row: &'static Row,
    /// The value in plain form; `None` when it is unset and has no default.
    pub value: Option<String>,
    /// The value if nobody set it.
    pub default: Option<String>,
    /// Where the value came from.
    pub source: Source,
}

/// What settings are made from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Path and text of the settings file.
    pub file: Option<(String, String)>,
    /// The environment; only `ONCILLA_*` is looked at.
    pub env: BTreeMap<String, String>,
    /// Names and values from the command line; the last of one name counts.
    pub flags: Vec<(String, String)>,
}

/// All settings, in the order of the table.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// One for each row.
    pub settings: Vec<Setting>,
    /// What looks wrong but stops nothing.
    pub warnings: Vec<String>,
}

/// Everything that is wrong with the settings, one sentence each.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(pub Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl Resolved {
    /// The setting of a name of the table.
    #[must_use]
    pub fn setting(&self, name: &str) -> &Setting {
        let found = self.settings.iter().find(|setting| setting.row.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in the table of settings"))
    }
}

/// Finds the value of every setting; the error names all that is wrong.
pub fn resolve(inputs: &Inputs, machine: &Machine) -> Result<Resolved, ConfigError> {
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let mut set: BTreeMap<&'static str, (String, Source)> = BTreeMap::new();
    if let Some((path, text)) = &inputs.file {
        match file::parse(path, text) {
            Ok(entries) => set.extend(entries.into_iter().map(|e| (e.name, (e.value, Source::File(e.line))))),
            Err(found) => problems.extend(found),
        }
    }
    from_env(&inputs.env, &mut set, &mut problems, &mut warnings);
    from_flags(&inputs.flags, &mut set, &mut problems);
    if !problems.is_empty() {
        return Err(ConfigError(problems));
    }
    let request_bytes = set.get("socket.request.max.bytes").map(|(value, _)| value.clone());
    let settings = TABLE
        .iter()
        .map(|row| {
            let default = default_of(row, machine, request_bytes.as_deref());
            match set.remove(row.name) {
                Some((value, source)) => Setting { row, value: Some(value), default, source },
                None => Setting { row, value: default.clone(), default, source: Source::Default },
            }
        })
        .collect();
    Ok(Resolved { settings, warnings })
}

type Set = BTreeMap<&'static str, (String, Source)>;

fn from_env(env: &BTreeMap<String, String>, set: &mut Set, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
    for (name, text) in env.iter().filter(|(name, _)| name.starts_with("ONCILLA_")) {
        match TABLE.iter().find(|row| row.env_name() == *name) {
            Some(row) => match value::normalise(&row.kind, text) {
                Ok(value) => drop(set.insert(row.name, (value, Source::Env(name.clone())))),
                Err(allowed) => problems.push(format!("{name} in the environment is \"{text}\" but {allowed}")),
            },
            // Other tools may use the prefix, so this cannot stop a start.
            None if !ENV_OF_THE_COMMAND.contains(&name.as_str()) => {
                let dotted = name["ONCILLA_".len()..].to_ascii_lowercase();
                let near = table::find(&dotted).map(|row| row.name).or_else(|| table::nearest(&dotted));
                let hint = near.and_then(table::find).map(|row| format!("; did you mean {}?", row.env_name()));
                warnings.push(format!("{name} in the environment sets nothing{}", hint.unwrap_or_default()));
            }
            None => {}
        }
    }
}

fn from_flags(flags: &[(String, String)], set: &mut Set, problems: &mut Vec<String>) {
    for (name, text) in flags {
        match table::find(name) {
            Some(row) => match value::normalise(&row.kind, text) {
                Ok(value) => drop(set.insert(row.name, (value, Source::Flag))),
                Err(allowed) => problems.push(format!("\"{name}\" on the command line is \"{text}\" but {allowed}")),
            },
            None => {
                let near = table::nearest(name).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
                problems.push(format!("unknown setting \"{name}\" on the command line{near}"));
            }
        }
    }
}

fn default_of(row: &Row, machine: &Machine, request_bytes: Option<&str>) -> Option<String> {
    match row.default {
        DefaultValue::Fixed(text) => Some(text.into()),
        DefaultValue::Unset => None,
        DefaultValue::Cores => Some(machine.cores.to_string()),
        DefaultValue::CacheBytes => Some((machine.memory_bytes / 4).min(1 << 30).to_string()),
        DefaultValue::RequestBytes(times) => {
            let fixed = match table::find("socket.request.max.bytes").map(|row| row.default) {
                Some(DefaultValue::Fixed(text)) => text,
                other => panic!("the longest request has a plain default, not {other:?}"),
            };
            let bytes: i64 = request_bytes.unwrap_or(fixed).parse().expect("plain form of a number");
            Some((bytes * times).to_string())
        }
    }
}

impl Setting {
    /// The value with its unit, as people read it.
    #[must_use]
    pub fn shown(&self) -> String {
        let Some(value) = &self.value else {
            return "(unset)".into();
        };
        match (&self.row.kind, value.parse::<i64>()) {
            (Kind::Bytes(..), Ok(bytes)) if bytes >= 1024 && bytes % 1024 == 0 => {
                format!("{value} bytes ({})", bytesize::ByteSize(bytes.unsigned_abs()).display().iec())
            }
            (Kind::Time(unit, ..), Ok(number)) if number > 0 => {
                let nanos = u64::try_from(u128::from(number.unsigned_abs()) * unit.nanos());
                let long = nanos.map(|nanos| humantime::format_duration(std::time::Duration::from_nanos(nanos)));
                let plain = format!("{value} {}", unit.word());
                long.map(|long| format!("{plain} ({long})")).unwrap_or(plain)
            }
            (kind, _) => format!("{value} {}", kind.unit()).trim_end().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Inputs {
        let own = |(a, b): &(&str, &str)| (a.to_string(), b.to_string());
        Inputs {
            file: Some(("o.toml".into(), file.into())),
            env: env.iter().map(own).collect(),
            flags: flags.iter().map(own).collect(),
        }
    }

    fn resolved(inputs: &Inputs) -> Resolved {
        resolve(inputs, &Machine::fixed()).expect("settings are right")
    }

    fn value(resolved: &Resolved, name: &str) -> (Option<String>, Source) {
        let setting = resolved.setting(name);
        (setting.value.clone(), setting.source.clone())
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let file = "num.partitions = 2\nbroker.id = 2\nfetch.max.bytes = 2048\n";
        let env = [("ONCILLA_NUM_PARTITIONS", "3"), ("ONCILLA_BROKER_ID", "3"), ("HOME", "/")];
        let got = resolved(&inputs(file, &env, &[("num.partitions", "4"), ("num.partitions", "5")]));
        assert_eq!(value(&got, "num.partitions"), (Some("5".into()), Source::Flag));
        assert_eq!(value(&got, "broker.id"), (Some("3".into()), Source::Env("ONCILLA_BROKER_ID".into())));
        assert_eq!(value(&got, "fetch.max.bytes"), (Some("2048".into()), Source::File(3)));
        assert_eq!(value(&got, "delete.topic.enable"), (Some("true".into()), Source::Default));
        assert_eq!(got.warnings, [] as [String; 0]);
    }

    #[test]
    fn k32_8_a_setting_that_is_set_keeps_the_default_that_it_hides() {
        let got = resolved(&inputs("num.partitions = 2\n", &[], &[]));
        let both = |name: &str| (got.setting(name).value.as_deref(), got.setting(name).default.as_deref());
        assert_eq!(both("num.partitions"), (Some("2"), Some("1")));
        assert_eq!(both("connections.max.idle.ms"), (Some("600000"), Some("600000")));
        assert_eq!(both("log.retention.ms"), (None, None));
    }

    #[test]
    fn an_environment_value_takes_units_and_an_unknown_one_is_a_warning() {
        let env = [("ONCILLA_LOG_RETENTION_MS", "7 days"), ("ONCILLA_BROKERID", "1"), ("ONCILLA_CONFIG", "x")];
        let got = resolved(&inputs("", &env, &[]));
        assert_eq!(value(&got, "log.retention.ms").0, Some("604800000".into()));
        assert_eq!(got.warnings, ["ONCILLA_BROKERID in the environment sets nothing; did you mean ONCILLA_BROKER_ID?"]);
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let bad = inputs("nope = 1\n", &[("ONCILLA_LOG_IO", "no")], &[("brokr.id", "1"), ("broker.id", "x")]);
        let ConfigError(all) = resolve(&bad, &Machine::fixed()).expect_err("four problems");
        assert_eq!(
            all,
            [
                "o.toml:1: unknown setting \"nope\"",
                "ONCILLA_LOG_IO in the environment is \"no\" but must be direct or buffered",
                "unknown setting \"brokr.id\" on the command line; did you mean \"broker.id\"?",
                "\"broker.id\" on the command line is \"x\" but must be a whole number",
            ]
        );
    }

    #[test]
    fn limits_of_requests_follow_the_longest_request() {
        let got = resolved(&inputs("socket.request.max.bytes = \"1 MiB\"", &[], &[]));
        assert_eq!(value(&got, "connection.max.request.bytes").0, Some("1048576".into()));
        assert_eq!(value(&got, "queued.max.request.bytes").0, Some("2097152".into()));
    }

    #[test]
    fn every_default_is_allowed_and_shown_with_its_unit() {
        let got = resolve(&Inputs::default(), &Machine::fixed()).expect("defaults are right");
        for setting in &got.settings {
            let Some(value) = &setting.value else { continue };
            let name = setting.row.name;
            assert_eq!(value::normalise(&setting.row.kind, value).as_ref(), Ok(value), "{name}");
            let shown = setting.shown();
            assert!(shown.starts_with(value.as_str()) && shown.contains(setting.row.kind.unit()), "{name}: {shown}");
        }
        assert_eq!(got.setting("log.retention.hours").shown(), "168 hours (7days)");
        assert_eq!(got.setting("log.segment.bytes").shown(), "1073741824 bytes (1.0 GiB)");
    }
}
