//! Placeholder of the first commit; filled by the commits that follow.

pub mod file;

use std::future::Future;
use std::rc::Rc;

use oncilla_shards::ids::ShardId;

use crate::ctx::Ctx;

/// Calls to other shards.
#[derive(Debug)]
pub struct Mesh;

impl Mesh {
    /// Runs `job` on shard `to`.
    pub async fn call<T, F, Fut>(&self, ctx: &Rc<Ctx>, to: ShardId, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<Ctx>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        assert_eq!(to, ctx.id);
        job(ctx.clone()).await
    }
}
