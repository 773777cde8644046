//! Heartbeat (key 12), versions 0 to 4: contract G4.

use std::rc::Rc;

use kafka_protocol::messages::heartbeat_request::HeartbeatRequest;
use kafka_protocol::messages::heartbeat_response::HeartbeatResponse;
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::{Ask, Heartbeat, Reply};

use super::codec::serve;
use super::{Answer, Request, group};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: HeartbeatRequest| {
        HeartbeatResponse::default().with_error_code(beat(ctx, request, &asked).await.wire())
    })
    .await
}

async fn beat(ctx: &Rc<Ctx>, request: &Request, asked: &HeartbeatRequest) -> ErrorCode {
    if asked.group_id.is_empty() {
        return ErrorCode::InvalidGroupId;
    }
    let beat = Heartbeat {
        member_id: asked.member_id.to_string(),
        generation: asked.generation_id,
        instance_id: asked.group_instance_id.as_ref().map(StrBytes::to_string),
    };
    match group::ask(ctx, request, &asked.group_id, Ask::Heartbeat(beat)).await {
        Ok(Reply::Heartbeat(code)) | Err(code) => code,
        Ok(other) => group::mismatched(&other),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;

    use super::*;
    use crate::api::codec::text;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g4_1_and_g4_2_the_empty_group_is_24_and_an_absent_one_25() {
        let (ctx, _dir) = ctx();
        for version in 0..=4 {
            for (group, code) in [("", 24), ("g", 25)] {
                let asked = HeartbeatRequest::default().with_group_id(GroupId(text(group)));
                let answer: HeartbeatResponse = ask(&ctx, 12, version, &asked);
                assert_eq!(answer.error_code, code, "version {version}");
            }
        }
    }
}
