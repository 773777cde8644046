//! The topic of a foreign run: made if it is not there, taken away if it was made here.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use oncilla::client::{Client, ClientError, TopicView};

/// Longest wait for the leaders of a topic that was just made.
const LEADERS_WAIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Kafka's UNKNOWN_TOPIC_OR_PARTITION.
const UNKNOWN_TOPIC: i16 = 3;

/// A topic that is there.
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// Settings that decide what an acknowledgement stands for.
    pub flush_messages: Option<String>,
    bootstrap: String,
    delete: bool,
}

/// How a topic is made.
pub struct Wanted<'a> {
    /// Partitions.
    pub partitions: i32,
    /// Copies of each.
    pub replication: i16,
    /// Its settings.
    pub settings: &'a [(String, String)],
    /// Leave it behind.
    pub keep: bool,
}

impl Topic {
    /// The topic at `bootstrap`; made if `wanted` says how.
    pub fn open(bootstrap: &str, name: &str, wanted: Option<&Wanted<'_>>) -> Result<Self> {
        let mut client = Client::connect(bootstrap).with_context(|| format!("no broker is reached at {bootstrap}"))?;
        let mut topic = Self {
            name: name.to_owned(),
            partitions: 0,
            flush_messages: None,
            bootstrap: bootstrap.to_owned(),
            delete: false,
        };
        let view = match (client.topic(name, false), wanted) {
            (Ok(view), _) => {
                ensure!(
                    wanted.is_none_or(|wanted| wanted.settings.is_empty()),
                    "topic {name} is there: --topic-config is for topics that are made"
                );
                view
            }
            (Err(ClientError::Refused { code: UNKNOWN_TOPIC, .. }), Some(wanted)) => {
                client.create_topic(name, wanted.partitions, wanted.replication, wanted.settings)?;
                topic.delete = !wanted.keep;
                await_leaders(&mut client, name)?
            }
            (Err(error), _) => return Err(error).with_context(|| format!("topic {name} cannot be used")),
        };
        topic.partitions = view.partitions.len();
        let settings = client.topic_settings(name).unwrap_or_default();
        topic.flush_messages = settings.into_iter().find(|one| one.name == "flush.messages").and_then(|one| one.value);
        Ok(topic)
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        if self.delete {
            let deleted = Client::connect(&self.bootstrap).and_then(|mut client| client.delete_topic(&self.name));
            if let Err(error) = deleted {
                eprintln!("topic {} is left behind: {error}", self.name);
            }
        }
    }
}

fn await_leaders(client: &mut Client, name: &str) -> Result<TopicView> {
    let until = Instant::now() + LEADERS_WAIT;
    loop {
        match client.topic(name, false) {
            Ok(view) if view.partitions.iter().all(|one| one.leader >= 0 && one.error == 0) => return Ok(view),
            Err(error) if !error.is_retriable() => return Err(error.into()),
            _ if Instant::now() > until => bail!("topic {name} was made and has no leaders yet"),
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
}
