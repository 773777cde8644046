"""Starts for perf/compare: an empty broker (P9, P10), one that was killed with 10 GB in 10,000 partitions and a million
producer ids (P11), and Oncilla with a GB and with as many segments as a TB has (S5).

Times count from the start of the process. It is looked at from outside, by asking again until an answer comes.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections import deque

from batches import batch
from wire import Closed, Cluster, Connection, Silent, decode_answer

TOPICS = 10
PARTITIONS_MAX = 1000
IDS = 1_000_000
VALUE_BYTES = 1_000_000
# A million producer ids are too much for 1 GiB beside what else Kafka holds.
HEAP = "2g"
LATEST = -1
# Requests that are out on one connection while a broker is filled.
OUT_MAX = 4
START_SECONDS_MAX = 900
STOP_SECONDS_MAX = 300
NOT_YET = (OSError, Closed, Silent)
# As many closed segments as a TB has at the default of 1 GiB, and the disk that is to be free for them.
SEGMENT_BYTES = 16 << 20
SEGMENTS = (64, 1024)
FREE_BYTES_MIN = 40e9
# 16 batches of this many records and a KiB fill a segment.
RECORDS_PER_BATCH = 1008
BATCHES_PER_SEGMENT = 16
# The first start reads everything from the disk, as after one of the machine; the others find what it read.
STARTS = ("SIGTERM and an emptied page cache", "kill -9", "SIGTERM")


def allow_open_files():
    """As many as this process may give itself; what it starts inherits them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def first_answer(server):
    """Milliseconds from the start of the process to the answer to a Metadata request."""
    began = time.monotonic()
    server._spawn(server.command(), stdout=subprocess.DEVNULL)
    while time.monotonic() - began < START_SECONDS_MAX:
        try:
            connection = Connection(server.address(), seconds=5)
            connection.call("Metadata", 9, {"Topics": []})
        except NOT_YET:
            assert server.alive(), f"{server.kind} ended: {server.log_tail()}"
            time.sleep(0.002)
            continue
        connection.close()
        return (time.monotonic() - began) * 1000
    raise TimeoutError(f"{server.kind} did not answer within {START_SECONDS_MAX} s")


def empty(side, _):
    with side.start() as server:
        Connection(server.address()).call("Metadata", 9, {"Topics": []})
        time.sleep(1)
        rows = {"P9 memory idle (MiB, less)": server.rss_kib() / 1024, "P9 threads (less)": server.threads()}
        # The peer's directory is formatted at its first start: that is no part of a start.
        server.stop()
        rows["P10 start to first answer, empty (ms, less)"] = first_answer(server)
        return rows


class Filler:
    """Produce requests to every leader, some of them out at a time."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.out = {}

    def send(self, address, entries):
        """`entries`: topic, partition and batch."""
        topics = {}
        for topic, partition, records in entries:
            topics.setdefault(topic, []).append({"Index": partition, "Records": records})
        data = [{"Name": t, "PartitionData": p} for t, p in topics.items()]
        connection = self.cluster.at(address)
        value = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 60000, "TopicData": data}
        connection.send(connection.request("Produce", 9, value))
        self.out[address] = self.out.get(address, 0) + 1
        while self.out[address] >= OUT_MAX:
            self.take(address)

    def take(self, address):
        answer = decode_answer("Produce", 9, self.cluster.at(address).answer(120)[1])
        bad = [p for t in answer["Responses"] for p in t["PartitionResponses"] if p["ErrorCode"]]
        assert not bad, bad[0]
        self.out[address] -= 1

    def finish(self):
        for address in self.out:
            while self.out[address]:
                self.take(address)


def fill(cluster, names, partitions, ids):
    """One batch of a MB into every partition, then one small batch by each producer id, spread over all of them."""
    led = {}
    for name in names:
        for partition in range(partitions):
            led.setdefault(cluster.leader(name, partition), []).append((name, partition))
    large = batch([bytes(n * 131 % 251 for n in range(VALUE_BYTES // 1000)) * 1000])
    filler = Filler(cluster)
    for address, places in led.items():
        for topic, partition in places:
            filler.send(address, [(topic, partition, large)])
    next_id = 1000
    for _ in range(ids // (len(names) * partitions)):
        for address, places in led.items():
            for first in range(0, len(places), 500):
                entries = []
                for topic, partition in places[first : first + 500]:
                    entries.append((topic, partition, batch([b"v"], pid=next_id, epoch=0, seq=0)))
                    next_id += 1
                filler.send(address, entries)
    filler.finish()
    return next_id - 1000


def end_of(cluster, name, partitions):
    """The sum of the ends of a topic's partitions; None where one of them does not tell its end yet."""
    by_leader = {}
    for partition in range(partitions):
        asked = {"PartitionIndex": partition, "Timestamp": LATEST}
        by_leader.setdefault(cluster.leader(name, partition), []).append(asked)
    total = 0
    for address, parts in by_leader.items():
        value = {"ReplicaId": -1, "Topics": [{"Name": name, "Partitions": parts}]}
        got = cluster._call(address, "ListOffsets", 5, value, {"seconds": 60})["Topics"][0]["Partitions"]
        if any(p["ErrorCode"] for p in got):
            return None
        total += sum(p["Offset"] for p in got)
    return total


def ends(cluster, names, partitions):
    """Milliseconds until every partition has told where it ends, and the sum of these."""
    began, total, missing = time.monotonic(), 0, deque(names)
    while missing:
        name = missing.popleft()
        try:
            end = end_of(cluster, name, partitions)
            if end is None:
                # Its leaders may be others than before.
                cluster.find(name, partitions, seconds=START_SECONDS_MAX)
        except NOT_YET:
            end = None
        if end is None:
            assert time.monotonic() - began < START_SECONDS_MAX, f"{name} is not served"
            missing.append(name)
            time.sleep(0.002)
            continue
        total += end
    return (time.monotonic() - began) * 1000, total


def after_kill(side, scaled):
    """The log of `no fsync` is that of `fsync`, so Kafka does this once; it is filled without waiting for its disk."""
    if side.name == "kafka fsync":
        return {}
    allow_open_files()
    partitions, rows = scaled(PARTITIONS_MAX, 50), {}
    with side.start(heap=HEAP) as server:
        cluster = Cluster(server.address(), seconds=120)
        names = [side.topic(server, partitions) for _ in range(TOPICS)]
        for name in names:
            cluster.find(name, partitions, seconds=120)
        ids = fill(cluster, names, partitions, scaled(IDS, 10_000))
        records = ids + TOPICS * partitions
        for how in ("killed", "stopped"):
            cluster.drop()
            if how == "killed":
                server.kill()
            else:
                stopped(server)
            answer_ms = first_answer(server)
            ends_ms, total = ends(cluster, names, partitions)
            assert total == records, f"{total} of {records} records are there"
            label = f"P11 {how} with {TOPICS * partitions:,} partitions and {ids:,} producer ids,"
            rows[f"{label} start to first answer (ms, less)"] = answer_ms
            rows[f"{label} start to all partitions served (ms, less)"] = answer_ms + ends_ms
            rows[f"{label} to ask all partitions when they are served (ms)"] = ends(cluster, names, partitions)[0]
            rows[f"{label} memory after it (MiB, less)"] = server.rss_kib() / 1024
        cluster.drop()
    return rows


def stopped(server):
    code = server.stop(seconds=STOP_SECONDS_MAX)
    # A JVM that ended by SIGTERM tells 143.
    assert code in (0, 143), f"{server.kind} did not stop: {code}"


def sizes(directory, scaled):
    """Numbers of closed segments, the larger one halved until the disk has room for it."""
    few, many = scaled(SEGMENTS[0], 4), scaled(SEGMENTS[1], 32)
    free, wanted = shutil.disk_usage(directory).free, many
    while many > few and free < FREE_BYTES_MIN * many / SEGMENTS[1]:
        many //= 2
    if many < wanted:
        print(f"S5 with {many:,} segments and not {wanted:,}: {free / 1e9:.0f} GB are free", file=sys.stderr)
    return few, many


def evict(directory):
    """The page cache forgets the files of a broker that does not run."""
    for path in directory.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def write(server, topic, count):
    cluster = Cluster(server.address(), seconds=120)
    cluster.find(topic)
    full, filler = batch([bytes(1024)] * RECORDS_PER_BATCH), Filler(cluster)
    for _ in range(count):
        filler.send(cluster.leader(topic), [(topic, 0, full)])
    filler.finish()
    cluster.drop()


def started(server, topic, records):
    """Milliseconds from the start to the first answer, and those of the first Fetch at the log's beginning."""
    cluster = Cluster(server.address(), seconds=60)
    answer_ms = first_answer(server)
    _, total = ends(cluster, [topic], 1)
    assert total == records, f"{total} of {records} records are there"
    began = time.monotonic()
    got = cluster.fetch(topic, 0)
    fetch_ms = (time.monotonic() - began) * 1000
    assert got["ErrorCode"] == 0 and got["Records"], got["ErrorCode"]
    cluster.drop()
    return answer_ms, fetch_ms


def below_the_active(side, scaled):
    """Oncilla alone. The active segment is half full at both sizes: its recovery is no cost of what is below it."""
    if side.name != "oncilla":
        return {}
    rows, written = {}, 0
    with side.start({"log.retention.check.interval.ms": 100}) as server:
        topic = side.topic(server, 1, segment_bytes=SEGMENT_BYTES)
        for segments in sizes(server.data, scaled):
            wanted = segments * BATCHES_PER_SEGMENT + BATCHES_PER_SEGMENT // 2
            write(server, topic, wanted - written)
            written = wanted
            closed = len(list(server.data.glob("topics/*/0/*.log"))) - 1
            assert closed == segments, f"{closed} closed segments, {segments} were to be written"
            label = f"S5 with {segments:,} closed segments of 16 MiB ({segments * SEGMENT_BYTES / 1e9:.1f} GB),"
            for how in STARTS:
                if how == "kill -9":
                    server.kill()
                else:
                    stopped(server)
                if "emptied" in how:
                    evict(server.data)
                answer_ms, fetch_ms = started(server, topic, written * RECORDS_PER_BATCH)
                rows[f"{label} {how}, start to first answer (ms, less)"] = answer_ms
                rows[f"{label} {how}, first Fetch at the log's beginning (ms, less)"] = fetch_ms
            rows.update(idle(server, label, scaled(10, 3)))
    return rows


def idle(server, label, seconds):
    # What follows a start is no part of it.
    time.sleep(2)
    before = server.cpu_seconds()
    time.sleep(seconds)
    spent = server.cpu_seconds() - before
    return {f"{label} CPU of {seconds} s idle, retention checked every 100 ms (s, less)": spent}
