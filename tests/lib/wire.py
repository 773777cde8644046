"""Connections that speak the Kafka protocol, whole or wrong, and a cluster seen by its leaders."""

import socket
import struct
import time

from schema import api_key, flexible, layout

CLIENT = b"oncilla-tests"


class Closed(Exception):
    """The broker closed the connection."""


class Silent(Exception):
    """Nothing came within the time given."""


def frame(body):
    return struct.pack(">i", len(body)) + body


class Connection:
    def __init__(self, address, seconds=20):
        self.socket = socket.create_connection(address, timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seconds = seconds
        self.correlation = 0

    def close(self):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def read(self, n):
        out = bytearray()
        while len(out) < n:
            try:
                more = self.socket.recv(n - len(out))
            except (ConnectionResetError, BrokenPipeError):
                raise Closed from None
            except TimeoutError:
                raise Silent from None
            if not more:
                raise Closed
            out += more
        return bytes(out)

    def answer(self, seconds=None):
        """The next frame: correlation id and what follows it."""
        self.socket.settimeout(seconds or self.seconds)
        size = struct.unpack(">i", self.read(4))[0]
        body = self.read(size)
        return struct.unpack(">i", body[:4])[0], body[4:]

    def request(self, name, version, value=None, raw=None, tags=None, client=CLIENT, correlation=None):
        """The bytes of a request, framed. `raw` replaces the encoded body."""
        self.correlation += 1
        correlation = self.correlation if correlation is None else correlation
        key = name if isinstance(name, int) else api_key(name)
        client_id = b"\xff\xff" if client is None else struct.pack(">h", len(client)) + client
        head = struct.pack(">hhi", key, version, correlation) + client_id
        if isinstance(name, str):
            if flexible(name + "Request", version):
                head += b"\0"
            if raw is None:
                raw = layout(name + "Request", version).encode(value or {}, tags)
        return frame(head + raw)

    def call(self, name, version, value=None, seconds=None, **more):
        """Sends a request and decodes its answer."""
        self.send(self.request(name, version, value, **more))
        correlation, body = self.answer(seconds)
        assert correlation == self.correlation, f"answer to {correlation}, asked {self.correlation}"
        return decode_answer(name, version, body)

    def quiet(self, seconds=0.3):
        """Whether nothing arrives for a while and the connection stays open."""
        self.socket.settimeout(seconds)
        try:
            self.read(1)
        except Silent:
            return True
        except Closed:
            return False
        return False


def decode_answer(name, version, body):
    at = 0
    if flexible(name + "Response", version) and name != "ApiVersions":
        assert body[0] == 0, "tags in the answer's header"
        at = 1
    return layout(name + "Response", version).decode(body, at)


class Cluster:
    """Requests by topic: finds leaders by Metadata and keeps one connection a node."""

    def __init__(self, address, seconds=20):
        self.boot = address
        self.seconds = seconds
        self.open = {}
        self.leaders = {}
        self.ids = {}

    def at(self, address=None):
        address = address or self.boot
        if address not in self.open:
            self.open[address] = Connection(address, self.seconds)
        return self.open[address]

    def drop(self):
        for connection in self.open.values():
            connection.close()
        self.open.clear()

    def call(self, name, version, value=None, **more):
        """To any node. A connection that broke is forgotten."""
        return self._call(self.boot, name, version, value, more)

    def _call(self, address, name, version, value, more):
        try:
            return self.at(address).call(name, version, value, **more)
        except Exception:
            if address in self.open:
                self.open.pop(address).close()
            raise

    def create(self, topic, partitions=1, **configs):
        pairs = [{"Name": k.replace("_", "."), "Value": str(v)} for k, v in configs.items()]
        spec = {"Name": topic, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": pairs}
        answer = self.call("CreateTopics", 7, {"Topics": [spec], "timeoutMs": 20000})
        code = answer["Topics"][0]["ErrorCode"]
        if code:
            raise AssertionError(f"CreateTopics {topic}: {code} {answer['Topics'][0]['ErrorMessage']}")
        self.find(topic, partitions, seconds=self.seconds)
        return topic

    def delete(self, topic):
        self.call("DeleteTopics", 6, {"Topics": [{"Name": topic}], "TimeoutMs": 20000})
        self.leaders = {k: v for k, v in self.leaders.items() if k[0] != topic}

    def find(self, topic, partitions=1, seconds=10):
        """Learns the leaders; waits for a topic that was created a moment ago."""
        until = time.monotonic() + seconds
        while True:
            answer = self.call("Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False})
            nodes = {b["NodeId"]: (b["Host"], b["Port"]) for b in answer["Brokers"]}
            found = answer["Topics"][0]
            led = [p for p in found["Partitions"] if p["LeaderId"] in nodes]
            if found["ErrorCode"] == 0 and len(led) >= partitions:
                self.ids[topic] = found["TopicId"]
                self.leaders.update({(topic, p["PartitionIndex"]): nodes[p["LeaderId"]] for p in led})
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{topic}: no leaders after {seconds} s: {found}")
            time.sleep(0.02)

    def leader(self, topic, partition=0):
        if (topic, partition) not in self.leaders and (topic, 0) not in self.leaders:
            self.find(topic)
        return self.leaders.get((topic, partition)) or self.leaders[(topic, 0)]

    def to_leader(self, topic, partition, name, version, value, **more):
        return self._call(self.leader(topic, partition), name, version, value, more)

    def produce(self, topic, records, partition=0, version=9, acks=-1, timeout_ms=15000, transactional_id=None):
        """One batch to one partition; the answer of that partition."""
        entry = {"PartitionData": [{"Index": partition, "Records": records}]}
        entry.update({"TopicId": self.ids[topic]} if version >= 13 else {"Name": topic})
        value = {"TransactionalId": transactional_id, "Acks": acks, "TimeoutMs": timeout_ms, "TopicData": [entry]}
        answer = self.to_leader(topic, partition, "Produce", version, value)
        return answer["Responses"][0]["PartitionResponses"][0]

    def fetch(self, topic, offset=0, partition=0, version=12, max_bytes=1 << 20, wait_ms=500, isolation=0, **more):
        """One partition; its part of the answer."""
        part = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": max_bytes, **more}
        entry = {"Partitions": [part]}
        entry.update({"TopicId": self.ids[topic]} if version >= 13 else {"Topic": topic})
        value = {
            "MaxWaitMs": wait_ms,
            "MinBytes": 1,
            "MaxBytes": max_bytes,
            "IsolationLevel": isolation,
            "SessionEpoch": -1,
            "Topics": [entry],
        }
        answer = self.to_leader(topic, partition, "Fetch", version, value)
        return answer["Responses"][0]["Partitions"][0]

    def offset(self, topic, partition=0, timestamp=-1, version=5):
        part = {"PartitionIndex": partition, "Timestamp": timestamp}
        answer = self.to_leader(
            topic,
            partition,
            "ListOffsets",
            version,
            {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [part]}]},
        )
        return answer["Topics"][0]["Partitions"][0]["Offset"]

    def producer_id(self):
        until = time.monotonic() + 20
        while True:
            answer = self.call("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 60000})
            # 14: no block of ids yet, just after a start (contract B2.3).
            if answer["ErrorCode"] != 14 or time.monotonic() > until:
                assert answer["ErrorCode"] == 0, answer
                return answer["ProducerId"], answer["ProducerEpoch"]
            time.sleep(0.05)
