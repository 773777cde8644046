//! A membership in a consumer group, carried out on a thread of its own: a consumer that is busy, or whose output is
//! stopped, stays a member. What is decided is `oncilla_shards::client::member`'s.
//!
//! Limits: one request is under way; what the consumer is told waits for it in memory, bounded by what it is assigned.
//! Failure: a broker that is away is asked again until the membership ends; what ends it is told as the last event.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ConsumerGroupHeartbeatRequest;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::client::member::{Beat, BeatAnswer, Member, MemberFailure, Notice, Step};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::TopicId;

use super::groups::group_id;
use super::{Client, ClientError, text};

/// Longest wait for an answer of the coordinator.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the consumer hears.
pub(super) enum Event {
    Notice(Notice),
    /// It is over, and nothing follows.
    Ended(Result<(), ClientError>),
}

enum Command {
    Released,
    Close,
}

/// The membership of one consumer. Dropping it leaves the group, and does not wait for that.
pub(super) struct Membership {
    commands: Sender<Command>,
    events: Receiver<Event>,
    identity: Arc<Mutex<Option<(String, i32)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Begins to join.
    pub fn join(bootstrap: &str, group: &str, topic: &str) -> Result<Self, ClientError> {
        let client = Client::connect_within(bootstrap, REQUEST_TIMEOUT)?;
        let id = TopicId(uuid::Uuid::new_v4().as_u128()).to_base64();
        let (commands, orders) = channel();
        let (told, events) = channel();
        let identity = Arc::new(Mutex::new(None));
        let task = Task {
            client,
            group: group.to_owned(),
            member: Member::new(id, vec![topic.to_owned()]),
            began: Instant::now(),
            orders,
            told,
            identity: identity.clone(),
        };
        let thread = std::thread::Builder::new().name("oncilla-member".into()).spawn(move || task.run());
        let thread = thread.map_err(|error| ClientError::io("a thread for the membership", error))?;
        Ok(Self { commands, events, identity, thread: Some(thread) })
    }

    /// The next event, waiting for it up to a bound.
    pub fn next(&self, wait: Duration) -> Option<Event> {
        self.events.recv_timeout(wait).ok()
    }

    /// Answers the oldest [`Notice::Give`] or [`Notice::Lost`].
    pub fn released(&self) {
        let _ = self.commands.send(Command::Released);
    }

    /// Member id and epoch to commit under; `None` while it is no member.
    pub fn identity(&self) -> Option<(String, i32)> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves, and waits until the group knows or cannot be told.
    pub fn leave(mut self) {
        let _ = self.commands.send(Command::Close);
        if let Some(thread) = self.thread.take() {
            // It panics on a fault of ours only, which has been told by then.
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Task {
    client: Client,
    group: String,
    member: Member,
    began: Instant,
    orders: Receiver<Command>,
    told: Sender<Event>,
    identity: Arc<Mutex<Option<(String, i32)>>>,
}

impl Task {
    fn run(mut self) {
        loop {
            while let Ok(command) = self.orders.try_recv() {
                self.obey(command);
            }
            let step = self.member.poll(self.now_ms());
            // Before the consumer hears anything that it may commit for.
            let identity = self.member.identity().map(|(id, epoch)| (id.to_owned(), epoch));
            *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
            match step {
                Step::Tell(notice) => _ = self.told.send(Event::Notice(notice)),
                Step::Find => self.find(),
                Step::Beat(beat) => self.beat(beat),
                Step::Wait(until_ms) => self.wait(until_ms),
                Step::Done(result) => {
                    let result = result.map_err(|failure| self.refusal(failure));
                    let _ = self.told.send(Event::Ended(result));
                    return;
                }
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn obey(&mut self, command: Command) {
        let now_ms = self.now_ms();
        match command {
            Command::Released => self.member.released(now_ms),
            Command::Close => self.member.close(now_ms),
        }
    }

    fn wait(&mut self, until_ms: Option<u64>) {
        let left = until_ms.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(self.now_ms())));
        let command = match left {
            Some(left) => self.orders.recv_timeout(left),
            None => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match command {
            Ok(command) => self.obey(command),
            Err(RecvTimeoutError::Timeout) => {}
            // The consumer is gone.
            Err(RecvTimeoutError::Disconnected) => self.obey(Command::Close),
        }
    }

    fn find(&mut self) {
        let found = self.client.coordinator(&self.group).and_then(|node| {
            if !self.client.cluster().nodes.contains_key(&node) {
                self.client.refresh(Some(&[]), false)?;
            }
            Ok(node)
        });
        match found {
            Ok(node) => self.member.found(self.now_ms(), Ok(node)),
            Err(error) => match failure(error) {
                Some(failure) => self.member.found(self.now_ms(), Err(failure)),
                None => self.member.lost(self.now_ms()),
            },
        }
    }

    fn beat(&mut self, beat: Beat) {
        let node = beat.node;
        let answer = self.client.call(node, &request(&self.group, beat), i16::MAX);
        let now_ms = self.now_ms();
        let answer = answer.map(|answer| BeatAnswer {
            code: answer.error_code,
            message: answer.error_message.map(|text| text.to_string()),
            epoch: answer.member_epoch,
            interval_ms: answer.heartbeat_interval_ms,
            assignment: answer.assignment.map(|assignment| {
                let topics = assignment.topic_partitions.into_iter();
                topics.map(|topic| (TopicId(topic.topic_id.as_u128()), topic.partitions)).collect()
            }),
        });
        match answer {
            Ok(answer) => self.member.answered(now_ms, answer),
            Err(error) => match failure(error) {
                Some(MemberFailure { code, message }) => {
                    self.member.answered(now_ms, BeatAnswer { code, message, ..BeatAnswer::default() });
                }
                None => self.member.lost(now_ms),
            },
        }
    }

    fn refusal(&self, failure: MemberFailure) -> ClientError {
        let message = match ErrorCode::from_wire(failure.code) {
            Some(ErrorCode::UnsupportedVersion) => {
                Some("the broker does not serve the consumer protocol of KIP-848, or has it turned off".to_owned())
            }
            Some(ErrorCode::GroupIdNotFound) => {
                Some("the group has members of another kind, and cannot become one of KIP-848 now".to_owned())
            }
            _ => failure.message,
        };
        ClientError::Refused { what: format!("membership in group {}", self.group), code: failure.code, message }
    }
}

/// What the broker said; `None` for a connection that failed.
fn failure(error: ClientError) -> Option<MemberFailure> {
    match error {
        ClientError::Io { .. } => None,
        ClientError::Refused { code, message, .. } => Some(MemberFailure { code, message }),
        // It has no version of the request, or answers what cannot be read.
        ClientError::Protocol(message) => {
            Some(MemberFailure { code: ErrorCode::UnsupportedVersion.wire(), message: Some(message) })
        }
    }
}

fn request(group: &str, beat: Beat) -> ConsumerGroupHeartbeatRequest {
    let owned = beat.owned.map(|owned| {
        let topic = |(topic, indexes): (TopicId, Vec<i32>)| {
            TopicPartitions::default().with_topic_id(uuid::Uuid::from_u128(topic.0)).with_partitions(indexes)
        };
        owned.into_iter().map(topic).collect()
    });
    let names =
        beat.topics.map(|names| names.iter().map(|name| kafka_protocol::messages::TopicName(text(name))).collect());
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(StrBytes::from_string(beat.member_id))
        .with_member_epoch(beat.epoch)
        .with_rebalance_timeout_ms(beat.rebalance_timeout_ms.unwrap_or(-1))
        .with_subscribed_topic_names(names)
        .with_topic_partitions(owned)
}
