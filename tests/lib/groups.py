"""Members of groups that speak raw requests: classic ones, and those of KIP-848. Answers come back without what differs
from run to run: member ids become the labels of their members, messages become "said".
"""

import re
import select
import struct
import time

from schema import layout
from wire import Connection

UUID = re.compile(r"^(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.S)
# Names of the oracle itself are as long as some ids.
BASE64 = re.compile(r"^(?!oracle-)[A-Za-z0-9_-]{22}$")
# What a broker says while it does not know yet where a group lives, or loads it.
UNSETTLED = (14, 15, 16)


def subscription(topics, version=3, owned=None, data=None, generation=-1):
    """What a classic member of type `consumer` says it wants and has."""
    held = [{"Topic": t, "Partitions": p} for t, p in (owned or {}).items()]
    value = {"Topics": topics, "UserData": data, "OwnedPartitions": held, "GenerationId": generation}
    return struct.pack(">h", version) + layout("ConsumerProtocolSubscription", version).encode(value)


def assignment(parts, version=3, data=None):
    """The bytes of {topic: partitions} as a leader sends them."""
    value = {"AssignedPartitions": [{"Topic": t, "Partitions": p} for t, p in parts.items()], "UserData": data}
    return struct.pack(">h", version) + layout("ConsumerProtocolAssignment", version).encode(value)


def assigned(data):
    """{topic: partitions} out of a classic member's assignment."""
    if not data:
        return {}
    version = struct.unpack(">h", data[:2])[0]
    value = layout("ConsumerProtocolAssignment", version).decode(data, 2)
    return {p["Topic"]: sorted(p["Partitions"]) for p in sorted(value["AssignedPartitions"], key=lambda p: p["Topic"])}


def as_asked(topics, asked, ids=None):
    """Partitions of each topic of an answer in the order of {topic: partitions}, which brokers need not keep."""
    names = {(ids or {}).get(t, bytes(16)): t for t in asked}
    name = lambda t: t.get("Name") or names.get(t.get("TopicId"))
    place = lambda of, what: list(of).index(what) if what in of else len(of)
    topics = sorted(topics, key=lambda t: place(asked, name(t)))
    return [sorted(t["Partitions"], key=lambda p: place(asked.get(name(t), ()), p["PartitionIndex"])) for t in topics]


class Parked:
    """A request on a connection of its own, which the broker may answer much later."""

    def __init__(self, address, name, version, value, seconds=10):
        self.name, self.version = name, version
        self.connection = Connection(address, seconds)
        self.connection.send(self.connection.request(name, version, value))
        self.got = None

    def waits(self, seconds=0.25):
        return self.got is None and not select.select([self.connection.socket], [], [], seconds)[0]

    def answer(self, seconds=10):
        from wire import decode_answer

        if self.got is None:
            self.got = decode_answer(self.name, self.version, self.connection.answer(seconds)[1])
            self.connection.close()
        return self.got


class Group:
    """One group, talked to where its coordinator is."""

    def __init__(self, address, name):
        self.boot, self.name = address, name
        self.labels = {}
        self.parked = []
        self.topics = {}
        self.others = {}
        self.address = self.find(name)
        self.connection = Connection(self.address)

    def find(self, name, seconds=30):
        """Address of a group's coordinator."""
        until = time.monotonic() + seconds
        while True:
            connection = Connection(self.boot)
            try:
                value = {"KeyType": 0, "CoordinatorKeys": [name]}
                found = connection.call("FindCoordinator", 4, value)["Coordinators"][0]
                if found["ErrorCode"] == 0:
                    address = found["Host"], found["Port"]
                    if self.settled(address, name):
                        return address
            finally:
                connection.close()
            if time.monotonic() > until:
                raise TimeoutError(f"no coordinator of {name!r} after {seconds} s: {found}")
            time.sleep(0.05)

    def settled(self, address, name):
        connection = Connection(address)
        try:
            got = connection.call("DescribeGroups", 5, {"Groups": [name]})["Groups"][0]["ErrorCode"]
            return got not in UNSETTLED
        finally:
            connection.close()

    def again(self):
        """After a restart of the broker: new connections."""
        self.end()
        self.address = self.find(self.name)
        self.connection = Connection(self.address)

    def at(self, name):
        """A connection to the coordinator of a group, which a request may name in place of this one."""
        if name == self.name:
            return self.connection
        if name not in self.others:
            self.others[name] = Connection(self.find(name))
        return self.others[name]

    def call(self, name, version, value=None, seconds=10):
        given = {"GroupId": self.name, **(value or {})}
        return self.at(given["GroupId"]).call(name, version, given, seconds)

    def park(self, name, version, value):
        self.parked.append(Parked(self.address, name, version, {"GroupId": self.name, **value}))
        # Requests of different connections have no order; this one shall be seen before the next.
        self.parked[-1].waits(0.03)
        return self.parked[-1]

    def end(self):
        for connection in (self.connection, *self.others.values(), *(p.connection for p in self.parked)):
            connection.close()
        self.others.clear()
        self.parked.clear()

    def label(self, member_id, label):
        if member_id:
            self.labels[member_id] = label

    def topic(self, label, name, topic_id):
        """Lets answers name a topic by a label."""
        self.topics[name] = self.topics[topic_id] = label
        return name

    def tidy(self, value):
        """An answer without times and ids."""
        if isinstance(value, dict):
            return {k: self._field(k, v) for k, v in value.items() if k != "ThrottleTimeMs"}
        if isinstance(value, list):
            return sorted((self.tidy(v) for v in value), key=str) if value and isinstance(value[0], dict) else value
        return self._word(value)

    def _field(self, name, value):
        if name == "ErrorMessage":
            return value if value is None else "said"
        if name == "TopicId":
            return self.topics.get(value, value)
        if name == "SubscribedTopicNames":
            return sorted(map(self._word, value))
        return self.tidy(value)

    def _word(self, value):
        if not isinstance(value, str):
            return value
        if value in self.labels:
            return self.labels[value]
        if value == self.name:
            return "the group"
        if value in self.topics:
            return self.topics[value]
        named = UUID.match(value)
        return f"{named[1]}-<uuid>" if named else "<base64>" if BASE64.match(value) else value

    # Requests of nobody in particular.

    def describe(self, version=5, **more):
        """The group as DescribeGroups tells it."""
        got = self.connection.call("DescribeGroups", version, {"Groups": [self.name], **more})["Groups"][0]
        return self.tidy(got)

    def state(self):
        return self.describe()["GroupState"]

    def describe_consumer(self, version=1, **more):
        got = self.connection.call("ConsumerGroupDescribe", version, {"GroupIds": [self.name], **more})["Groups"][0]
        return self.tidy(got)

    def epochs(self):
        """State, group epoch, assignment epoch."""
        got = self.describe_consumer()
        return [got["GroupState"], got["GroupEpoch"], got["AssignmentEpoch"]]

    def commit(self, parts, version=9, member="", generation=-1, instance=None, retention=-1, ids=None):
        """Codes of {topic: {partition: offset or (offset, metadata) or (offset, metadata, leader epoch)}}."""
        topics = []
        for topic, offsets in parts.items():
            rows = []
            for partition, what in offsets.items():
                offset, metadata, epoch = (*(what if isinstance(what, tuple) else (what,)), "", -1)[:3]
                if isinstance(what, tuple) and len(what) == 2:
                    epoch = -1
                row = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}
                rows.append({**row, "CommittedLeaderEpoch": epoch})
            topics.append({"Name": topic, "TopicId": (ids or {}).get(topic, bytes(16)), "Partitions": rows})
        value = {"GenerationIdOrMemberEpoch": generation, "MemberId": member, "GroupInstanceId": instance}
        value.update({"Topics": topics, "RetentionTimeMs": retention})
        got = self.call("OffsetCommit", version, value)
        return [[p["ErrorCode"] for p in partitions] for partitions in as_asked(got["Topics"], parts, ids)]

    def fetch(self, topics=None, version=9, member=None, epoch=-1, stable=False):
        """Code and [topic, partition, code, offset, leader epoch, metadata] of {topic: partitions}, or of all."""
        asked = topics and [{"Name": t, "PartitionIndexes": p} for t, p in topics.items()]
        if version < 8:
            got = self.call("OffsetFetch", version, {"Topics": asked, "RequireStable": stable})
        else:
            one = {"GroupId": self.name, "MemberId": member, "MemberEpoch": epoch, "Topics": asked}
            value = {"Groups": [one], "RequireStable": stable}
            got = self.connection.call("OffsetFetch", version, value)["Groups"][0]
        rows = [
            [self._word(t["Name"]), p["PartitionIndex"], p["ErrorCode"], p["CommittedOffset"]]
            + [p.get("CommittedLeaderEpoch"), p["Metadata"]]
            for t in got["Topics"]
            for p in t["Partitions"]
        ]
        return [got.get("ErrorCode"), sorted(rows)]

    def delete(self, version=2):
        return self.connection.call("DeleteGroups", version, {"GroupsNames": [self.name]})["Results"][0]["ErrorCode"]

    def member(self, label, *topics, **more):
        return Classic(self, label, *topics, **more)

    def consumer(self, label, *topics, **more):
        return Consumer(self, label, *topics, **more)


class Classic:
    """A member that uses JoinGroup."""

    def __init__(self, group, label, topics=(), v=9, instance=None, protocols=None, kind="consumer", **more):
        self.group, self.label, self.v, self.instance, self.kind = group, label, v, instance, kind
        self.protocols = protocols or [("range", subscription(list(topics)))]
        self.session, self.rebalance = more.pop("session", 30000), more.pop("rebalance", 30000)
        assert not more, more
        self.id, self.generation, self.name = "", -1, self.protocols[0][0] if self.protocols else ""
        self.leader = False

    def ask_join(self, **more):
        value = {
            "SessionTimeoutMs": self.session,
            "RebalanceTimeoutMs": self.rebalance,
            "MemberId": self.id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.kind,
            "Protocols": [{"Name": n, "Metadata": m} for n, m in self.protocols],
        }
        return {**value, **more}

    def join(self, **more):
        """Parks a JoinGroup; a dynamic newcomer asks for its member id first."""
        if not self.id and self.instance is None and self.v >= 4:
            got = self.group.call("JoinGroup", self.v, self.ask_join())
            assert got["ErrorCode"] == 79, got
            self.id = got["MemberId"]
            self.group.label(self.id, self.label)
        return self.group.park("JoinGroup", self.v, self.ask_join(**more))

    def took(self, answer):
        """Keeps what an answer to JoinGroup said."""
        if answer["ErrorCode"] == 0:
            self.id, self.generation, self.name = answer["MemberId"], answer["GenerationId"], answer["ProtocolName"]
            self.leader = answer["Leader"] == self.id
            self.group.label(self.id, self.label)
        return answer

    def joined(self, parked=None, seconds=10):
        """The answer to a join, in full."""
        answer = self.took((parked or self.join()).answer(seconds))
        return self.group.tidy(answer)

    def ask_sync(self, given=None, **more):
        listed = [{"MemberId": m.id, "Assignment": data} for m, data in (given or {}).items()]
        value = {
            "GenerationId": self.generation,
            "MemberId": self.id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.kind,
            "ProtocolName": self.name,
            "Assignments": listed,
        }
        return {**value, **more}

    def sync(self, given=None, **more):
        return self.group.park("SyncGroup", min(self.v, 5), self.ask_sync(given, **more))

    def synced(self, given=None, **more):
        """[code, bytes of the assignment as text]."""
        got = self.sync(given, **more).answer()
        return [got["ErrorCode"], got["Assignment"].decode("latin-1")]

    def beat(self, **more):
        value = {"GenerationId": self.generation, "MemberId": self.id, "GroupInstanceId": self.instance, **more}
        return self.group.call("Heartbeat", min(self.v, 4), value)["ErrorCode"]

    def leave(self, by_instance=True):
        entry = {"MemberId": self.id, "GroupInstanceId": self.instance if by_instance else None}
        got = self.group.call("LeaveGroup", 5, {"Members": [entry]})
        return got["ErrorCode"] or got["Members"][0]["ErrorCode"]

    def commit(self, parts, version=9, **more):
        given = {"member": self.id, "generation": self.generation, "instance": self.instance, **more}
        return self.group.commit(parts, version, **given)


def settle_members(*members, give=None):
    """Brings members of one group into one Stable generation; the first of a new group leads. Returns the leader."""
    first = members[0]
    if first.generation < 0:
        first.joined()
    if len(members) > 1:
        rest = [(m, m.join()) for m in members[1:]]
        rest.append((first, first.join()))
        for m, parked in rest:
            answer = m.took(parked.answer())
            assert answer["ErrorCode"] == 0, answer
    leader = next(m for m in members if m.leader)
    give = give or {m: f"for {m.label}".encode() for m in members}
    parked = [m.sync() for m in members if m is not leader]
    parked.append(leader.sync(give))
    for request in parked:
        assert request.answer()["ErrorCode"] == 0, request.answer()
    return leader


class Consumer:
    """A member that uses ConsumerGroupHeartbeat; it chooses its own member id, as version 1 asks."""

    def __init__(
        self, group, label, topics=None, v=1, instance=None, regex=None, assignor=None, rebalance=30000, id=None
    ):
        self.group, self.label, self.v, self.instance = group, label, v, instance
        self.topics, self.regex, self.assignor, self.rebalance = topics, regex, assignor, rebalance
        self.id = f"member-{label}" if id is None else id
        group.label(self.id, label)

    def ask(self, epoch, owned=None, **more):
        """The raw answer. `owned`: {topic id: partitions}."""
        held = None if owned is None else [{"TopicId": t, "Partitions": p} for t, p in owned.items()]
        value = {"MemberId": self.id, "MemberEpoch": epoch, "InstanceId": self.instance, "TopicPartitions": held}
        if epoch == 0:
            value.update({"TopicPartitions": held or [], "RebalanceTimeoutMs": self.rebalance})
            value.update({"SubscribedTopicNames": self.topics, "ServerAssignor": self.assignor})
            value["SubscribedTopicRegex"] = self.regex
        value.update(more)
        return self.group.call("ConsumerGroupHeartbeat", self.v, value)

    def beat(self, epoch, owned=None, **more):
        """[code, epoch, assignment]: null, or {topic: partitions}."""
        return self.told(self.ask(epoch, owned, **more))

    def told(self, got):
        parts = got["Assignment"]
        if parts is not None:
            rows = parts["TopicPartitions"]
            parts = {str(self.group.topics.get(r["TopicId"], r["TopicId"])): sorted(r["Partitions"]) for r in rows}
        return [got["ErrorCode"], got["MemberEpoch"], parts]

    def leave(self, epoch=-1):
        return self.beat(epoch)

    def commit(self, parts, epoch, version=9, **more):
        return self.group.commit(parts, version, **{"member": self.id, "generation": epoch, **more})
