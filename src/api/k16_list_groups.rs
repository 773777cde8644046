//! ListGroups (key 16), versions 0 to 5: contract G7.6, G7.7. Each node lists the groups that it answers for.

use std::rc::Rc;

use kafka_protocol::messages::GroupId;
use kafka_protocol::messages::list_groups_request::ListGroupsRequest;
use kafka_protocol::messages::list_groups_response::{ListGroupsResponse, ListedGroup};
use oncilla_shards::groups::{ListFilter, Listing};

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;
use crate::groups;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ListGroupsRequest| {
        let strings =
            |texts: Vec<_>| texts.into_iter().map(|text: kafka_protocol::protocol::StrBytes| text.to_string());
        let filter =
            ListFilter { states: strings(asked.states_filter).collect(), types: strings(asked.types_filter).collect() };
        let listed = groups::list(ctx, filter).await;
        ListGroupsResponse::default().with_groups(listed.into_iter().map(listing).collect())
    })
    .await
}

fn listing(listing: Listing) -> ListedGroup {
    ListedGroup::default()
        .with_group_id(GroupId(text(listing.group)))
        .with_protocol_type(text(listing.protocol_type))
        .with_group_state(text(listing.state))
        .with_group_type(text(listing.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn g7_6_a_broker_without_groups_lists_none_at_any_version() {
        let (ctx, _dir) = ctx();
        for version in 0..=5 {
            let answer: ListGroupsResponse = ask(&ctx, 16, version, &ListGroupsRequest::default());
            assert_eq!((answer.error_code, answer.groups.len()), (0, 0));
        }
    }
}
