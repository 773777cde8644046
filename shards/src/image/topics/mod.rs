//! What the one writer of topics decides: create, delete, grow, alter.
//!
//! Each decision is a pure function of the image and the request. It gives the changes to make and an answer for every
//! entry; an entry that is answered with an error never makes a change. The checks stand in Kafka's order, because a
//! client sees which one came first.

mod alter;
mod create;
mod delete;
mod grow;

pub use alter::{AlterAnswer, AlterEntry, AlterMode, AlterResource, AlterRules, decide_alter, resource};
pub use create::{CreateAnswer, CreateRules, Created, NewTopic, decide_create};
pub use delete::{DeleteAnswer, DeleteRules, DeleteTarget, decide_delete};
pub use grow::{GrowAnswer, GrowRequest, GrowRules, decide_create_partitions};

use crate::code::ErrorCode;

/// Why an entry is refused: the code and a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Kafka's code.
    pub code: ErrorCode,
    /// What is wrong; empty where Kafka has no text.
    pub message: String,
}

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code, message: message.into() })
}

/// The answer of requests whose time is over before they start (contract K19.3, K20.3, K37.2).
fn timed_out<T>() -> Result<T, Refusal> {
    refuse(ErrorCode::RequestTimedOut, "")
}

#[cfg(test)]
mod tests;
