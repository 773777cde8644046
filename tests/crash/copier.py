"""Kafka's system test of exactly-once in small: copiers in transactions under kill -9 of them and of the broker.

TransactionalMessageCopier of Kafka's tools copies a topic, with random aborts: once one copier for each partition, once
two in a group. What a read_committed consumer then finds in the copies is the original, each record once and in order.
"""

import json
import os
import random
import subprocess
import threading
import time

from groups import Group
from servers import PEER, against
from wire import Cluster

PARTITIONS = 2
INPUT = "copier-input"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
END_SECONDS = 150
# Many short lives: they start sooner without the second compiler.
JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class Copier:
    """A copier that is started again until it has nothing left to copy."""

    def __init__(self, bootstrap, name, group_mode, partition, size):
        self.name, self.group_mode = name, group_mode
        self.output = "copier-group" if group_mode else "copier-output"
        more = ("--group-mode", "--use-group-metadata") if group_mode else ()
        self.command = [str(PEER), "tool", COPIER, "--broker-list", bootstrap, "--input-topic", INPUT]
        self.command += ["--input-partition", str(partition), "--output-topic", self.output]
        self.command += ["--transactional-id", name, "--consumer-group", f"g-{self.output}"]
        self.command += ["--transaction-size", str(size), "--transaction-timeout", "20000", "--enable-random-aborts"]
        self.command += more
        self.runs, self.done, self.fell = 0, False, []
        self.start()

    def start(self):
        self.runs += 1
        pipe, env = subprocess.PIPE, {**os.environ, **JVM}
        self.process = subprocess.Popen(self.command, stdout=pipe, stderr=pipe, text=True, env=env)
        self.processed, self.errors = 0, []
        self.readers = [
            threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self.read_errors, args=(self.process.stderr, self.errors), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read(self, out):
        for line in out:
            if line.startswith("{") and line.endswith("}\n"):
                self.processed = max(self.processed, int(json.loads(line).get("totalProcessed", 0)))

    def read_errors(self, err, errors):
        for line in err:
            errors.append(line)
            del errors[:-40]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def look(self):
        """Starts it again if it ended before its work did. One that says what went wrong may do so, now and then."""
        code = self.process.poll()
        if code is None or self.done:
            return
        for reader in self.readers:
            reader.join(10)
        self.done = code == 0
        if code != 0:
            if code > 0:
                self.fell.append("".join(self.errors)[-600:])
            self.start()


class Campaign:
    def __init__(self, server, kills, records, size, seed):
        self.server, self.kills, self.records, self.size = server, kills, records, size
        self.random = random.Random(seed)
        self.copiers = []
        self.counts = {"broker": 0, "copier": 0}

    def run(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        for topic in (INPUT, "copier-output", "copier-group"):
            cluster.create(topic, PARTITIONS)
        cluster.drop()
        fill(self.server.bootstrap, self.records)
        address = self.server.bootstrap
        self.copiers = [Copier(address, f"copier-{p}", False, p, self.size) for p in range(PARTITIONS)]
        self.copiers += [Copier(address, f"member-{n}", True, 0, self.size) for n in range(2)]
        for number in range(self.kills):
            self.copy_on()
            if number % 2 == 0:
                self.server.kill()
                self.counts["broker"] += 1
                time.sleep(self.random.choice((0, 0.2, 0.5)))
                self.server.start()
            if self.random.random() < 0.5 or number % 2:
                self.random.choice(self.copiers).kill()
                self.counts["copier"] += 1
        self.wait("all is copied", self.all_is_copied, END_SECONDS)
        return self.end()

    def all_is_copied(self):
        if not all(c.done for c in self.copiers):
            return False
        group = Group(self.server.address(), "g-copier-group")
        rows = group.fetch({INPUT: list(range(PARTITIONS))}, stable=True)[1]
        group.end()
        if all(offset == self.records for _, _, _, offset, *_ in rows):
            return True
        # A member that is given nothing, beside one that died and is not missed yet, ends as if all were copied.
        member = next(c for c in self.copiers if c.group_mode)
        member.done = False
        member.start()
        return False

    def wait(self, what, holds, seconds):
        until = time.monotonic() + seconds
        while not holds():
            for copier in self.copiers:
                copier.look()
                assert len(copier.fell) < 4, f"{copier.name} fell {len(copier.fell)} times: {copier.fell[-1]}"
            told = [(c.name, c.runs, c.processed, "".join(c.errors)[-300:]) for c in self.copiers if not c.done]
            assert time.monotonic() < until, f"{what}: not within {seconds} s: {told}"
            time.sleep(0.05)

    def copy_on(self):
        """Something is copied, so that the next kill falls into work."""
        before = [(c.runs, c.processed) for c in self.copiers]
        more = lambda: any(
            c.done or (c.runs == runs and c.processed > had)
            for c, (runs, had) in zip(self.copiers, before, strict=True)
        )
        self.wait("something is copied", more, 60)
        time.sleep(self.random.random())

    def end(self):
        original = read(self.server.bootstrap, INPUT, "read_uncommitted")
        assert sum(map(len, original.values())) == self.records * PARTITIONS
        for topic in ("copier-output", "copier-group"):
            copy = read(self.server.bootstrap, topic, "read_committed")
            assert copy == original, f"{topic}: {difference(copy, original)}"
        fell = sum(len(c.fell) for c in self.copiers)
        c, again = self.counts, sum(c.runs - 1 for c in self.copiers)
        return (
            f"{c['broker']} kills of the broker, {c['copier']} of copiers, {again} started again, {fell} of them after "
            f"an error; {2 * self.records * PARTITIONS} records copied once, in order"
        )

    def abandon(self):
        for copier in self.copiers:
            if copier.process.poll() is None:
                copier.kill()


def difference(copy, original):
    """What is wrong with a copy, shortly."""
    out = []
    for partition, want in original.items():
        got = copy[partition]
        twice = sorted({v for v in got if got.count(v) > 1})[:3] if len(set(got)) < len(got) else []
        lost = sorted(set(want) - set(got))[:3]
        out.append(f"{partition}: {len(got)} of {len(want)}, twice {twice}, lost {lost}, order {got == sorted(got)}")
    return out


def fill(bootstrap, records):
    from confluent_kafka import Producer

    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(records):
        for partition in range(PARTITIONS):
            value = f"{partition}:{number:08}"
            producer.produce(INPUT, value, partition=partition, on_delivery=lambda e, _: e and failed.append(e))
            producer.poll(0)
    assert producer.flush(60) == 0 and not failed, failed[:3]


def read(bootstrap, topic, isolation):
    """{partition: [value]} up to the end offsets. At the level of committed records every transaction must be ended."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({**given, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    parts = [TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
    consumer.assign(parts)
    cluster = Cluster(tuple_of(bootstrap))
    cluster.find(topic, PARTITIONS)
    ends = {p: cluster.offset(topic, p) for p in range(PARTITIONS)}
    cluster.drop()
    out, until = {p: [] for p in range(PARTITIONS)}, time.monotonic() + 60
    while any(p.offset < ends[p.partition] for p in consumer.position(parts)):
        for m in consumer.consume(1000, 0.2):
            assert not m.error(), m.error()
            out[m.partition()].append(m.value().decode())
        assert time.monotonic() < until, f"{topic}: stuck at {consumer.position(parts)}, the ends are {ends}"
    consumer.close()
    return out


def tuple_of(bootstrap):
    host, port = bootstrap.rsplit(":", 1)
    return host, int(port)


def checks(report, given, mode):
    # One kill for five cycles: each costs the start of a JVM.
    kills = max(4, given.cycles // 5)

    def run():
        server = against(given.against, SETTINGS, mode=mode)
        campaign = Campaign(server, kills, 200 * kills, 10, given.seed)
        try:
            return campaign.run()
        finally:
            campaign.abandon()
            server.__exit__()

    report.check(f"kill -9 under transactional copiers, {mode}, seed {given.seed}", run)
