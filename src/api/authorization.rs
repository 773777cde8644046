//! What everyone may do while there is no authorizer (contract K3.10).

/// Operations on the cluster: bits 5 and 7 to 12.
pub const CLUSTER_OPERATIONS: i32 = 8096;

/// Operations on a topic: bits 3 to 8, 10 and 11.
pub const TOPIC_OPERATIONS: i32 = 3576;

/// Operations on a group: bits 3, 6, 8, 10 and 11 (contract G7.4).
pub const GROUP_OPERATIONS: i32 = 3400;

/// What is told when nobody asked.
pub const NOT_ASKED: i32 = i32::MIN;

/// The text of every answer about ACLs (contract K29.1).
pub const NO_AUTHORIZER: &str = "No Authorizer is configured on the broker";

/// The operations, if they were asked for.
pub fn if_asked(asked: bool, operations: i32) -> i32 {
    if asked { operations } else { NOT_ASKED }
}
