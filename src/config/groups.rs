//! The settings of consumer groups as typed values, with the checks that look at several of them (contract G20.3).

use oncilla_shards::groups::{GroupSettings, MigrationPolicy};

use super::resolve::Resolved;
use super::typed::{int, number, text};

const MINUTE_MS: i64 = 60_000;

/// The settings of groups as fixed at start.
pub fn settings(all: &Resolved) -> GroupSettings {
    GroupSettings {
        session_timeout_ms_min: number(all, "group.min.session.timeout.ms"),
        session_timeout_ms_max: number(all, "group.max.session.timeout.ms"),
        initial_rebalance_delay_ms: number(all, "group.initial.rebalance.delay.ms"),
        members_max: number(all, "group.max.size"),
        consumer_session_timeout_ms: number(all, "group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms: number(all, "group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms: number(all, "group.consumer.assignment.interval.ms"),
        consumer_members_max: number(all, "group.consumer.max.size"),
        consumer_assignors: words(all, "group.consumer.assignors").map(str::to_owned).collect(),
        migration: match text(all, "group.consumer.migration.policy") {
            "upgrade" => MigrationPolicy::Upgrade,
            "downgrade" => MigrationPolicy::Downgrade,
            "disabled" => MigrationPolicy::Disabled,
            _ => MigrationPolicy::Bidirectional,
        },
        consumer_protocol: words(all, PROTOCOLS).any(|word| word == "consumer"),
        offset_metadata_units_max: number(all, "offset.metadata.max.bytes"),
        offsets_retention_ms: int(all, "offsets.retention.minutes") * MINUTE_MS,
        record_bytes_max: number(all, "message.max.bytes"),
    }
}

const PROTOCOLS: &str = "group.coordinator.rebalance.protocols";

fn words<'a>(all: &'a Resolved, name: &str) -> impl Iterator<Item = &'a str> {
    text(all, name).split(',').filter(|word| !word.is_empty())
}

/// What the settings of consumer groups must lie between.
pub struct Limits {
    ranges: Vec<(&'static str, i32, i32)>,
    speaks_classic: bool,
}

impl Limits {
    /// As fixed at start.
    pub fn of(all: &Resolved) -> Self {
        let range = |name: &'static str| {
            let bound = |which: &str| number(all, &format!("group.consumer.{which}.{name}"));
            (name, bound("min"), bound("max"))
        };
        let ranges = ["session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"].map(range).to_vec();
        Self { ranges, speaks_classic: words(all, PROTOCOLS).any(|word| word == "classic") }
    }
}

/// What contradicts each other.
pub fn check(groups: &GroupSettings, limits: &Limits, problems: &mut Vec<String>) {
    if groups.session_timeout_ms_min > groups.session_timeout_ms_max {
        problems.push("\"group.min.session.timeout.ms\" is above \"group.max.session.timeout.ms\"".into());
    }
    let values = [
        groups.consumer_session_timeout_ms,
        groups.consumer_heartbeat_interval_ms,
        groups.consumer_assignment_interval_ms,
    ];
    for ((name, min, max), value) in limits.ranges.iter().zip(values) {
        if !(*min..=*max).contains(&value) {
            problems.push(format!(
                "\"group.consumer.{name}\" is {value} but must be from {min} to {max}, which \
                 \"group.consumer.min.{name}\" and \"group.consumer.max.{name}\" say"
            ));
        }
    }
    if groups.consumer_session_timeout_ms <= groups.consumer_heartbeat_interval_ms {
        problems.push("\"group.consumer.session.timeout.ms\" must be above the heartbeat interval".into());
    }
    if groups.consumer_assignors.is_empty() {
        problems.push("\"group.consumer.assignors\" names none but must name at least one".into());
    }
    if !limits.speaks_classic {
        problems.push(format!("\"{PROTOCOLS}\" must name classic"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Inputs, Machine};
    use super::*;

    fn load(flags: &[(&str, &str)]) -> Result<Config, String> {
        let flags = flags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Config::load(&Inputs { flags, ..Inputs::default() }, &Machine::fixed()).map_err(|error| error.to_string())
    }

    #[test]
    fn g20_3_the_defaults_are_kafkas() {
        assert_eq!(load(&[]).expect("defaults").groups, GroupSettings::default());
        assert_eq!(load(&[]).expect("defaults").offsets_retention_check_interval_ms, 600_000);
    }

    #[test]
    fn g20_3_what_is_set_reaches_the_groups() {
        let groups = load(&[
            ("group.consumer.migration.policy", "upgrade"),
            ("group.coordinator.rebalance.protocols", "classic"),
            ("group.consumer.assignors", "range"),
            ("offsets.retention.minutes", "2"),
            ("group.min.session.timeout.ms", "1"),
        ]);
        let groups = groups.expect("right").groups;
        assert_eq!((groups.migration, groups.consumer_protocol), (MigrationPolicy::Upgrade, false));
        assert_eq!((groups.consumer_assignors, groups.offsets_retention_ms), (vec!["range".to_owned()], 120_000));
        assert_eq!(groups.session_timeout_ms_min, 1);
    }

    #[test]
    fn g20_3_settings_that_contradict_each_other_stop_the_start() {
        for (flags, why) in [
            (vec![("group.min.session.timeout.ms", "1800001")], "is above"),
            (vec![("group.consumer.session.timeout.ms", "44999")], "must be from 45000 to 60000"),
            (vec![("group.consumer.heartbeat.interval.ms", "15001")], "must be from 5000 to 15000"),
            (vec![("group.consumer.assignors", "")], "at least one"),
            (vec![("group.coordinator.rebalance.protocols", "consumer")], "must name classic"),
            (
                vec![("group.consumer.min.session.timeout.ms", "1"), ("group.consumer.session.timeout.ms", "5000")],
                "above the heartbeat interval",
            ),
        ] {
            let error = load(&flags).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }
}
