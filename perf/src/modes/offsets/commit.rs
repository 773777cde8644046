//! OffsetCommit in bytes: the request of a group, encoded once and patched for each commit, and what an answer says.
//!
//! The commits come from outside of their group (generation -1, no member), as those of a consumer that assigns its
//! partitions itself. All offsets of one commit are the same number: two requests of a group differ in that and in the
//! correlation id.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use oncilla::client::ClientError;

use crate::target::Topic;

/// Stands for the offset in the request that is patched. No text has bytes above 0xf7, and it cannot overlap itself.
const MARK: [u8; 8] = [0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff];

/// Where the correlation id of a request stands: behind its length, its key and its version.
const CORRELATION: Range<usize> = 8..12;

/// What a group commits.
#[derive(Clone, Debug)]
pub struct Commit {
    pub group: String,
    pub topic: Topic,
}

/// The bytes of a group's request.
pub struct Frame {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Frame {
    /// The request with this correlation id and this offset for each partition.
    pub fn fill(&mut self, correlation_id: i32, offset: i64) -> &[u8] {
        self.bytes[CORRELATION].copy_from_slice(&correlation_id.to_be_bytes());
        for at in &self.offsets {
            self.bytes[*at..*at + MARK.len()].copy_from_slice(&offset.to_be_bytes());
        }
        &self.bytes
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Commit {
    pub fn request(&self, offset: i64) -> OffsetCommitRequest {
        let partition =
            |index| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(text(&self.topic.name)))
            .with_partitions((0..self.topic.partitions).map(partition).collect());
        OffsetCommitRequest::default().with_group_id(GroupId(text(&self.group))).with_topics(vec![topic])
    }

    pub fn frame(&self, version: i16) -> Result<Frame> {
        let header = RequestHeader::default()
            .with_request_api_key(OffsetCommitRequest::KEY)
            .with_request_api_version(version)
            .with_client_id(Some(StrBytes::from_static_str("oncilla-perf")));
        let mut bytes = vec![0; 4];
        header.encode(&mut bytes, OffsetCommitRequest::header_version(version)).context("the header of a commit")?;
        self.request(i64::from_be_bytes(MARK)).encode(&mut bytes, version).context("a commit")?;
        let length = i32::try_from(bytes.len() - 4).context("a commit of so many partitions")?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        let marks = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
        let offsets: Vec<_> = marks.map(|(at, _)| at).collect();
        assert_eq!(Ok(self.topic.partitions), i32::try_from(offsets.len()), "each partition has its offset");
        Ok(Frame { bytes, offsets })
    }

    /// Reads the answer to a request; whether it was refused. An error for what is no answer to it.
    pub fn answer(&self, version: i16, correlation_id: i32, mut frame: &[u8]) -> Result<Option<ClientError>> {
        let header = ResponseHeader::decode(&mut frame, OffsetCommitResponse::header_version(version))
            .context("an answer that cannot be read")?;
        let got = header.correlation_id;
        ensure!(got == correlation_id, "an answer to request {got} instead of {correlation_id}");
        let answer = OffsetCommitResponse::decode(&mut frame, version).context("an answer that cannot be read")?;
        ensure!(frame.is_empty(), "an answer with {} bytes too many", frame.len());
        self.refusal(&answer)
    }

    /// The first partition that was refused.
    pub fn refusal(&self, answer: &OffsetCommitResponse) -> Result<Option<ClientError>> {
        let told = answer.topics.iter().filter(|topic| *topic.name.0 == *self.topic.name);
        let told: Vec<_> = told.flat_map(|topic| &topic.partitions).collect();
        let (count, asked) = (told.len(), self.topic.partitions);
        ensure!(i32::try_from(count) == Ok(asked), "an answer about {count} partitions to a commit of {asked}");
        let refused = told.into_iter().find(|one| one.error_code != 0);
        Ok(refused.map(|one| {
            let what = format!("commit {}-{} for group {}", self.topic.name, one.partition_index, self.group);
            ClientError::Refused { what, code: one.error_code, message: None }
        }))
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::protocol::Message;

    use super::super::peer::committed;
    use super::*;

    fn commit(partitions: i32) -> Commit {
        Commit { group: "a group \u{10ffff}".into(), topic: Topic { name: "t".into(), partitions } }
    }

    #[test]
    fn a_patched_request_is_the_one_that_would_have_been_encoded() {
        for version in OffsetCommitRequest::VERSIONS.min..=OffsetCommitRequest::VERSIONS.max {
            let commit = commit(300);
            let mut frame = commit.frame(version).expect("a request");
            for (correlation_id, offset) in [(7, 5), (-1, i64::MAX), (8, 0)] {
                let mut bytes = frame.fill(correlation_id, offset);
                let (length, rest) = bytes.split_at(4);
                assert_eq!(length, u32::try_from(rest.len()).expect("short").to_be_bytes(), "{version}");
                bytes = rest;
                let header = OffsetCommitRequest::header_version(version);
                let header = RequestHeader::decode(&mut bytes, header).expect("a header");
                let shape = (header.request_api_key, header.request_api_version, header.correlation_id);
                assert_eq!(shape, (8, version, correlation_id));
                let read = OffsetCommitRequest::decode(&mut bytes, version).expect("a body");
                assert_eq!((read, bytes.len()), (commit.request(offset), 0), "{version}");
            }
        }
    }

    #[test]
    fn an_answer_is_taken_only_if_every_partition_has_one() {
        let commit = commit(3);
        for version in [7, 8, 9] {
            let read = |codes: &[i16]| commit.answer(version, 4, &committed(version, 4, "t", codes)[4..]);
            assert!(read(&[0, 0, 0]).expect("an answer").is_none());
            let refused = read(&[0, 16, 12]).expect("an answer").expect("a refusal").to_string();
            assert_eq!(refused, "commit t-1 for group a group \u{10ffff}: NotCoordinator (16)");
            let wrong = |codes: &[i16]| read(codes).expect_err("no answer to it").to_string();
            assert!(wrong(&[0, 0]).contains("2 partitions to a commit of 3"));
            assert!(wrong(&[0; 4]).contains("4 partitions"));
        }
    }

    #[test]
    fn what_is_no_answer_to_the_request_is_told() {
        let commit = commit(1);
        let whole = committed(9, 4, "t", &[0]);
        let wrong = |correlation_id, frame: &[u8]| {
            commit.answer(9, correlation_id, frame).expect_err("it is refused").to_string()
        };
        assert!(wrong(5, &whole[4..]).contains("request 4 instead of 5"));
        assert!(wrong(4, &whole[4..whole.len() - 1]).contains("cannot be read"));
        assert!(wrong(4, &[&whole[4..], &[0]].concat()).contains("1 bytes too many"));
        assert!(wrong(4, &committed(9, 4, "u", &[0])[4..]).contains("about 0 partitions"));
    }
}
