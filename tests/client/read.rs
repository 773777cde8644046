//! Reads a topic as a read_committed consumer does: up to the last stable offset, without aborted transactions.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use oncilla::client::Client;
use oncilla_shards::batch::records::Records;
use oncilla_shards::batch::{ControlKind, ControlRecord, scan};

const FETCH_BY_NAME: i16 = 12;
const READ_COMMITTED: i8 = 1;

/// Offset and value of every record that a read_committed consumer sees, by partition. Waits for open transactions.
pub fn committed(client: &mut Client, topic: &str) -> BTreeMap<i32, Vec<(i64, String)>> {
    let view = client.topic(topic, false).expect("the topic is there");
    let mut all = BTreeMap::new();
    for partition in &view.partitions {
        let mut records = Vec::new();
        let mut position = 0;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let data = fetch(client, topic, partition.index, partition.leader, position);
            assert_eq!(data.error_code, 0, "fetch of {topic}-{}", partition.index);
            position = take(&data, position, &mut records);
            if position >= data.high_watermark {
                break;
            }
            assert!(std::time::Instant::now() < until, "a transaction stays open in {topic}-{}", partition.index);
        }
        all.insert(partition.index, records);
    }
    all
}

fn fetch(client: &mut Client, topic: &str, partition: i32, leader: i32, offset: i64) -> PartitionData {
    let asked = FetchPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(100)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_isolation_level(READ_COMMITTED)
        .with_session_epoch(-1)
        .with_topics(vec![FetchTopic::default().with_topic(name).with_partitions(vec![asked])]);
    let mut answer = client.call(leader, &request, FETCH_BY_NAME).expect("fetch");
    answer.responses.remove(0).partitions.remove(0)
}

/// Adds what counts; where to go on.
fn take(data: &PartitionData, position: i64, records: &mut Vec<(i64, String)>) -> i64 {
    let mut aborted: Vec<(i64, i64)> =
        data.aborted_transactions.iter().flatten().map(|one| (one.first_offset, one.producer_id.0)).collect();
    aborted.sort_unstable();
    let mut open: BTreeSet<i64> = BTreeSet::new();
    let mut next = position;
    let bytes = data.records.as_deref().unwrap_or_default();
    for (at, header) in scan::scan(bytes) {
        let batch = &bytes[at..at + header.total_bytes()];
        let producer = header.producer_id.0;
        while let Some((first, id)) = aborted.first().copied()
            && first <= header.last_offset().0
        {
            open.insert(id);
            aborted.remove(0);
        }
        next = next.max(header.next_offset().0);
        let opened = Records::open(batch).expect("a batch");
        if header.attributes.is_control() {
            if ControlRecord::of_batch(batch).is_some_and(|marker| marker.kind == ControlKind::Abort) {
                open.remove(&producer);
            }
            continue;
        }
        if header.attributes.is_transactional() && open.contains(&producer) {
            continue;
        }
        for record in &opened {
            let record = record.expect("a record");
            if record.offset.0 >= position {
                let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).expect("text");
                records.push((record.offset.0, value));
            }
        }
    }
    next
}
