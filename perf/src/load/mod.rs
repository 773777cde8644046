//! What all modes make load with: the clock, senders, contents of records, recorders, and the check of exactly once.

pub mod check;
pub mod clock;
pub mod payload;
pub mod recorder;
pub mod sender;
pub mod threads;
