//! The classic protocol as clients see it, rule by rule.

mod client;
mod join;
