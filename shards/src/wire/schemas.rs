//! The requests that go through the crate kafka-protocol, field by field: Kafka's message definitions as this broker
//! needs them, which is types, versions and where null may be.
//!
//! A new API is one line in [`SCHEMAS`] and its fields. Structs that only exist inside flexible versions carry their
//! tag section without being told.

use super::schema::Kind::{Array, Bool, Bytes, F64, I8, I16, I32, I64, OptionalStruct, Struct, Text, Uuid};
use super::schema::{Field, Kind};

type Fields = &'static [Field];

const fn f(kind: Kind) -> Field {
    Field::new(kind)
}

/// Fields by API key, keys ascending.
pub(super) const SCHEMAS: &[(i16, Fields)] = &[
    (2, LIST_OFFSETS),
    (3, METADATA),
    (10, FIND_COORDINATOR),
    (11, JOIN_GROUP),
    (12, HEARTBEAT),
    (13, LEAVE_GROUP),
    (14, SYNC_GROUP),
    (15, DESCRIBE_GROUPS),
    (16, LIST_GROUPS),
    (19, CREATE_TOPICS),
    (20, DELETE_TOPICS),
    (21, DELETE_RECORDS),
    (22, INIT_PRODUCER_ID),
    (23, OFFSET_FOR_LEADER_EPOCH),
    (24, ADD_PARTITIONS_TO_TXN),
    (25, ADD_OFFSETS_TO_TXN),
    (26, END_TXN),
    (28, TXN_OFFSET_COMMIT),
    (29, ACL_FILTER),
    (30, CREATE_ACLS),
    (31, DELETE_ACLS),
    (32, DESCRIBE_CONFIGS),
    (33, ALTER_CONFIGS),
    (35, DESCRIBE_LOG_DIRS),
    (37, CREATE_PARTITIONS),
    (42, DELETE_GROUPS),
    (43, ELECT_LEADERS),
    (44, INCREMENTAL_ALTER_CONFIGS),
    (45, ALTER_PARTITION_REASSIGNMENTS),
    (46, LIST_PARTITION_REASSIGNMENTS),
    (47, OFFSET_DELETE),
    (48, DESCRIBE_CLIENT_QUOTAS),
    (49, ALTER_CLIENT_QUOTAS),
    (50, DESCRIBE_USER_SCRAM_CREDENTIALS),
    (51, ALTER_USER_SCRAM_CREDENTIALS),
    (55, DESCRIBE_QUORUM),
    (57, UPDATE_FEATURES),
    (60, DESCRIBE_CLUSTER),
    (61, DESCRIBE_PRODUCERS),
    (65, DESCRIBE_TRANSACTIONS),
    (66, LIST_TRANSACTIONS),
    (68, CONSUMER_GROUP_HEARTBEAT),
    (69, CONSUMER_GROUP_DESCRIBE),
    (74, LIST_CONFIG_RESOURCES),
    (75, DESCRIBE_TOPIC_PARTITIONS),
];

/// A topic by name and some of its partitions by index.
const TOPIC_INDEXES: Fields = &[f(Text), f(Array(&I32))];

// Replica id, isolation level, topics, timeout.
const LIST_OFFSETS: Fields = &[f(I32), f(I8).from(2), f(Array(&Struct(LIST_OFFSETS_TOPIC))), f(I32).from(10)];
const LIST_OFFSETS_TOPIC: Fields = &[f(Text), f(Array(&Struct(&[f(I32), f(I32).from(4), f(I64)])))];

// Topics, auto-creation, whose authorized operations to tell.
const METADATA: Fields = &[
    f(Array(&Struct(&[f(Uuid).from(10), f(Text).null_from(10)]))).null_from(1),
    f(Bool).from(4),
    f(Bool).from(8).to(10),
    f(Bool).from(8),
];

const FIND_COORDINATOR: Fields = &[f(Text).to(3), f(I8).from(1), f(Array(&Text)).from(4)];

// Group, session timeout, rebalance timeout, member, instance, protocol type, protocols, reason.
const JOIN_GROUP: Fields = &[
    f(Text),
    f(I32),
    f(I32).from(1),
    f(Text),
    f(Text).from(5).null_from(5),
    f(Text),
    f(Array(&Struct(&[f(Text), f(Bytes)]))),
    f(Text).from(8).null_from(8),
];

// Group, generation, member, instance.
const HEARTBEAT: Fields = &[f(Text), f(I32), f(Text), f(Text).from(3).null_from(3)];

// Group, then one member or several with instance and reason.
const LEAVE_GROUP: Fields = &[
    f(Text),
    f(Text).to(2),
    f(Array(&Struct(&[f(Text), f(Text).null_from(3), f(Text).from(5).null_from(5)]))).from(3),
];

// Group, generation, member, instance, protocol type, protocol, assignments.
const SYNC_GROUP: Fields = &[
    f(Text),
    f(I32),
    f(Text),
    f(Text).from(3).null_from(3),
    f(Text).from(5).null_from(5),
    f(Text).from(5).null_from(5),
    f(Array(&Struct(&[f(Text), f(Bytes)]))),
];

const DESCRIBE_GROUPS: Fields = &[f(Array(&Text)), f(Bool).from(3)];

// States, types.
const LIST_GROUPS: Fields = &[f(Array(&Text)).from(4), f(Array(&Text)).from(5)];

const DELETE_GROUPS: Fields = &[f(Array(&Text))];

// Group, member, epoch, instance, rack, rebalance timeout, topics, expression, assignor, owned partitions.
const CONSUMER_GROUP_HEARTBEAT: Fields = &[
    f(Text),
    f(Text),
    f(I32),
    f(Text).null_from(0),
    f(Text).null_from(0),
    f(I32),
    f(Array(&Text)).null_from(0),
    f(Text).from(1).null_from(1),
    f(Text).null_from(0),
    f(Array(&Struct(&[f(Uuid), f(Array(&I32))]))).null_from(0),
];

const CONSUMER_GROUP_DESCRIBE: Fields = &[f(Array(&Text)), f(Bool)];

// Topics, timeout, validate only.
const CREATE_TOPICS: Fields = &[f(Array(&Struct(CREATABLE_TOPIC))), f(I32), f(Bool)];
const CREATABLE_TOPIC: Fields = &[
    f(Text),
    f(I32),
    f(I16),
    f(Array(&Struct(&[f(I32), f(Array(&I32))]))),
    f(Array(&Struct(&[f(Text), f(Text).null_from(0)]))),
];

const DELETE_TOPICS: Fields =
    &[f(Array(&Struct(&[f(Text).null_from(6), f(Uuid)]))).from(6), f(Array(&Text)).to(5), f(I32)];

const DELETE_RECORDS: Fields = &[f(Array(&Struct(&[f(Text), f(Array(&Struct(&[f(I32), f(I64)])))]))), f(I32)];

const INIT_PRODUCER_ID: Fields = &[f(Text).null_from(0), f(I32), f(I64).from(3), f(I16).from(3)];

const OFFSET_FOR_LEADER_EPOCH: Fields =
    &[f(I32).from(3), f(Array(&Struct(&[f(Text), f(Array(&Struct(&[f(I32), f(I32), f(I32)])))])))];

// From version 4 on transactions (id, producer id, epoch, verify only, topics), before it one of them.
const ADD_PARTITIONS_TO_TXN: Fields = &[
    f(Array(&Struct(&[f(Text), f(I64), f(I16), f(Bool), f(Array(&Struct(TOPIC_INDEXES)))]))).from(4),
    f(Text).to(3),
    f(I64).to(3),
    f(I16).to(3),
    f(Array(&Struct(TOPIC_INDEXES))).to(3),
];

// Transactional id, producer id, epoch, group.
const ADD_OFFSETS_TO_TXN: Fields = &[f(Text), f(I64), f(I16), f(Text)];

// Transactional id, producer id, epoch, whether to commit.
const END_TXN: Fields = &[f(Text), f(I64), f(I16), f(Bool)];

// Transactional id, group, producer id, epoch, generation, member, instance, topics.
const TXN_OFFSET_COMMIT: Fields = &[
    f(Text),
    f(Text),
    f(I64),
    f(I16),
    f(I32).from(3),
    f(Text).from(3),
    f(Text).from(3).null_from(3),
    f(Array(&Struct(&[f(Text), f(Array(&Struct(TXN_OFFSET)))]))),
];
// Partition, offset, leader epoch, metadata.
const TXN_OFFSET: Fields = &[f(I32), f(I64), f(I32).from(2), f(Text).null_from(0)];

const DESCRIBE_TRANSACTIONS: Fields = &[f(Array(&Text))];

// States, producer ids, duration, expression for ids.
const LIST_TRANSACTIONS: Fields = &[f(Array(&Text)), f(Array(&I64)), f(I64).from(1), f(Text).from(2).null_from(2)];

// Resource type, name, pattern type, principal, host, operation, permission.
const ACL_FILTER: Fields =
    &[f(I8), f(Text).null_from(0), f(I8), f(Text).null_from(0), f(Text).null_from(0), f(I8), f(I8)];
const CREATE_ACLS: Fields = &[f(Array(&Struct(&[f(I8), f(Text), f(I8), f(Text), f(Text), f(I8), f(I8)])))];
const DELETE_ACLS: Fields = &[f(Array(&Struct(ACL_FILTER)))];

// Resources, synonyms, documentation.
const DESCRIBE_CONFIGS: Fields =
    &[f(Array(&Struct(&[f(I8), f(Text), f(Array(&Text)).null_from(0)]))), f(Bool), f(Bool).from(3)];

const ALTER_CONFIGS: Fields =
    &[f(Array(&Struct(&[f(I8), f(Text), f(Array(&Struct(&[f(Text), f(Text).null_from(0)])))]))), f(Bool)];

const DESCRIBE_LOG_DIRS: Fields = &[f(Array(&Struct(TOPIC_INDEXES))).null_from(0)];

// Topics (name, count, assignments), timeout, validate only.
const CREATE_PARTITIONS: Fields =
    &[f(Array(&Struct(&[f(Text), f(I32), f(Array(&Struct(&[f(Array(&I32))]))).null_from(0)]))), f(I32), f(Bool)];

const ELECT_LEADERS: Fields = &[f(I8).from(1), f(Array(&Struct(TOPIC_INDEXES))).null_from(0), f(I32)];

const INCREMENTAL_ALTER_CONFIGS: Fields =
    &[f(Array(&Struct(&[f(I8), f(Text), f(Array(&Struct(&[f(Text), f(I8), f(Text).null_from(0)])))]))), f(Bool)];

// Timeout, whether the replication factor may change, topics.
const ALTER_PARTITION_REASSIGNMENTS: Fields = &[
    f(I32),
    f(Bool).from(1),
    f(Array(&Struct(&[f(Text), f(Array(&Struct(&[f(I32), f(Array(&I32)).null_from(0)])))]))),
];

const LIST_PARTITION_REASSIGNMENTS: Fields = &[f(I32), f(Array(&Struct(TOPIC_INDEXES))).null_from(0)];

const OFFSET_DELETE: Fields = &[f(Text), f(Array(&Struct(&[f(Text), f(Array(&Struct(&[f(I32)])))])))];

const DESCRIBE_CLIENT_QUOTAS: Fields = &[f(Array(&Struct(&[f(Text), f(I8), f(Text).null_from(0)]))), f(Bool)];

// Entries of an entity (type, name) and operations (key, value, remove); validate only.
const ALTER_CLIENT_QUOTAS: Fields = &[
    f(Array(&Struct(&[
        f(Array(&Struct(&[f(Text), f(Text).null_from(0)]))),
        f(Array(&Struct(&[f(Text), f(F64), f(Bool)]))),
    ]))),
    f(Bool),
];

const DESCRIBE_USER_SCRAM_CREDENTIALS: Fields = &[f(Array(&Struct(&[f(Text)]))).null_from(0)];

// Deletions (name, mechanism), upsertions (name, mechanism, iterations, salt, salted password).
const ALTER_USER_SCRAM_CREDENTIALS: Fields =
    &[f(Array(&Struct(&[f(Text), f(I8)]))), f(Array(&Struct(&[f(Text), f(I8), f(I32), f(Bytes), f(Bytes)])))];

const DESCRIBE_QUORUM: Fields = &[f(Array(&Struct(&[f(Text), f(Array(&Struct(&[f(I32)])))])))];

// Timeout, updates (feature, level, downgrade or kind of upgrade), validate only.
const UPDATE_FEATURES: Fields =
    &[f(I32), f(Array(&Struct(&[f(Text), f(I16), f(Bool).to(0), f(I8).from(1)]))), f(Bool).from(1)];

const DESCRIBE_CLUSTER: Fields = &[f(Bool), f(I8).from(1), f(Bool).from(2)];

const DESCRIBE_PRODUCERS: Fields = &[f(Array(&Struct(TOPIC_INDEXES)))];

const LIST_CONFIG_RESOURCES: Fields = &[f(Array(&I8)).from(1)];

// Topics, most partitions to answer, cursor.
const DESCRIBE_TOPIC_PARTITIONS: Fields =
    &[f(Array(&Struct(&[f(Text)]))), f(I32), f(OptionalStruct(&[f(Text), f(I32)])).null_from(0)];
