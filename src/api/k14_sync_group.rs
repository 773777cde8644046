//! SyncGroup (key 14), versions 0 to 5: contract G3.
//!
//! Parks until the leader's assignments are there.

use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::messages::sync_group_request::SyncGroupRequest;
use kafka_protocol::messages::sync_group_response::SyncGroupResponse;
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Reply, Sync, Synced};

use super::codec::{serve, text};
use super::{Answer, Request, group};
use crate::ctx::Ctx;

/// First version that must name protocol type and protocol (contract G3.1).
const PROTOCOL_FROM: i16 = 5;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: SyncGroupRequest| {
        let synced = sync(ctx, request, &asked).await;
        SyncGroupResponse::default()
            .with_error_code(synced.code.wire())
            .with_protocol_type(synced.protocol_type.map(text))
            .with_protocol_name(synced.protocol_name.map(text))
            .with_assignment(synced.assignment)
    })
    .await
}

async fn sync(ctx: &Rc<Ctx>, request: &Request, asked: &SyncGroupRequest) -> Synced {
    let unnamed = asked.protocol_type.is_none() || asked.protocol_name.is_none();
    if request.version >= PROTOCOL_FROM && unnamed {
        return Synced::refused(ErrorCode::InconsistentGroupProtocol);
    }
    if asked.group_id.is_empty() {
        return Synced::refused(ErrorCode::InvalidGroupId);
    }
    let string = |text: &Option<StrBytes>| text.as_ref().map(StrBytes::to_string);
    let sync = Sync {
        version: request.version,
        member_id: asked.member_id.to_string(),
        generation: asked.generation_id,
        instance_id: string(&asked.group_instance_id),
        protocol_type: string(&asked.protocol_type),
        protocol_name: string(&asked.protocol_name),
        // Copied: the group keeps them, and must not keep the request's frame with them.
        assignments: asked
            .assignments
            .iter()
            .map(|given| (given.member_id.to_string(), Bytes::copy_from_slice(&given.assignment)))
            .collect(),
    };
    match group::ask_parked(ctx, request, &asked.group_id, Ask::Sync(sync)).await {
        Ok(Reply::Sync(synced)) => synced,
        Ok(other) => group::mismatched(&other),
        Err(code) => Synced::refused(code),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;

    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g3_1_to_g3_3_nulls_come_before_the_empty_group_and_that_before_the_absent_one() {
        let (ctx, _dir) = ctx();
        for version in 0..=5 {
            for (group, named, code) in [("", false, 23), ("g", false, 23), ("", true, 24), ("g", true, 25)] {
                let name = (named && version >= 5).then(|| text("range"));
                let asked = SyncGroupRequest::default()
                    .with_group_id(GroupId(text(group)))
                    .with_protocol_type(name.clone())
                    .with_protocol_name(name);
                let answer: SyncGroupResponse = ask(&ctx, 14, version, &asked);
                let old_code = if group.is_empty() { 24 } else { 25 };
                assert_eq!(answer.error_code, if version >= 5 { code } else { old_code }, "version {version}");
                assert!(answer.assignment.is_empty() && answer.protocol_type.is_none(), "G3.11");
            }
        }
    }
}
