//! Metadata 0-13 (contract K3).

use std::collections::BTreeSet;
use std::rc::Rc;

use kafka_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::TopicId;
use oncilla_shards::image::topics::{CreateRules, NewTopic, decide_create};
use oncilla_shards::image::{Image, Topic, names};

use super::authorization::{CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, if_asked};
use super::codec::{serve, text, topic_id, uuid};
use super::{Answer, Request, metadata_update, nodes};
use crate::ctx::Ctx;

/// First version whose request tells whether unknown topics may be created; older ones always may.
const AUTO_CREATE_FLAG_FROM: i16 = 4;
/// First version whose empty list means no topics instead of all.
const EMPTY_IS_NONE_FROM: i16 = 1;
/// First version that asks by topic id.
const IDS_FROM: i16 = 12;
/// First version with an error for the whole answer.
const TOP_LEVEL_ERROR_FROM: i16 = 13;

/// Answers one request.
pub async fn handle(ctx: &Rc<Ctx>, request: &Request) -> Answer {
    serve(request, async |asked: MetadataRequest| respond(ctx, request, asked).await).await
}

async fn respond(ctx: &Rc<Ctx>, request: &Request, asked: MetadataRequest) -> MetadataResponse {
    let version = request.version;
    let operations = if_asked(asked.include_topic_authorized_operations, TOPIC_OPERATIONS);
    let topics = match &asked.topics {
        Some(topics) if topics.is_empty() && version < EMPTY_IS_NONE_FROM => None,
        other => other.as_deref(),
    };
    let topics = match topics {
        None => {
            let image = ctx.image();
            image.topics().map(|topic| describe(ctx, request, &image, topic, operations)).collect()
        }
        Some(topics) if contradicts(version, topics) => return refuse_all(version, topics),
        Some(topics) if topics.iter().any(|topic| !topic.topic_id.is_nil()) => by_id(ctx, request, topics, operations),
        Some(topics) => {
            let may_create =
                ctx.config.auto_create_topics && (version < AUTO_CREATE_FLAG_FROM || asked.allow_auto_topic_creation);
            by_name(ctx, request, topics, may_create, operations).await
        }
    };
    let mut response = MetadataResponse::default();
    response.brokers = nodes::all(ctx, request)
        .iter()
        .map(|node| {
            let broker = MetadataResponseBroker::default().with_node_id(node.id.0.into());
            broker.with_host(text(node.host.as_str())).with_port(i32::from(node.port))
        })
        .collect();
    response.cluster_id = Some(text(&*ctx.image().cluster_id));
    response.controller_id = nodes::controller(ctx, request).id.0.into();
    response.topics = topics;
    response.cluster_authorized_operations = if_asked(asked.include_cluster_authorized_operations, CLUSTER_OPERATIONS);
    response
}

/// K3.5: an id where none may be, or an entry that names nothing.
fn contradicts(version: i16, topics: &[MetadataRequestTopic]) -> bool {
    topics.iter().any(|topic| {
        let named_nothing = topic.name.is_none() && (version < IDS_FROM || topic.topic_id.is_nil());
        named_nothing || (version < IDS_FROM && !topic.topic_id.is_nil())
    })
}

fn refuse_all(version: i16, topics: &[MetadataRequestTopic]) -> MetadataResponse {
    let code = ErrorCode::InvalidRequest.wire();
    let entry = |topic: &MetadataRequestTopic| {
        // Below 12 the answer has no way to say "no name".
        let name = if version < IDS_FROM { Some(topic.name.clone().unwrap_or_default()) } else { topic.name.clone() };
        MetadataResponseTopic::default().with_error_code(code).with_name(name).with_topic_id(topic.topic_id)
    };
    let mut response = MetadataResponse::default();
    response.topics = topics.iter().map(entry).collect();
    if version >= TOP_LEVEL_ERROR_FROM {
        response.error_code = code;
    }
    response
}

/// K3.6: with one id only the ids are answered.
fn by_id(ctx: &Ctx, request: &Request, topics: &[MetadataRequestTopic], operations: i32) -> Vec<MetadataResponseTopic> {
    let image = ctx.image();
    let ids: BTreeSet<TopicId> = topics.iter().map(|topic| topic_id(topic.topic_id)).collect();
    let one = |id| match image.topic_by_id(id) {
        Some(topic) => describe(ctx, request, &image, topic, operations),
        None => MetadataResponseTopic::default()
            .with_error_code(ErrorCode::UnknownTopicId.wire())
            .with_name(None)
            .with_topic_id(uuid(id))
            .with_topic_authorized_operations(operations),
    };
    ids.into_iter().filter(|id| *id != TopicId::ZERO).map(one).collect()
}

async fn by_name(
    ctx: &Rc<Ctx>,
    request: &Request,
    topics: &[MetadataRequestTopic],
    may_create: bool,
    operations: i32,
) -> Vec<MetadataResponseTopic> {
    let asked: BTreeSet<&str> =
        topics.iter().filter_map(|topic| topic.name.as_ref()).map(|name| name.as_str()).collect();
    if may_create {
        let image = ctx.image();
        let unknown =
            |name: &&&str| names::check(name).is_ok() && !names::is_internal(name) && image.topic(name).is_none();
        let unknown: Vec<String> = asked.iter().filter(unknown).map(|name| (*name).to_owned()).collect();
        if !unknown.is_empty() {
            create(ctx, request, unknown).await;
        }
    }
    let image = ctx.image();
    let one = |name: &str| match image.topic(name) {
        Some(topic) => describe(ctx, request, &image, topic, operations),
        None => {
            let valid = names::check(name).is_ok();
            let code = if valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
            MetadataResponseTopic::default()
                .with_error_code(code.wire())
                .with_name(Some(text(name).into()))
                .with_is_internal(names::is_internal(name))
                .with_topic_authorized_operations(operations)
        }
    };
    asked.into_iter().map(one).collect()
}

/// K3.8, with the answer after the creation instead of before it: no client has to ask twice. What cannot be created
/// stays unknown. Internal topics are left to the coordinators, which create them with settings of their own.
async fn create(ctx: &Rc<Ctx>, request: &Request, names: Vec<String>) {
    let topics: Vec<NewTopic> = names
        .into_iter()
        .map(|name| NewTopic { name, partitions: -1, replication_factor: -1, ..NewTopic::default() })
        .collect();
    let rules = CreateRules {
        num_partitions: ctx.config.num_partitions,
        default_replication_factor: ctx.config.default_replication_factor,
        replication_factor_max: ctx.config.replication_factor_accept_max,
        nodes: nodes::ids(ctx, request),
        answering: ctx.node(),
        timeout_ms: i32::MAX,
        validate_only: false,
    };
    let decide = move |image: &Image| decide_create(image, &topics, &rules, metadata_update::new_topic_id);
    let Ok(answers) = metadata_update::run(ctx, decide).await else { return };
    for answer in answers {
        match answer.result {
            Ok(created) => tracing::info!(topic = answer.name, partitions = created.partitions, "created on demand"),
            Err(refusal) => tracing::debug!(topic = answer.name, why = refusal.message, "not created on demand"),
        }
    }
}

fn describe(ctx: &Ctx, request: &Request, image: &Image, topic: &Topic, operations: i32) -> MetadataResponseTopic {
    let partition = |index| {
        let leader = nodes::leader(ctx, request, image, topic, index).0.into();
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(leader)
            .with_leader_epoch(ctx.boot_epoch.0)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader])
    };
    assert!(operations == NOT_ASKED || operations == TOPIC_OPERATIONS);
    MetadataResponseTopic::default()
        .with_name(Some(text(&*topic.name).into()))
        .with_topic_id(uuid(topic.id))
        .with_is_internal(topic.is_internal())
        .with_partitions((0..topic.partitions).map(partition).collect())
        .with_topic_authorized_operations(operations)
}

#[cfg(test)]
#[path = "k03_metadata_tests.rs"]
mod tests;
