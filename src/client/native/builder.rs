//! Settings of a producer, by the names and with the defaults of the Java client.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::batch::Codec;
use oncilla_shards::client::{Machine, Settings};

use super::Producer;
use super::driver::{Driver, Shared};

/// Collects settings; nothing is looked at before [`ProducerBuilder::build`].
#[derive(Clone, Debug, Default)]
pub struct ProducerBuilder {
    settings: BTreeMap<String, String>,
}

/// Settings taken out one by one; what is left is unknown.
struct Given(BTreeMap<String, String>);

impl Given {
    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn number<T: FromStr>(&mut self, name: &str, into: &mut T) -> anyhow::Result<()> {
        if let Some(text) = self.text(name) {
            *into = text.trim().parse().ok().with_context(|| format!("{name}={text} is no such number"))?;
        }
        Ok(())
    }

    /// A setting that has one value here.
    fn only(&mut self, name: &str, values: &[&str]) -> anyhow::Result<()> {
        match self.text(name) {
            Some(text) if !values.contains(&text.as_str()) => bail!("{name}={text}: only {} is served", values[0]),
            _ => Ok(()),
        }
    }
}

fn codec(name: &str) -> anyhow::Result<Codec> {
    let all = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let found = all.into_iter().find(|codec| codec.name() == name);
    found.with_context(|| format!("compression.type={name} is none of none, gzip, snappy, lz4, zstd"))
}

impl ProducerBuilder {
    /// Sets one setting.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.insert(name.into(), value.to_string());
        self
    }

    fn settings(given: &mut Given) -> anyhow::Result<Settings> {
        let mut settings = Settings::default();
        given.number("linger.ms", &mut settings.linger_ms)?;
        given.number("batch.size", &mut settings.batch_bytes)?;
        given.number("buffer.memory", &mut settings.memory_bytes)?;
        given.number("max.request.size", &mut settings.request_bytes_max)?;
        given.number("max.in.flight.requests.per.connection", &mut settings.in_flight_max)?;
        given.number("retry.backoff.ms", &mut settings.retry_backoff_ms)?;
        given.number("retry.backoff.max.ms", &mut settings.retry_backoff_ms_max)?;
        given.number("request.timeout.ms", &mut settings.request_timeout_ms)?;
        given.number("delivery.timeout.ms", &mut settings.delivery_timeout_ms)?;
        given.number("max.block.ms", &mut settings.block_ms_max)?;
        given.number("metadata.max.age.ms", &mut settings.metadata_age_ms_max)?;
        given.number("transaction.timeout.ms", &mut settings.transaction_timeout_ms)?;
        settings.transactional_id = given.text("transactional.id");
        if let Some(name) = given.text("compression.type") {
            settings.codec = codec(&name)?;
        }
        given.only("acks", &["all", "-1"])?;
        given.only("enable.idempotence", &["true"])?;
        settings.check().map_err(anyhow::Error::msg)?;
        Ok(settings)
    }

    /// Makes the producer. Has to be called inside a tokio runtime with timer and I/O; connects later, by itself.
    pub fn build(self) -> anyhow::Result<Producer> {
        let mut given = Given(self.settings);
        let servers = given.text("bootstrap.servers").context("bootstrap.servers is missing")?;
        let servers: Vec<String> =
            servers.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
        ensure!(!servers.is_empty(), "bootstrap.servers is empty");
        let client_id = given.text("client.id").unwrap_or_else(|| "oncilla".to_owned());
        let settings = Self::settings(&mut given)?;
        if let Some(unknown) = given.0.keys().next() {
            bail!("{unknown} is no setting of the producer");
        }
        let block_max = Duration::from_millis(settings.block_ms_max);
        let connect_timeout = Duration::from_millis(settings.request_timeout_ms);
        let runtime = tokio::runtime::Handle::try_current().context("a producer runs inside a tokio runtime")?;
        let shared = Arc::new(Shared::new(Machine::new(settings, &servers)));
        let client_id = StrBytes::from_string(client_id);
        runtime.spawn(Driver { shared: shared.clone(), client_id, connect_timeout }.run());
        Ok(Producer { shared, block_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, value: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _inside = runtime.enter();
        let builder = ProducerBuilder::default().set("bootstrap.servers", "127.0.0.1:1").set(name, value);
        format!("{:#}", builder.build().expect_err("it is refused"))
    }

    #[test]
    fn what_is_not_served_is_said_and_not_ignored() {
        assert!(refusal("acks", "1").contains("only all is served"));
        assert!(refusal("enable.idempotence", "false").contains("only true"));
        assert!(refusal("linger.sm", "5").contains("no setting"));
        assert!(refusal("linger.ms", "soon").contains("no such number"));
        assert!(refusal("max.in.flight.requests.per.connection", "6").contains("above 5"));
        assert!(refusal("delivery.timeout.ms", "10").contains("at least"));
        assert!(refusal("compression.type", "rar").contains("rar"));
        assert!(refusal("bootstrap.servers", " ,").contains("empty"));
    }

    #[test]
    fn a_producer_needs_a_runtime() {
        let built = ProducerBuilder::default().set("bootstrap.servers", "127.0.0.1:1").build();
        assert!(format!("{:#}", built.expect_err("it is refused")).contains("tokio"));
    }
}
