//! Every bound in the system that is not a setting, with what happens when it is reached.

/// Bytes of a v2 batch header, from base offset to record count.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Batches remembered for each producer id and partition: what a client keeps in flight (contract A1).
pub const PRODUCER_BATCHES_MAX: usize = 5;

/// Bytes that a compressed batch may unpack to; more is refused with INVALID_RECORD.
/// 128 MiB: above what a 100 MiB frame holds uncompressed, far below what a bomb asks for.
pub const BATCH_UNPACKED_BYTES_MAX: usize = 128 << 20;

/// Bad records of one batch that a refusal names; a small compressed batch can hold millions.
pub const RECORD_ERRORS_MAX: usize = 65_536;

/// Producers that one partition remembers; beyond it the one unused for longest is forgotten, as if it had expired.
/// A producer with an open transaction is never forgotten. One takes about 200 bytes.
pub const PARTITION_PRODUCERS_MAX: usize = 262_144;

/// Producers of a partition of which it is known where they were refused first.
pub const FIRST_BATCHES_MAX: usize = 10_000;

/// Producers of one partition whose transaction is being asked for; beyond it the oldest question is forgotten, and its
/// batch is refused with INVALID_TXN_STATE, which its client retries or aborts on.
pub const PARTITION_VERIFICATIONS_MAX: usize = 65_536;

/// Bytes of one durable write of a partition; what is pending beyond it waits for the next one.
pub const WRITE_BYTES_MAX: usize = 1 << 20;

/// Requests of one connection that are answered out of one turn before others get theirs.
pub const CONNECTION_TURN_FRAMES_MAX: usize = 64;

/// Produce requests of one connection that may be in work at once; the next one is not read until one is answered.
pub const CONNECTION_PIPELINE_MAX: usize = 64;

/// Bytes that one connection may read out of one turn before others get theirs.
pub const CONNECTION_TURN_BYTES_MAX: usize = 256 << 10;

/// Bytes of answers that wait for a client to read them; above it none of its requests is read or started.
/// One answer may pass it, however large: the next one waits.
pub const CONNECTION_UNWRITTEN_BYTES_MAX: usize = 1 << 20;

/// Bytes that one receive may bring in while the shard has budget; these buffers are shared, not kept by a connection.
pub const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// Bytes that one receive may bring in while the shard's budget is used up: what a waiting connection can hold beyond
/// it.
pub const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// Receive buffers that a shard keeps for the next connection; more are freed.
pub const RECEIVE_BUFFERS_MAX: usize = 8;

/// Bytes reserved and allocated for a frame on its length alone; the rest follows when these have arrived.
pub const FRAME_FIRST_BYTES_MAX: usize = 64 << 10;

/// Longest silence inside a half-received frame while others wait for the budget that it holds; then it is cut off.
pub const FRAME_STALL_MS: u64 = 10_000;

/// Buffers in one vectored write; the kernel's own bound is 1024. The rest goes out with the next one.
pub const WRITE_SLICES_MAX: usize = 512;

/// How long a closed connection is still read, so that what the client had sent does not turn the FIN into a reset.
pub const CLOSE_LINGER_MS: u64 = 1000;

/// Bytes read and thrown away in that time; more and the connection is reset.
pub const CLOSE_LINGER_BYTES_MAX: usize = 4 << 20;

/// Connections that the kernel holds for a listener until they are accepted; it refuses more.
pub const LISTEN_BACKLOG: i32 = 1024;

/// How long a start waits for a port that is in use: the kernel gives the ports of a killed broker back only when it
/// has taken its io_uring apart, some milliseconds after the process is gone.
pub const BIND_PATIENCE_MS: u64 = 2000;

/// Pause between two attempts to have a port.
pub const BIND_RETRY_MS: u64 = 10;

/// Pause after an accept that failed for want of descriptors or memory.
pub const ACCEPT_RETRY_MS: u64 = 100;

/// Connections accepted in one turn.
pub const ACCEPT_TURN_MAX: usize = 64;

/// Partitions that one topic may have; more is refused with INVALID_PARTITIONS (contract K37.6).
pub const TOPIC_PARTITIONS_MAX: i32 = 10_000;

/// Partitions that one CreateTopics request may create (contract K19.4).
pub const CREATE_PARTITIONS_MAX: i64 = 10_000;

/// Partitions in one DescribeTopicPartitions answer; the rest is for the next page (contract K75.1).
pub const DESCRIBED_PARTITIONS_MAX: i32 = 2000;

/// Length of a topic name in bytes (contract K19.5).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Frames in one lane between two shards; a full lane holds its sender's overflow, which is bounded by admission.
pub const LANE_FRAMES_MAX: usize = 4096;

/// Frames that wait on their shard for room in one lane; at it calls wait and posts are refused. Replies always go in:
/// their number is bounded by the calls of the other side.
pub const LANE_OVERFLOW_FRAMES_MAX: usize = 65_536;

/// Frames of one lane that are worked off in one turn.
pub const LANE_TURN_FRAMES_MAX: usize = 256;

/// Producer ids handed out for each durable update of the block file.
pub const PRODUCER_ID_BLOCK: i64 = 1000;

/// Payloads of an answer from this size on are referenced, smaller ones are copied beside their neighbours: one more
/// entry of a vectored write costs about as much as copying this many bytes.
pub const PAYLOAD_COPIED_BYTES_MAX: usize = 4096;

/// Array elements and tags that one request body may hold, Produce and Fetch partitions included; more closes the
/// connection. An element of a few bytes becomes a struct of about a hundred, so a frame of
/// socket.request.max.bytes could otherwise take gigabytes.
pub const REQUEST_ELEMENTS_MAX: usize = 1 << 20;

/// Log lines that wait to be written; more are dropped and counted, because no shard may wait for stderr.
pub const LOG_LINES_MAX: usize = 8192;

/// Connections to metrics and health; more are closed at once.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

/// API keys with metrics of their own: above every key that Kafka has.
pub const API_KEYS_MAX: usize = 96;

/// Error codes with a counter, from -1 up: above every code of the table.
pub const ERROR_CODES_MAX: usize = 136;

/// Age of a shard's last heartbeat from which the broker is not ready.
pub const HEARTBEAT_AGE_MS_MAX: u64 = 2000;

/// Bytes of log between two entries of a segment's indexes. Kafka's index.interval.bytes is smaller and accepted
/// without effect: at this one the indexes of 1 GiB take 320 KiB of memory.
pub const INDEX_INTERVAL_BYTES: u64 = 64 << 10;

/// Appends from this size on do not have the file zeroed ahead of them: extending a file costs one journal commit,
/// about what writing this many bytes costs, and zeroing would write every byte twice.
pub const ZERO_AHEAD_APPEND_BYTES_MAX: usize = 64 << 10;

/// Most blocks that are allocated ahead of such appends, as far as the file has as much already: a start reads what is
/// left of them behind the tail as zeros.
pub const ALLOCATE_AHEAD_BYTES_MAX: u64 = 4 << 20;

/// First window that a segment writer zeroes ahead of its tail; each next one is twice as large.
pub const ZERO_AHEAD_BYTES_MIN: u64 = 128 << 10;

/// Largest window that a segment writer zeroes ahead of its tail: a thousand appends of a record.
pub const ZERO_AHEAD_BYTES_MAX: u64 = 1 << 20;

/// Largest single write of zeros. Every write beside it stands behind it at the device, for some 0.15 ms.
pub const ZERO_WRITE_BYTES_MAX: u64 = 64 << 10;

/// Partitions of one Fetch whose segments are read at the same time; each reads at most what it may answer.
pub const FETCH_READS_AT_ONCE_MAX: usize = 16;

/// Readers behind the tail cache whose next offset one shard remembers, to read ahead of them.
pub const READERS_FOLLOWED_MAX: usize = 256;

/// Segment files that one shard keeps open for reading; beyond it the least recently used one is closed.
pub const SEGMENT_READERS_MAX: usize = 128;

/// Aborted transactions that one clean remembers, 16 bytes each; at it the clean ends early and the next one goes on.
pub const CLEAN_ABORTED_MAX: usize = 1 << 20;

/// Bytes that a clean works on before others get their turn.
pub const CLEAN_TURN_BYTES_MAX: usize = 64 << 10;

/// Bytes of cleaned log that one write carries.
pub const CLEAN_WRITE_BYTES: usize = 256 << 10;

/// Producer snapshots kept of one partition: the newest, and one more in case it is damaged.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Slots that groups and transactional ids are spread over, whatever the number of cores. Keys find their slot's files
/// by it, so it never changes.
pub const SLOTS: u16 = 50;

/// Bytes of one durable write of a slot's journal, unless a single line is longer; what is pending beyond it waits for
/// the next one.
pub const SLOT_WRITE_BYTES_MAX: usize = 1 << 20;

/// Bytes of journal from which a slot is written anew as a checkpoint; twice the last checkpoint if that is more, so
/// that the cost of a change does not grow with the slot.
pub const SLOT_JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// Bytes of the line buffer that a slot keeps from one write to the next; a larger one is freed.
pub const SLOT_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Silence after which a newcomer that waits in a join phase is given up, whatever its session timeout: its client may
/// be gone (contract G6.9).
pub const GROUP_NEW_MEMBER_WAIT_MS: u64 = 5 * 60_000;

/// Member ids of one group that were given out and not used yet; beyond it the oldest one is forgotten.
pub const GROUP_PENDING_MEMBERS_MAX: usize = 10_000;

/// Bytes of a client's or instance's name that become part of a member id: the id fits the 32767 bytes of a string.
pub const GROUP_MEMBER_NAME_BYTES_MAX: usize = 32_000;

/// Rounds in which `uniform` moves partitions between members with different subscriptions; each makes the shares more
/// equal, and the first ones matter.
pub const ASSIGNOR_ROUNDS_MAX: usize = 16;

/// Bytes of a group's regular expression for topic names.
pub const GROUP_REGEX_BYTES_MAX: usize = 4 << 10;

/// Bytes that a compiled regular expression may take. With the longest topic names it bounds the time that matching
/// takes of the shard.
pub const GROUP_REGEX_COMPILED_BYTES_MAX: usize = 256 << 10;

/// Bytes of the cache that matching a regular expression builds while it runs.
pub const GROUP_REGEX_CACHE_BYTES_MAX: usize = 256 << 10;

/// Groups within groups of a regular expression.
pub const GROUP_REGEX_DEPTH_MAX: u32 = 64;

/// Repetitions that a regular expression may ask for, as in RE2.
pub const GROUP_REGEX_REPEAT_MAX: u32 = 1000;

/// Time between two matchings of a group's regular expressions against new topics (contract G14.6).
pub const GROUP_REGEX_REFRESH_MS_MIN: u64 = 10_000;

/// Time after which a group's regular expressions are matched again even without new topics (contract G14.6).
pub const GROUP_REGEX_REFRESH_MS_MAX: u64 = 600_000;

/// How often a shard works out what the metrics tell of the transactions on its partitions.
pub const METRICS_TRANSACTIONS_PERIOD_MS: u64 = 5000;

/// How often a shard works out what the metrics tell of its groups.
pub const METRICS_GROUPS_PERIOD_MS: u64 = 5000;

/// Partitions of groups with a series of their own on the metrics page, of one shard; more are counted and left out.
pub const METRICS_OFFSETS_MAX: usize = 10_000;

/// Transactional ids of one slot; a new one beyond it is refused with COORDINATOR_NOT_AVAILABLE, until others expire.
/// One takes about 600 bytes.
pub const TXN_IDS_MAX: usize = 100_000;

/// Open transactions of one slot; one more is refused with CONCURRENT_TRANSACTIONS, which clients try again.
pub const TXN_OPEN_MAX: usize = 20_000;

/// Partitions and groups of one transaction; more are refused with TRANSACTION_ABORTABLE.
pub const TXN_MEMBERS_MAX: usize = 20_000;

/// Requests of one slot that wait for a transaction to complete; more are refused with CONCURRENT_TRANSACTIONS at once.
pub const TXN_PARKED_MAX: usize = 4096;

/// Pending offsets of one group, of all producers; more are refused with COORDINATOR_NOT_AVAILABLE, until transactions
/// end. One takes about 150 bytes.
pub const GROUP_PENDING_OFFSETS_MAX: usize = 1_000_000;

/// How long a request waits for a transaction that is completing before it is answered CONCURRENT_TRANSACTIONS: shorter
/// than any client's patience with a request.
pub const TXN_PARK_MS: u64 = 5_000;

/// Producer ids that a shard's coordinator keeps at hand; below it, it asks for more. With none at hand a request that
/// needs one is refused with COORDINATOR_LOAD_IN_PROGRESS.
pub const TXN_PRODUCER_IDS_MIN: usize = 16;

/// Pause before a marker is sent again that was refused or has nowhere to go.
pub const MARKER_RETRY_MS: u64 = 100;

/// Partitions of which one turn of a look goes through what is open; the next turn goes on behind them.
pub const TXN_LOOK_PARTITIONS_MAX: usize = 256;

/// Open transactions that a look asks coordinators about at once, and takes of one partition, oldest first; of the
/// others it asks when these have ended.
pub const TXN_LOOK_OPEN_MAX: usize = 1_000;

/// Fences of one shard; beyond it the one set longest ago is forgotten. One takes about 100 bytes.
pub const FENCES_MAX: usize = 100_000;

/// Entries that the fence log may have beyond twice those alive before it is compacted.
pub const FENCES_LOG_SLACK: usize = 1024;

/// Age of a producer's last acknowledgement in a partition from which its broker may have forgotten it, as far as the
/// native client believes: one batch then shows whether it has. Far below any `producer.id.expiration.ms` in use.
pub const CLIENT_PROOF_MS: u64 = 300_000;

/// Size to which a batch of the native client grows beyond `batch.size` at most: what topics take without a setting.
pub const CLIENT_GROWTH_BYTES_MAX: usize = 1 << 20;

/// Age from which a batch of the native client does not grow beyond `batch.size`: its records expire together.
pub const CLIENT_GROWTH_MS: u64 = 1_000;

/// Nodes that the native client remembers; others are as if they had not been named.
pub const CLIENT_NODES_MAX: usize = 10_000;

/// Pause of the native client before a transactional request is sent again because the last transaction is completing.
pub const CLIENT_CONCURRENT_RETRY_MS: u64 = 20;

/// How long a consumer of the native client may take to commit and let go of partitions (the rebalance timeout of
/// KIP-848). A consumer whose output is stopped keeps others waiting for so long, then its partitions go without it.
pub const MEMBER_REBALANCE_MS: i32 = 60_000;

/// Pause of a member of the native client before a request is sent again, the first one and the longest; it doubles.
pub const MEMBER_BACKOFF_MS_MIN: u64 = 100;
/// See [`MEMBER_BACKOFF_MS_MIN`].
pub const MEMBER_BACKOFF_MS_MAX: u64 = 2_000;

/// How long a start waits for its partitions to be open before it serves those that are.
pub const OPEN_WAIT_MS: u64 = 500;

/// Partitions that one shard recovers at a time: each waits for the disk, again and again.
pub const OPENERS_PER_SHARD: usize = 8;

/// Tries of a member to leave its group; then its session's end does it.
pub const MEMBER_LEAVE_TRIES: u32 = 3;

const _: () = {
    assert!(ZERO_AHEAD_BYTES_MIN.is_multiple_of(4096) && ZERO_AHEAD_BYTES_MAX >= ZERO_AHEAD_BYTES_MIN);
    assert!(ZERO_WRITE_BYTES_MAX.is_multiple_of(4096), "zeros are written in whole blocks");
    assert!(ALLOCATE_AHEAD_BYTES_MAX.is_multiple_of(4096), "blocks are allocated whole");
    assert!(CLEAN_WRITE_BYTES.is_multiple_of(4096), "cleaned log is written in whole blocks");
    assert!(LANE_FRAMES_MAX.is_power_of_two(), "the lane's ring needs a power of two");

    assert!(RECEIVE_BYTES_MIN <= RECEIVE_BYTES_MAX && WRITE_SLICES_MAX <= 1024);
    assert!(WRITE_BYTES_MAX.is_multiple_of(4096), "writes are made of whole blocks");
    assert!(TXN_PRODUCER_IDS_MIN as i64 <= PRODUCER_ID_BLOCK, "one block fills a shard's store");
    assert!(PRODUCER_BATCHES_MAX == 5, "clients keep at most five batches in flight");
};

/// Bytes of JoinGroup and SyncGroup requests that may wait for other members on one shard. They do not count to the
/// budget of requests in work, which they would hold for minutes; beyond this they are answered
/// COORDINATOR_NOT_AVAILABLE, which clients try again.
pub const GROUP_PARKED_BYTES_MAX: usize = 64 << 20;
