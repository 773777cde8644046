//! The cluster under load: its topics, those that a run makes and takes away again.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use oncilla::client::isolation::Isolation;
use oncilla::client::offsets::LATEST;
use oncilla::client::{Client, ClientError};
use oncilla_shards::code::ErrorCode;

/// Longest wait for leaders of a topic that was just made.
const LEADERS_WAIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A topic of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub partitions: i32,
}

/// How a topic is made.
#[derive(Clone, Debug)]
pub struct NewTopic<'a> {
    pub partitions: Option<i32>,
    pub replication: i16,
    pub settings: &'a [(String, String)],
}

/// The cluster. What the run made goes when this is dropped.
pub struct Target {
    bootstrap: String,
    keep: bool,
    made: Vec<String>,
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, .. } if *code == ErrorCode::UnknownTopicOrPartition.wire())
}

impl Target {
    /// Fails where nobody answers as a Kafka broker does.
    pub fn reach(bootstrap: &str, keep: bool) -> anyhow::Result<Self> {
        let target = Self { bootstrap: bootstrap.to_owned(), keep, made: Vec::new() };
        target.client()?;
        Ok(target)
    }

    pub fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.bootstrap).with_context(|| format!("no broker is reached at {}", self.bootstrap))
    }

    /// The topic, which has to be there.
    pub fn known(&self, name: &str) -> anyhow::Result<Topic> {
        let view = self.client()?.topic(name, false)?;
        Ok(Topic { name: view.name, partitions: i32::try_from(view.partitions.len())? })
    }

    /// A setting of a topic, where the cluster tells it.
    pub fn setting(&self, topic: &Topic, name: &str) -> anyhow::Result<Option<String>> {
        let settings = self.client()?.topic_settings(&topic.name).unwrap_or_default();
        Ok(settings.into_iter().find(|one| one.name == name).and_then(|one| one.value))
    }

    /// The topic, made if it is not there.
    pub fn topic(&mut self, name: &str, new: &NewTopic<'_>) -> anyhow::Result<Topic> {
        let mut client = self.client()?;
        match client.topic(name, false) {
            Ok(view) => {
                let there = i32::try_from(view.partitions.len())?;
                let wanted = new.partitions.unwrap_or(there);
                ensure!(wanted == there, "topic {name} is there with {there} partitions, not {wanted}");
                ensure!(new.settings.is_empty(), "topic {name} is there: --topic-config is for topics that are made");
                Ok(Topic { name: name.to_owned(), partitions: there })
            }
            Err(error) if is_unknown(&error) => {
                let partitions = new.partitions.unwrap_or(1);
                client.create_topic(name, partitions, new.replication, new.settings)?;
                self.made.push(name.to_owned());
                await_leaders(&mut client, name, partitions)?;
                Ok(Topic { name: name.to_owned(), partitions })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until each partition serves: a node may be named as the leader before it knows that it is.
fn await_leaders(client: &mut Client, name: &str, partitions: i32) -> anyhow::Result<()> {
    let until = Instant::now() + LEADERS_WAIT;
    loop {
        let served = client
            .topic(name, false)
            .and_then(|view| client.offsets_at(&view, |_| true, LATEST, Isolation::Uncommitted))
            .map(|ends| ends.len());
        let why = match served {
            Ok(count) if usize::try_from(partitions) == Ok(count) => return Ok(()),
            Ok(count) => format!("{count} of {partitions} partitions are known"),
            Err(error) if error.is_retriable() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        if Instant::now() > until {
            bail!("topic {name} was made and cannot be used after {} s: {why}", LEADERS_WAIT.as_secs());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.keep || self.made.is_empty() {
            return;
        }
        let deleted = self.client().and_then(|mut client| {
            self.made.iter().try_for_each(|name| client.delete_topic(name).map_err(anyhow::Error::from))
        });
        if let Err(error) = deleted {
            eprintln!("oncilla-perf: topics that the run made are left behind: {error:#}");
        }
    }
}
