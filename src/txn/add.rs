//! Adds of Produce: the write of a partition may begin before its add is durable, and its answer waits for both.
//!
//! The coordinator says that an add is decided before it says that it is durable. An answer that nobody asks for any
//! more is forgotten when its [`Early`] is dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use oncilla_shards::code::ErrorCode;
use oncilla_shards::ids::ShardId;
use oncilla_shards::txn::{Add, Request};

use super::{Answer, Waiting, owner_of, submit};
use crate::ctx::Ctx;
use crate::rt::oneshot;

/// How an add begins.
pub enum Begun {
    /// It is decided: the write may begin.
    Granted(Early),
    /// The write waits for nothing more, or is refused.
    Answered(Answer),
}

/// An add that is decided.
pub struct Early {
    ctx: Rc<Ctx>,
    owner: ShardId,
    token: Option<u64>,
}

impl Early {
    /// Waits until the add is durable: the write may be acknowledged.
    ///
    /// # Errors
    /// If it never will be.
    pub async fn answer(mut self) -> Answer {
        let token = self.token.take().expect("taken once");
        let answer = self.ctx.call(self.owner, async move |ctx: Rc<Ctx>| {
            let receiver = ctx.txn.early.borrow_mut().remove(&token);
            receiver.expect("it waits for this").await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))
        });
        answer.await
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        let Some(token) = self.token.take() else { return };
        if self.owner == self.ctx.id {
            self.ctx.txn.early.borrow_mut().remove(&token);
        } else {
            self.ctx.post(self.owner, async move |ctx: Rc<Ctx>| drop(ctx.txn.early.borrow_mut().remove(&token)));
        }
    }
}

/// Asks for an add on a client's behalf, wherever the id's owner is. With `AddBy::Broker { early: true }` it may be
/// granted before it is answered.
pub async fn begin_add(ctx: &Rc<Ctx>, id: &str, add: Add, deadline: Instant) -> Begun {
    let (owner, id) = (owner_of(ctx, id), id.to_owned());
    let begun = ctx.call(owner, async move |ctx: Rc<Ctx>| begin_here(&ctx, &id, add, deadline).await).await;
    match begun {
        Ok(token) => Begun::Granted(Early { ctx: ctx.clone(), owner, token: Some(token) }),
        Err(answer) => Begun::Answered(answer),
    }
}

/// The token under which the answer will be found, or the answer.
async fn begin_here(ctx: &Rc<Ctx>, id: &str, add: Add, deadline: Instant) -> Result<u64, Answer> {
    let (sender, mut receiver) = oneshot();
    let (granter, mut granted) = oneshot();
    submit(ctx, id, Request::Add(add), deadline, Waiting { answer: sender, granted: Some(granter) }).await;
    let answer = poll_fn(|context| {
        if let Poll::Ready(answer) = Pin::new(&mut receiver).poll(context) {
            return Poll::Ready(Some(answer.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))));
        }
        match Pin::new(&mut granted).poll(context) {
            Poll::Ready(Some(())) => Poll::Ready(None),
            // Its end went away with the answer, which wakes this task.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    });
    if let Some(answer) = answer.await {
        return Err(answer);
    }
    let token = ctx.txn.next_waiter.get();
    ctx.txn.next_waiter.set(token + 1);
    ctx.txn.early.borrow_mut().insert(token, receiver);
    Ok(token)
}
