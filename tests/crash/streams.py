"""Kafka Streams with exactly_once_v2 under kill -9 of its instances and of the broker (F84).

Two instances count words over a repartition topic and a store with a changelog. What a read_committed consumer finds in
the output is, of each word, each count from 1 to the last, once and in order: so no word was lost, none was counted
twice, and no state went back. The changelog, which may be compacted, ends with the same counts, and the repartition
topic, from which Streams deletes what it has taken, brings no word twice.
"""

import os
import random
import shutil
import struct
import subprocess
import tempfile
import threading
import time

from servers import PEER, against
from transactions import HERE
from wire import Cluster

PARTITIONS = 2
APPLICATION, INPUT, OUTPUT = "word-count", "lines", "word-counts"
REPARTITION, CHANGELOG = f"{APPLICATION}-words-repartition", f"{APPLICATION}-counts-changelog"
WORDS = [f"w{n}" for n in range(12)]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
END_SECONDS = 120


class Instance:
    def __init__(self, server, number, store, directory):
        self.directory = f"{directory}/{number}"
        given = [server.bootstrap, APPLICATION, INPUT, OUTPUT, self.directory, store]
        classes = [str(PEER), "classes", str(HERE / "java" / "WordCount.java")]
        found = subprocess.run(classes, capture_output=True, text=True, check=True, timeout=120).stdout.strip()
        self.command, self.env = [str(PEER), "class", "WordCount", *given], {**os.environ, "PEER_CLASSES": found}
        self.runs, self.errors = 0, []
        self.start()

    def start(self):
        self.runs += 1
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env
        )
        self.states, self.said = [], []
        self.readers = [
            threading.Thread(target=self.read, args=(self.process.stdout, self.states), daemon=True),
            threading.Thread(target=self.read_errors, args=(self.process.stderr, self.said), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read(self, out, states):
        for line in out:
            if line.startswith("state "):
                states.append(line.split()[1])
            elif line.startswith("failed "):
                self.errors.append(line.strip())

    def read_errors(self, err, said):
        for line in err:
            said.append(line)
            del said[:-60]

    def kill(self):
        self.process.kill()
        self.process.wait()


class Writer(threading.Thread):
    """Writes lines of words until told to stop, and counts the words."""

    def __init__(self, bootstrap, seed):
        super().__init__(daemon=True)
        self.bootstrap, self.random = bootstrap, random.Random(seed)
        self.halt, self.counts, self.failed = threading.Event(), dict.fromkeys(WORDS, 0), []

    def run(self):
        from confluent_kafka import Producer

        given = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
        producer = Producer({**given, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 600_000})
        told = lambda error, _: error and self.failed.append(str(error))
        number = 0
        while not self.halt.wait(0.01):
            words = self.random.choices(WORDS, k=3)
            producer.produce(INPUT, " ".join(words), partition=number % PARTITIONS, on_delivery=told)
            producer.poll(0)
            number += 1
            for word in words:
                self.counts[word] += 1
        left = producer.flush(60)
        if left:
            self.failed.append(f"{left} lines were not written")


class Campaign:
    def __init__(self, server, kills, seed, store):
        self.server, self.kills, self.store = server, kills, store
        self.random = random.Random(seed)
        self.directory = tempfile.mkdtemp(prefix="oncilla-test-streams-")
        self.instances, self.writer = [], None
        self.counts = {"broker": 0, "instance": 0}

    def run(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        cluster.create(INPUT, PARTITIONS)
        cluster.create(OUTPUT, PARTITIONS)
        cluster.drop()
        self.writer = Writer(self.server.bootstrap, self.random.random())
        self.writer.start()
        self.instances = [Instance(self.server, n, self.store, self.directory) for n in range(2)]
        self.wait("both instances run", lambda: all(i.states[-1:] == ["RUNNING"] for i in self.instances), 90)
        for number in range(self.kills):
            self.going_on()
            time.sleep(self.random.random())
            if number % 2 == 0:
                self.random.choice(self.instances).kill()
                self.counts["instance"] += 1
            else:
                self.server.kill()
                self.counts["broker"] += 1
                time.sleep(self.random.choice((0, 0.3)))
                self.server.start()
            for instance in self.instances:
                if instance.process.poll() is not None:
                    instance.start()
        self.going_on()
        return self.end()

    def going_on(self):
        """More is counted, so that the next kill falls into work."""
        had = self.written()
        self.wait("something is counted", lambda: self.written() > had, 90)

    def written(self):
        """The end of the output; committed or not does not matter here."""
        cluster = Cluster(self.server.address(), seconds=10)
        try:
            cluster.find(OUTPUT, PARTITIONS)
            return sum(cluster.offset(OUTPUT, p) for p in range(PARTITIONS))
        finally:
            cluster.drop()

    def wait(self, what, holds, seconds):
        until = time.monotonic() + seconds
        while not holds():
            self.look()
            said = [(i.runs, i.states[-3:], "".join(i.said)[-500:]) for i in self.instances]
            assert time.monotonic() < until, f"{what}: not within {seconds} s: {said}"
            time.sleep(0.1)

    def look(self):
        for instance in self.instances:
            said, code = "".join(instance.said)[-1500:], instance.process.poll()
            assert not instance.errors, f"a thread of Streams died: {instance.errors[:2]} {said}"
            assert code is None, f"an instance ended with {code}: {said}"
        assert not self.writer.failed, self.writer.failed[:3]

    def end(self):
        self.writer.halt.set()
        self.writer.join(90)
        self.look()
        want = self.writer.counts
        total, rows = sum(want.values()), []

        def all_counted():
            rows[:] = committed(self.server, OUTPUT)
            return len(rows) >= total

        self.wait(f"all {total} words are counted", all_counted, END_SECONDS)
        for instance in self.instances:
            instance.process.stdin.close()
        for instance in self.instances:
            instance.process.wait(60)
        rows = committed(self.server, OUTPUT)
        judge("the output", [(word, int(count)) for word, count in rows], want)
        changes = [(word, struct.unpack(">q", count)[0]) for word, count in committed(self.server, CHANGELOG)]
        assert dict(changes) == want, f"the changelog ends with {dict(changes)}, written were {want}"
        assert all(b > a for w in WORDS for a, b in pairs(changes, w)), "a count of the changelog went back"
        words = [value.decode() for _, value in committed(self.server, REPARTITION)]
        more = [w for w in WORDS if words.count(w) > want[w]]
        assert not more, f"the repartition topic has more of {more} than was written"
        c = self.counts
        return (
            f"{c['instance']} kills of instances, {c['broker']} of the broker, {total} words counted once, "
            f"store: {self.store}"
        )

    def abandon(self):
        if self.writer:
            self.writer.halt.set()
        for instance in self.instances:
            if instance.process.poll() is None:
                instance.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def pairs(changes, word):
    counts = [count for of, count in changes if of == word]
    return zip(counts, counts[1:], strict=False)


def judge(what, rows, want):
    """Of each word the counts are 1, 2, 3 and so on, up to how often it was written."""
    got = {word: [] for word in want}
    for word, count in rows:
        got[word].append(count)
    for word, counts in got.items():
        wrong = next((i for i, count in enumerate(counts) if count != i + 1), None)
        assert wrong is None, f"{what}: {word} went on with {counts[wrong : wrong + 5]} after {counts[:wrong][-5:]}"
        assert len(counts) == want[word], f"{what}: {word} was counted {len(counts)} times, and written {want[word]}"


def committed(server, topic, partitions=PARTITIONS):
    """[(key, value)] as a read_committed consumer finds them up to the last stable offsets."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**given, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0})
    cluster = Cluster(server.address())
    cluster.find(topic, partitions)
    ends = {}
    for p in range(partitions):
        ends[p] = cluster.fetch(topic, cluster.offset(topic, p), p, wait_ms=0)["LastStableOffset"]
    starts = {p: cluster.offset(topic, p, timestamp=-2) for p in ends}
    cluster.drop()
    parts = [TopicPartition(topic, p, start) for p, start in starts.items() if ends[p] > start]
    consumer.assign(parts)
    out, until = [], time.monotonic() + 60
    while any(p.offset < ends[p.partition] for p in consumer.position(parts)):
        for m in consumer.consume(1000, 0.1):
            assert not m.error(), m.error()
            out.append((m.key() and m.key().decode(), m.value()))
        assert time.monotonic() < until, f"{topic}: stuck at {consumer.position(parts)}, the ends are {ends}"
    consumer.close()
    return out


def checks(report, given, mode):
    # One kill for ten cycles: each costs a rebalance, and that of an instance the start of a JVM.
    kills = max(2, given.cycles // 10)

    def run():
        server = against(given.against, SETTINGS, mode=mode)
        campaign = Campaign(server, kills, given.seed, "rocksdb" if kills > 2 else "memory")
        try:
            return campaign.run()
        finally:
            campaign.abandon()
            server.__exit__()

    report.check(f"kill -9 under Streams, {mode}, seed {given.seed}", run)
