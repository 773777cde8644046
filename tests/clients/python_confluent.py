"""confluent-kafka, which is librdkafka: the idempotent producer with five in flight, every codec, admin."""

import time

from batches import CODECS, batches
from common import topic, values
from report import expect
from wire import Cluster


def checks(report, server):
    address = server.bootstrap
    for codec in CODECS:
        report.check(
            f"librdkafka idempotent, 5 in flight, {codec}",
            round_trip,
            address,
            {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5, "compression.type": codec},
        )
    for acks in (1, 0):
        report.check(f"librdkafka acks {acks}", round_trip, address, {"acks": acks})
    report.check("librdkafka key, headers, null value, given time", records, address)
    report.check("librdkafka auto-creates a topic by producing", auto_create, address)
    report.check("librdkafka offsets for times and watermarks", offsets, address)
    report.check("librdkafka a record above max.message.bytes is refused with MSG_SIZE_TOO_LARGE", too_large, address)
    report.check("librdkafka admin: create, describe, alter, grow, delete records, delete", admin, address)


def create(address, name, partitions=4, config=None):
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(20)
    return client


def consumer(address, **more):
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **more,
        }
    )


def read(address, name, partitions, count, seconds=30):
    """Messages of every partition in order; reads a little on to see what should not be there."""
    from confluent_kafka import TopicPartition

    reader = consumer(address)
    reader.assign([TopicPartition(name, p, 0) for p in range(partitions)])
    out = {p: [] for p in range(partitions)}
    until = time.monotonic() + seconds
    quiet = 0
    while time.monotonic() < until and quiet < 3:
        got = reader.consume(1000, 0.2)
        for message in got:
            if message.error():
                raise AssertionError(f"consume: {message.error()}")
            out[message.partition()].append(message)
        quiet = quiet + 1 if not got and sum(map(len, out.values())) >= count else 0
    reader.close()
    return out


def round_trip(address, settings):
    from confluent_kafka import Producer

    name = topic("rdkafka")
    create(address, name)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "batch.num.messages": 50, **settings})
    told = {}
    failed = []

    def delivered(error, message):
        if error:
            failed.append(str(error))
        else:
            told[message.value()] = (message.partition(), message.offset())

    sent = {p: [] for p in range(4)}
    for i, value in enumerate(values(4000, "r", 60)):
        producer.produce(name, value.encode(), partition=i % 4, on_delivery=delivered)
        sent[i % 4].append(value.encode())
        producer.poll(0)
    expect("not flushed", producer.flush(30), 0)
    expect("failed", failed, [])
    got = read(address, name, 4, 4000)
    for p in range(4):
        expect(f"values of {p}", [m.value() for m in got[p]], sent[p])
        expect(f"offsets of {p}", [m.offset() for m in got[p]], list(range(len(sent[p]))))
    if settings.get("acks") != 0:
        expect("offsets told", {m.value(): (p, m.offset()) for p in got for m in got[p]}, told)
    if codec := settings.get("compression.type"):
        expect("codec of what arrived", stored_codec(address, name), CODECS[codec])


def stored_codec(address, name):
    """The codec of the first batch of a topic (F83: librdkafka sends uncompressed where it distrusts the versions)."""
    host, port = address.rsplit(":", 1)
    cluster = Cluster((host, int(port)))
    try:
        cluster.find(name)
        return batches(cluster.fetch(name)["Records"])[0].attributes & 7
    finally:
        cluster.drop()


def records(address):
    from confluent_kafka import Producer

    name = topic("rdkafka-odd")
    create(address, name, 1)
    producer = Producer({"bootstrap.servers": address})
    stamp = 1_600_000_000_123
    rows = [(b"k", b"v", [("a", b"1"), ("a", b"2"), ("n", None)]), (None, None, []), (b"", b"", [("leer", b"")])]
    for key, value, headers in rows:
        producer.produce(name, value, key=key, headers=headers, timestamp=stamp)
    producer.flush(20)
    got = read(address, name, 1, 3)[0]
    expect("records", [(m.key(), m.value(), m.headers() or []) for m in got], rows)
    expect("times", {m.timestamp() for m in got}, {(1, stamp)})


def auto_create(address):
    from confluent_kafka import Producer

    name = topic("rdkafka-auto")
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce(name, b"first")
    expect("not flushed", producer.flush(30), 0)
    got = read(address, name, 4, 1)
    expect("values", [m.value() for p in got for m in got[p]], [b"first"])


def offsets(address):
    from confluent_kafka import Producer, TopicPartition

    name = topic("rdkafka-off")
    create(address, name, 1)
    producer = Producer({"bootstrap.servers": address})
    for i in range(10):
        producer.produce(name, b"x", timestamp=1_600_000_000_000 + i * 1000)
    producer.flush(20)
    reader = consumer(address)
    expect("watermarks", reader.get_watermark_offsets(TopicPartition(name, 0), 10), (0, 10))
    found = reader.offsets_for_times([TopicPartition(name, 0, 1_600_000_004_500)], 10)
    expect("offset for a time", [f.offset for f in found], [5])
    reader.close()


def too_large(address):
    from confluent_kafka import KafkaError, Producer

    name = topic("rdkafka-big")
    create(address, name, 1, {"max.message.bytes": "1000"})
    producer = Producer({"bootstrap.servers": address})
    codes = []
    producer.produce(name, b"x" * 2000, on_delivery=lambda e, m: codes.append(e and e.code()))
    producer.produce(name, b"x" * 20, on_delivery=lambda e, m: codes.append(e and e.code()))
    producer.flush(20)
    # Both may travel in one batch; then both are refused.
    expect("first code", KafkaError.MSG_SIZE_TOO_LARGE in codes, True)


def admin(address):
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    name = topic("rdkafka-admin")
    client = create(address, name, 2, {"retention.ms": "3600000"})
    expect("listed", sorted(client.list_topics(name, 10).topics[name].partitions), [0, 1])
    again = client.create_topics([NewTopic(name, 2, 1)])[name].exception(20)
    expect("created again", again.args[0].name(), "TOPIC_ALREADY_EXISTS")
    bad = client.create_topics([NewTopic("bad/name", 2, 1)])["bad/name"].exception(20)
    expect("bad name", bad.args[0].name(), "TOPIC_EXCEPTION")
    resource = ConfigResource(ResourceType.TOPIC, name)
    show = lambda: client.describe_configs([resource])[resource].result(20)["retention.ms"].value
    expect("retention", show(), "3600000")
    change = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)],
    )
    client.incremental_alter_configs([change])[change].result(20)
    until_equal("retention altered", show, "7200000")
    client.create_partitions([NewPartitions(name, 5)])[name].result(20)
    until_equal("grown", lambda: len(client.list_topics(name, 10).topics[name].partitions), 5)
    producer = Producer({"bootstrap.servers": address})
    for _ in range(10):
        producer.produce(name, b"x", partition=0)
    producer.flush(20)
    where = TopicPartition(name, 0, 4)
    low = client.delete_records([where])[where].result(20).low_watermark
    expect("low watermark", low, 4)
    part = TopicPartition(name, 0)
    told = [
        client.list_offsets({part: spec})[part].result(20).offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    expect("offsets", told, [4, 10])
    described = client.describe_cluster().result(20)
    expect("cluster has nodes", len(described.nodes) > 0, True)
    client.delete_topics([name])[name].result(20)
    until_equal("deleted", lambda: name in client.list_topics(timeout=10).topics, False)


def until_equal(what, ask, want, seconds=10):
    until = time.monotonic() + seconds
    while (got := ask()) != want and time.monotonic() < until:
        time.sleep(0.05)
    expect(what, got, want)
