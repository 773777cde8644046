//! Settings of single groups (resource type 32): which there are, what they may be, and how they are told.
//!
//! A group's own setting stands in place of the broker's `group.<name>`; it must lie within the broker's bounds when it
//! is set (contract G20.4).

use std::collections::BTreeMap;

use super::broker_settings::{BrokerSettings, Described, Source};
use super::topic_config::Origin;
use super::topic_settings::SettingError;
use super::value::{Allowed, Kind, canonical};

/// Session timeout of a consumer group.
pub const SESSION_TIMEOUT_MS: &str = "consumer.session.timeout.ms";
/// Heartbeat interval of a consumer group.
pub const HEARTBEAT_INTERVAL_MS: &str = "consumer.heartbeat.interval.ms";
/// Shortest time between two targets of a consumer group.
pub const ASSIGNMENT_INTERVAL_MS: &str = "consumer.assignment.interval.ms";

/// Name and sentence of each, by name.
const ALL: [(&str, &str); 3] = [
    (ASSIGNMENT_INTERVAL_MS, "Shortest time between two targets of the group."),
    (HEARTBEAT_INTERVAL_MS, "Time between two heartbeats of a member."),
    (SESSION_TIMEOUT_MS, "Silence after which a member is removed."),
];

/// The canonical form of a group's own settings.
///
/// # Errors
/// If a name is not known or a value is no number.
pub fn canonical_overrides(overrides: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, SettingError> {
    let check = |(name, value): (&String, &String)| {
        if !ALL.iter().any(|(known, _)| known == name) {
            return Err(SettingError(format!("Unknown group config name: {name}")));
        }
        canonical(Kind::Int, Allowed::AtLeast(0), value)
            .map(|value| (name.clone(), value))
            .map_err(|why| SettingError(format!("Invalid value {} for {name}: {why}", value.trim())))
    };
    overrides.iter().map(check).collect()
}

/// Checks a group's own settings against the broker's bounds and each other; gives their canonical form.
///
/// # Errors
/// If a name is not known, a value is outside the bounds, or the session is not longer than the heartbeat interval.
pub fn check(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerSettings,
) -> Result<BTreeMap<String, String>, SettingError> {
    let checked = canonical_overrides(overrides)?;
    for (name, value) in &checked {
        within_bounds(name, value, broker)?;
    }
    let in_force = |name| match checked.get(name) {
        Some(own) => own.parse().ok(),
        None => broker_value(name, broker),
    };
    let (session_ms, heartbeat_ms) = (in_force(SESSION_TIMEOUT_MS), in_force(HEARTBEAT_INTERVAL_MS));
    let touched = checked.contains_key(SESSION_TIMEOUT_MS) || checked.contains_key(HEARTBEAT_INTERVAL_MS);
    if touched && session_ms <= heartbeat_ms {
        return Err(SettingError(format!("{SESSION_TIMEOUT_MS} must be greater than {HEARTBEAT_INTERVAL_MS}")));
    }
    Ok(checked)
}

/// Checks a value of `consumer.<what>` against `group.consumer.min.<what>` and its counterpart.
///
/// # Errors
/// If it is outside.
pub fn within_bounds(name: &str, value: &str, broker: &BrokerSettings) -> Result<(), SettingError> {
    let Some((protocol, what)) = name.split_once('.') else { return Ok(()) };
    let bound = |which: &str| broker.number(&format!("group.{protocol}.{which}.{what}"), None);
    let value: Option<i64> = value.parse().ok();
    let too_low = bound("min").is_some_and(|min| value < Some(min));
    let too_high = bound("max").is_some_and(|max| value > Some(max));
    if too_low || too_high {
        let (min, max) = (bound("min").unwrap_or(i64::MIN), bound("max").unwrap_or(i64::MAX));
        return Err(SettingError(format!("{name} must be between {min} and {max}")));
    }
    Ok(())
}

fn broker_value(name: &str, broker: &BrokerSettings) -> Option<i64> {
    broker.number(&format!("group.{name}"), None)
}

/// All settings of a group, by name, with what it has of its own.
#[must_use]
pub fn describe(overrides: Option<&BTreeMap<String, String>>, broker: &BrokerSettings) -> Vec<Described> {
    let describe = |(name, doc): &(&str, &'static str)| {
        let own = overrides.and_then(|overrides| overrides.get(*name));
        let origin = |value: &String| Origin { name: (*name).to_owned(), value: value.clone(), source: Source::Group };
        Described {
            name: (*name).to_owned(),
            value: own.cloned().or_else(|| broker.value(&format!("group.{name}"), None)),
            read_only: false,
            source: if own.is_some() { Source::Group } else { Source::Default },
            synonyms: own.map(origin).into_iter().collect(),
            kind: Kind::Int,
            doc,
        }
    };
    ALL.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn g20_4_a_groups_own_settings_lie_within_the_brokers_bounds() {
        let broker = BrokerSettings::default();
        let rows = [
            (own(&[(SESSION_TIMEOUT_MS, "45000")]), true),
            (own(&[(SESSION_TIMEOUT_MS, "60000"), (HEARTBEAT_INTERVAL_MS, "15000")]), true),
            (own(&[(SESSION_TIMEOUT_MS, "44999")]), false),
            (own(&[(SESSION_TIMEOUT_MS, "60001")]), false),
            (own(&[(HEARTBEAT_INTERVAL_MS, "4999")]), false),
            (own(&[(ASSIGNMENT_INTERVAL_MS, "0")]), true),
            (own(&[(ASSIGNMENT_INTERVAL_MS, "15001")]), false),
            (own(&[(ASSIGNMENT_INTERVAL_MS, "soon")]), false),
            (own(&[("retention.ms", "1")]), false),
            (own(&[]), true),
        ];
        for (settings, fits) in rows {
            assert_eq!(check(&settings, &broker).is_ok(), fits, "{settings:?}");
        }
    }

    #[test]
    fn g20_4_the_session_is_longer_than_the_heartbeat_interval() {
        let mut broker = BrokerSettings::default();
        for (name, value) in [("session.timeout.ms", "1"), ("heartbeat.interval.ms", "1")] {
            broker.cluster.insert(format!("group.consumer.min.{name}"), value.to_owned());
        }
        assert!(check(&own(&[(SESSION_TIMEOUT_MS, "5001")]), &broker).is_ok());
        assert!(check(&own(&[(SESSION_TIMEOUT_MS, "5000")]), &broker).is_err(), "the broker's interval counts");
        assert!(check(&own(&[(SESSION_TIMEOUT_MS, "10"), (HEARTBEAT_INTERVAL_MS, "9")]), &broker).is_ok());
    }

    #[test]
    fn g20_4_what_a_group_does_not_set_is_the_brokers() {
        let broker = BrokerSettings::default();
        let set = own(&[(SESSION_TIMEOUT_MS, "50000")]);
        let told: Vec<_> = describe(Some(&set), &broker)
            .into_iter()
            .map(|d| (d.name, d.value.unwrap_or_default(), d.source, d.synonyms.len()))
            .collect();
        let row = |name: &str, value: &str, source, synonyms| (name.to_owned(), value.to_owned(), source, synonyms);
        let expected = [
            row(ASSIGNMENT_INTERVAL_MS, "1000", Source::Default, 0),
            row(HEARTBEAT_INTERVAL_MS, "5000", Source::Default, 0),
            row(SESSION_TIMEOUT_MS, "50000", Source::Group, 1),
        ];
        assert_eq!(told, expected);
    }
}
