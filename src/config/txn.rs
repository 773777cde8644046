//! The settings of transactions as typed values (contract E).

use oncilla_shards::txn::TxnSettings;

use super::resolve::Resolved;
use super::typed::{flag, int, number};

/// The settings of transactions as fixed at start; the level of `transaction.version` is the image's.
pub fn settings(all: &Resolved) -> TxnSettings {
    TxnSettings {
        timeout_ms_max: number(all, "transaction.max.timeout.ms"),
        id_expiration_ms: int(all, "transactional.id.expiration.ms"),
        abort_interval_ms: number(all, "transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        remove_interval_ms: number(all, "transaction.remove.expired.transaction.cleanup.interval.ms"),
        two_phase_commit: flag(all, "transaction.two.phase.commit.enable"),
        request_timeout_ms: number(all, "request.timeout.ms"),
        ..TxnSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Inputs, Machine};
    use super::*;

    fn load(flags: &[(&str, &str)]) -> Config {
        let flags = flags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Config::load(&Inputs { flags, ..Inputs::default() }, &Machine::fixed()).expect("allowed")
    }

    #[test]
    fn e_the_defaults_are_kafkas_and_what_is_set_reaches_the_coordinator() {
        let config = load(&[]);
        assert_eq!(config.txn, TxnSettings::default());
        assert_eq!(config.add_partitions_wait_ms_max, 100);
        let set = load(&[
            ("transaction.max.timeout.ms", "1"),
            ("transactional.id.expiration.ms", "2"),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "3"),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", "4"),
            ("transaction.two.phase.commit.enable", "true"),
            ("request.timeout.ms", "5"),
            ("add.partitions.to.txn.retry.backoff.max.ms", "6"),
        ]);
        let TxnSettings { timeout_ms_max, id_expiration_ms, abort_interval_ms, remove_interval_ms, .. } = set.txn;
        assert_eq!((timeout_ms_max, id_expiration_ms, abort_interval_ms, remove_interval_ms), (1, 2, 3, 4));
        assert!(set.txn.two_phase_commit);
        assert_eq!((set.txn.request_timeout_ms, set.add_partitions_wait_ms_max), (5, 6));
    }
}
