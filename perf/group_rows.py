"""Groups for perf/compare: how long 100 members take to settle, and how long a commit takes at 1,000 a second.

oncilla-perf commits. The members are raw requests from one loop in one thread, so that both sides meet the same
client. A member of a classic group hears of a rebalance by its heartbeat, every 50 ms here; a member of a consumer group
moves on at each of its own.
"""

import selectors
import statistics
import time

from disk_floor import Floor
from own_tool import loaded
from wire import Cluster, Connection, decode_answer

from groups import Group, assignment, subscription

MEMBERS = 100
BEAT_S = 0.05
COMMITS_PER_SECOND = 1000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


class Loop:
    """Connections that each have at most one request out; `talk` runs until `settled` says so."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.connections = []

    def add(self, address, member):
        connection = Connection(address)
        self.connections.append(connection)
        self.selector.register(connection.socket, selectors.EVENT_READ, (connection, member))
        return connection

    def talk(self, members, settled, seconds=120):
        for m in members:
            m.send()
        until = time.monotonic() + seconds
        while not settled():
            assert time.monotonic() < until, "the members do not settle"
            for key, _ in self.selector.select(0.005):
                connection, member = key.data
                member.answered(connection.answer()[1])
            now = time.monotonic()
            for m in members:
                if m.due and m.due <= now:
                    m.due = 0
                    m.send()

    def close(self):
        for connection in self.connections:
            connection.close()
        self.selector.close()


class Classic:
    """JoinGroup, SyncGroup, then heartbeats; back to JoinGroup when a rebalance is told."""

    def __init__(self, loop, group, topic, number):
        self.connection = loop.add(group.address, self)
        self.group, self.topic = group.name, topic
        self.id, self.generation, self.step, self.due = "", -1, "JoinGroup", 0
        self.stable, self.members = -1, None

    def send(self):
        value = {"GroupId": self.group, "MemberId": self.id, "GenerationId": self.generation}
        if self.step == "JoinGroup":
            protocols = [{"Name": "range", "Metadata": subscription([self.topic])}]
            value = {k: v for k, v in value.items() if k != "GenerationId"}
            value.update({"SessionTimeoutMs": 45000, "RebalanceTimeoutMs": 60000, "Protocols": protocols})
            value["ProtocolType"] = "consumer"
        elif self.step == "SyncGroup":
            given = [{"MemberId": m, "Assignment": assignment({self.topic: [n]})} for n, m in enumerate(self.members)]
            value.update({"ProtocolType": "consumer", "ProtocolName": "range", "Assignments": given})
        self.version = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4}[self.step]
        self.connection.send(self.connection.request(self.step, self.version, value))

    def answered(self, body):
        got = decode_answer(self.step, self.version, body)
        code = got["ErrorCode"]
        if self.step == "JoinGroup":
            self.id = got["MemberId"]
            if code == 0:
                self.generation, self.step = got["GenerationId"], "SyncGroup"
                self.members = [m["MemberId"] for m in got["Members"]]
            else:
                assert code == 79, got
            self.send()
            return
        if code in (22, 27):
            self.step, self.stable = "JoinGroup", -1
            self.send()
            return
        assert code == 0, got
        self.step, self.stable = "Heartbeat", self.generation
        self.due = time.monotonic() + BEAT_S


class Consumer:
    """ConsumerGroupHeartbeat with what it owns, at once after a change and else every 50 ms."""

    def __init__(self, loop, group, topic, number):
        self.connection = loop.add(group.address, self)
        self.group, self.topic, self.id = group.name, topic, f"member-{number:03}"
        self.epoch, self.owned, self.due, self.stable = 0, [], 0, -1

    def send(self):
        value = {"GroupId": self.group, "MemberId": self.id, "MemberEpoch": self.epoch, "TopicPartitions": self.owned}
        if self.epoch == 0:
            value.update({"RebalanceTimeoutMs": 60000, "SubscribedTopicNames": [self.topic]})
        self.connection.send(self.connection.request("ConsumerGroupHeartbeat", 1, value))

    def answered(self, body):
        got = decode_answer("ConsumerGroupHeartbeat", 1, body)
        assert got["ErrorCode"] == 0, got
        changed = got["Assignment"] is not None
        if changed:
            self.owned = got["Assignment"]["TopicPartitions"]
        self.epoch = got["MemberEpoch"]
        self.stable = self.epoch if sum(len(p["Partitions"]) for p in self.owned) == 1 else -1
        self.due = time.monotonic() + (0 if changed else BEAT_S)


def settle(side, kind):
    """Milliseconds from the first join until all members are in one generation or epoch and hold one partition each."""
    with side.start(SETTINGS) as server:
        topic = side.topic(server, MEMBERS)
        offsets_durable(side, server)
        took = []
        for turn in range(3):
            group = Group(server.address(), f"settle-{turn}")
            loop = Loop()
            members = [kind(loop, group, topic, n) for n in range(MEMBERS)]
            began = time.monotonic()
            loop.talk(members, lambda ms=members: ms[0].stable >= 0 and len({m.stable for m in ms}) == 1)
            took.append((time.monotonic() - began) * 1000)
            loop.close()
            group.end()
        # The first turn warms up.
        return statistics.median(took[1:])


def offsets_durable(side, server):
    """Kafka flushes its topic of offsets after each write, on the side that is compared as durable."""
    Group(server.address(), "warm-up").end()
    flush_each_write(side, server, "__consumer_offsets")


def flush_each_write(side, server, topic):
    """Kafka flushes this topic of its own after each write, on the side that is compared as durable."""
    if side.name != "kafka fsync":
        return
    cluster = Cluster(server.address())
    change = [{"Name": "flush.messages", "ConfigOperation": 0, "Value": "1"}]
    value = {"Resources": [{"ResourceType": 2, "ResourceName": topic, "Configs": change}]}
    answer = cluster.call("IncrementalAlterConfigs", 1, value)["Responses"][0]
    assert answer["ErrorCode"] == 0, answer
    cluster.drop()
    time.sleep(0.5)


def joins(side, _):
    label = f"G1 {MEMBERS} members join and settle,"
    return {f"{label} {n} (ms, less)": settle(side, k) for n, k in (("classic", Classic), ("KIP-848", Consumer))}


def commits(side, scaled):
    """16 groups take turns; each commit is one offset, and its time counts from when it was due."""
    with side.start(SETTINGS) as server:
        topic = side.topic(server, 1)
        offsets_durable(side, server)
        floor = Floor(server.data)
        length = ("--seconds", scaled(10, 4), "--warmup-seconds", scaled(3, 2))
        times = loaded(server, "offsets", "--topic", topic, "--rate", COMMITS_PER_SECOND, *length)["offset_commit"]
        rows = {}
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            rows[f"G2 OffsetCommit at {COMMITS_PER_SECOND:,}/s, {name} (us, less)"] = times[name]
            rows[f"G2 a durable 4 KiB write beside it, {name} (us)"] = floor.micros(share)
        return rows


IDLE_GROUPS = 10_000


def idle(side, scaled):
    """Memory of groups that have committed one offset each and have no members."""
    with side.start(SETTINGS) as server:
        topic = side.topic(server, 4)
        offsets_durable(side, server)
        value = {"GenerationIdOrMemberEpoch": -1, "Topics": [{"Name": topic, "Partitions": [
            {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]}]}
        count = scaled(IDLE_GROUPS, 1000)
        finder, connections = Connection(server.address()), {}

        def commit(name):
            found = finder.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [name]})["Coordinators"][0]
            at = (found["Host"], found["Port"])
            connection = connections.get(at) or connections.setdefault(at, Connection(at))
            answer = connection.call("OffsetCommit", 9, {"GroupId": name, **value})
            assert answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0, answer

        # What the first groups bring along is no cost of a group.
        for n in range(200):
            commit(f"first-{n}")
        before = server.rss_kib()
        for n in range(count):
            commit(f"idle-{n}")
        time.sleep(1)
        return {f"G4 memory of {IDLE_GROUPS:,} idle groups (MiB, less)":
                (server.rss_kib() - before) / 1024 * IDLE_GROUPS / count}
