"""Hostile bytes and habits against a running broker. After each, a good connection is served and memory is flat."""

import os
import random
import resource
import socket
import struct
import threading
import time

from batches import batch, record
from report import Skip, expect
from wire import Closed, Cluster, Connection, Silent, frame

MIB = 1024
SEED = int(os.environ.get("ONCILLA_ODD_SEED", "1"))


class Field:
    """The broker, a topic, and a good connection that must be served whatever the others do."""

    def __init__(self, server):
        self.server = server
        self.cluster = Cluster(server.address())
        self.topic = self.cluster.create(f"odd-{time.time_ns()}", 2)
        self.good = Connection(self.cluster.leader(self.topic), seconds=10)
        self.served()
        self.sockets = server.open_sockets()

    def served(self):
        began = time.monotonic()
        value = {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [{"Name": self.topic, "PartitionData": [{"Index": 0, "Records": batch()}]}],
        }
        answer = self.good.call("Produce", 9, value)
        expect("a record beside it", answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"], 0)
        fresh = Connection(self.server.address(), seconds=10)
        fresh.call("Metadata", 9, {"Topics": []})
        fresh.close()
        seconds = time.monotonic() - began
        assert seconds < 5, f"a good connection waited {seconds:.1f} s"
        assert self.server.alive(), "the broker ended"

    def connect(self, seconds=5):
        return Connection(self.cluster.leader(self.topic), seconds)


def flat(field, run, spare_mib):
    """Memory after `run` is at most `spare_mib` above what it was, and good connections were served."""
    if field.server.kind == "kafka" and run is announced:
        raise Skip("Kafka allocates what a frame announces; 64 of these end its heap")
    before = field.server.rss_kib()
    try:
        note = run(field)
        field.served()
    except Exception:
        # The next check has a good connection of its own.
        field.good.close()
        field.good = field.connect(seconds=10)
        raise
    grown = (field.server.rss_kib() - before) / MIB
    allowed = spare_mib if field.server.kind == "oncilla" else 1200
    assert grown <= allowed, f"memory grew by {grown:.0f} MiB, allowed are {allowed}"
    return f"{note + ', ' if note else ''}memory {grown:+.1f} MiB"


def checks(report, server):
    try:
        field = Field(server)
    except Exception as error:
        report.fail("a topic and a first record", error)
        return
    for name, run, spare in (
        ("random bytes, 300 connections", random_bytes, 16),
        ("requests with random bodies, 3,000 over all keys", random_bodies, 32),
        ("golden requests cut at every byte", cut_requests, 16),
        ("golden requests with flipped bits", flipped_requests, 32),
        ("a Produce of 12 bytes that announces i32::MAX entries", bombs, 16),
        ("a compressed batch that unpacks to 900 MiB", zip_bombs, 160),
        ("frames that announce 100 MB and send nothing, 64 of them", announced, 16),
        ("twenty clients of one byte at a time", slow_writers, 16),
        ("clients that ask for much and never read", never_readers, 320),
        ("1,000 idle connections", idle, 48),
        ("500 connections that reset in the middle of a request", resets, 16),
        ("connections that open and close, 2,000 of them", churn, 16),
    ):
        report.check(name, flat, field, run, spare)
    report.check("no descriptor is left for another connection", no_descriptors, field)
    report.check("connections leave nothing open", leftovers, field)


def drain(connection):
    """Reads until the broker closes or falls silent; what it says does not matter here."""
    try:
        while True:
            connection.answer(seconds=0.2)
    except (Closed, Silent, struct.error):
        pass
    finally:
        connection.close()


def say(field, data):
    connection = field.connect()
    try:
        connection.send(data)
        connection.socket.shutdown(socket.SHUT_WR)
    except (Closed, OSError):
        pass
    drain(connection)


def random_bytes(field):
    rng = random.Random(SEED)
    for _ in range(300):
        say(field, rng.randbytes(rng.choice((1, 3, 4, 5, 12, 100, 4000))))


def random_bodies(field):
    rng = random.Random(SEED + 1)
    for _ in range(3000):
        key, version = rng.randrange(0, 93), rng.randrange(0, 19)
        body = rng.randbytes(rng.choice((0, 1, 4, 9, 30, 200)))
        head = struct.pack(">hhih", key, version, 1, 1) + b"x" + rng.choice((b"", b"\0"))
        say(field, frame(head + body))


def golden(field):
    """One good request of each hot API at a plain and a flexible version."""
    topic = field.topic
    produce = {
        "Acks": -1,
        "TimeoutMs": 1000,
        "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": batch([b"a", b"b"])}]}],
    }
    fetch = {
        "MaxWaitMs": 0,
        "MinBytes": 1,
        "MaxBytes": 1000,
        "Topics": [{"Topic": topic, "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}]}],
    }
    offsets = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}
    create = {"Topics": [{"Name": "odd name", "NumPartitions": 1, "ReplicationFactor": 1}], "timeoutMs": 1}
    rows = [
        ("Produce", 3, produce),
        ("Produce", 9, produce),
        ("Fetch", 4, fetch),
        ("Fetch", 12, fetch),
        ("ListOffsets", 1, offsets),
        ("ListOffsets", 7, offsets),
        ("Metadata", 1, {"Topics": [{"Name": topic}]}),
        ("Metadata", 12, {"Topics": [{"Name": topic}]}),
        ("CreateTopics", 2, create),
        ("CreateTopics", 7, create),
        ("ApiVersions", 3, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}),
        ("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 1}),
    ]
    maker = Connection(field.server.address())
    try:
        return [maker.request(name, version, value)[4:] for name, version, value in rows]
    finally:
        maker.close()


def cut_requests(field):
    count = 0
    for whole in golden(field):
        for size in range(0, len(whole), 3):
            say(field, frame(whole[:size]))
            count += 1
    return f"{count} requests"


def flipped_requests(field):
    rng = random.Random(SEED + 2)
    count = 0
    for whole in golden(field):
        for _ in range(120):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            say(field, frame(bytes(data)))
            count += 1
    return f"{count} requests"


def bombs(field):
    huge = struct.pack(">i", 2**31 - 1)
    compact = b"\xff\xff\xff\xff\x0f"
    head = lambda key, version: struct.pack(">hhih", key, version, 1, -1)
    for _ in range(50):
        say(field, frame(head(0, 3) + struct.pack(">hhi", -1, -1, 0) + huge))
        say(field, frame(head(0, 9) + b"\0\0" + struct.pack(">hi", -1, 0) + compact))
        say(field, frame(head(1, 4) + struct.pack(">iiiib", -1, 0, 0, 0, 0) + huge))
        say(field, frame(head(1, 12) + b"\0" + struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + compact))
        say(field, frame(head(3, 4) + huge + b"\0"))
        say(field, frame(head(3, 12) + b"\0" + compact))
        say(field, frame(head(19, 4) + huge))
        say(field, frame(head(19, 7) + b"\0" + compact))
        say(field, frame(head(2, 7) + b"\0" + struct.pack(">ib", -1, 0) + compact))
        say(field, frame(head(32, 4) + b"\0" + compact))


def zip_bombs(field):
    """900 MiB of zeros in less than 1 MiB, as gzip would carry it: refused without unpacking all of it."""
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(record(0, b"")[:1])
    chunk = bytes(4 << 20)
    packed += b"".join(packer.compress(chunk) for _ in range(225)) + packer.flush()
    assert len(packed) < 1_040_000, "the bomb itself must pass max.message.bytes"
    data = batch(records=packed, attributes=1)
    value = {
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": field.topic, "PartitionData": [{"Index": 0, "Records": data}]}],
    }
    codes = set()
    for _ in range(5):
        connection = field.connect(seconds=30)
        answer = connection.call("Produce", 9, value)
        codes.add(answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"])
        connection.close()
    assert 0 not in codes, "a batch of 900 MiB was taken"
    return f"refused with {sorted(codes)}"


def announced(field):
    held = [field.connect() for _ in range(64)]
    for connection in held:
        connection.send(struct.pack(">i", 100_000_000) + struct.pack(">hhi", 0, 9, 1))
    time.sleep(0.5)
    field.served()
    for connection in held:
        connection.close()


def slow_writers(field):
    stop = threading.Event()
    answered = []

    def slow():
        connection = field.connect(seconds=20)
        try:
            for byte in connection.request("Metadata", 9, {"Topics": []}):
                connection.send(bytes([byte]))
                if stop.wait(0.05):
                    return
            answered.append(connection.answer())
        except (Closed, Silent):
            pass
        finally:
            connection.close()

    threads = [threading.Thread(target=slow) for _ in range(20)]
    for t in threads:
        t.start()
    for _ in range(5):
        field.served()
    for t in threads:
        t.join(20)
    stop.set()
    expect("slow clients answered", len(answered), 20)


def never_readers(field):
    value = {
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": field.topic, "PartitionData": [{"Index": 0, "Records": batch([bytes(100_000)] * 5)}]}],
    }
    for _ in range(20):
        field.good.call("Produce", 9, value)
    ask = {
        "MaxWaitMs": 0,
        "MinBytes": 1,
        "MaxBytes": 50 << 20,
        "Topics": [
            {"Topic": field.topic, "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 50 << 20}]}
        ],
    }
    held = []
    for _ in range(20):
        connection = field.connect()
        connection.socket.settimeout(0.5)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held.append(connection)
        try:
            for _ in range(50):
                connection.send(connection.request("Fetch", 12, ask))
        except (TimeoutError, Closed, OSError):
            pass
    field.served()
    grown = field.server.rss_kib()
    for connection in held:
        connection.close()
    time.sleep(0.5)
    return f"{grown // MIB} MiB while they held"


def idle(field):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = []
    try:
        for _ in range(1000):
            held.append(socket.create_connection(field.cluster.leader(field.topic), timeout=10))
        began = time.monotonic()
        for _ in range(20):
            field.served()
        each = (time.monotonic() - began) / 20
        return f"{each * 1000:.1f} ms for a produce and a metadata beside them"
    except OSError as error:
        raise Skip(f"this machine does not allow 1,000 sockets: {error}") from None
    finally:
        for s in held:
            s.close()


def resets(field):
    rng = random.Random(SEED + 3)
    requests = [frame(r) for r in golden(field)]
    for _ in range(500):
        connection = field.connect()
        data = rng.choice(requests)
        connection.send(data[: rng.randrange(1, len(data) + 1)])
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def churn(field):
    for _ in range(2000):
        field.connect().close()


def no_descriptors(field):
    """Accepting fails until descriptors come back; who is connected is served all the time, and no core spins."""
    if field.server.kind == "kafka":
        raise Skip("the limit of a JVM covers its files and jars too")
    pid, held = field.server.process.pid, []
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    files = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files + 20, before[1]))
    try:
        for _ in range(200):
            held.append(socket.create_connection(field.server.address(), timeout=5))
        time.sleep(0.5)
        busy = field.server.cpu_seconds()
        field.good.call("Metadata", 9, {"Topics": []})
        time.sleep(1)
        busy = field.server.cpu_seconds() - busy
        assert busy < 0.5, f"{busy:.2f} s of CPU in a second without work"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for connection in held:
            connection.close()
    field.served()
    return f"{busy:.2f} s of CPU in a second of it"


def leftovers(field):
    until = time.monotonic() + 10
    while (now := field.server.open_sockets()) > field.sockets + 5 and time.monotonic() < until:
        time.sleep(0.2)
    assert now <= field.sockets + 5, f"{now} open sockets, {field.sockets} at the beginning"
    return f"{field.sockets} open sockets before, {now} after"
