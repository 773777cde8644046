//! DescribeGroups (key 15), versions 0 to 6: contract G7.1 to G7.4.

use std::rc::Rc;

use kafka_protocol::messages::GroupId;
use kafka_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use kafka_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, DescribedMember, Description, Reply};

use super::authorization::{GROUP_OPERATIONS, NOT_ASKED, if_asked};
use super::codec::{serve, text};
use super::{Answer, Request, group};
use crate::ctx::Ctx;
use crate::groups;

/// First version in which an absent group is an error (contract G7.3).
const ABSENT_IS_AN_ERROR_FROM: i16 = 6;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: DescribeGroupsRequest| {
        let operations = if_asked(asked.include_authorized_operations, GROUP_OPERATIONS);
        let replies = groups::ask_all(ctx, &names(&asked.groups), Ask::Describe).await;
        let described = asked.groups.into_iter().zip(replies).map(|(id, reply)| {
            let found = match reply {
                Ok(Reply::Describe(Err(code))) => Found::Absent(code),
                Ok(Reply::Describe(Ok(description))) => Found::Here(description),
                Ok(other) => group::mismatched(&other),
                Err(code) => Found::Unseen(code),
            };
            describe(request.version, id, found, operations)
        });
        DescribeGroupsResponse::default().with_groups(described.collect())
    })
    .await
}

/// What is known of a group.
enum Found {
    Here(Description),
    /// There is none of this type.
    Absent(ErrorCode),
    /// It could not be asked.
    Unseen(ErrorCode),
}

fn names(ids: &[GroupId]) -> Vec<&str> {
    ids.iter().map(|id| id.as_str()).collect()
}

fn describe(version: i16, id: GroupId, found: Found, operations: i32) -> DescribedGroup {
    let group = DescribedGroup::default().with_group_id(id.clone()).with_authorized_operations(operations);
    match found {
        Found::Here(description) => group
            .with_group_state(text(description.state))
            .with_protocol_type(text(description.protocol_type))
            .with_protocol_data(text(description.protocol))
            .with_members(description.members.into_iter().map(member).collect()),
        Found::Absent(_) if version < ABSENT_IS_AN_ERROR_FROM => group.with_group_state(text("Dead")),
        Found::Absent(code) => group
            .with_error_code(code.wire())
            .with_error_message(Some(text(format!("Group {} not found.", id.as_str()))))
            .with_group_state(text("Dead"))
            .with_authorized_operations(NOT_ASKED),
        Found::Unseen(code) => group.with_error_code(code.wire()).with_authorized_operations(NOT_ASKED),
    }
}

fn member(member: DescribedMember) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(text(member.member_id))
        .with_group_instance_id(member.instance_id.map(text))
        .with_client_id(text(member.client.id))
        .with_client_host(text(member.client.host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g7_3_and_g7_4_an_absent_group_is_dead_without_an_error_up_to_5_and_69_at_6() {
        let (ctx, _dir) = ctx();
        for version in 0..=6 {
            for include in [false, true] {
                let asked = DescribeGroupsRequest::default()
                    .with_groups(vec![GroupId(text("g")), GroupId(text("")), GroupId(text("g"))])
                    .with_include_authorized_operations(include && version >= 3);
                let answer: DescribeGroupsResponse = ask(&ctx, 15, version, &asked);
                let ids: Vec<_> = answer.groups.iter().map(|group| group.group_id.as_str()).collect();
                assert_eq!(ids, ["g", "", "g"]);
                for group in &answer.groups {
                    let code = if version == 6 { 69 } else { 0 };
                    assert_eq!((group.error_code, group.group_state.as_str()), (code, "Dead"), "version {version}");
                    assert_eq!(group.error_message.is_some(), version == 6);
                    let told = if include && (3..6).contains(&version) { 3400 } else { i32::MIN };
                    assert_eq!(group.authorized_operations, told);
                }
            }
        }
    }

    #[test]
    fn g1_5_a_group_that_cannot_be_asked_has_no_state() {
        let group = describe(5, GroupId(text("g")), Found::Unseen(ErrorCode::NotCoordinator), 3400);
        assert_eq!((group.error_code, group.group_state.as_str()), (16, ""));
        assert_eq!(group.authorized_operations, NOT_ASKED, "G7.4");
    }
}
