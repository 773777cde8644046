"""kill -9 of the broker under members that commit: no acknowledged commit is lost, no group goes backwards, none skips.

Two kinds of load run at once. Members of librdkafka, of classic groups and of a consumer group, read what a producer
keeps writing and commit every few records. Plain committers write growing offsets for many groups, each with a text
that names its offset. After every start all offsets are fetched and compared with what had been acknowledged.
"""

import random
import threading
import time

from groups import Group
from load import BROKEN
from servers import against
from wire import Cluster

TOPIC = "crash-groups"
PARTITIONS = 4
COMMIT_EVERY = 10
PLAIN_GROUPS = 24
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
}
KINDS = {
    "classic": {"session.timeout.ms": 45000, "heartbeat.interval.ms": 500},
    "cooperative": {
        "session.timeout.ms": 45000,
        "heartbeat.interval.ms": 500,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"group.protocol": "consumer"},
}


class Record:
    """What one group did: by partition the next offset to deliver, what was acknowledged and what was tried."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.acked = dict.fromkeys(range(PARTITIONS), -1)
        self.tried = dict.fromkeys(range(PARTITIONS), -1)
        self.seen = dict.fromkeys(range(PARTITIONS), -1)
        self.commits = self.repeats = 0
        self.violation = None

    def delivered(self, partition, offset, value):
        with self.lock:
            if value != f"{partition}:{offset}".encode():
                self.violation = f"{self.name}: {value} was delivered at {partition}:{offset}"
            if offset > self.next[partition]:
                self.violation = f"{self.name}: {partition} went from {self.next[partition]} to {offset}"
            if offset < self.acked[partition]:
                self.violation = (
                    f"{self.name}: {offset} of {partition} came after {self.acked[partition]} was committed"
                )
            self.repeats += offset < self.next[partition]
            self.next[partition] = max(self.next[partition], offset + 1)

    def trying(self, offsets):
        with self.lock:
            for p, o in offsets.items():
                self.tried[p] = max(self.tried[p], o)

    def acknowledged(self, offsets):
        with self.lock:
            self.commits += 1
            for p, o in offsets.items():
                self.acked[p] = max(self.acked[p], o)

    def compare(self, address):
        """Fetches the group's offsets and judges them."""
        with self.lock:
            floor = dict(self.acked)
        group = Group(address, self.name)
        try:
            code, rows = group.fetch()
        finally:
            group.end()
        assert code == 0, f"{self.name}: OffsetFetch was answered with {code}"
        self.judge(floor, {p: (o, text) for _, p, _, o, _, text in rows})

    def judge(self, floor, got):
        """`got`: {partition: (offset, text)} as fetched after `floor` had been acknowledged."""
        with self.lock:
            top = dict(self.tried)
        for p in range(PARTITIONS):
            offset, text = got.get(p, (-1, ""))
            assert offset >= floor[p], f"{self.name}: {offset} is committed for {p}, {floor[p]} was acknowledged"
            assert offset >= self.seen[p], f"{self.name}: {p} went back from {self.seen[p]} to {offset}"
            assert offset <= top[p], f"{self.name}: {offset} is committed for {p}, nobody tried more than {top[p]}"
            assert not text or text == f"at {offset}", f"{self.name}: {p} has {offset} with the text {text!r}"
            self.seen[p] = offset


class Committer(threading.Thread):
    """Commits growing offsets for groups without members."""

    def __init__(self, address, records):
        super().__init__(daemon=True)
        self.address, self.records = address, records
        self.halt = threading.Event()

    def run(self):
        number = 0
        groups = {}
        while not self.halt.is_set():
            number += 1
            record = self.records[number % len(self.records)]
            partition = number // len(self.records) % PARTITIONS
            try:
                if record.name not in groups:
                    groups[record.name] = Group(self.address, record.name)
                record.trying({partition: number})
                codes = groups[record.name].commit({TOPIC: {partition: (number, f"at {number}")}})
                if codes == [[0]]:
                    record.acknowledged({partition: number})
            except BROKEN:
                for group in groups.values():
                    group.end()
                groups.clear()
                time.sleep(0.05)


class Member(threading.Thread):
    """A member of librdkafka that commits every few records."""

    def __init__(self, bootstrap, record, settings):
        super().__init__(daemon=True)
        self.bootstrap, self.record, self.settings = bootstrap, record, settings
        self.halt = threading.Event()
        self.error = None

    def run(self):
        from confluent_kafka import Consumer

        given = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.record.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **self.settings,
        }
        consumer = Consumer(given)
        consumer.subscribe([TOPIC])
        try:
            while not self.halt.is_set():
                self.turn(consumer)
        except Exception as error:
            self.error = f"{self.record.name}: {type(error).__name__}: {error}"
        finally:
            consumer.close()

    def turn(self, consumer):
        from confluent_kafka import KafkaException, TopicPartition

        messages = [m for m in consumer.consume(COMMIT_EVERY, 0.2) if not m.error()]
        for m in messages:
            self.record.delivered(m.partition(), m.offset(), m.value())
        behind = {m.partition(): m.offset() + 1 for m in messages}
        if not behind:
            return
        self.record.trying(behind)
        try:
            parts = [TopicPartition(TOPIC, p, o) for p, o in behind.items()]
            done = consumer.commit(offsets=parts, asynchronous=False)
            self.record.acknowledged({p.partition: p.offset for p in done if p.error is None})
        except KafkaException:
            # Not acknowledged; whoever has the partition now goes on, here or from the last commit.
            pass


class Writer(threading.Thread):
    """An idempotent producer: record n of a partition lies at offset n."""

    def __init__(self, bootstrap):
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.halt = threading.Event()
        self.written = 0
        self.failed = []

    def run(self):
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        producer = Producer({**settings, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 600_000})
        told = lambda error, _: error and self.failed.append(str(error))
        while not self.halt.is_set():
            for p in range(PARTITIONS):
                producer.produce(TOPIC, f"{p}:{self.written}".encode(), partition=p, on_delivery=told)
            self.written += 1
            producer.poll(0.01)
        left = producer.flush(60)
        if left:
            self.failed.append(f"{left} records were not written")


class Campaign:
    def __init__(self, server, cycles, seed):
        self.server, self.cycles = server, cycles
        self.random = random.Random(seed)
        self.members, self.committers = [], []
        self.plain = [Record(f"plain-{n}") for n in range(PLAIN_GROUPS)]
        self.read = [Record(f"members-{kind}") for kind in KINDS]
        self.writer = None

    def begin(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        cluster.create(TOPIC, PARTITIONS)
        cluster.drop()
        self.writer = Writer(self.server.bootstrap)
        for record, settings in zip(self.read, KINDS.values(), strict=True):
            self.members += [Member(self.server.bootstrap, record, settings) for _ in range(2)]
        half = PLAIN_GROUPS // 2
        self.committers = [Committer(self.server.address(), g) for g in (self.plain[:half], self.plain[half:])]
        for thread in (self.writer, *self.members, *self.committers):
            thread.start()

    def going_on(self, seconds=90):
        """Every group with members, and the plain ones, commit once more."""
        before = {r.name: r.commits for r in (*self.read, *self.plain)}
        until = time.monotonic() + seconds
        while True:
            still = [r.name for r in (*self.read, *self.plain) if r.commits == before[r.name]]
            if not still:
                return
            assert time.monotonic() < until, f"no commit within {seconds} s of the start: {still}"
            self.broken()
            time.sleep(0.02)

    def broken(self):
        wrong = [r.violation for r in self.read if r.violation] + [m.error for m in self.members if m.error]
        assert not wrong and not self.writer.failed, (wrong, self.writer.failed[:3])

    def run(self):
        self.begin()
        self.going_on()
        for number in range(self.cycles):
            time.sleep(self.random.choice((0.02, 0.1, 0.3, 0.8)))
            self.server.kill()
            self.server.start()
            try:
                for record in (*self.read, *self.plain):
                    record.compare(self.server.address())
                self.going_on()
            except AssertionError as wrong:
                raise AssertionError(f"after cycle {number + 1}: {wrong}") from None
        return self.end()

    def end(self):
        for thread in (self.writer, *self.committers):
            thread.halt.set()
            thread.join(90)
        total = self.writer.written
        until = time.monotonic() + 60
        drained = lambda: all(set(r.next.values()) == {total} == set(r.acked.values()) for r in self.read)
        while not drained() and time.monotonic() < until:
            self.broken()
            time.sleep(0.05)
        self.broken()
        assert drained(), f"{total} were written to each: {[(r.name, r.next, r.acked) for r in self.read]}"
        self.halt_members()
        for record in (*self.read, *self.plain):
            record.compare(self.server.address())
        commits = sum(r.commits for r in (*self.read, *self.plain))
        again = sum(r.repeats for r in self.read)
        return (
            f"{self.cycles} cycles, {commits} acknowledged commits of {len(self.read) + len(self.plain)} groups, "
            f"{total * PARTITIONS} records read by {len(self.read)} groups, {again} of them again"
        )

    def halt_members(self):
        for m in self.members:
            m.halt.set()
        for m in self.members:
            m.join(60)

    def abandon(self):
        for thread in (self.writer, *self.members, *self.committers):
            if thread:
                thread.halt.set()


def checks(report, given, mode):
    def run():
        server = against(given.against, SETTINGS, mode=mode)
        campaign = Campaign(server, given.cycles, given.seed)
        try:
            return campaign.run()
        finally:
            campaign.abandon()
            server.__exit__()

    report.check(f"kill -9 under members that commit, {mode}, seed {given.seed}", run)
