//! LeaveGroup (key 13), versions 0 to 5: contract G5.

use std::rc::Rc;

use kafka_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use kafka_protocol::messages::leave_group_response::{LeaveGroupResponse, MemberResponse};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Leaving, Reply};

use super::codec::serve;
use super::{Answer, Request, group};
use crate::ctx::Ctx;

/// First version with several members, each with a code of its own (contract G5.6).
const BATCHED_FROM: i16 = 3;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: LeaveGroupRequest| {
        let response = LeaveGroupResponse::default();
        match leave(ctx, request, &asked).await {
            Err(code) => response.with_error_code(code.wire()),
            Ok(codes) if request.version < BATCHED_FROM => {
                response.with_error_code(codes.first().copied().unwrap_or_default().wire())
            }
            Ok(codes) => response.with_members(asked.members.into_iter().zip(codes).map(answered).collect()),
        }
    })
    .await
}

async fn leave(ctx: &Rc<Ctx>, request: &Request, asked: &LeaveGroupRequest) -> Result<Vec<ErrorCode>, ErrorCode> {
    if asked.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let leaving = |member: &MemberIdentity| Leaving {
        member_id: member.member_id.to_string(),
        instance_id: member.group_instance_id.as_ref().map(StrBytes::to_string),
    };
    let all = match request.version {
        ..BATCHED_FROM => vec![Leaving { member_id: asked.member_id.to_string(), instance_id: None }],
        _ => asked.members.iter().map(leaving).collect(),
    };
    match group::ask(ctx, request, &asked.group_id, Ask::Leave(all)).await? {
        Reply::Leave(codes) => Ok(codes),
        other => group::mismatched(&other),
    }
}

fn answered((member, code): (MemberIdentity, ErrorCode)) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(member.member_id)
        .with_group_instance_id(member.group_instance_id)
        .with_error_code(code.wire())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx};

    fn asked(group: &str, version: i16) -> LeaveGroupRequest {
        let asked = LeaveGroupRequest::default().with_group_id(GroupId(text(group)));
        if version < BATCHED_FROM {
            return asked.with_member_id(text("m"));
        }
        let member = MemberIdentity::default().with_member_id(text("m"));
        asked.with_members(vec![member.clone(), member.with_group_instance_id(Some(text("i")))])
    }

    #[test]
    fn g5_1_the_empty_group_is_24_at_the_top_with_no_members() {
        let (ctx, _dir) = ctx();
        for version in 0..=5 {
            let answer: LeaveGroupResponse = ask(&ctx, 13, version, &asked("", version));
            assert_eq!((answer.error_code, answer.members.len()), (24, 0), "version {version}");
        }
    }

    #[test]
    fn g5_2_and_g5_6_an_absent_group_is_25_at_the_top_up_to_2_and_for_each_member_from_3() {
        let (ctx, _dir) = ctx();
        for version in 0..=5 {
            let answer: LeaveGroupResponse = ask(&ctx, 13, version, &asked("g", version));
            if version < BATCHED_FROM {
                assert_eq!((answer.error_code, answer.members.len()), (25, 0));
                continue;
            }
            let told: Vec<_> = answer.members.iter().map(|m| (m.error_code, m.group_instance_id.as_deref())).collect();
            assert_eq!((answer.error_code, told), (0, vec![(25, None), (25, Some("i"))]));
            assert!(answer.members.iter().all(|member| member.member_id.as_str() == "m"), "ids are echoed");
        }
    }

    #[test]
    fn g5_4_an_empty_list_is_answered_by_one() {
        let (ctx, _dir) = ctx();
        let answer: LeaveGroupResponse = ask(&ctx, 13, 5, &asked("g", 5).with_members(Vec::new()));
        assert_eq!((answer.error_code, answer.members.len()), (0, 0));
    }
}
