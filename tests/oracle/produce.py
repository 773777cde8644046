"""Produce: contract K0. Each batch of the table is sent at every version that is served."""

import struct

from batches import CODECS, batch, batches, compress, now_ms, old_message, record, sized, varint
from table import by_version, case, outcome, produced

VERSIONS = range(3, 14)
HOUR = 3_600_000


def raw_record(body):
    return varint(len(body)) + body


def xerial(data):
    """Snappy as the Java library frames it."""
    block = compress("snappy", data)
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block


def linked_lz4():
    import lz4.frame

    data = b"".join(record(i, b"x" * 60000) for i in range(3))
    return batch(
        [b"v"] * 3,
        records=lz4.frame.compress(data, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
        attributes=3,
    )


def framed_lz4():
    import lz4.frame

    data = b"".join(record(i, b"x" * 60000) for i in range(3))
    return batch(
        [b"v"] * 3,
        attributes=3,
        records=lz4.frame.compress(data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
    )


def records_of(*deltas):
    return b"".join(record(d, b"v") for d in deltas)


def one(body, **more):
    return batch([b"v"], records=body, **more)


GOOD = record(0, b"v")
PACKED = {name: number for name, number in CODECS.items() if number}
OLD = 1_600_000_000_000

BATCHES = {
    # Whole batches that pass.
    "K0.21 one record": lambda: batch(),
    "K0.21 key and headers": lambda: one(record(0, b"v", b"k", 0, [(b"h", b"1"), (b"h", None), (b"", b"")])),
    "K0.21 null value": lambda: one(record(0, None)),
    "K0.21 empty key and value": lambda: one(record(0, b"", b"")),
    "K0.21 a hundred records": lambda: batch([b"v"] * 100),
    "K0.26 a leader epoch of the client's": lambda: batch(leader_epoch=77),
    "K0.26 max timestamp that lies": lambda: batch(max_timestamp=1),
    "K0.26 unused attribute bit 0x40": lambda: batch(attributes=0x40),
    "K0.26 unused attribute bit 0x4000": lambda: batch(attributes=0x4000),
    "K0.26 timestamp type bit on a CreateTime topic": lambda: batch(attributes=0x08),
    "K0.26 a producer id below -1": lambda: batch(pid=-2),
    "K0.26 a sequence without producer id": lambda: batch(seq=5),
    "K0.26 attributes of a record": lambda: one(record(0, b"v", attributes=0x7F)),
    # What is not one batch.
    "K0.6 no bytes": lambda: b"",
    "K0.6 ten bytes": lambda: batch()[:10],
    "K0.6 seventeen bytes": lambda: batch()[:17],
    "K0.6 header cut": lambda: batch()[:60],
    "K0.6 last byte missing": lambda: batch()[:-1],
    "K0.6 two batches": lambda: batch() + batch(),
    "K0.6 a batch and half of one": lambda: batch() + batch()[:30],
    "K0.6 a batch and a length below 14": lambda: batch() + batch(length=13),
    "K0.6 message format 0": lambda: old_message(0),
    "K0.6 message format 1": lambda: old_message(1),
    "K0.6 trailing bytes": lambda: batch() + b"\0\0\0",
    "K0.3 magic 3": lambda: batch(magic=3),
    "K0.3 magic -1": lambda: batch(magic=-1),
    "K0.3 length 0": lambda: batch(length=0),
    "K0.3 length 13": lambda: batch(length=13),
    "K0.3 length -1": lambda: batch(length=-1),
    "K0.3 length i32 max": lambda: batch(length=2**31 - 1),
    "K0.3 length i32 min": lambda: batch(length=-(2**31)),
    "K0.13 length 14": lambda: batch(length=14),
    "K0.13 length 48": lambda: batch(length=48),
    "K0.13 length one too small": lambda: batch(length=len(batch()) - 13),
    "K0.6 length one too large": lambda: batch(length=len(batch()) - 11),
    # The header.
    "K0.11 base offset 1": lambda: batch(base_offset=1),
    "K0.11 base offset -1": lambda: batch(base_offset=-1),
    "K0.11 base offset i64 max": lambda: batch(base_offset=2**63 - 1),
    "K0.13 wrong crc": lambda: batch(crc_xor=1),
    "K0.13 before K0.14: wrong crc and count": lambda: batch(crc_xor=1, count=5),
    "K0.14 count 0": lambda: batch(count=0, last_offset_delta=0),
    "K0.14 count 0, delta -1": lambda: batch(count=0, last_offset_delta=-1),
    "K0.14 count -1": lambda: batch(count=-1, last_offset_delta=-2),
    "K0.14 count above delta": lambda: batch([b"a", b"b"], last_offset_delta=0),
    "K0.14 count below delta": lambda: batch([b"a", b"b"], last_offset_delta=2),
    "K0.14 delta i32 max": lambda: batch(last_offset_delta=2**31 - 1),
    "K0.14 delta and count i32 max": lambda: batch(count=2**31 - 1, last_offset_delta=2**31 - 2),
    "K0.14 control bit": lambda: batch(control=True),
    "K0.14 producer id with sequence -1": lambda: batch(pid=4711, epoch=0, seq=-1),
    "K0.14 producer id with sequence -2": lambda: batch(pid=4711, epoch=0, seq=-2),
    "K0.4 transactional bit": lambda: batch(transactional=True),
    "K0.4 transactional control batch": lambda: batch(transactional=True, control=True),
    # Records.
    "K0.15 no records, count 1": lambda: one(b""),
    "K0.15 one record, count 2": lambda: batch([b"a", b"b"], records=GOOD),
    "K0.15 two records, count 1": lambda: one(GOOD + record(1, b"v")),
    "K0.15 a byte behind the records": lambda: one(GOOD + b"\0"),
    "K0.15 record length 0": lambda: one(varint(0)),
    "K0.15 record length negative": lambda: one(varint(-5) + GOOD),
    "K0.15 record longer than the batch": lambda: one(varint(100) + GOOD[1:]),
    "K0.15 record shorter than its parts": lambda: one(varint(len(GOOD) - 3) + GOOD[1:]),
    "K0.15 a byte behind a record's headers": lambda: one(raw_record(GOOD[1:] + b"\0")),
    "K0.15 key length -2": lambda: one(raw_record(b"\0\0\0" + varint(-2) + sized(b"v") + varint(0))),
    "K0.15 value beyond the record": lambda: one(raw_record(b"\0\0\0" + sized(None) + varint(500) + b"v" + varint(0))),
    "K0.15 header count negative": lambda: one(raw_record(b"\0\0\0" + sized(None) + sized(b"v") + varint(-1))),
    "K0.15 header count huge": lambda: one(raw_record(b"\0\0\0" + sized(None) + sized(b"v") + varint(2**31 - 1))),
    "K0.15 header key null": lambda: one(record(0, b"v", headers=[(None, b"x")])),
    "K0.15 varint of eleven bytes": lambda: one(b"\xff" * 11 + GOOD),
    "K0.27 two equal offset deltas": lambda: batch([b"a", b"b"], records=records_of(0, 0)),
    "K0.27 offset deltas backwards": lambda: batch([b"a", b"b"], records=records_of(1, 0)),
    # Compression.
    "K0.29 gzip": lambda: batch([b"a", b"b"], codec="gzip"),
    "K0.29 snappy": lambda: batch([b"a", b"b"], codec="snappy"),
    "K0.29 snappy, framed": lambda: one(xerial(GOOD), attributes=2),
    "K0.29 lz4": lambda: batch([b"a", b"b"], codec="lz4"),
    "K0.29 lz4, several independent blocks": framed_lz4,
    "K0.15 lz4, linked blocks": linked_lz4,
    "K0.6 zstd": lambda: batch([b"a", b"b"], codec="zstd"),
    **{f"K0.15 codec {n}": lambda n=n: batch(attributes=n) for n in (5, 6, 7)},
    **{f"K0.15 {c} garbage": lambda n=n: one(b"garbage, not compressed", attributes=n) for c, n in PACKED.items()},
    **{
        f"K0.15 {c} cut": lambda c=c, n=n: one(compress(c, record(0, b"v" * 500))[:-6], attributes=n)
        for c, n in PACKED.items()
    },
    "K0.15 gzip, count wrong inside": lambda: batch([b"a", b"b"], attributes=1, records=compress("gzip", GOOD)),
    "K0.15 gzip, a record too many": lambda: one(compress("gzip", GOOD + record(1, b"v")), attributes=1),
    "K0.15 gzip, offset deltas wrong": lambda: batch(
        [b"a", b"b"], attributes=1, records=compress("gzip", records_of(0, 5))
    ),
    "K0.15 gzip of nothing": lambda: one(compress("gzip", b""), attributes=1),
    # Times.
    "K0.30 timestamp -1": lambda: batch(timestamp=-1),
    "K0.30 timestamp 0": lambda: batch(timestamp=0),
    "K0.17 timestamp -2": lambda: batch(timestamp=-2),
    "K0.30 half an hour ahead": lambda: batch(timestamp=now_ms() + HOUR // 2),
    "K0.17 two hours ahead": lambda: batch(timestamp=now_ms() + 2 * HOUR),
    "K0.17 second and third of four ahead": lambda: batch(
        [b"a"] * 4, timestamps=[now_ms(), now_ms() + 2 * HOUR, now_ms() + 3 * HOUR, now_ms()]
    ),
}


def sent(o, topic, version, records, **more):
    end = o.cluster.offset(topic)
    return produced(o.cluster.produce(topic, records, version=version, **more), end)


def add_batches():
    for name, make in BATCHES.items():

        def run(o, make=make):
            topic = o.topic()
            got = by_version(VERSIONS, lambda v: sent(o, topic, v, make()))
            return {"answers": got, "still served": sent(o, topic, 9, batch())["code"]}

        case(name)(run)


add_batches()


def request(o, topic, version, parts, acks=-1, topics=None, timeout_ms=15000):
    entry = {"PartitionData": [{"Index": i, "Records": r} for i, r in parts]}
    entry.update({"TopicId": o.cluster.ids[topic]} if version >= 13 else {"Name": topic})
    return {"Acks": acks, "TimeoutMs": timeout_ms, "TopicData": [entry] if topics is None else topics}


def answers(response):
    return sorted(
        (p["Index"], p["ErrorCode"], p["BaseOffset"]) for t in response["Responses"] for p in t["PartitionResponses"]
    )


@case("K0.1 versions below 3 and above 13 close")
def _(o):
    out = {}
    for version in (-1, 0, 1, 2, 14, 15, 99):
        connection = o.connect(seconds=3)
        connection.send(connection.request(0, version, raw=b"\0" * 12))
        out[str(version)] = outcome(lambda c=connection: c.answer() and "answered")
    return out


@case("K0.5 unknown topic, partition and id")
def _(o):
    topic = o.topic(2)
    out = {}
    for version in (3, 9, 12):
        for name, index in (("no-such-topic", 0), ("bad name!", 0), ("", 0), (topic, 7), (topic, -1)):
            value = {
                "Acks": -1,
                "TimeoutMs": 5000,
                "TopicData": [{"Name": name, "PartitionData": [{"Index": index, "Records": batch()}]}],
            }
            answer = o.cluster.to_leader(topic, 0, "Produce", version, value)
            shown = "topic" if name == topic else name
            out[f"{shown} {index} v{version}"] = produced(answer["Responses"][0]["PartitionResponses"][0])
    for label, topic_id, index in (
        ("zero id", bytes(16), 0),
        ("unknown id", b"\1" * 16, 0),
        ("partition", o.cluster.ids[topic], 7),
    ):
        value = {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [{"TopicId": topic_id, "PartitionData": [{"Index": index, "Records": batch()}]}],
        }
        answer = o.cluster.to_leader(topic, 0, "Produce", 13, value)
        out[f"{label} v13"] = produced(answer["Responses"][0]["PartitionResponses"][0])
    return out


@case("K0.7 acks that are not -1, 0 or 1")
def _(o):
    topic = o.topic()
    return {
        str(acks): by_version(VERSIONS, lambda v, a=acks: sent(o, topic, v, batch(), acks=a))
        for acks in (2, -2, 32767, -32768)
    }


@case("K0.7 after K0.6: acks 2 and no batch")
def _(o):
    topic = o.topic()
    return sent(o, topic, 9, b"", acks=2)


@case("K0.31 acks 1")
def _(o):
    topic = o.topic()
    return by_version(VERSIONS, lambda v: sent(o, topic, v, batch(), acks=1))


@case("K0.12 batch at and above max.message.bytes")
def _(o):
    whole = len(batch([b"v" * 1000]))
    topic = o.topic(max_message_bytes=whole)
    return {
        "equal": by_version(VERSIONS, lambda v: sent(o, topic, v, batch([b"v" * 1000]))),
        "one more": by_version(VERSIONS, lambda v: sent(o, topic, v, batch([b"v" * 1001]))),
        "one more and wrong crc": sent(o, topic, 9, batch([b"v" * 1001], crc_xor=1)),
        "one more and base offset": sent(o, topic, 9, batch([b"v" * 1001], base_offset=3)),
    }


@case("K0.16 K0.26 topic with LogAppendTime")
def _(o):
    topic = o.topic(message_timestamp_type="LogAppendTime")
    out = {
        "bit set": by_version(VERSIONS, lambda v: sent(o, topic, v, batch(attributes=0x08))),
        "far ahead": sent(o, topic, 9, batch(timestamp=now_ms() + 5 * HOUR)),
        "plain": by_version(VERSIONS, lambda v: sent(o, topic, v, batch(timestamp=OLD))),
    }
    stored = batches(o.cluster.fetch(topic, offset=1)["Records"])[0]
    out["stored"] = [stored.attributes, stored.first_timestamp, stored.max_timestamp > OLD, stored.crc_holds()]
    return out


@case("K0.17 timestamps outside the topic's limits")
def _(o):
    topic = o.topic(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR)
    now = now_ms()
    times = {
        "now": [now],
        "two hours old": [now - 2 * HOUR],
        "two hours ahead": [now + 2 * HOUR],
        "-1": [-1],
        "second of three old": [now, now - 2 * HOUR, now],
        "old, plain, ahead": [now - 2 * HOUR, now, now + 2 * HOUR],
    }
    return {
        label: by_version(
            VERSIONS, lambda v, t=stamps: sent(o, topic, v, batch([b"v"] * len(t), timestamps=t, timestamp=t[0]))
        )
        for label, stamps in times.items()
    }


@case("K0.18 a record without key on a compacted topic")
def _(o):
    try:
        topic = o.topic(cleanup_policy="compact")
    except AssertionError as refused:
        return f"not created: {str(refused).split(': ')[1].split()[0]}"
    return {
        "null": sent(o, topic, 9, batch()),
        "empty": sent(o, topic, 9, batch(key=b"")),
        "second of two": sent(o, topic, 9, batch([b"a", b"b"], records=record(0, b"v", b"k") + record(1, b"v"))),
    }


@case("K0.26 what is stored of a batch")
def _(o):
    topic = o.topic()
    out = {}
    at = 0
    for label, make in (
        ("plain", lambda: batch([b"a", b"b"], timestamp=OLD, leader_epoch=9)),
        ("max timestamp lies", lambda: batch([b"a", b"b"], timestamp=OLD, max_timestamp=5, timestamps=[OLD, OLD + 7])),
        ("timestamp bit", lambda: batch(attributes=0x08, timestamp=OLD)),
        ("unused bits", lambda: batch(attributes=0x40C0, timestamp=OLD)),
        ("epoch without id", lambda: batch(epoch=7, seq=9, timestamp=OLD)),
        ("gzip", lambda: batch([b"a"] * 3, codec="gzip", timestamp=OLD)),
    ):
        sending = make()
        got = o.cluster.produce(topic, sending)
        if got["ErrorCode"]:
            out[label] = got["ErrorCode"]
            continue
        stored = batches(o.cluster.fetch(topic, offset=at)["Records"])[0]
        out[label] = [
            stored.base_offset - at,
            stored.attributes,
            stored.first_timestamp,
            stored.max_timestamp,
            stored.pid,
            stored.epoch,
            stored.seq,
            stored.count,
            stored.leader_epoch >= 0,
            stored.crc_holds(),
            stored.data[61:] == sending[61:],
        ]
        at = stored.last_offset + 1
    return out


@case("K0.2 null records")
def _(o):
    topic = o.topic()
    connection = o.connect(topic, seconds=1)
    answer = outcome(lambda: connection.call("Produce", 9, request(o, topic, 9, [(0, None)])))
    return answer if isinstance(answer, str) else answers(answer)


@case("K0.25 no topics, no partitions")
def _(o):
    topic = o.topic()
    none = request(o, topic, 9, [])
    return by_version(
        range(3, 13),
        lambda v: [
            answers(o.cluster.to_leader(topic, 0, "Produce", v, request(o, topic, v, [], topics=[]))),
            len(o.cluster.to_leader(topic, 0, "Produce", v, none)["Responses"]),
        ],
    )


@case("K0.28 a partition twice in one request")
def _(o):
    topic = o.topic()
    one_entry = request(o, topic, 9, [(0, batch([b"first"])), (0, batch([b"last"]))])
    got = answers(o.cluster.to_leader(topic, 0, "Produce", 9, one_entry))
    stored = [r[3].decode() for b in batches(o.cluster.fetch(topic)["Records"]) for r in b.records()]
    return [got, stored]


@case("K0.3 K0.4 spread over the whole request, K0.6 does not")
def _(o):
    topic = o.topic()
    return {
        label: answers(o.cluster.to_leader(topic, 0, "Produce", 9, request(o, topic, 9, [(0, bad), (9, batch())])))
        for label, bad in (
            ("magic", batch(magic=5)),
            ("length", batch(length=3)),
            ("transactional", batch(transactional=True)),
            ("no bytes", b""),
            ("crc", batch(crc_xor=1)),
        )
    }


@case("KC.16 acks 0: silence, and a close for an error")
def _(o):
    topic = o.topic()
    out = {}
    for label, value in (
        ("good", request(o, topic, 9, [(0, batch())], acks=0)),
        ("no topics", request(o, topic, 9, [], acks=0, topics=[])),
        ("wrong crc", request(o, topic, 9, [(0, batch(crc_xor=1))], acks=0)),
        ("unknown partition", request(o, topic, 9, [(5, batch())], acks=0)),
    ):
        connection = o.connect(topic, seconds=3)
        connection.send(connection.request("Produce", 9, value))
        connection.send(connection.request("Metadata", 9, {"Topics": []}))
        out[label] = outcome(lambda c=connection: "served" if c.answer()[0] == 2 else "answered")
    out["end"] = o.cluster.offset(topic)
    return out


@case("K0.24 timeout 0 and -1")
def _(o):
    topic = o.topic()
    return {str(t): sent(o, topic, 9, batch(), timeout_ms=t) for t in (0, -1)}
