//! Placeholder of the first commit; filled by the commits that follow.
