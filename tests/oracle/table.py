"""The table of oracle cases and what a case may use. Cases return plain data; brokers agree when it is equal.

Cases are named by the contract's rule numbers. Their outcome must not depend on the clock, on ids, or on earlier cases.
"""

import itertools
import time

from batches import batch, batches
from groups import Group
from wire import Closed, Cluster, Connection, Silent

CASES = {}
# Settings of the brokers that cases are put to. "restart" is killed once: its cases are generators, which yield there.
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "group.max.session.timeout.ms": "60000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
SERVERS = {
    "plain": {},
    "groups": {**QUICK, "group.max.size": "5", "group.consumer.max.size": "5"},
    "timed": {
        **QUICK,
        "group.initial.rebalance.delay.ms": "1000",
        "group.consumer.assignment.interval.ms": "1000",
        "offsets.retention.check.interval.ms": "400",
    },
    "restart": QUICK,
    "txn": QUICK,
    "txn timed": {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
        "transactional.id.expiration.ms": "3000",
        "producer.id.expiration.ms": "3000",
        "producer.id.expiration.check.interval.ms": "200",
    },
    "levels": QUICK,
    "epochs": QUICK,
}
# Their cases take minutes and are left out of the short run.
LONG = ("epochs",)
SERVER_OF = {}
UNSTEADY = {}
_names = itertools.count(1)


def case(name, server="plain", unsteady=None):
    """`unsteady` says in what a Kafka does not repeat itself here; brokers are held to what is recorded."""

    def keep(run):
        assert name not in CASES, f"two cases are named {name}"
        CASES[name] = run
        SERVER_OF[name] = server
        if unsteady:
            UNSTEADY[name] = unsteady
        return run

    return keep


class Oracle:
    """One broker as a case sees it."""

    def __init__(self, server):
        self.server = server
        self.cluster = Cluster(server.address())
        self.run = f"{time.time_ns() // 1000000 % 10**9}"
        self.undo = []
        # Labels of the producer ids that a case met.
        self.producers = {}

    def name(self, part="t"):
        return f"oracle-{part}-{self.run}-{next(_names)}"

    def topic(self, partitions=1, **configs):
        """A topic that takes records: leaders are known and answer."""
        topic = self.cluster.create(self.name(), partitions, **configs)
        self.undo.append(lambda: self.cluster.delete(topic))
        for partition in range(partitions):
            settle(lambda p=partition: self.code_of_end(topic, p), lambda code: code == 0)
        return topic

    def code_of_end(self, topic, partition=0):
        value = {
            "ReplicaId": -1,
            "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Timestamp": -1}]}],
        }
        answer = self.cluster.to_leader(topic, partition, "ListOffsets", 5, value)
        return answer["Topics"][0]["Partitions"][0]["ErrorCode"]

    def group(self, part="g", name=None):
        """A group that nobody used before, unless it is named."""
        group = Group(self.server.address(), self.name(part) if name is None else name)
        self.undo.append(group.end)
        return group

    def group_topic(self, group, label="t", partitions=1):
        """A topic whose name and id the group's answers show as its label."""
        topic = self.topic(partitions)
        # A coordinator hears of topics after their leaders (contract G12.9); what one group sees, others see too.
        probe = Group(self.server.address(), self.name("probe"))
        settle(lambda: probe.consumer("P", [topic]).beat(0), lambda got: got[2])
        probe.consumer("P").leave()
        probe.end()
        time.sleep(0.03)
        return group.topic(label, topic, self.cluster.ids[topic])

    def connect(self, topic=None, partition=0, seconds=10):
        """A connection of the case's own, to the leader of a topic if one is named."""
        address = self.cluster.leader(topic, partition) if topic else self.server.address()
        connection = Connection(address, seconds)
        self.undo.append(connection.close)
        return connection

    def call(self, name, version, value=None, **more):
        return self.cluster.call(name, version, value, **more)

    def fill(self, topic, batch_count=1, records=1, partition=0, size=10, **more):
        for _ in range(batch_count):
            got = self.cluster.produce(topic, batch([b"v" * size] * records, **more), partition)
            assert got["ErrorCode"] == 0, got

    def end(self):
        for step in reversed(self.undo):
            try:
                step()
            except (OSError, Closed, Silent, AssertionError):
                pass
        self.undo.clear()
        self.producers.clear()


def settle(ask, good, seconds=5):
    """Asks until the answer is good, for what Kafka shows only a moment later (contract 0.8)."""
    until = time.monotonic() + seconds
    while True:
        got = ask()
        if good(got) or time.monotonic() > until:
            return got
        time.sleep(0.02)


def outcome(run):
    """The value of `run`, or what happened to the connection."""
    try:
        return run()
    except Closed:
        return "closed"
    except Silent:
        return "silent"


def by_version(versions, run):
    """The outcome at each version, equal neighbours joined: {"3-6": x, "7-13": y}."""
    joined = []
    for version in versions:
        got = outcome(lambda v=version: run(v))
        if joined and joined[-1][2] == got and joined[-1][1] == version - 1:
            joined[-1][1] = version
        else:
            joined.append([version, version, got])
    return {f"{a}" if a == b else f"{a}-{b}": got for a, b, got in joined}


def produced(answer, end=None):
    """One partition of a Produce answer. `end` is the log end before it: a success must begin there."""
    base = answer["BaseOffset"]
    return {
        "code": answer["ErrorCode"],
        "base": "log end" if end is not None and base == end else base,
        "time": answer["LogAppendTimeMs"] if answer["LogAppendTimeMs"] < 0 else "set",
        "start": answer.get("LogStartOffset"),
        "bad": [e["BatchIndex"] for e in answer.get("RecordErrors") or []],
        "text": answer.get("ErrorMessage") is not None,
    }


def fetched(part):
    """One partition of a Fetch answer without its bytes."""
    aborted = part.get("AbortedTransactions", "absent")
    return {
        "code": part["ErrorCode"],
        "hw": part["HighWatermark"],
        "lso": part.get("LastStableOffset"),
        "start": part.get("LogStartOffset"),
        "batches": [[b.base_offset, b.last_offset] for b in batches(part["Records"])],
        "null records": part["Records"] is None,
        "aborted": aborted,
        "diverging": part.get("DivergingEpoch"),
        "replica": part.get("PreferredReadReplica", -1),
    }
