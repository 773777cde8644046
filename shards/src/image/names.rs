//! Rules for topic names.

use crate::limits::TOPIC_NAME_BYTES_MAX;

/// Topics that the broker keeps for itself (contract K3.9).
const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Name of the metadata log in Kafka; no topic may have it (contract K19.2).
pub const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Why a name is refused, or nothing (contract K19.5).
pub fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("Topic name is empty".to_owned());
    }
    if name == "." || name == ".." {
        return Err(format!("Topic name {name} would leave the data directory"));
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(format!("Topic name has {} bytes, at most {TOPIC_NAME_BYTES_MAX} are allowed", name.len()));
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Err("Topic name may have ASCII letters, digits, '.', '_' and '-' only".to_owned());
    }
    Ok(())
}

/// The form in which two names must differ (contract K19.6).
#[must_use]
pub fn collision_form(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether the broker keeps the topic for itself.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k19_5_names_have_1_to_249_bytes_of_the_allowed_letters() {
        let longest = "x".repeat(249);
        for good in ["a", "A.b_c-9", "...", "__x", longest.as_str()] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let long = "x".repeat(250);
        for bad in ["", ".", "..", "a b", "a/b", "\u{e4}", "a\0", long.as_str()] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn k3_9_only_three_names_are_internal() {
        assert!(is_internal("__consumer_offsets") && is_internal("__share_group_state"));
        assert!(!is_internal("__cluster_metadata") && !is_internal("__mine"));
    }
}
