//! The groups of a run: their coordinators, a first commit of each, and their end.
//!
//! A coordinator that is not ready or has moved is looked for again until each group has committed once, and never
//! afterwards: a run measures coordinators that stay. The groups are deleted when this is dropped, unless they are to
//! be kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kafka_protocol::messages::{DeleteGroupsRequest, FindCoordinatorRequest, GroupId, OffsetCommitRequest};
use kafka_protocol::protocol::StrBytes;
use oncilla::client::{Client, ClientError, Connection};
use oncilla_shards::code::ErrorCode;

use super::commit::Commit;
use super::lane::Lane;
use crate::target::Topic;

/// Last version of OffsetCommit that names topics.
const COMMIT_BY_NAME: i16 = 9;
/// Groups that one FindCoordinator asks for.
const KEYS_MAX: usize = 1000;
/// Longest wait for coordinators: a Kafka makes its topic of offsets when the first one is asked for.
const SETTLE_WAIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longest wait for one answer, and for room in a socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    id: i32,
    address: String,
}

/// The groups.
pub struct Groups {
    bootstrap: String,
    keep: bool,
    coordinators: BTreeMap<String, Node>,
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn refused(what: String, code: i16, message: Option<&StrBytes>) -> ClientError {
    ClientError::Refused { what, code, message: message.map(|text| text.to_string()) }
}

/// Coordinators of groups; asks again for those that have none yet.
fn find(client: &mut Client, names: &[String], until: Instant) -> Result<BTreeMap<String, Node>> {
    let mut found = BTreeMap::new();
    for names in names.chunks(KEYS_MAX) {
        let mut missing = names.to_vec();
        loop {
            let keys = missing.iter().map(|name| StrBytes::from_string(name.clone())).collect();
            let request = FindCoordinatorRequest::default().with_coordinator_keys(keys).with_key_type(0);
            let any = client.cluster().nodes.keys().next().copied().unwrap_or(-1);
            let answer = client.call(any, &request, i16::MAX).context("FindCoordinator 4 or later is needed")?;
            let mut why = None;
            for one in answer.coordinators {
                let what = format!("coordinator of group {}", &*one.key);
                let error = refused(what, one.error_code, one.error_message.as_ref());
                match one.error_code {
                    0 => {
                        let node = Node { id: one.node_id.0, address: address(&one.host, one.port) };
                        found.insert(one.key.to_string(), node);
                    }
                    _ if error.is_retriable() => why = Some(error),
                    _ => return Err(error.into()),
                }
            }
            missing.retain(|name| !found.contains_key(name));
            let Some(first) = missing.first() else { break };
            let why = why.unwrap_or_else(|| ClientError::Protocol(format!("group {first} is left out")));
            if Instant::now() > until {
                return Err(why).with_context(|| format!("no coordinator after {} s", SETTLE_WAIT.as_secs()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    Ok(found)
}

impl Groups {
    pub fn new(bootstrap: &str, keep: bool) -> Self {
        Self { bootstrap: bootstrap.to_owned(), keep, coordinators: BTreeMap::new() }
    }

    /// Connections to the coordinators of these groups, each of which has committed once.
    pub fn open(&mut self, client: &mut Client, names: &[String], topic: &Topic) -> Result<Vec<Lane>> {
        let until = Instant::now() + SETTLE_WAIT;
        self.coordinators = find(client, names, until)?;
        names.iter().map(|name| self.lane(client, name, topic, until)).collect()
    }

    fn lane(&mut self, client: &mut Client, name: &String, topic: &Topic, until: Instant) -> Result<Lane> {
        let commit = Commit { group: name.clone(), topic: topic.clone() };
        loop {
            let address = self.coordinators[name].address.clone();
            let mut connection = Connection::open(&address, ANSWER_TIMEOUT)?;
            let answer = connection.call(&commit.request(0), COMMIT_BY_NAME)?;
            let Some(refusal) = commit.refusal(&answer).with_context(|| address.clone())? else {
                let version = connection.version::<OffsetCommitRequest>(COMMIT_BY_NAME)?;
                return Lane::new(commit, address, version, connection.into_stream());
            };
            if !refusal.is_retriable() || Instant::now() > until {
                return Err(refusal).with_context(|| format!("the first commit at {address}"));
            }
            std::thread::sleep(LOOK_AGAIN);
            self.coordinators.extend(find(client, std::slice::from_ref(name), until)?);
        }
    }

    /// Deletes them.
    pub fn delete(&self) -> Result<()> {
        let mut by_node: BTreeMap<i32, Vec<GroupId>> = BTreeMap::new();
        for (name, node) in &self.coordinators {
            by_node.entry(node.id).or_default().push(GroupId(StrBytes::from_string(name.clone())));
        }
        let mut client = Client::connect_within(&self.bootstrap, ANSWER_TIMEOUT)?;
        for (node, names) in by_node {
            let answer = client.call(node, &DeleteGroupsRequest::default().with_groups_names(names), i16::MAX)?;
            for one in answer.results {
                // Those that never committed are not there.
                if ![0, ErrorCode::GroupIdNotFound.wire()].contains(&one.error_code) {
                    return Err(refused(format!("delete group {}", &*one.group_id.0), one.error_code, None).into());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if self.keep || self.coordinators.is_empty() {
            return;
        }
        if let Err(error) = self.delete() {
            eprintln!("oncilla-perf: groups that the run made are left behind: {error:#}");
        }
    }
}
