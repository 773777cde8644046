"""kill -9 while topics are created, written and deleted.

What was answered must hold after the next start: a created topic is there with its id, partitions, settings and every
acknowledged record; a deleted one is unknown, and no file of it is left. A topic that is created again under the same
name inherits nothing: neither records nor producers nor settings. What was asked and not answered may be either way,
but never in between.
"""

import os
import pathlib
import random
import threading
import time
from base64 import urlsafe_b64decode

from batches import batch
from load import BROKEN, Producer, faults, read_all
from servers import against
from wire import Cluster

NAMES_EACH = 3
CHANGERS = 3
UNKNOWN = 3
RETRIED = {3, 5, 6, 7, 14, 19}
LOAD = "load"


class Wrong(Exception):
    """The broker broke a promise."""


class Topic:
    """What one name must be: `gone`, `there`, `maybe created` or `maybe deleted`."""

    def __init__(self, name):
        self.name, self.state = name, "gone"
        self.life = 0
        self.reset()

    def reset(self):
        self.id = None
        self.partitions = 0
        self.retention_ms = None
        self.acked = {}  # partition: values in order
        self.asked = {}  # partition: sent and not answered

    def value(self, partition, number):
        return f"{self.name}/{self.life}/{partition}/{number}".encode()


class Changer(threading.Thread):
    """Creates, writes and deletes its own names until the connection breaks."""

    def __init__(self, address, topics, producer, seed):
        super().__init__(daemon=True)
        self.cluster = Cluster(address, seconds=10)
        self.topics, self.producer = topics, producer
        self.random = random.Random(seed)
        self.halt = threading.Event()
        self.wrong = None
        self.counts = {"created": 0, "deleted": 0, "batches": 0}

    def run(self):
        try:
            while not self.halt.is_set():
                topic = self.random.choice(self.topics)
                if topic.state == "gone":
                    self.create(topic)
                elif self.random.random() < 0.35:
                    self.delete(topic)
                else:
                    self.write(topic)
        except Wrong as what:
            self.wrong = str(what)
        except BROKEN:
            pass
        finally:
            self.cluster.drop()

    def create(self, topic):
        topic.reset()
        topic.life += 1
        topic.partitions = self.random.randint(1, 3)
        topic.retention_ms = self.random.choice((None, 3_600_000 + topic.life))
        configs = [{"Name": "retention.ms", "Value": str(topic.retention_ms)}] if topic.retention_ms else []
        spec = {
            "Name": topic.name,
            "NumPartitions": topic.partitions,
            "ReplicationFactor": 1,
            "Configs": configs,
        }
        topic.state = "maybe created"
        answer = self.cluster.call("CreateTopics", 7, {"Topics": [spec], "timeoutMs": 20000})["Topics"][0]
        if answer["ErrorCode"]:
            raise Wrong(f"{topic.name} is gone, yet creating it is answered with {answer['ErrorCode']}")
        topic.state, topic.id = "there", answer["TopicId"]
        self.counts["created"] += 1
        inherits_nothing(self.cluster, topic)

    def delete(self, topic):
        topic.state = "maybe deleted"
        answer = self.cluster.call("DeleteTopics", 6, {"Topics": [{"Name": topic.name}], "TimeoutMs": 20000})
        code = answer["Responses"][0]["ErrorCode"]
        if code:
            raise Wrong(f"{topic.name} is there, yet deleting it is answered with {code}")
        topic.state = "gone"
        self.counts["deleted"] += 1

    def write(self, topic):
        partition = self.random.randrange(topic.partitions)
        done, asked = topic.acked.setdefault(partition, []), topic.asked.setdefault(partition, [])
        count = self.random.choice((1, 3, 10))
        first = len(done) + len(asked)
        values = [topic.value(partition, first + i) for i in range(count)]
        pad = b"." * self.random.choice((0, 500, 20000))
        if asked:
            return  # the sequences behind an unanswered batch are not known
        asked += values
        pid, epoch = self.producer
        data = batch([v + pad for v in values], pid=pid, epoch=epoch, seq=first)
        part = self.cluster.produce(topic.name, data, partition)
        if part["ErrorCode"] in RETRIED:
            raise Wrong(f"{topic.name}/{partition} is there, yet a batch is answered with {part['ErrorCode']}")
        if part["ErrorCode"] or part["BaseOffset"] != first:
            raise Wrong(
                f"{topic.name}/{partition} life {topic.life}: sequence {first} got code {part['ErrorCode']}, "
                f"offset {part['BaseOffset']}"
            )
        asked.clear()
        done += values
        self.counts["batches"] += 1


def inherits_nothing(cluster, topic):
    cluster.leaders = {k: v for k, v in cluster.leaders.items() if k[0] != topic.name}
    cluster.find(topic.name, topic.partitions)
    if cluster.ids[topic.name] != topic.id:
        raise Wrong(f"{topic.name}: Metadata names another id than the answer of CreateTopics")
    for partition in range(topic.partitions):
        ends = [cluster.offset(topic.name, partition, timestamp) for timestamp in (-2, -1)]
        if ends != [0, 0]:
            raise Wrong(f"{topic.name}/{partition} is new and has offsets {ends}")
    same_settings(cluster, topic)


def same_settings(cluster, topic):
    ask = {"Resources": [{"ResourceType": 2, "ResourceName": topic.name, "ConfigurationKeys": ["retention.ms"]}]}
    row = cluster.call("DescribeConfigs", 4, ask)["Results"][0]["Configs"][0]
    own = int(row["Value"]) if row["ConfigSource"] == 1 else None
    if own != topic.retention_ms:
        raise Wrong(f"{topic.name} was created with retention.ms {topic.retention_ms} and has {own}")


def settle(cluster, topic):
    """Looks at a topic after a start; what was unknown becomes known, what was promised is required."""
    found = cluster.call("Metadata", 12, {"Topics": [{"Name": topic.name}], "AllowAutoTopicCreation": False})
    found = found["Topics"][0]
    is_there = found["ErrorCode"] == 0
    if not is_there and found["ErrorCode"] != UNKNOWN:
        raise Wrong(f"{topic.name}: Metadata answers {found['ErrorCode']} after a start")
    if topic.state == "gone" and is_there or topic.state == "there" and not is_there:
        raise Wrong(f"{topic.name} was {topic.state} before the kill and is not after it")
    if not is_there:
        topic.state = "gone"
        return
    if topic.state == "maybe created":
        topic.id = found["TopicId"]
    topic.state = "there"
    if found["TopicId"] != topic.id or len(found["Partitions"]) != topic.partitions:
        raise Wrong(f"{topic.name}: {len(found['Partitions'])} partitions of {topic.partitions}, or another id")
    same_settings(cluster, topic)
    for partition in range(topic.partitions):
        same_records(cluster, topic, partition)


def same_records(cluster, topic, partition):
    done, asked = topic.acked.get(partition, []), topic.asked.get(partition, [])
    log = list(read_all(cluster.boot, topic.name, partition).values())
    if log not in (done, done + asked):
        raise Wrong(
            f"{topic.name}/{partition} life {topic.life}: {len(done)} acknowledged, {len(asked)} unanswered, "
            f"{len(log)} in the log, first difference at {first_difference(log, done + asked)}"
        )
    topic.acked[partition], topic.asked[partition] = log, []


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def files_fit(server, cluster):
    """Every directory of a topic belongs to one that is there. Oncilla only: Kafka deletes a minute later."""
    known = {as_hex(t["TopicId"]) for t in cluster.call("Metadata", 12, {"Topics": None})["Topics"]}
    for entry in (server.data / "topics").iterdir():
        id_of = entry.name.rsplit(".", 1)[-1]
        try:
            raw = urlsafe_b64decode(id_of + "==")
        except ValueError:
            raise Wrong(f"{entry.name} is left in the data directory after a start") from None
        if raw.hex() not in known:
            raise Wrong(f"{entry.name} belongs to no topic that is there")


def as_hex(topic_id):
    return topic_id.hex() if isinstance(topic_id, bytes) else str(topic_id).replace("-", "")


def open_deleted_files(server):
    """Files that are gone from their directory and still held open."""
    held = []
    for link in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.endswith("(deleted)") and "/topics/" in target or ".deleted/" in target:
            held.append(target)
    return held


class Campaign:
    def __init__(self, target, mode, cycles, seed):
        self.server = against(target, mode=mode)
        self.target, self.cycles = target, cycles
        self.random = random.Random(seed)
        names = [f"t{c}-{n}" for c in range(CHANGERS) for n in range(NAMES_EACH)]
        self.topics = [Topic(name) for name in names]
        self.counts = {}

    def run(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        cluster.create(LOAD, 2, segment_bytes=1 << 20)
        producers = [cluster.producer_id() for _ in range(CHANGERS)]
        cluster.drop()
        load = [Producer(self.server.address(), LOAD, p, f"load{p}", 5, self.random.random()) for p in (0, 1)]
        for one in load:
            one.start()
        for number in range(self.cycles):
            try:
                self.cycle(producers)
            except Wrong as what:
                raise AssertionError(f"cycle {number + 1}: {what}") from None
        return self.end(load)

    def changers(self, producers):
        groups = [self.topics[c * NAMES_EACH : (c + 1) * NAMES_EACH] for c in range(CHANGERS)]
        return [
            Changer(self.server.address(), group, producer, self.random.random())
            for group, producer in zip(groups, producers)
        ]

    def cycle(self, producers):
        changers = self.changers(producers)
        for one in changers:
            one.start()
        time.sleep(self.random.choice((0.1, 0.3, 0.6, 1.0, 1.5)))
        self.server.kill()
        self.join(changers)
        self.server.start()
        self.look()

    def join(self, changers):
        for one in changers:
            one.join(30)
            if one.is_alive():
                raise Wrong("a request was not answered within 30 s")
            if one.wrong:
                raise Wrong(one.wrong)
            for key, count in one.counts.items():
                self.counts[key] = self.counts.get(key, 0) + count

    def look(self):
        cluster = Cluster(self.server.address())
        if self.target == "oncilla":
            files_fit(self.server, cluster)
        for topic in self.topics:
            settle(cluster, topic)
        cluster.drop()

    def end(self, load):
        """A last round without a kill: nothing of what was deleted is held open or left behind."""
        changers = self.changers([self.fresh_producer() for _ in range(CHANGERS)])
        for topic in self.topics:
            topic.asked = {}
        cluster = Cluster(self.server.address())
        for topic in self.topics:
            if topic.state == "there":
                cluster.delete(topic.name)
            topic.state = "gone"
        for one in changers:
            one.start()
        time.sleep(3)
        for one in changers:
            one.halt.set()
        self.join(changers)
        for topic in self.topics:
            if topic.state == "there":
                cluster.delete(topic.name)
        for one in load:
            one.halt.set()
        for one in load:
            one.join(60)
        logs = {p: read_all(self.server.address(), LOAD, p) for p in (0, 1)}
        wrong = faults(logs, load, {0: {}, 1: {}})
        assert not wrong, wrong
        if self.target == "oncilla":
            self.nothing_left(cluster)
        cluster.drop()
        created, deleted, written = (self.counts[k] for k in ("created", "deleted", "batches"))
        assert created and deleted and written, f"this run shows nothing: {self.counts}"
        records = sum(count for p in load for _, count, _ in p.acked)
        return (
            f"{self.cycles} kills, {created} topics created, {deleted} deleted, {written} batches written to them, "
            f"{records} records beside them all there once"
        )

    def fresh_producer(self):
        cluster = Cluster(self.server.address())
        producer = cluster.producer_id()
        cluster.drop()
        return producer

    def nothing_left(self, cluster):
        until = time.monotonic() + 10
        while True:
            held = open_deleted_files(self.server)
            entries = [e.name for e in (self.server.data / "topics").iterdir() if not e.name.startswith(LOAD + ".")]
            if not held and not entries:
                return
            assert time.monotonic() < until, f"held open: {held[:3]} of {len(held)}; left behind: {entries[:3]}"
            time.sleep(0.2)


def checks(report, given, mode):
    def run():
        campaign = Campaign(given.against, mode, given.cycles, given.seed)
        try:
            return campaign.run()
        finally:
            campaign.server.__exit__()

    report.check(f"kill -9 while topics come and go, {mode}, seed {given.seed}", run)
