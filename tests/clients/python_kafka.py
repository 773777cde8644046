"""kafka-python: a client written apart from all others; admin calls and a consumer that assigns partitions itself."""

import time

from common import topic, values
from report import expect


def checks(report, server):
    address = server.bootstrap
    report.check("kafka-python produces and reads by assign", round_trip, address, {})
    report.check("kafka-python idempotent producer", round_trip, address, {"enable_idempotence": True})
    report.check("kafka-python gzip and lz4", packed, address)
    report.check("kafka-python admin: create, describe, alter, grow, delete records, delete", admin, address)


def round_trip(address, settings):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    name = topic("kpy")
    make(address, name, 2)
    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=2, **settings)
    sent = {0: [], 1: []}
    told = []
    for i, value in enumerate(values(1000)):
        told.append((i % 2, value, producer.send(name, value.encode(), key=b"k", partition=i % 2)))
        sent[i % 2].append(value.encode())
    producer.flush(30)
    at = {(p, v): f.get(10).offset for p, v, f in told}
    producer.close()
    reader = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=20000
    )
    reader.assign([TopicPartition(name, p) for p in (0, 1)])
    got = {0: [], 1: []}
    for message in reader:
        got[message.partition].append(message.value)
        expect("offset told", at[message.partition, message.value.decode()], message.offset)
        if sum(map(len, got.values())) == 1000:
            break
    expect("end offsets", sorted(reader.end_offsets([TopicPartition(name, p) for p in (0, 1)]).values()), [500, 500])
    reader.close()
    expect("values", got, sent)


def packed(address):
    for codec in ("gzip", "lz4"):
        round_trip(address, {"compression_type": codec})


def make(address, name, partitions):
    from kafka.admin import KafkaAdminClient, NewTopic

    client = KafkaAdminClient(bootstrap_servers=address)
    client.create_topics([NewTopic(name, partitions, 1)])
    client.close()


def admin(address):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

    name = topic("kpy-admin")
    client = KafkaAdminClient(bootstrap_servers=address)
    client.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "3600000"})])
    eventually("listed", lambda: name in client.list_topics())
    described = client.describe_topics([name])
    expect("partitions", len(described[0]["partitions"]), 2)
    expect("cluster", len(client.describe_cluster()["brokers"]) > 0, True)
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    expect("retention", "3600000" in str(client.describe_configs([resource])), True)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "7200000"})])
    eventually("altered", lambda: "7200000" in str(client.describe_configs([resource])))
    client.create_partitions({name: NewPartitions(3)})
    eventually("grown", lambda: len(client.describe_topics([name])[0]["partitions"]) == 3)
    producer = KafkaProducer(bootstrap_servers=address)
    for _ in range(5):
        producer.send(name, b"x", partition=0)
    producer.flush(20)
    producer.close()
    client.delete_records({TopicPartition(name, 0): 3})
    reader = KafkaConsumer(bootstrap_servers=address)
    expect("log start", list(reader.beginning_offsets([TopicPartition(name, 0)]).values()), [3])
    reader.close()
    client.delete_topics([name])
    eventually("deleted", lambda: name not in client.list_topics())
    client.close()


def eventually(what, ask, seconds=10):
    until = time.monotonic() + seconds
    while not ask() and time.monotonic() < until:
        time.sleep(0.05)
    expect(what, bool(ask()), True)
