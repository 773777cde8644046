"""What a case of a report has: a cluster, names of its own, and a reader that filters as consumers do."""

import itertools
import time

from batches import batch, batches
from groups import Group
from txn import Txn
from wire import Cluster

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
_number = itertools.count(1)


class Scene:
    def __init__(self, server):
        self.server = server
        self.cluster = Cluster(server.address())
        self.groups, self.producers = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cluster.drop()
        for group in self.groups:
            group.end()

    def apart(self):
        """The same broker over connections of its own: for a thread."""
        return Scene(self.server)

    def name(self, word):
        return f"{word}-{next(_number)}"

    def call(self, name, version, value=None, **more):
        return self.cluster.call(name, version, value, **more)

    def topic(self, partitions=1, **configs):
        return self.cluster.create(self.name("t"), partitions, **configs)

    def group(self):
        self.groups.append(Group(self.server.address(), self.name("g")))
        return self.groups[-1]

    def txn(self, **more):
        """A transactional id with a producer."""
        one = Txn(self, **more)
        got = one.init()
        assert got[0] == 0, got
        return one

    def read(self, topic, partition=0, isolation=READ_COMMITTED, offset=0):
        """Values that a consumer of this level gets, from an offset to the end that it can see."""
        out, more = [], True
        while more:
            got = self.cluster.fetch(topic, offset, partition, isolation=isolation, wait_ms=0)
            assert got["ErrorCode"] == 0, got
            values, offset, more = filtered(got, offset)
            out += values
        return out

    def ends(self, topic, partition=0):
        """(last stable offset, high watermark)."""
        got = self.cluster.fetch(topic, 0, partition, wait_ms=0, isolation=READ_COMMITTED)
        assert got["ErrorCode"] == 0, got
        return got["LastStableOffset"], got["HighWatermark"]

    def restart(self):
        """kill -9, and the same data again."""
        self.server.kill()
        self.server.start()
        self.cluster.drop()
        self.cluster.leaders.clear()
        for group in self.groups:
            group.again()


def filtered(got, offset):
    """As the Java consumer filters: values, the next offset, whether there were batches."""
    aborted = sorted((a["FirstOffset"], a["ProducerId"]) for a in got["AbortedTransactions"] or [])
    hidden, values, found = set(), [], batches(got["Records"])
    for one in found:
        while aborted and aborted[0][0] <= one.last_offset:
            hidden.add(aborted.pop(0)[1])
        if one.attributes & 0x20:
            # The key of a control record: version, then 0 for an abort.
            if one.records()[0][2][2:4] == b"\0\0":
                hidden.discard(one.pid)
        elif not (one.attributes & 0x10 and one.pid in hidden):
            values += [v for o, _, _, v, _ in one.records() if o >= offset]
        offset = one.last_offset + 1
    return values, offset, bool(found)


def until(what, holds, seconds=10):
    """Waits for something that shall come to hold; gives what it returned."""
    end = time.monotonic() + seconds
    while not (got := holds()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return got


def put(txn, topic, value, seq=0, partition=0, version=12):
    """One record of a transaction, acknowledged."""
    records = batch([value], pid=txn.pid, epoch=txn.epoch, seq=seq, transactional=True)
    got = txn.produced(topic, records, version, partition)
    assert got["ErrorCode"] == 0, got
    return got["BaseOffset"]
