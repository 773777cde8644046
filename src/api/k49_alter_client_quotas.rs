//! AlterClientQuotas 0-1 (contract K49): refused, because nothing would enforce them.

use std::rc::Rc;

use kafka_protocol::messages::alter_client_quotas_request::{self as asked, AlterClientQuotasRequest};
use kafka_protocol::messages::alter_client_quotas_response::{AlterClientQuotasResponse, EntityData, EntryData};
use oncilla_shards::code::ErrorCode;

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: AlterClientQuotasRequest| {
        AlterClientQuotasResponse::default().with_entries(asked.entries.into_iter().map(refuse).collect())
    })
    .await
}

fn refuse(entry: asked::EntryData) -> EntryData {
    let entity = |entity: asked::EntityData| {
        EntityData::default().with_entity_type(entity.entity_type).with_entity_name(entity.entity_name)
    };
    EntryData::default()
        .with_error_code(ErrorCode::UnsupportedVersion.wire())
        .with_error_message(Some(text("This broker has no client quotas")))
        .with_entity(entry.entity.into_iter().map(entity).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k49_1_no_quota_is_ever_accepted() {
        let (ctx, _dir) = ctx();
        for version in 0..=1 {
            let user = asked::EntityData::default().with_entity_type(text("user")).with_entity_name(Some(text("u")));
            let entry = asked::EntryData::default().with_entity(vec![user]);
            let asked = AlterClientQuotasRequest::default().with_entries(vec![entry; 2]);
            let answer: AlterClientQuotasResponse = ask(&ctx, 49, version, &asked);
            assert!(answer.entries.iter().all(|e| e.error_code == 35 && e.entity.len() == 1));
            assert_eq!(answer.entries.len(), 2);
        }
    }
}
