//! JoinGroup (key 11), versions 0 to 9: contract G2.
//!
//! Parks until the group's members are together. The connection's later requests wait behind it, as Kafka's do; the
//! bytes of the request do not count to the shard's budget meanwhile.

use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequest;
use kafka_protocol::messages::join_group_response::{JoinGroupResponse, JoinGroupResponseMember};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Join, Joined, JoinedMember, Reply};

use super::codec::{serve, text};
use super::{Answer, Request, group};
use crate::ctx::Ctx;

/// First version with a rebalance timeout of its own (contract G2.25).
const REBALANCE_TIMEOUT_FROM: i16 = 1;

/// First version in which the protocol of a refused member is null (contract G2.15).
const NULL_PROTOCOL_FROM: i16 = 7;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: JoinGroupRequest| {
        let joined = join(ctx, request, &asked).await;
        response(request.version, joined)
    })
    .await
}

async fn join(ctx: &Rc<Ctx>, request: &Request, asked: &JoinGroupRequest) -> Joined {
    let refused = |code| Joined::refused(code, asked.member_id.as_str());
    if asked.group_id.is_empty() {
        return refused(ErrorCode::InvalidGroupId);
    }
    if !ctx.groups.allows_session_timeout(asked.session_timeout_ms) {
        return refused(ErrorCode::InvalidSessionTimeout);
    }
    match group::ask_parked(ctx, request, &asked.group_id, Ask::Join(to_join(request, asked))).await {
        Ok(Reply::Join(joined)) => joined,
        Ok(other) => group::mismatched(&other),
        Err(code) => refused(code),
    }
}

fn to_join(request: &Request, asked: &JoinGroupRequest) -> Join {
    let has_timeout = request.version >= REBALANCE_TIMEOUT_FROM;
    Join {
        version: request.version,
        session_timeout_ms: asked.session_timeout_ms,
        rebalance_timeout_ms: if has_timeout { asked.rebalance_timeout_ms } else { asked.session_timeout_ms },
        member_id: asked.member_id.to_string(),
        instance_id: asked.group_instance_id.as_ref().map(StrBytes::to_string),
        protocol_type: asked.protocol_type.to_string(),
        // Copied: a member keeps its metadata for as long as it lives, and must not keep the request's frame with it.
        protocols: asked
            .protocols
            .iter()
            .map(|protocol| (protocol.name.to_string(), Bytes::copy_from_slice(&protocol.metadata)))
            .collect(),
        client: group::client(request),
        fresh: group::fresh(),
    }
}

fn response(version: i16, joined: Joined) -> JoinGroupResponse {
    let protocol = joined.protocol_name.map(text);
    JoinGroupResponse::default()
        .with_error_code(joined.code.wire())
        .with_generation_id(joined.generation)
        .with_protocol_type(joined.protocol_type.map(text))
        .with_protocol_name(if version < NULL_PROTOCOL_FROM { Some(protocol.unwrap_or_default()) } else { protocol })
        .with_leader(text(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(joined.member_id))
        .with_members(joined.members.into_iter().map(member).collect())
}

fn member(member: JoinedMember) -> JoinGroupResponseMember {
    JoinGroupResponseMember::default()
        .with_member_id(text(member.member_id))
        .with_group_instance_id(member.instance_id.map(text))
        .with_metadata(member.metadata)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;
    use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;

    use super::*;
    use crate::api::testing::{ask, ctx};

    fn asked(group: &str, member: &str, session_ms: i32) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        JoinGroupRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_member_id(text(member))
            .with_session_timeout_ms(session_ms)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol.with_metadata(Bytes::from_static(b"m"))])
    }

    #[test]
    fn g2_1_and_g2_2_the_empty_group_is_24_before_the_session_timeout_26_before_the_member_25() {
        let (ctx, _dir) = ctx();
        for version in 0..=9 {
            let rows = [
                ("", "x", 1, 24),
                ("g", "x", 5_999, 26),
                ("g", "x", 1_800_001, 26),
                ("g", "x", 6_000, 25),
                ("g", "x", 1_800_000, 25),
            ];
            for (group, member, session_ms, code) in rows {
                let answer: JoinGroupResponse = ask(&ctx, 11, version, &asked(group, member, session_ms));
                assert_eq!((answer.error_code, answer.member_id.as_str()), (code, "x"), "version {version}");
            }
        }
    }

    #[test]
    fn g2_15_a_refusal_has_no_generation_and_the_protocol_is_empty_up_to_6_and_null_from_7() {
        let (ctx, _dir) = ctx();
        for version in 0..=9 {
            let answer: JoinGroupResponse = ask(&ctx, 11, version, &asked("g", "x", 10_000));
            assert_eq!((answer.generation_id, answer.leader.as_str(), answer.members.len()), (-1, "", 0));
            let protocol = (version < 7).then_some("");
            assert_eq!((answer.protocol_name.as_deref(), answer.protocol_type), (protocol, None));
        }
    }

    #[test]
    fn g2_25_version_0_takes_the_session_timeout_for_the_rebalance_timeout() {
        let asked = asked("g", "", 10_000).with_rebalance_timeout_ms(7);
        let to_join = |version| {
            let body = Bytes::new();
            to_join(&Request { key: 11, version, client_id: None, body, listener: 0, peer: None }, &asked)
        };
        assert_eq!(to_join(0).rebalance_timeout_ms, 10_000);
        assert_eq!(to_join(1).rebalance_timeout_ms, 7);
        assert_ne!(to_join(1).fresh, to_join(1).fresh, "G2.16: no member id is made twice");
    }
}
