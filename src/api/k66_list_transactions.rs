//! ListTransactions (key 66), versions 0 to 2: contract B9. Filters are for state, producer id, age and id.

use std::rc::Rc;

use kafka_protocol::messages::list_transactions_request::ListTransactionsRequest;
use kafka_protocol::messages::list_transactions_response::{ListTransactionsResponse, TransactionState};
use kafka_protocol::messages::{ProducerId as WireProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use oncilla_shards::code::ErrorCode;
use oncilla_shards::groups::whole_match;
use oncilla_shards::ids::ProducerId;
use oncilla_shards::txn::{ListFilter, Listing};

use super::codec::{serve, text};
use super::{Answer, Request};
use crate::ctx::Ctx;
use crate::txn;

/// Answers a request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: ListTransactionsRequest| respond(ctx, request.version, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, version: i16, asked: ListTransactionsRequest) -> ListTransactionsResponse {
    let response = ListTransactionsResponse::default();
    let unknown = asked.state_filters.iter().filter(|name| !ListFilter::is_state(name)).cloned().collect();
    let filter = ListFilter {
        states: asked.state_filters.iter().map(ToString::to_string).collect(),
        producer_ids: asked.producer_id_filters.iter().map(|id| ProducerId(id.0)).collect(),
        duration_ms: if version >= 1 { asked.duration_filter } else { -1 },
    };
    let pattern = asked.transactional_id_pattern.filter(|pattern: &StrBytes| !pattern.is_empty());
    let matches = match pattern.map(|pattern| whole_match(&pattern)).transpose() {
        Ok(matches) => matches,
        Err(_) => return response.with_error_code(ErrorCode::InvalidRegularExpression.wire()),
    };
    let wanted = move |id: &str| matches.as_ref().is_none_or(|matches| matches(id));
    let listed = txn::list(ctx, filter, wanted).await;
    let state = |listing: Listing| {
        TransactionState::default()
            .with_transactional_id(TransactionalId(text(&*listing.id)))
            .with_producer_id(WireProducerId(listing.producer_id.0))
            .with_transaction_state(text(listing.state))
    };
    response.with_unknown_state_filters(unknown).with_transaction_states(listed.into_iter().map(state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use crate::txn::tests::{add_offsets, init};

    fn list(ctx: &Rc<Ctx>, version: i16, request: ListTransactionsRequest) -> (i16, Vec<String>, Vec<String>) {
        let answer: ListTransactionsResponse = testing::ask(ctx, 66, version, &request);
        let mut ids: Vec<_> = answer.transaction_states.iter().map(|one| one.transactional_id.to_string()).collect();
        ids.sort_unstable();
        (answer.error_code, ids, answer.unknown_state_filters.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn b9_f78_lists_by_state_producer_age_and_name() {
        let (ctx, _dir) = testing::ctx();
        let (a, b) = (init(&ctx, "app-1"), init(&ctx, "app-2"));
        assert_eq!(add_offsets(&ctx, "app-2", b, "g"), 0);
        let all = ListTransactionsRequest::default;
        let ids = |ids: &[&str]| (0, ids.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::new());
        for version in 0..=2 {
            assert_eq!(list(&ctx, version, all()), ids(&["app-1", "app-2"]));
            let states = |names: &[&str]| all().with_state_filters(names.iter().map(|name| text(*name)).collect());
            assert_eq!(list(&ctx, version, states(&["Ongoing"])), ids(&["app-2"]));
            assert_eq!(list(&ctx, version, states(&["Dead"])), ids(&[]), "known, matches nothing");
            let odd = (0, vec!["app-1".to_owned()], vec!["empty".to_owned()]);
            assert_eq!(list(&ctx, version, states(&["empty", "Empty"])), odd, "case counts");
            let of = all().with_producer_id_filters(vec![WireProducerId(a.0)]);
            assert_eq!(list(&ctx, version, of), ids(&["app-1"]));
        }
        for version in 1..=2 {
            let old = all().with_duration_filter(3_600_000);
            assert_eq!(list(&ctx, version, old), ids(&["app-1"]), "none has begun there: it passes");
        }
        let named = |pattern: &str| all().with_transactional_id_pattern(Some(text(pattern)));
        assert_eq!(list(&ctx, 2, named("app-[2-9]")), ids(&["app-2"]));
        assert_eq!(list(&ctx, 2, named("app")), ids(&[]), "the whole id");
        assert_eq!(list(&ctx, 2, named("")), ids(&["app-1", "app-2"]));
        for bad in ["(", "(?=a)", r"(a)\1"] {
            assert_eq!(list(&ctx, 2, named(bad)), (128, vec![], vec![]), "{bad}");
        }
    }
}
