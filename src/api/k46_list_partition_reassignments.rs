//! ListPartitionReassignments 0 (contract K46): there never is one.

use std::rc::Rc;

use kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use kafka_protocol::messages::list_partition_reassignments_response::ListPartitionReassignmentsResponse;

use super::codec::serve;
use super::{Answer, Request};
use crate::ctx::Ctx;

/// Answers one request.
pub async fn handle(_ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |_: ListPartitionReassignmentsRequest| ListPartitionReassignmentsResponse::default()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{ask, ctx};

    #[test]
    fn k46_1_nothing_is_ever_moving() {
        let (ctx, _dir) = ctx();
        let asked = ListPartitionReassignmentsRequest::default().with_topics(None);
        let answer: ListPartitionReassignmentsResponse = ask(&ctx, 46, 0, &asked);
        assert_eq!((answer.error_code, answer.topics.len()), (0, 0));
    }
}
