"""A transactional id that speaks raw requests: to its coordinator, to leaders, to coordinators of groups. Answers come
back without what differs from run to run: producer ids become p0, p1 in the order in which a case meets them.
"""

import time

from batches import batch
from wire import Connection

# What passes by itself: a transaction that completes, a coordinator that is being found or loads.
PASSING = (51, 14, 15, 16)


def settled(ask, codes, seconds=5):
    """Asks until none of the codes is one that passes. `codes` gives a code, or a list of them, of an answer."""
    until = time.monotonic() + seconds
    while True:
        got = ask()
        told = codes(got)
        if not any(c in PASSING for c in (told if isinstance(told, list) else [told])) or time.monotonic() > until:
            return got
        time.sleep(0.005)


class Txn:
    """A transactional id and its producer as the last good answer told it."""

    def __init__(self, o, name="tid", tid=None):
        self.o = o
        self.tid = o.name(name) if tid is None else tid
        self.pid = self.epoch = -1
        self.address = None
        # Whether requests are repeated while a transaction completes.
        self.patient = True
        self.labels = o.producers

    def at(self):
        """A connection to the coordinator."""
        if self.address is None:
            value = {"KeyType": 1, "CoordinatorKeys": [self.tid]}
            ask = lambda: self.o.call("FindCoordinator", 4, value)["Coordinators"][0]
            found = settled(ask, lambda f: f["ErrorCode"], 30)
            self.address = found["Host"], found["Port"]
        return self.o.cluster.at(self.address)

    def call(self, name, version, value, codes, once=False):
        """Until the answer is one that stays, unless it is asked `once`."""
        ask = lambda: self.at().call(name, version, value)
        return ask() if once or not self.patient else settled(ask, codes)

    def label(self, pid):
        return pid if pid < 0 else self.labels.setdefault(pid, f"p{len(self.labels)}")

    def who(self, of):
        """(id, epoch) of: a distance in epochs, or (id, epoch), or None for the producer as it is."""
        if isinstance(of, tuple):
            return of
        return self.pid, self.epoch + (of or 0)

    # Requests. `of` says who asks, as `who` reads it.

    def init(self, version=4, given=None, timeout=60000, once=False, keep=True):
        """[code, producer, epoch]. `given`: None for nobody, else as `who` reads it."""
        pid, epoch = (-1, -1) if given is None else self.who(given)
        value = {"TransactionalId": self.tid, "TransactionTimeoutMs": timeout}
        if version >= 3:
            value.update({"ProducerId": pid, "ProducerEpoch": epoch})
        got = self.call("InitProducerId", version, value, lambda g: g["ErrorCode"], once)
        if keep and got["ErrorCode"] == 0:
            self.pid, self.epoch = got["ProducerId"], got["ProducerEpoch"]
        return [got["ErrorCode"], self.label(got["ProducerId"]), got["ProducerEpoch"]]

    def add(self, parts, version=3, of=None, once=False):
        """The codes of {topic: partitions}, in their order; the single one if there is one."""
        pid, epoch = self.who(of)
        value = {
            "V3AndBelowTransactionalId": self.tid,
            "V3AndBelowProducerId": pid,
            "V3AndBelowProducerEpoch": epoch,
            "V3AndBelowTopics": [{"Name": t, "Partitions": p} for t, p in parts.items()],
        }
        flat = lambda got: in_order(got["ResultsByTopicV3AndBelow"], parts)
        return single(flat(self.call("AddPartitionsToTxn", version, value, flat, once)))

    def ask(self, parts, version=5, of=None, verify=True, once=False):
        """AddPartitionsToTxn as brokers send it: the top code if it is not 0, else those of the partitions."""
        pid, epoch = self.who(of)
        one = {
            "TransactionalId": self.tid,
            "ProducerId": pid,
            "ProducerEpoch": epoch,
            "VerifyOnly": verify,
            "Topics": [{"Name": t, "Partitions": p} for t, p in parts.items()],
        }
        flat = lambda got: [got["ErrorCode"]] if got["ErrorCode"] else self.of_batch(got, parts)
        return single(flat(self.call("AddPartitionsToTxn", version, {"Transactions": [one]}, flat, once)))

    def of_batch(self, got, parts):
        results = {r["TransactionalId"]: r["TopicResults"] for r in got["ResultsByTransaction"]}
        return in_order(results.get(self.tid, []), parts)

    def add_group(self, group, version=3, of=None, once=False):
        pid, epoch = self.who(of)
        value = {"TransactionalId": self.tid, "ProducerId": pid, "ProducerEpoch": epoch, "GroupId": group}
        return self.call("AddOffsetsToTxn", version, value, lambda g: g["ErrorCode"], once)["ErrorCode"]

    def end(self, commit=True, version=5, of=None, once=False, keep=True):
        """The code; from version 5 on [code, producer, epoch]."""
        pid, epoch = self.who(of)
        value = {"TransactionalId": self.tid, "ProducerId": pid, "ProducerEpoch": epoch, "Committed": commit}
        got = self.call("EndTxn", version, value, lambda g: g["ErrorCode"], once)
        if version < 5:
            return got["ErrorCode"]
        if keep and got["ErrorCode"] == 0:
            self.pid, self.epoch = got["ProducerId"], got["ProducerEpoch"]
        return [got["ErrorCode"], self.label(got["ProducerId"]), got["ProducerEpoch"]]

    def ended(self, commit=True, version=5, **more):
        """Ends it and waits until the markers are in."""
        got = self.end(commit, version, **more)
        self.rest()
        return got

    def batch(self, seq=0, count=1, of=None, transactional=True, **more):
        pid, epoch = self.who(of)
        return batch([b"v"] * count, pid=pid, epoch=epoch, seq=seq, transactional=transactional, **more)

    def produce(self, topic, seq=0, count=1, version=12, partition=0, of=None, once=False, **more):
        """[code, base offset] of one batch."""
        got = self.produced(
            topic, self.batch(seq, count, of, **more.pop("batch", {})), version, partition, once, **more
        )
        return [got["ErrorCode"], got["BaseOffset"]]

    def produced(self, topic, records, version=12, partition=0, once=False, **more):
        """A partition's part of the answer."""
        given = {"transactional_id": self.tid, **more}
        ask = lambda: self.o.cluster.produce(topic, records, partition, version, **given)
        return ask() if once else settled(ask, lambda g: g["ErrorCode"])

    def describe(self):
        """The state as it is stored."""
        value = {"TransactionalIds": [self.tid]}
        got = self.call("DescribeTransactions", 0, value, lambda g: g["TransactionStates"][0]["ErrorCode"])
        return got["TransactionStates"][0]

    def state(self, topics=()):
        """[code, state, producer, epoch, [number of the topic in `topics`, partitions]...]."""
        got = self.describe()
        parts = [
            [list(topics).index(t["Topic"]), sorted(t["Partitions"])] for t in got["Topics"] if t["Topic"] in topics
        ]
        return [
            got["ErrorCode"],
            got["TransactionState"],
            self.label(got["ProducerId"]),
            got["ProducerEpoch"],
            *sorted(parts),
        ]

    def rest(self, seconds=10):
        """Waits until nothing is being prepared, and gives the state."""
        until = time.monotonic() + seconds
        while True:
            got = self.describe()["TransactionState"]
            if not got.startswith("Prepare") or time.monotonic() > until:
                return got
            time.sleep(0.005)

    def commit_offsets(self, group, parts, version=5, of=None, once=False, **more):
        """Codes of {topic: {partition: offset or (offset, metadata)}}, sent to the group's coordinator."""
        pid, epoch = self.who(of)
        topics = []
        for topic, offsets in parts.items():
            rows = [
                {"PartitionIndex": p, "CommittedOffset": o, "CommittedMetadata": m, "CommittedLeaderEpoch": -1}
                for p, (o, m) in ((p, o if isinstance(o, tuple) else (o, "")) for p, o in offsets.items())
            ]
            topics.append({"Name": topic, "Partitions": rows})
        value = {
            "TransactionalId": self.tid,
            "GroupId": group.name,
            "ProducerId": pid,
            "ProducerEpoch": epoch,
            "Topics": topics,
        }
        caller = {
            "MemberId": more.pop("member", ""),
            "GenerationId": more.pop("generation", -1),
            "GroupInstanceId": more.pop("instance", None),
        }
        value.update({**(caller if version >= 3 else {}), **more})
        ask = lambda: group.call("TxnOffsetCommit", version, value)
        flat = lambda got: in_order(got["Topics"], parts, "Partitions")
        return single(flat(ask() if once else settled(ask, flat)))

    def pipelined(self, requests, seconds=10):
        """The answers to (name, version, value) sent at once on a connection of its own to the coordinator."""
        from wire import decode_answer

        self.at()
        connection = Connection(self.address, seconds)
        try:
            connection.send(b"".join(connection.request(*one) for one in requests))
            return [decode_answer(name, version, connection.answer()[1]) for name, version, _ in requests]
        finally:
            connection.close()


def in_order(topics, parts, rows=None):
    """Codes by topic and partition in the order in which they were asked for; None where there is no answer."""
    told = {}
    for topic in topics:
        for row in topic[rows or "ResultsByPartition"]:
            code = row["ErrorCode"] if rows else row["PartitionErrorCode"]
            told[topic["Name"], row["PartitionIndex"]] = code
    return [told.get((t, p)) for t, asked in parts.items() for p in asked]


def single(codes):
    return codes[0] if len(codes) == 1 else codes


def began(o, topic=None, version=12, **more):
    """A producer, and with a topic a transaction that is open there."""
    txn = Txn(o, **more)
    assert txn.init()[0] == 0
    if topic is not None:
        if version < 12:
            assert txn.add({topic: [0]}) == 0
        assert txn.produce(topic, version=version)[0] == 0
    return txn


def fence(txn):
    """Has an open transaction aborted by an InitProducerId that comes to nothing (contract B2.8); E is the next one."""
    got = txn.init(given=(txn.pid, txn.epoch + 40 if txn.epoch < 100 else 0), keep=False)
    # -1: what Kafka says where the epochs are used up (contract B11.6).
    assert got[0] in (90, -1), got
    txn.rest()
    txn.epoch += 1


def mark(o, topic, pid, epoch, commit, tv=None, coordinator=0, partitions=(0,)):
    """The codes of a marker that an administrator writes; `tv` None stands for version 1."""
    marker = {
        "ProducerId": pid,
        "ProducerEpoch": epoch,
        "TransactionResult": commit,
        "Topics": [{"Name": topic, "PartitionIndexes": list(partitions)}],
        "CoordinatorEpoch": coordinator,
    }
    if tv is not None:
        marker["TransactionVersion"] = tv
    got = o.cluster.to_leader(topic, partitions[0], "WriteTxnMarkers", 1 if tv is None else 2, {"Markers": [marker]})
    told = {p["PartitionIndex"]: p["ErrorCode"] for m in got["Markers"] for t in m["Topics"] for p in t["Partitions"]}
    return single([told.get(p) for p in partitions])


def producers(o, topic, partition=0):
    """[producer, epoch, last sequence, start of the open transaction] of a partition, as DescribeProducers tells."""
    value = {"Topics": [{"Name": topic, "PartitionIndexes": [partition]}]}
    got = o.cluster.to_leader(topic, partition, "DescribeProducers", 0, value)["Topics"][0]["Partitions"][0]
    label = lambda pid: o.producers.setdefault(pid, f"p{len(o.producers)}")
    rows = sorted(got["ActiveProducers"], key=lambda a: a["ProducerId"])
    keys = ("ProducerEpoch", "LastSequence", "CurrentTxnStartOffset")
    # Ids of a later producer need not be higher.
    return sorted([label(a["ProducerId"]), *(a[k] for k in keys)] for a in rows)
