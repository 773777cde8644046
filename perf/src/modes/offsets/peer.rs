//! A broker of a few words, for tests: what it says to each request is up to the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, DeleteGroupsRequest, DeleteGroupsResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, GroupId, MetadataResponse, OffsetCommitResponse, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes, decode_request_header_from_buffer};

/// Answers that are held leave after this time even if there are too few.
const HOLD: Duration = Duration::from_millis(200);

pub const NODE: i32 = 7;
pub const METADATA: i16 = 3;
pub const OFFSET_COMMIT: i16 = 8;
pub const FIND_COORDINATOR: i16 = 10;
pub const API_VERSIONS: i16 = 18;
pub const DELETE_GROUPS: i16 = 42;

/// A request.
pub struct Asked {
    pub key: i16,
    pub version: i16,
    pub correlation_id: i32,
    pub body: Bytes,
}

/// What it does about one.
pub enum Say {
    Bytes(Vec<u8>),
    Close,
}

/// Runs until its test ends.
pub struct Peer {
    pub address: String,
    /// Most answers that it held for one connection.
    pub held: Arc<AtomicUsize>,
}

impl Peer {
    /// Keeps the answers of a connection until there are `hold` of them.
    pub fn start(hold: usize, script: impl FnMut(&Asked, &str) -> Say + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let held = Arc::new(AtomicUsize::new(0));
        let (own, most, script) = (address.clone(), held.clone(), Arc::new(Mutex::new(script)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (own, most, script) = (own.clone(), most.clone(), script.clone());
                let say = move |asked: &Asked| (script.lock().expect("no panic"))(asked, &own);
                std::thread::spawn(move || serve(stream.expect("a client"), hold, &most, say));
            }
        });
        Self { address, held }
    }
}

fn serve(mut stream: TcpStream, hold: usize, most: &AtomicUsize, mut say: impl FnMut(&Asked) -> Say) {
    stream.set_read_timeout(Some(HOLD)).expect("a socket");
    let (mut input, mut chunk, mut held) = (Vec::new(), [0; 4096], Vec::new());
    loop {
        let late = match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                input.extend_from_slice(&chunk[..read]);
                false
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => true,
            Err(_) => return,
        };
        while let Some(asked) = next(&mut input) {
            match say(&asked) {
                Say::Bytes(bytes) => held.push(bytes),
                Say::Close => return,
            }
        }
        most.fetch_max(held.len(), Ordering::SeqCst);
        if (late || held.len() >= hold) && stream.write_all(&std::mem::take(&mut held).concat()).is_err() {
            return;
        }
    }
}

fn next(input: &mut Vec<u8>) -> Option<Asked> {
    let length = u32::from_be_bytes(*input.first_chunk()?) as usize;
    let mut frame = Bytes::copy_from_slice(input.get(4..4 + length)?);
    input.drain(..4 + length);
    let header = decode_request_header_from_buffer(&mut frame).expect("a request");
    let (key, version) = (header.request_api_key, header.request_api_version);
    Some(Asked { key, version, correlation_id: header.correlation_id, body: frame })
}

/// An answer with its length in front.
pub fn framed<T: Encodable + HeaderVersion>(version: i16, correlation_id: i32, answer: &T) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    header.encode(&mut bytes, T::header_version(version)).expect("a header");
    answer.encode(&mut bytes, version).expect("an answer");
    let length = u32::try_from(bytes.len() - 4).expect("it is short");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The answer to a commit of one topic.
pub fn committed(version: i16, correlation_id: i32, topic: &str, codes: &[i16]) -> Vec<u8> {
    let partition = |(index, code): (i32, &i16)| {
        OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(*code)
    };
    let topic = OffsetCommitResponseTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partitions((0..).zip(codes).map(partition).collect());
    framed(version, correlation_id, &OffsetCommitResponse::default().with_topics(vec![topic]))
}

impl Asked {
    /// The answer with these codes by partition.
    pub fn committed(&self, topic: &str, codes: &[i16]) -> Say {
        Say::Bytes(committed(self.version, self.correlation_id, topic, codes))
    }

    fn answer<T: Encodable + HeaderVersion>(&self, answer: &T) -> Say {
        Say::Bytes(framed(self.version, self.correlation_id, answer))
    }

    /// The answer to FindCoordinator: this peer, or an error.
    pub fn coordinator(&self, address: &str, code: i16) -> Say {
        let (host, port) = address.rsplit_once(':').expect("an address");
        let asked = FindCoordinatorRequest::decode(&mut self.body.clone(), self.version).expect("a request");
        let of = |key| {
            Coordinator::default()
                .with_key(key)
                .with_node_id(BrokerId(NODE))
                .with_host(StrBytes::from_string(host.to_owned()))
                .with_port(port.parse().expect("a port"))
                .with_error_code(code)
        };
        let all = asked.coordinator_keys.into_iter().map(of).collect();
        self.answer(&FindCoordinatorResponse::default().with_coordinators(all))
    }

    /// Names of the groups that are to go.
    pub fn deleted(&self) -> Vec<String> {
        let asked = DeleteGroupsRequest::decode(&mut self.body.clone(), self.version).expect("a request");
        asked.groups_names.iter().map(|name| name.0.to_string()).collect()
    }

    /// What a broker of one node says that has no errors; it serves FindCoordinator up to `find_max`.
    pub fn ordinary(&self, address: &str, find_max: i16) -> Say {
        match self.key {
            API_VERSIONS => {
                let api = |(key, min, max)| {
                    ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
                };
                let all =
                    [(METADATA, 9, 9), (OFFSET_COMMIT, 2, 8), (FIND_COORDINATOR, 0, find_max), (API_VERSIONS, 0, 0)];
                let all = all.into_iter().chain([(DELETE_GROUPS, 0, 2)]).map(api).collect();
                self.answer(&ApiVersionsResponse::default().with_api_keys(all))
            }
            METADATA => {
                let (host, port) = address.rsplit_once(':').expect("an address");
                let node = MetadataResponseBroker::default()
                    .with_node_id(BrokerId(NODE))
                    .with_host(StrBytes::from_string(host.to_owned()))
                    .with_port(port.parse().expect("a port"));
                self.answer(&MetadataResponse::default().with_brokers(vec![node]))
            }
            FIND_COORDINATOR => self.coordinator(address, 0),
            DELETE_GROUPS => self.answer(&self.deleting(0)),
            _ => Say::Close,
        }
    }

    fn deleting(&self, code: i16) -> DeleteGroupsResponse {
        let one = |name: String| {
            let name = GroupId(StrBytes::from_string(name));
            DeletableGroupResult::default().with_group_id(name).with_error_code(code)
        };
        DeleteGroupsResponse::default().with_results(self.deleted().into_iter().map(one).collect())
    }

    /// The answer to DeleteGroups with this code for each.
    pub fn deletion(&self, code: i16) -> Say {
        self.answer(&self.deleting(code))
    }
}
