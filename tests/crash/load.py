"""Idempotent producers of our own, for kill -9: five requests in flight, and after a restart the same batches again.

Each producer owns a producer id and writes numbered values to one partition. It keeps every batch until it is
acknowledged; after a broken connection it sends all of them once more, in order, with the same sequences. So the broker
must recognise those that it had written already. A producer may be abandoned: what it had in flight then may be in the
log once or not at all.
"""

import random
import threading
import time

from batches import batch
from wire import Closed, Cluster, Connection, Silent, decode_answer

RETRIED = {3, 5, 6, 7, 14, 19, 56}
BROKEN = (OSError, Closed, Silent, AssertionError, TimeoutError)


class Violation(Exception):
    """The broker answered what must never be answered to this producer."""


class Producer(threading.Thread):
    def __init__(self, address, topic, partition, uid, in_flight, seed):
        super().__init__(daemon=True)
        self.address, self.topic, self.partition, self.uid = address, topic, partition, uid
        self.in_flight_max = in_flight
        self.random = random.Random(seed)
        self.pid = self.epoch = None
        self.next_number = self.next_seq = 0
        self.waiting = []  # (sequence, first number, count, bytes), oldest first
        self.acked = []  # (first number, count, base offset)
        self.resent = 0
        self.halt = threading.Event()  # stop making new batches
        self.drop = threading.Event()  # stop at once and leave what is in flight
        self.violation = None
        self.connection = None

    def value(self, number):
        return f"{self.uid}:{number}".encode()

    def run(self):
        try:
            while not self.drop.is_set() and (self.waiting or not self.halt.is_set()):
                try:
                    self.connect()
                    self.work()
                except BROKEN:
                    time.sleep(0.01)
        except Violation as what:
            self.violation = str(what)
        finally:
            if self.connection:
                self.connection.close()

    def connect(self):
        if self.connection:
            self.connection.close()
        cluster = Cluster(self.address, seconds=5)
        try:
            cluster.find(self.topic, self.partition + 1, seconds=5)
            if self.pid is None:
                self.pid, self.epoch = cluster.producer_id()
            self.connection = Connection(cluster.leader(self.topic, self.partition), seconds=5)
        finally:
            cluster.drop()

    def make(self):
        count = self.random.choice((1, 1, 2, 5, 20))
        pad = b"." * self.random.choice((0, 0, 100, 1000, 8000))
        first = self.next_number
        codec = self.random.choice(("none", "none", "lz4"))
        data = batch(
            [self.value(first + i) + pad for i in range(count)],
            pid=self.pid,
            epoch=self.epoch,
            seq=self.next_seq,
            codec=codec,
        )
        self.waiting.append((self.next_seq, first, count, data))
        self.next_number += count
        self.next_seq += count
        return data

    def send(self, data):
        value = {
            "Acks": -1,
            "TimeoutMs": 10000,
            "TopicData": [{"Name": self.topic, "PartitionData": [{"Index": self.partition, "Records": data}]}],
        }
        self.connection.send(self.connection.request("Produce", 9, value))

    def work(self):
        outstanding = 0
        for _, _, _, data in self.waiting:
            self.send(data)
            outstanding += 1
            self.resent += 1
        while not self.drop.is_set():
            while outstanding < self.in_flight_max and not self.halt.is_set():
                self.send(self.make())
                outstanding += 1
            if not outstanding:
                return
            body = self.connection.answer()[1]
            outstanding -= 1
            part = decode_answer("Produce", 9, body)["Responses"][0]["PartitionResponses"][0]
            self.told(part["ErrorCode"], part["BaseOffset"])

    def told(self, code, base):
        if code in RETRIED:
            raise Closed
        seq, first, count, _ = self.waiting[0]
        if code != 0:
            raise Violation(f"producer {self.uid}: sequence {seq} was answered with {code}")
        self.acked.append((first, count, base))
        self.waiting.pop(0)


class Reader(threading.Thread):
    """Reads all partitions while the broker is killed and started. What it saw once must stay."""

    def __init__(self, address, topic, partitions):
        super().__init__(daemon=True)
        self.address, self.topic, self.partitions = address, topic, partitions
        self.seen = {p: {} for p in range(partitions)}
        self.halt = threading.Event()
        self.violation = None

    def run(self):
        at = dict.fromkeys(range(self.partitions), 0)
        cluster = Cluster(self.address, seconds=5)
        while not self.halt.is_set() and self.violation is None:
            for partition in range(self.partitions):
                try:
                    part = cluster.fetch(self.topic, at[partition], partition, wait_ms=20)
                except BROKEN:
                    cluster.drop()
                    time.sleep(0.02)
                    continue
                if part["ErrorCode"] == 1:
                    self.violation = f"partition {partition}: offset {at[partition]} was read up to and is gone"
                    break
                for offset, value in records(part["Records"], at[partition]):
                    self.seen[partition][offset] = value
                    at[partition] = offset + 1
        cluster.drop()


def records(data, from_offset):
    """(offset, value up to its padding) from an offset on."""
    from batches import batches

    out = []
    for one in batches(data):
        if not one.crc_holds():
            raise Violation(f"batch at {one.base_offset} has a wrong CRC")
        out += [(r[0], r[3].rstrip(b".")) for r in one.records() if r[0] >= from_offset]
    return out


def read_all(address, topic, partition):
    """{offset: value} of a partition up to its high watermark."""
    cluster = Cluster(address)
    cluster.find(topic, partition + 1)
    out, at = {}, cluster.offset(topic, partition, timestamp=-2)
    end = cluster.offset(topic, partition)
    while at < end:
        part = cluster.fetch(topic, at, partition, max_bytes=4 << 20)
        if part["ErrorCode"]:
            raise Violation(f"partition {partition}: reading {at} was answered with {part['ErrorCode']}")
        got = records(part["Records"], at)
        if not got:
            raise Violation(f"partition {partition}: nothing at {at}, the end is {end}")
        out.update(got)
        at = got[-1][0] + 1
    cluster.drop()
    return out


def faults(logs, producers, seen):
    """What is wrong with the logs, as sentences; empty if every promise was kept."""
    out = []
    for partition, log in logs.items():
        if list(log) != list(range(len(log))):
            out.append(f"partition {partition}: offsets have holes")
        values = list(log.values())
        if len(set(values)) != len(values):
            twice = [v for v in set(values) if values.count(v) > 1][:3] if len(values) < 20000 else "many"
            out.append(f"partition {partition}: {len(values) - len(set(values))} values twice, such as {twice}")
        last = {}
        for offset, value in log.items():
            uid, number = value.decode().split(":")
            if last.get(uid, -1) >= int(number):
                out.append(f"partition {partition}: {value} at {offset} stands behind {last[uid]}")
                break
            last[uid] = int(number)
        lost = [o for o, v in seen[partition].items() if log.get(o) != v]
        if lost:
            out.append(
                f"partition {partition}: {len(lost)} records were read and are not there now, first at {lost[0]}"
            )
    for p in producers:
        if p.violation:
            out.append(p.violation)
        log = logs[p.partition]
        lost = [
            (first + i, base + i)
            for first, count, base in p.acked
            for i in range(count)
            if log.get(base + i) != p.value(first + i)
        ]
        if lost:
            out.append(f"producer {p.uid}: {len(lost)} acknowledged records are not at their offsets, first {lost[0]}")
        known = {f"{p.uid}:{n}".encode() for first, count, _ in p.acked for n in range(first, first + count)}
        known |= {p.value(n) for _, first, count, _ in p.waiting for n in range(first, first + count)}
        strange = [v for v in log.values() if v.startswith(f"{p.uid}:".encode()) and v not in known]
        if strange:
            out.append(f"producer {p.uid}: {len(strange)} records that it never sent")
    return out
