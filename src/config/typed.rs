//! From resolved settings to the typed [`Config`], with the checks that look at several settings together.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use oncilla_shards::ids::BrokerId;

use super::resolve::{ConfigError, Inputs, Resolved, Source, resolve};
use super::table::Place;
use super::{Config, IoMode, Listener, ListenerMode, LogFormat, Machine, groups, listeners, txn};

impl Config {
    /// Settings from flags, environment and file; the error has a sentence for everything that is wrong.
    pub fn load(inputs: &Inputs, machine: &Machine) -> Result<Self, ConfigError> {
        let resolved = resolve(inputs, machine)?;
        Self::from_resolved(resolved, machine).map_err(ConfigError)
    }

    /// What a start without any setting has.
    #[must_use]
    pub fn defaults() -> Self {
        Self::load(&Inputs::default(), &Machine::read()).expect("the defaults of the table are allowed")
    }

    fn from_resolved(all: Resolved, machine: &Machine) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let advertised = all.setting("advertised.listeners").value.clone();
        let listeners = listeners::parse(text(&all, "listeners"), advertised.as_deref(), &machine.hostname)
            .unwrap_or_else(|why| {
                problems.push(why);
                Vec::new()
            });
        let http_listen = http(text(&all, "http.listen")).unwrap_or_else(|why| {
            problems.push(why);
            None
        });
        let limits = groups::Limits::of(&all);
        let idle_ms = int(&all, "connections.max.idle.ms");
        let config = Self {
            broker_id: BrokerId(number(&all, "broker.id")),
            data_dir: PathBuf::from(text(&all, "log.dirs")),
            listeners,
            listener_mode: match text(&all, "shard.listeners") {
                "shared" => ListenerMode::Shared,
                _ => ListenerMode::PerCore,
            },
            shards: number(&all, "shard.count"),
            poll_spin_us: number(&all, "poll.spin.us"),
            http_listen,
            metrics_groups_max: number(&all, "metrics.groups.max"),
            num_partitions: number(&all, "num.partitions"),
            default_replication_factor: number(&all, "default.replication.factor"),
            replication_factor_accept_max: number(&all, "replication.factor.accept.max"),
            auto_create_topics: flag(&all, "auto.create.topics.enable"),
            delete_topic_enable: flag(&all, "delete.topic.enable"),
            socket_request_max_bytes: number(&all, "socket.request.max.bytes"),
            shard_request_bytes_max: number(&all, "queued.max.request.bytes"),
            connection_request_bytes_max: number(&all, "connection.max.request.bytes"),
            connections_max_idle_ms: u64::try_from(idle_ms).ok(),
            max_connections: number(&all, "max.connections"),
            max_connections_per_ip: number(&all, "max.connections.per.ip"),
            io_mode: if text(&all, "log.io") == "direct" { IoMode::Direct } else { IoMode::Buffered },
            log_cache_bytes: number(&all, "log.cache.bytes"),
            log_read_ahead_bytes: number(&all, "log.read.ahead.bytes"),
            fetch_max_bytes: number(&all, "fetch.max.bytes"),
            fetch_session_slots: number(&all, "max.incremental.fetch.session.cache.slots"),
            retention_check_interval_ms: number(&all, "log.retention.check.interval.ms"),
            cleaner_enable: flag(&all, "log.cleaner.enable"),
            cleaner_backoff_ms: number(&all, "log.cleaner.backoff.ms"),
            cleaner_dedupe_bytes: number(&all, "log.cleaner.dedupe.buffer.size"),
            cleaner_io_bytes_per_second_max: all
                .setting("log.cleaner.io.max.bytes.per.second")
                .value
                .as_deref()
                .map(|text| text.parse().expect("a number in plain form")),
            producer_id_expiration_ms: int(&all, "producer.id.expiration.ms"),
            producer_id_expiration_check_interval_ms: number(&all, "producer.id.expiration.check.interval.ms"),
            producer_ids_max: number(&all, "producer.ids.per.partition.max"),
            groups: groups::settings(&all),
            txn: txn::settings(&all),
            add_partitions_wait_ms_max: number(&all, "add.partitions.to.txn.retry.backoff.max.ms"),
            offsets_retention_check_interval_ms: number(&all, "offsets.retention.check.interval.ms"),
            shutdown_drain_ms: number(&all, "shutdown.drain.timeout.ms"),
            log_level: text(&all, "log.level").to_string(),
            log_format: if text(&all, "log.format") == "json" { LogFormat::Json } else { LogFormat::Text },
            topic_defaults: topic_defaults(&all),
            settings: all.settings,
            warnings: all.warnings,
        };
        groups::check(&config.groups, &limits, &mut problems);
        config.check_together(&mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn check_together(&self, problems: &mut Vec<String>) {
        for (name, bytes) in [
            ("connection.max.request.bytes", self.connection_request_bytes_max),
            ("queued.max.request.bytes", self.shard_request_bytes_max),
        ] {
            let request = self.socket_request_max_bytes;
            if bytes < request {
                problems.push(format!(
                    "\"{name}\" is {bytes} but must be at least \"socket.request.max.bytes\", which is {request}"
                ));
            }
        }
        if self.data_dir.to_string_lossy().contains(',') {
            problems.push("\"log.dirs\" has a comma but must be one directory".into());
        }
        if self.listener_mode == ListenerMode::PerCore {
            ports_apart(&self.listeners, self.shards, problems);
        }
    }
}

/// In per-core mode a listener takes as many ports as there are cores.
fn ports_apart(listeners: &[Listener], shards: u16, problems: &mut Vec<String>) {
    let range = |listener: &Listener| {
        let first = u32::from(listener.bind.port());
        first..first + u32::from(shards)
    };
    for (index, listener) in listeners.iter().enumerate().filter(|(_, listener)| listener.bind.port() != 0) {
        let ports = range(listener);
        if ports.end > 65_536 {
            problems.push(format!("\"listeners\": {} needs {shards} ports from {}", listener.name, ports.start));
        }
        for other in listeners[..index].iter().filter(|other| other.bind.port() != 0) {
            let taken = range(other);
            let same_host = other.bind.ip() == listener.bind.ip()
                || other.bind.ip().is_unspecified()
                || listener.bind.ip().is_unspecified();
            if same_host && ports.start < taken.end && taken.start < ports.end {
                problems.push(format!(
                    "\"listeners\": {} and {} overlap, because each of the {shards} cores takes a port of its own",
                    other.name, listener.name
                ));
            }
        }
    }
}

fn http(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_string() };
    match whole.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(address)) => Ok(Some(address)),
        _ => Err(format!("\"http.listen\" is \"{text}\" but must be host:port or off")),
    }
}

fn topic_defaults(all: &Resolved) -> std::collections::BTreeMap<String, String> {
    all.settings
        .iter()
        .filter(|setting| matches!(setting.row.place, Place::Topic(_)) && setting.source != Source::Default)
        .filter_map(|setting| Some((setting.row.name.to_string(), setting.value.clone()?)))
        .collect()
}

pub(super) fn text<'a>(all: &'a Resolved, name: &str) -> &'a str {
    all.setting(name).value.as_deref().unwrap_or_else(|| panic!("{name} has a default"))
}

pub(super) fn int(all: &Resolved, name: &str) -> i64 {
    text(all, name).parse().unwrap_or_else(|_| panic!("{name} is a number in plain form"))
}

/// The range of the table is within the type.
pub(super) fn number<T: TryFrom<i64>>(all: &Resolved, name: &str) -> T {
    T::try_from(int(all, name)).unwrap_or_else(|_| panic!("the range of {name} fits its type"))
}

pub(super) fn flag(all: &Resolved, name: &str) -> bool {
    text(all, name) == "true"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let flags = flags.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Config::load(&Inputs { flags, ..Inputs::default() }, &Machine::fixed())
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let config = load(&[]).expect("defaults");
        assert_eq!(config.listeners[0].bind, "127.0.0.1:9092".parse().expect("address"));
        assert_eq!(config.http_listen, Some("127.0.0.1:9644".parse().expect("address")));
        assert_eq!((config.shards, config.log_cache_bytes), (2, 512 << 20));
        assert_eq!(config.connections_max_idle_ms, Some(600_000));
        assert_eq!(config.shard_request_bytes_max, 2 * config.connection_request_bytes_max);
        assert!(config.topic_defaults.is_empty(), "nobody set one");
        assert_eq!(Config::defaults().settings.len(), super::super::table::TABLE.len());
    }

    #[test]
    fn the_ends_of_every_range_fit_their_types() {
        use super::super::table::{Kind, TABLE};
        for row in TABLE {
            let (Kind::Count(min, max) | Kind::Bytes(min, max) | Kind::Time(_, min, max)) = row.kind else { continue };
            for value in [min, max] {
                // Only the cross checks may refuse; a range wider than its type would panic.
                let _ = load(&[(row.name, &value.to_string())]);
            }
        }
    }

    #[test]
    fn topic_settings_are_kept_by_the_brokers_name_in_its_unit() {
        let config = load(&[("log.retention.hours", "2 days"), ("message.max.bytes", "1 MiB")]).expect("right");
        let all: Vec<_> = config.topic_defaults.into_iter().collect();
        let expected = [("log.retention.hours", "48"), ("message.max.bytes", "1048576")];
        assert_eq!(all, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for (flags, why) in [
            (vec![("connection.max.request.bytes", "2048")], "must be at least \"socket.request.max.bytes\""),
            (vec![("log.dirs", "/a,/b")], "must be one directory"),
            (vec![("listeners", "A://127.0.0.1:9092,B://127.0.0.1:9093")], "A and B overlap"),
            (vec![("listeners", "127.0.0.1:65535")], "needs 2 ports from 65535"),
            (vec![("http.listen", "nowhere")], "must be host:port or off"),
        ] {
            let error = load(&flags).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        let shared = [("listeners", "A://127.0.0.1:9092,B://127.0.0.1:9093"), ("shard.listeners", "shared")];
        assert_eq!(load(&shared).expect("one port each").listeners.len(), 2);
        assert_eq!(load(&[("http.listen", "OFF")]).expect("none").http_listen, None);
        assert_eq!(load(&[("connections.max.idle.ms", "-1")]).expect("for ever").connections_max_idle_ms, None);
    }
}
