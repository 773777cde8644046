"""Connections and framing: contract KC."""

import struct
import time

from batches import batch
from schema import layout
from table import case, outcome
from wire import decode_answer, frame

LIMIT = 104857600


def metadata(connection, **more):
    return connection.request("Metadata", 9, {"Topics": []}, **more)


def after(o, data, seconds=3):
    """What a fresh connection says to these bytes."""
    connection = o.connect(seconds=seconds)
    connection.send(data)
    return outcome(lambda: "answered" if connection.answer() else "")


@case("KC.1 frame sizes")
def _(o):
    sizes = {"0": 0, "-1": -1, "i32 min": -(2**31), "limit + 1": LIMIT + 1, "i32 max": 2**31 - 1}
    out = {label: after(o, struct.pack(">i", n)) for label, n in sizes.items()}
    for n in range(1, 11):
        out[f"{n} zero bytes"] = after(o, frame(b"\0" * n))
    # A frame as large as the limit is awaited, not refused.
    out["limit"] = after(o, struct.pack(">i", LIMIT) + b"\0" * 8, seconds=0.5)
    return out


@case("KC.3 client ids")
def _(o):
    ids = {"null": None, "empty": b"", "long": b"x" * 32767, "no utf-8": b"\xff\xfe\0\x80", "control": b"\r\n\x1b[31m"}
    out = {}
    for label, value in ids.items():
        connection = o.connect(seconds=3)
        connection.send(metadata(connection, client=value))
        out[label] = outcome(lambda c=connection: "answered" if c.answer() else "")
    body = layout("MetadataRequest", 9).encode({"Topics": []})
    out["length -2"] = after(o, frame(struct.pack(">hhih", 3, 9, 1, -2) + b"\0" + body))
    out["length beyond the frame"] = after(o, frame(struct.pack(">hhih", 3, 9, 1, 500) + b"\0" + body))
    return out


@case("KC.4 tags")
def _(o):
    body = layout("MetadataRequest", 9).encode({"Topics": []})
    head = struct.pack(">hhih", 3, 9, 1, 1) + b"x"
    return {
        "unknown tag in the header": after(o, frame(head + b"\x01\x63\x03abc" + body)),
        "a tag twice": after(o, frame(head + b"\x02\x63\x01a\x63\x01b" + body)),
        "tag beyond the frame": after(o, frame(head + b"\x01\x63\x7fabc" + body)),
        "header without tag section": after(o, frame(head)),
        "unknown tag in the body": after(o, frame(head + b"\0" + body[:-1] + b"\x01\x63\x03abc")),
        "body without tag section": after(o, frame(head + b"\0" + body[:-1])),
        "ten thousand tags announced": after(o, frame(head + b"\0" + body[:-1] + b"\x90\x4e")),
    }


@case("KC.6 bodies that do not fit their schema")
def _(o):
    head = struct.pack(">hhih", 3, 4, 1, 1) + b"x"
    flexible = struct.pack(">hhih", 3, 9, 1, 1) + b"x\0"
    huge = struct.pack(">i", 2**31 - 1)
    return {
        "empty": after(o, frame(head)),
        "array count beyond the frame": after(o, frame(head + struct.pack(">i", 1000) + b"\0\1a\1")),
        "array count i32 max": after(o, frame(head + huge)),
        "array count -1": after(o, frame(head + b"\xff\xff\xff\xff\0")),
        "array count -2": after(o, frame(head + struct.pack(">i", -2) + b"\0")),
        "name null": after(o, frame(head + struct.pack(">ih", 1, -1) + b"\0")),
        "bytes behind the body": after(o, frame(head + struct.pack(">i", 0) + b"\0" + b"more")),
        "boolean 7": after(o, frame(head + struct.pack(">i", 0) + b"\7")),
        "compact count of 6 bytes": after(o, frame(flexible + b"\xff\xff\xff\xff\xff\1" + b"\0" * 8)),
        "compact count huge": after(o, frame(flexible + b"\xff\xff\xff\xff\x0f" + b"\0" * 8)),
        "compact name beyond the frame": after(o, frame(flexible + b"\2\x7fab\0" + b"\0" * 4)),
        "produce: partitions beyond the frame": after(
            o, frame(struct.pack(">hhih", 0, 3, 1, 1) + b"x" + struct.pack(">hhi", -1, -1, 1000) + huge)
        ),
        "fetch: topics beyond the frame": after(
            o, frame(struct.pack(">hhih", 1, 4, 1, 1) + b"x" + struct.pack(">iiiib", -1, 0, 1, 1000, 0) + huge)
        ),
    }


@case("KC.7 correlation ids are echoed")
def _(o):
    connection = o.connect()
    out = []
    for number in (0, 5, 5, -1, 2**31 - 1, -(2**31)):
        connection.send(metadata(connection, correlation=number))
        out.append(connection.answer()[0])
    return out


@case("KC.8 answers leave in request order")
def _(o):
    topic = o.topic()
    connection = o.connect(topic)
    from reading import body

    waiting = connection.request("Fetch", 12, body(o, 12, [(topic, 0, 0)], wait_ms=700))
    began = time.monotonic()
    connection.send(waiting + metadata(connection) + metadata(connection))
    order = [connection.answer()[0] for _ in range(3)]
    late = time.monotonic() - began > 0.5
    many = b"".join(metadata(connection) for _ in range(300))
    connection.send(many)
    order_of_many = [connection.answer()[0] for _ in range(300)]
    return [order, late, order_of_many == list(range(4, 304))]


@case("KC.8 produce and fetch mixed in one packet")
def _(o):
    topic = o.topic()
    connection = o.connect(topic)
    from reading import body

    data = b""
    for i in range(20):
        value = {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": batch([f"{i}".encode()])}]}],
        }
        data += connection.request("Produce", 9, value)
        data += connection.request("Fetch", 12, body(o, 12, [(topic, 0, i)]))
    connection.send(data)
    out = []
    for i in range(20):
        produced = decode_answer("Produce", 9, connection.answer()[1])["Responses"][0]["PartitionResponses"][0]
        read = decode_answer("Fetch", 12, connection.answer()[1])["Responses"][0]["Partitions"][0]
        out.append([produced["ErrorCode"], produced["BaseOffset"], read["ErrorCode"], read["HighWatermark"]])
    return out


@case("KC.8 one byte at a time")
def _(o):
    connection = o.connect()
    for byte in metadata(connection) + metadata(connection):
        connection.send(bytes([byte]))
    return [connection.answer()[0] for _ in range(2)]


@case("KC.9 good, bad, good in one packet")
def _(o):
    connection = o.connect(seconds=3)
    good = metadata(connection)
    connection.send(good + connection.request(0, 99, raw=b"\0" * 20) + metadata(connection))
    return [outcome(lambda: connection.answer()[0]) for _ in range(2)]


@case("KC.10 half-close: what was sent is answered, then the close")
def _(o):
    connection = o.connect()
    connection.send(b"".join(metadata(connection) for _ in range(200)))
    connection.socket.shutdown(1)
    answered = sum(1 for _ in range(200) if isinstance(outcome(lambda: connection.answer()[0]), int))
    return [answered, outcome(lambda: connection.answer()[0])]


@case("KC.11 other protocols on a plain port")
def _(o):
    hello = bytes.fromhex("16030100a5010000a10303") + b"\x11" * 160
    return {
        "http": after(o, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "http post": after(o, b"POST /topics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        "tls": after(o, hello),
        "ssh": after(o, b"SSH-2.0-OpenSSH_9.2\r\n"),
        "redis": after(o, b"*1\r\n$4\r\nPING\r\n"),
    }


@case("KC.12 closing with much unread is a plain close")
def _(o):
    connection = o.connect(seconds=3)
    try:
        connection.send(struct.pack(">i", -5) + b"x" * 200_000)
    except Exception:
        return "closed"
    return outcome(lambda: connection.answer()[0])


@case("KC.17 SASL on a plain port")
def _(o):
    connection = o.connect(seconds=3)
    shake = connection.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})
    return [
        shake["ErrorCode"],
        shake["Mechanisms"],
        connection.call("SaslAuthenticate", 2, {"AuthBytes": b"\0a\0b"})["ErrorCode"],
        connection.call("Metadata", 1, {"Topics": []})["ControllerId"] >= 0,
    ]
