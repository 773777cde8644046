//! Updates of topics as handlers ask for them.

use std::rc::Rc;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::TopicId;
use oncilla_shards::image::topics::Refusal;
use oncilla_shards::image::{Change, Image};

use crate::ctx::Ctx;
use crate::topics_writer;

/// Runs a decision through the writer. If the metadata cannot be written, every entry is answered with the refusal
/// that comes back.
pub async fn run<T, D>(ctx: &Rc<Ctx>, decide: D) -> Result<T, Refusal>
where
    T: Send + 'static,
    D: FnOnce(&Image) -> (Vec<Change>, T) + Send + 'static,
{
    topics_writer::update(ctx, decide).await.map_err(|error| {
        tracing::error!(%error, "topic metadata cannot be written");
        let message = format!("Topic metadata cannot be written: {error}");
        Refusal { code: ErrorCode::KafkaStorageError, message }
    })
}

/// An id that was never used: 122 random bits. Ids that begin with a dash are left out, they would read as options on
/// command lines.
pub fn new_topic_id() -> TopicId {
    loop {
        let id = TopicId(uuid::Uuid::new_v4().as_u128());
        if !id.to_base64().starts_with('-') {
            return id;
        }
    }
}
