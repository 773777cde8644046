//! Transactional ids: list and describe.

use kafka_protocol::messages::{
    DescribeTransactionsRequest, FindCoordinatorRequest, ListTransactionsRequest, TransactionalId,
};

use super::{Client, ClientError, accepted, text};

/// Last version of FindCoordinator with one key.
const FIND_ONE: i16 = 3;
/// What FindCoordinator calls a transactional id.
const TRANSACTION: i8 = 1;

/// A transactional id as ListTransactions tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TxnSummary {
    /// The id.
    pub id: String,
    /// Its producer id.
    pub producer_id: i64,
    /// Its state.
    pub state: String,
}

/// A transactional id as DescribeTransactions tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnView {
    /// Its state.
    pub state: String,
    /// Its producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// How long a transaction may stay open.
    pub timeout_ms: i32,
    /// When the transaction began, in ms since 1970; -1 if there was none.
    pub start_ms: i64,
    /// Topics and partitions in it.
    pub partitions: Vec<(String, Vec<i32>)>,
}

impl Client {
    /// All transactional ids of the cluster whose state is one of these, or all if there are none; by name.
    pub fn transactions(&mut self, states: &[String]) -> Result<Vec<TxnSummary>, ClientError> {
        let nodes: Vec<i32> = self.cluster().nodes.keys().copied().collect();
        let request =
            ListTransactionsRequest::default().with_state_filters(states.iter().map(|state| text(state)).collect());
        let mut all = Vec::new();
        for node in nodes {
            let answer = self.call(node, &request, i16::MAX)?;
            accepted(answer.error_code, None, || format!("transactions of node {node}"))?;
            all.extend(answer.transaction_states.into_iter().map(|one| TxnSummary {
                id: one.transactional_id.to_string(),
                producer_id: one.producer_id.0,
                state: one.transaction_state.to_string(),
            }));
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// One transactional id.
    pub fn transaction(&mut self, id: &str) -> Result<TxnView, ClientError> {
        let find = FindCoordinatorRequest::default().with_key(text(id)).with_key_type(TRANSACTION);
        let first = self.cluster().nodes.keys().next().copied().unwrap_or(-1);
        let found = self.call(first, &find, FIND_ONE)?;
        accepted(found.error_code, found.error_message.as_ref(), || format!("coordinator of {id}"))?;
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text(id))]);
        let answer = self.call(found.node_id.0, &request, i16::MAX)?;
        let what = || format!("transactional id {id}");
        let one = answer.transaction_states.into_iter().next();
        let one = one.ok_or_else(|| ClientError::Protocol(format!("{} is left out of the answer", what())))?;
        accepted(one.error_code, None, what)?;
        Ok(TxnView {
            state: one.transaction_state.to_string(),
            producer_id: one.producer_id.0,
            epoch: one.producer_epoch,
            timeout_ms: one.transaction_timeout_ms,
            start_ms: one.transaction_start_time_ms,
            partitions: one.topics.into_iter().map(|topic| (topic.topic.to_string(), topic.partitions)).collect(),
        })
    }
}
