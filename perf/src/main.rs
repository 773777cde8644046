//! Measures floors and compares brokers.

fn main() {}
