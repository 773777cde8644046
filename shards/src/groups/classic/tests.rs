//! The classic protocol as clients see it, rule by rule.

mod client;
mod join;
mod leave;
mod offsets;
mod properties;
mod restart;
mod static_members;
mod sync;
mod time;
