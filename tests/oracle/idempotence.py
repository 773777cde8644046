"""Idempotent producers: contract A3, A5 and B2 for producers without a transactional id."""

from batches import batch
from table import by_version, case, outcome, produced, settle

MAX = 2**31 - 1

# Steps of one producer on one partition: (epoch, base sequence, records). Answers are (code, base offset).
SEQUENCES = {
    "A5.1 the last batch again": [(0, 0, 3), (0, 0, 3)],
    "A5.1 each of the last five again": [(0, s, 1) for s in range(5)] + [(0, s, 1) for s in range(5)],
    "A5.1 the sixth last again": [(0, s, 1) for s in range(6)] + [(0, 0, 1), (0, 1, 1)],
    "A5.1 a duplicate does not move the window": [(0, s, 1) for s in range(5)] + [(0, 0, 1), (0, 0, 1), (0, 5, 1)],
    "A5.7 overlap: same base, more records": [(0, 0, 2), (0, 0, 3)],
    "A5.7 overlap: same base, fewer records": [(0, 0, 3), (0, 0, 2)],
    "A5.7 overlap: inside a batch": [(0, 0, 5), (0, 2, 2)],
    "A5.7 overlap: across two batches": [(0, 0, 2), (0, 2, 2), (0, 1, 2)],
    "A5.7 overlap: two batches as one": [(0, 0, 2), (0, 2, 2), (0, 0, 4)],
    "A5.7 gap of one": [(0, 0, 1), (0, 2, 1), (0, 1, 1), (0, 2, 1)],
    "A5.7 gap, then the rest is refused too": [(0, 0, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (0, 1, 1)],
    "A5.7 below the window": [(0, 10, 1), (0, 3, 1)],
    "A5.6 unknown producer with any first sequence": [(0, 7, 1), (0, 8, 1), (0, 7, 1)],
    "A5.6 unknown producer with a high epoch": [(9, 5, 1), (9, 6, 1)],
    "A5.6 epoch up, sequence 0": [(0, 0, 2), (1, 0, 1), (1, 1, 1)],
    "A5.6 epoch up, sequence not 0": [(0, 0, 2), (1, 2, 1), (1, 0, 1)],
    "A5.6 epoch up by five": [(0, 0, 2), (5, 0, 1), (4, 0, 1), (5, 1, 1)],
    "A5.6 epoch up clears the window": [(0, 0, 1), (1, 0, 1), (0, 0, 1)],
    "A5.6 epoch up, the same batch is no duplicate": [(0, 0, 1), (1, 0, 1), (1, 0, 1)],
    "A5.6 epoch 32767": [(0, 0, 1), (32767, 0, 1), (32767, 1, 1), (32766, 0, 1)],
    "A5.3 epoch down": [(3, 0, 1), (2, 1, 1), (2, 0, 1), (3, 1, 1)],
    "A5.3 before A5.7: old epoch and gap": [(3, 0, 1), (2, 9, 1)],
    "A3 wrap between batches": [(0, MAX - 1, 2), (0, 0, 1), (0, 1, 1)],
    "A3 wrap inside a batch": [(0, MAX - 1, 5), (0, 3, 1), (0, MAX - 1, 5)],
    "A3 wrap at the last record": [(0, MAX, 1), (0, 0, 1), (0, MAX, 1)],
    "A3 after the maximum only 0": [(0, MAX, 1), (0, 1, 1), (0, MAX, 2), (0, 0, 1)],
    "A3 duplicate across the wrap": [(0, MAX - 2, 6), (0, 3, 2), (0, MAX - 2, 6), (0, 3, 2)],
    "A3 overlap across the wrap": [(0, MAX - 2, 6), (0, MAX - 2, 5), (0, 2, 1)],
    "A5 epoch -1 with a producer id": [(-1, 0, 1), (-1, 1, 1), (0, 0, 1)],
}


def send(o, topic, pid, epoch, seq, count, version=9, **more):
    records = batch([b"v"] * count, pid=pid, epoch=epoch, seq=seq, **more.pop("batch", {}))
    return o.cluster.produce(topic, records, version=version, **more)


def add_sequences():
    for name, steps in SEQUENCES.items():

        def run(o, steps=steps):
            out = []
            for version in (3, 9, 13):
                topic = o.topic()
                pid, _ = o.cluster.producer_id()
                for epoch, seq, count in steps:
                    got = send(o, topic, pid, epoch, seq, count, version)
                    out.append([got["ErrorCode"], got["BaseOffset"], got.get("LogStartOffset")])
                out.append(o.cluster.offset(topic))
            return out

        case(name)(run)


add_sequences()


@case("A5.1 content does not count, nor does the codec")
def _(o):
    topic = o.topic()
    pid, epoch = o.cluster.producer_id()
    first = o.cluster.produce(topic, batch([b"one"], pid=pid, epoch=epoch, seq=0))
    other = o.cluster.produce(topic, batch([b"quite another"], pid=pid, epoch=epoch, seq=0, codec="gzip"))
    return [produced(first), produced(other), o.cluster.offset(topic)]


@case("A5.1 duplicate after the log head was deleted")
def _(o):
    topic = o.topic()
    pid, epoch = o.cluster.producer_id()
    for seq in range(3):
        send(o, topic, pid, epoch, seq, 1)
    o.cluster.to_leader(
        topic,
        0,
        "DeleteRecords",
        2,
        {"TimeoutMs": 5000, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 3}]}]},
    )
    return [produced(send(o, topic, pid, epoch, seq, 1)) for seq in (1, 2, 3, 5)]


@case("K0.20 a duplicate is recognised last: size and time are checked first")
def _(o):
    topic = o.topic(max_message_bytes=200, message_timestamp_before_max_ms=3_600_000)
    pid, epoch = o.cluster.producer_id()
    send(o, topic, pid, epoch, 0, 1)
    out = [
        produced(o.cluster.produce(topic, batch([b"v" * 500], pid=pid, epoch=epoch, seq=0))),
        produced(o.cluster.produce(topic, batch(pid=pid, epoch=epoch, seq=0, timestamp=1000))),
        produced(o.cluster.produce(topic, batch(pid=pid, epoch=epoch, seq=0, crc_xor=1))),
        produced(send(o, topic, pid, epoch, 0, 1)),
    ]
    return out


@case("A5.1 LogAppendTime: a duplicate tells the time of the original")
def _(o):
    topic = o.topic(message_timestamp_type="LogAppendTime")
    pid, epoch = o.cluster.producer_id()
    first = send(o, topic, pid, epoch, 0, 1)
    again = send(o, topic, pid, epoch, 0, 1)
    return [produced(first), produced(again), first["LogAppendTimeMs"] == again["LogAppendTimeMs"]]


@case("A5 two producers on one partition do not disturb each other")
def _(o):
    topic = o.topic()
    a, b = (o.cluster.producer_id()[0] for _ in range(2))
    return [
        send(o, topic, pid, 0, seq, 1)["ErrorCode"]
        for pid, seq in ((a, 0), (b, 0), (a, 1), (b, 2), (b, 1), (a, 3), (a, 2), (a, 0), (b, 0))
    ]


@case("A5 one producer on two partitions: sequences are apart")
def _(o):
    topic = o.topic(2)
    pid, epoch = o.cluster.producer_id()
    return [
        send(o, topic, pid, epoch, seq, 1, partition=p)["ErrorCode"]
        for p, seq in ((0, 0), (1, 0), (0, 1), (1, 2), (1, 1), (0, 0))
    ]


@case("A5 five batches pipelined, the second is bad: the rest is refused and the retry succeeds")
def _(o):
    topic = o.topic()
    pid, epoch = o.cluster.producer_id()
    connection = o.connect(topic)

    def frame(seq, **more):
        records = batch(pid=pid, epoch=epoch, seq=seq, **more)
        value = {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": records}]}],
        }
        return connection.request("Produce", 9, value)

    def codes(n):
        out = []
        for _ in range(n):
            _, body = connection.answer()
            from wire import decode_answer

            part = decode_answer("Produce", 9, body)["Responses"][0]["PartitionResponses"][0]
            out.append([part["ErrorCode"], part["BaseOffset"]])
        return out

    connection.send(b"".join(frame(s, crc_xor=int(s == 1)) for s in range(5)))
    first = codes(5)
    connection.send(b"".join(frame(s) for s in range(1, 5)))
    return [first, codes(4)]


@case("A5 acks 1 and acks 0 take part in the sequence")
def _(o):
    topic = o.topic()
    pid, epoch = o.cluster.producer_id()
    out = [send(o, topic, pid, epoch, 0, 1, acks=1)["ErrorCode"]]
    connection = o.connect(topic)
    value = {
        "Acks": 0,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": batch(pid=pid, epoch=epoch, seq=1)}]}],
    }
    connection.send(connection.request("Produce", 9, value))
    settle(lambda: o.cluster.offset(topic), lambda end: end == 2)
    connection.send(connection.request("Produce", 9, value))
    out.append(outcome(lambda: connection.call("Metadata", 9, {"Topics": []}) and "a duplicate keeps it open"))
    out.append([send(o, topic, pid, epoch, s, 1)["ErrorCode"] for s in (1, 3, 2)])
    return out


@case("B2.3 InitProducerId without transactional id")
def _(o):
    def ask(version, timeout, **more):
        answer = o.call("InitProducerId", version, {"TransactionalId": None, "TransactionTimeoutMs": timeout, **more})
        return [answer["ErrorCode"], answer["ProducerId"] >= 0, answer["ProducerEpoch"]]

    o.cluster.producer_id()
    out = {f"timeout {t}": by_version(range(0, 6), lambda v, t=t: ask(v, t)) for t in (60000, 0, -1, MAX)}
    for label, pid, epoch in (("both", 5, 3), ("id alone", 5, -1), ("epoch alone", -1, 3)):
        out[label] = by_version(range(3, 6), lambda v, p=pid, e=epoch: ask(v, 1000, ProducerId=p, ProducerEpoch=e))
    return out


@case("B2.3 a hundred producer ids are distinct and epoch 0")
def _(o):
    got = [o.cluster.producer_id() for _ in range(100)]
    return [len({p for p, _ in got}), {str(e) for _, e in got} == {"0"}]


@case("K61 DescribeProducers of an idempotent producer")
def _(o):
    topic = o.topic()
    pid, epoch = o.cluster.producer_id()
    for seq in (0, 2):
        send(o, topic, pid, epoch, seq, 2)
    answer = o.cluster.to_leader(
        topic, 0, "DescribeProducers", 0, {"Topics": [{"Name": topic, "PartitionIndexes": [0, 9]}]}
    )
    return sorted(
        [
            p["PartitionIndex"],
            p["ErrorCode"],
            [
                [
                    a["ProducerId"] == pid,
                    a["ProducerEpoch"],
                    a["LastSequence"],
                    a["CoordinatorEpoch"],
                    a["CurrentTxnStartOffset"],
                ]
                for a in p["ActiveProducers"]
            ],
        ]
        for p in answer["Topics"][0]["Partitions"]
    )
