//! ConsumerGroupDescribe (key 69), versions 0 and 1: contract G16.

use std::rc::Rc;

use kafka_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};
use kafka_protocol::messages::{GroupId, TopicName};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, ConsumerDescription, ConsumerMemberDescription, Reply};
use oncilla_shards::image::Image;

use super::authorization::{GROUP_OPERATIONS, NOT_ASKED, if_asked};
use super::codec::{serve, text, uuid};
use super::{Answer, Request, group};
use crate::ctx::Ctx;
use crate::groups;

/// A member that speaks the classic protocol.
const CLASSIC: i8 = 0;
/// A member that speaks the protocol of KIP-848.
const CONSUMER: i8 = 1;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ConsumerGroupDescribeRequest| {
        let operations = if_asked(asked.include_authorized_operations, GROUP_OPERATIONS);
        let described = describe_all(ctx, &asked.group_ids).await;
        let image = ctx.image();
        let group = |(id, found): (GroupId, _)| describe(&image, id, found, operations);
        ConsumerGroupDescribeResponse::default()
            .with_groups(asked.group_ids.into_iter().zip(described).map(group).collect())
    })
    .await
}

async fn describe_all(ctx: &Rc<Ctx>, ids: &[GroupId]) -> Vec<Result<ConsumerDescription, ErrorCode>> {
    if !ctx.groups.speaks_consumer_protocol() {
        return vec![Err(ErrorCode::UnsupportedVersion); ids.len()];
    }
    let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
    let replies = groups::ask_all(ctx, &names, Ask::ConsumerDescribe).await;
    let found = |(name, reply): (&&str, _)| match reply {
        _ if name.is_empty() => Err(ErrorCode::InvalidGroupId),
        Ok(Reply::ConsumerDescribe(found)) => found,
        Ok(other) => group::mismatched(&other),
        Err(code) => Err(code),
    };
    names.iter().zip(replies).map(found).collect()
}

fn describe(
    image: &Image,
    id: GroupId,
    found: Result<ConsumerDescription, ErrorCode>,
    operations: i32,
) -> DescribedGroup {
    let group = DescribedGroup::default().with_group_id(id.clone());
    match found {
        Ok(description) => group
            .with_group_state(text(description.state))
            .with_group_epoch(description.epoch)
            .with_assignment_epoch(description.assignment_epoch)
            .with_assignor_name(text(description.assignor))
            .with_members(description.members.into_iter().map(|described| member(image, described)).collect())
            .with_authorized_operations(operations),
        Err(code) => {
            let absent = || text(format!("Group {} not found.", id.as_str()));
            group
                .with_error_code(code.wire())
                .with_error_message((code == ErrorCode::GroupIdNotFound).then(absent))
                .with_authorized_operations(NOT_ASKED)
        }
    }
}

fn member(image: &Image, member: ConsumerMemberDescription) -> Member {
    Member::default()
        .with_member_id(text(member.member_id))
        .with_instance_id(member.instance_id.map(text))
        .with_rack_id(member.rack_id.map(text))
        .with_member_epoch(member.member_epoch)
        .with_client_id(text(member.client.id))
        .with_client_host(text(member.client.host))
        .with_subscribed_topic_names(member.topics.into_iter().map(|name| TopicName(text(name))).collect())
        .with_subscribed_topic_regex(Some(text(member.regex)))
        .with_assignment(assignment(image, member.assignment))
        .with_target_assignment(assignment(image, member.target))
        .with_member_type(if member.is_classic { CLASSIC } else { CONSUMER })
}

/// With the topics' names; a topic that is deleted has none and is left out.
fn assignment(image: &Image, topics: oncilla_shards::groups::TopicPartitions) -> Assignment {
    let named = |(id, partitions)| {
        let topic = image.topic_by_id(id)?;
        let named = TopicPartitions::default().with_topic_id(uuid(id)).with_topic_name(TopicName(text(&*topic.name)));
        Some(named.with_partitions(partitions))
    };
    Assignment::default().with_topic_partitions(topics.into_iter().filter_map(named).collect())
}

#[cfg(test)]
mod tests {
    use oncilla_shards::ids::TopicId;

    use super::*;
    use crate::api::testing::{ask, create_topic, ctx, ctx_with};

    fn codes(answer: &ConsumerGroupDescribeResponse) -> Vec<(i16, i32)> {
        answer.groups.iter().map(|group| (group.error_code, group.authorized_operations)).collect()
    }

    #[test]
    fn g16_4_an_absent_group_is_69_the_empty_id_24_and_all_35_without_the_protocol() {
        let asked = ConsumerGroupDescribeRequest::default()
            .with_group_ids(vec![GroupId(text("g")), GroupId(text(""))])
            .with_include_authorized_operations(true);
        let (on, _dir) = ctx();
        let (off, _dir) = ctx_with(|config| config.groups.consumer_protocol = false);
        for version in 0..=1 {
            let answer: ConsumerGroupDescribeResponse = ask(&on, 69, version, &asked);
            assert_eq!(codes(&answer), [(69, NOT_ASKED), (24, NOT_ASKED)]);
            let answer: ConsumerGroupDescribeResponse = ask(&off, 69, version, &asked);
            assert_eq!(codes(&answer), [(35, NOT_ASKED), (35, NOT_ASKED)]);
        }
    }

    #[test]
    fn g16_1_assignments_are_told_with_names_and_ids_and_authorized_operations_when_asked() {
        let (ctx, _dir) = ctx();
        create_topic(&ctx, "t", 2);
        let image = ctx.image();
        let id = image.topic("t").expect("just made").id;
        let described = ConsumerMemberDescription {
            assignment: vec![(id, vec![1]), (TopicId(9), vec![0])],
            is_classic: true,
            ..Default::default()
        };
        let found = ConsumerDescription { members: vec![described], ..Default::default() };
        let group = describe(&image, GroupId(text("g")), Ok(found), GROUP_OPERATIONS);
        assert_eq!((group.error_code, group.authorized_operations), (0, 3400));
        let member = &group.members[0];
        assert_eq!((member.member_type, member.subscribed_topic_regex.as_deref()), (0, Some("")));
        let told = &member.assignment.topic_partitions;
        assert_eq!((told.len(), told[0].topic_name.as_str(), &told[0].partitions), (1, "t", &vec![1]));
    }
}
