//! Contract G18: both protocols in one group.
