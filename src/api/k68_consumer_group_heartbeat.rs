//! ConsumerGroupHeartbeat (key 68), versions 0 and 1: contract G11, G12.

use std::rc::Rc;

use kafka_protocol::messages::consumer_group_heartbeat_request::{
    ConsumerGroupHeartbeatRequest, TopicPartitions as Owned,
};
use kafka_protocol::messages::consumer_group_heartbeat_response::{
    Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, ConsumerHeartbeat, ConsumerHeartbeatReply, Reply};
use oncilla_shards::ids::TopicId;

use super::codec::{serve, text, topic_id, uuid};
use super::{Answer, Request, group};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ConsumerGroupHeartbeatRequest| {
        let reply = beat(ctx, request, &asked).await;
        ConsumerGroupHeartbeatResponse::default()
            .with_error_code(reply.code.wire())
            .with_error_message(reply.message.map(text))
            .with_member_id(reply.member_id.map(text))
            .with_member_epoch(reply.member_epoch)
            .with_heartbeat_interval_ms(reply.heartbeat_interval_ms)
            .with_assignment(reply.assignment.map(|topics| {
                Assignment::default().with_topic_partitions(topics.into_iter().map(partitions).collect())
            }))
    })
    .await
}

async fn beat(ctx: &Rc<Ctx>, request: &Request, asked: &ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeatReply {
    let refused = |code| ConsumerHeartbeatReply { code, ..ConsumerHeartbeatReply::default() };
    if !ctx.groups.speaks_consumer_protocol() {
        return refused(ErrorCode::UnsupportedVersion);
    }
    if asked.group_id.is_empty() {
        return ConsumerHeartbeatReply::refused(ErrorCode::InvalidRequest, "GroupId can't be empty.");
    }
    match group::ask(ctx, request, &asked.group_id, Ask::ConsumerHeartbeat(to_beat(request, asked))).await {
        Ok(Reply::ConsumerHeartbeat(reply)) => reply,
        Ok(other) => group::mismatched(&other),
        Err(code) => refused(code),
    }
}

fn to_beat(request: &Request, asked: &ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat {
    let string = |text: &Option<StrBytes>| text.as_ref().map(StrBytes::to_string);
    let owned = |owned: &Owned| (topic_id(owned.topic_id), owned.partitions.clone());
    ConsumerHeartbeat {
        version: request.version,
        member_id: asked.member_id.to_string(),
        member_epoch: asked.member_epoch,
        instance_id: string(&asked.instance_id),
        rack_id: string(&asked.rack_id),
        rebalance_timeout_ms: asked.rebalance_timeout_ms,
        topics: asked.subscribed_topic_names.as_ref().map(|names| names.iter().map(|name| name.to_string()).collect()),
        regex: string(&asked.subscribed_topic_regex),
        assignor: string(&asked.server_assignor),
        owned: asked.topic_partitions.as_ref().map(|topics| topics.iter().map(owned).collect()),
        client: group::client(request),
        fresh: group::fresh(),
    }
}

fn partitions((topic, indexes): (TopicId, Vec<i32>)) -> TopicPartitions {
    TopicPartitions::default().with_topic_id(uuid(topic)).with_partitions(indexes)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;

    use super::*;
    use crate::api::testing::{ask, ctx, ctx_with};

    fn asked(group: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_member_id(text("m"))
            .with_member_epoch(epoch)
    }

    #[test]
    fn g11_0_without_the_protocol_every_heartbeat_is_35() {
        let (ctx, _dir) = ctx_with(|config| config.groups.consumer_protocol = false);
        for version in 0..=1 {
            let answer: ConsumerGroupHeartbeatResponse = ask(&ctx, 68, version, &asked("", 0));
            assert_eq!((answer.error_code, answer.member_id, answer.assignment), (35, None, None), "G11.1");
        }
    }

    #[test]
    fn g11_3_and_g11_8_the_empty_group_is_42_and_an_absent_one_69() {
        let (ctx, _dir) = ctx();
        for version in 0..=1 {
            for (group, code) in [("", 42), ("g", 69)] {
                let answer: ConsumerGroupHeartbeatResponse = ask(&ctx, 68, version, &asked(group, 1));
                assert_eq!((answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms), (code, 0, 0));
                assert!(answer.error_message.is_some(), "G11.1");
            }
        }
    }
}
