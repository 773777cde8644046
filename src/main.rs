//! The `oncilla` command.

fn main() {}
