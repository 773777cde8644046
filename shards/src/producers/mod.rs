//! What a partition remembers of its producers.
