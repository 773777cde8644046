//! Topics as requests of the hot APIs name them.

use oncilla_shards::code::ErrorCode;
use oncilla_shards::image::{Image, Topic};
use oncilla_shards::session::TopicKey;
use oncilla_shards::wire::TopicRef;

/// The topic that a request names.
///
/// # Errors
/// UNKNOWN_TOPIC_OR_PARTITION for a name, UNKNOWN_TOPIC_ID for an id that the image does not have.
pub fn resolve<'a>(image: &'a Image, topic: &TopicRef) -> Result<&'a Topic, ErrorCode> {
    match topic {
        TopicRef::Name(name) => image.topic(name).map(|topic| &**topic).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => image.topic_by_id(*id).map(|topic| &**topic).ok_or(ErrorCode::UnknownTopicId),
    }
}

/// The same name in a form that can be looked up.
pub fn topic_key(topic: &TopicRef) -> TopicKey {
    match topic {
        TopicRef::Name(name) => TopicKey::Name(name.clone().into()),
        TopicRef::Id(id) => TopicKey::Id(*id),
    }
}

/// And back.
pub fn topic_ref(topic: &TopicKey) -> TopicRef {
    match topic {
        TopicKey::Name(name) => {
            let text = kafka_protocol::protocol::StrBytes::try_from(name.clone());
            TopicRef::Name(text.expect("it was made from text"))
        }
        TopicKey::Id(id) => TopicRef::Id(*id),
    }
}
