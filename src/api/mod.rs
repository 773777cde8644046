//! One file per Kafka API, named by its key: the listing of this folder is the support matrix.
//!
//! A handler decodes its request, asks the core, and encodes the answer. No API file reads another; what several share
//! is in the files without a number.

mod authorization;
mod codec;
mod features;
mod group;
mod locate;
mod metadata_update;
mod nodes;
mod resources;
#[cfg(test)]
pub(crate) mod testing;
mod topic_ref;
mod transaction;
#[cfg(test)]
mod transactions_tests;

mod k00_produce;
mod k01_fetch;
mod k02_list_offsets;
mod k03_metadata;
mod k08_offset_commit;
mod k09_offset_fetch;
mod k10_find_coordinator;
mod k11_join_group;
mod k12_heartbeat;
mod k13_leave_group;
mod k14_sync_group;
mod k15_describe_groups;
mod k16_list_groups;
mod k18_api_versions;
mod k19_create_topics;
mod k20_delete_topics;
mod k21_delete_records;
mod k22_init_producer_id;
mod k23_offset_for_leader_epoch;
mod k24_add_partitions_to_txn;
mod k25_add_offsets_to_txn;
mod k26_end_txn;
mod k27_write_txn_markers;
mod k28_txn_offset_commit;
mod k29_describe_acls;
mod k30_create_acls;
mod k31_delete_acls;
mod k32_describe_configs;
mod k33_alter_configs;
mod k35_describe_log_dirs;
mod k37_create_partitions;
mod k42_delete_groups;
mod k43_elect_leaders;
mod k44_incremental_alter_configs;
mod k45_alter_partition_reassignments;
mod k46_list_partition_reassignments;
mod k47_offset_delete;
mod k48_describe_client_quotas;
mod k49_alter_client_quotas;
mod k50_describe_user_scram_credentials;
mod k51_alter_user_scram_credentials;
mod k55_describe_quorum;
mod k57_update_features;
mod k60_describe_cluster;
mod k61_describe_producers;
mod k65_describe_transactions;
mod k66_list_transactions;
mod k68_consumer_group_heartbeat;
mod k69_consumer_group_describe;
mod k74_list_config_resources;
mod k75_describe_topic_partitions;

use std::rc::Rc;

use bytes::Bytes;
use oncilla_shards::wire::Body;

pub use self::k00_produce::{ProduceWaiters, begin as begin_produce};
use crate::ctx::Ctx;
use crate::net::Peer;

/// A request whose header is read; the body is not.
#[derive(Clone, Debug)]
pub struct Request {
    /// API key.
    pub key: i16,
    /// Version of the body.
    pub version: i16,
    /// Client's name of itself, as sent.
    pub client_id: Option<Bytes>,
    /// What follows the header.
    pub body: Bytes,
    /// Listener that the connection came in on: index into the settings' list.
    pub listener: usize,
    /// The client's side of the connection; `None` where a test asks without one.
    pub peer: Option<Rc<Peer>>,
}

impl Request {
    /// Whether nobody will send more on the connection, so that parking for it only holds resources.
    fn peer_is_done(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.has_ended())
    }

    /// Ready when the connection is lost: nothing can be answered any more.
    async fn peer_gone(&self) {
        match &self.peer {
            Some(peer) => peer.gone().await,
            None => std::future::pending().await,
        }
    }

    /// Ready when the client has sent its last byte.
    async fn peer_ended(&self) {
        match &self.peer {
            Some(peer) => peer.ended().await,
            None => std::future::pending().await,
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The body of the answer, without its header.
    Body(Body),
    /// No answer, and the connection goes on.
    Silent,
    /// The connection is closed without an answer; the text is for the log.
    Close(String),
}

impl From<Answer> for crate::net::Answer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Body(body) => {
                let bytes = body.bytes();
                Self::Body(crate::net::Body { chunks: body.into_chunks(), bytes })
            }
            Answer::Silent => Self::Silent,
            Answer::Close(why) => Self::Close(why),
        }
    }
}

/// Answers a request. ApiVersions of any version is answered; of the others only what is announced gets here.
pub async fn dispatch(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    match request.key {
        1 => k01_fetch::handle(ctx, request).await,
        2 => k02_list_offsets::handle(ctx, request).await,
        3 => k03_metadata::handle(ctx, request).await,
        8 => k08_offset_commit::handle(ctx, request).await,
        9 => k09_offset_fetch::handle(ctx, request).await,
        10 => k10_find_coordinator::handle(ctx, request).await,
        11 => k11_join_group::handle(ctx, request).await,
        12 => k12_heartbeat::handle(ctx, request).await,
        13 => k13_leave_group::handle(ctx, request).await,
        14 => k14_sync_group::handle(ctx, request).await,
        15 => k15_describe_groups::handle(ctx, request).await,
        16 => k16_list_groups::handle(ctx, request).await,
        18 => k18_api_versions::handle(ctx, request).await,
        19 => k19_create_topics::handle(ctx, request).await,
        20 => k20_delete_topics::handle(ctx, request).await,
        21 => k21_delete_records::handle(ctx, request).await,
        22 => k22_init_producer_id::handle(ctx, request).await,
        23 => k23_offset_for_leader_epoch::handle(ctx, request).await,
        24 => k24_add_partitions_to_txn::handle(ctx, request).await,
        25 => k25_add_offsets_to_txn::handle(ctx, request).await,
        26 => k26_end_txn::handle(ctx, request).await,
        27 => k27_write_txn_markers::handle(ctx, request).await,
        28 => k28_txn_offset_commit::handle(ctx, request).await,
        29 => k29_describe_acls::handle(ctx, request).await,
        30 => k30_create_acls::handle(ctx, request).await,
        31 => k31_delete_acls::handle(ctx, request).await,
        32 => k32_describe_configs::handle(ctx, request).await,
        33 => k33_alter_configs::handle(ctx, request).await,
        35 => k35_describe_log_dirs::handle(ctx, request).await,
        37 => k37_create_partitions::handle(ctx, request).await,
        42 => k42_delete_groups::handle(ctx, request).await,
        43 => k43_elect_leaders::handle(ctx, request).await,
        44 => k44_incremental_alter_configs::handle(ctx, request).await,
        45 => k45_alter_partition_reassignments::handle(ctx, request).await,
        46 => k46_list_partition_reassignments::handle(ctx, request).await,
        47 => k47_offset_delete::handle(ctx, request).await,
        48 => k48_describe_client_quotas::handle(ctx, request).await,
        49 => k49_alter_client_quotas::handle(ctx, request).await,
        50 => k50_describe_user_scram_credentials::handle(ctx, request).await,
        51 => k51_alter_user_scram_credentials::handle(ctx, request).await,
        55 => k55_describe_quorum::handle(ctx, request).await,
        57 => k57_update_features::handle(ctx, request).await,
        60 => k60_describe_cluster::handle(ctx, request).await,
        61 => k61_describe_producers::handle(ctx, request).await,
        65 => k65_describe_transactions::handle(ctx, request).await,
        66 => k66_list_transactions::handle(ctx, request).await,
        68 => k68_consumer_group_heartbeat::handle(ctx, request).await,
        69 => k69_consumer_group_describe::handle(ctx, request).await,
        74 => k74_list_config_resources::handle(ctx, request).await,
        75 => k75_describe_topic_partitions::handle(ctx, request).await,
        key => Answer::Close(format!("API key {key} is not served (contract KC.5)")),
    }
}

#[cfg(test)]
mod tests {
    use oncilla_shards::wire::apis::KNOWN;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::testing::block_on;
    use super::*;

    #[test]
    fn kc_5_a_key_that_is_not_announced_closes() {
        let (ctx, _dir) = testing::ctx();
        for key in [4, 38, 64, 71, 76, 93, -1] {
            let request = Request { key, version: 0, client_id: None, body: Bytes::new(), listener: 0, peer: None };
            assert!(matches!(block_on(dispatch(&ctx, &request)), Answer::Close(_)));
        }
    }

    proptest! {
        // Each case makes a data directory of its own.
        #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, ..ProptestConfig::default() })]

        #[test]
        fn kc_6_any_bytes_are_answered_or_close_the_connection(
            requests in vec((proptest::sample::select(KNOWN), any::<u8>(), vec(0u8..5, 0..40)), 1..20)
        ) {
            let (ctx, _dir) = testing::ctx();
            for (api, step, body) in requests {
                let version = api.min + i16::from(step) % (api.max - api.min + 1);
                let body = body.into();
                let request = Request { key: api.key, version, client_id: None, body, listener: 0, peer: None };
                // Only a long poll, of days with some bytes, and who waits for other members of a group may wait.
                let waits = matches!(api.key, 1 | 11 | 14);
                let patience_ms = if waits { 10 } else { 2_000 };
                let waited = async {
                    crate::rt::sleep(std::time::Duration::from_millis(patience_ms)).await;
                    None
                };
                let answered = async { Some(dispatch(&ctx, &request).await) };
                let answer = block_on(futures_lite::future::or(answered, waited));
                prop_assert!(answer.is_some() || waits, "key {} is not answered", api.key);
                let Some(answer) = answer else { continue };
                let unencodable = matches!(&answer, Answer::Close(why) if why.starts_with("the answer"));
                prop_assert!(!unencodable, "{answer:?}");
            }
        }
    }
}
