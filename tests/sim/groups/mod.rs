//! Groups under a seeded scheduler: members of both protocols that come, pause, crash, leave and come back, a broker
//! that crashes, journals that are torn, checkpoints, and two clocks of which one jumps.
//!
//! Checked in every run: a commit that was acknowledged is never lost and never goes back, over any crash; in one
//! generation of a classic group a partition is given to one member; a consumer group never gives a partition to a
//! member while another one, whose session has not ended, still has it; a generation is never told twice with
//! different members; and when everybody behaves again, every partition of every group has an owner.

mod member;
mod world;

pub use world::{Totals, World};

/// Steps of one run.
pub const STEPS: usize = 3_000;
