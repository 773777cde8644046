"""Groups with the clients of Python: librdkafka by confluent-kafka in both protocols, kafka-python, aiokafka."""

import asyncio
import logging

from members import Member, positions, rebalance, resume, static
from report import expect

# It tells every rebalance as an error.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
CONSUMER = {"group.protocol": "consumer"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


def checks(report, server):
    address = server.bootstrap
    kinds = {
        "librdkafka classic": (Rdkafka, {}),
        "librdkafka cooperative-sticky": (Rdkafka, COOPERATIVE),
        "librdkafka group.protocol=consumer": (Rdkafka, CONSUMER),
        "kafka-python": (KafkaPython, {}),
        "aiokafka": (Aiokafka, {}),
    }
    for label, (kind, settings) in kinds.items():
        report.check(f"{label}: a group goes on where it committed", resume, kind, address, **settings)
        report.check(f"{label}: members come and go, each record is taken once", rebalance, kind, address, **settings)
        # aiokafka leaves the group when it ends, static or not.
        if kind is not Aiokafka:
            report.check(f"{label}: a static member restarts unnoticed", static, kind, address, **settings)
    report.check("librdkafka a group nobody knows has no offsets", unknown_group, address)
    report.check("librdkafka admin: list, describe, alter offsets, delete", admin, address)


class Rdkafka(Member):
    def open(self):
        from confluent_kafka import Consumer

        given = dict(self.settings)
        instance = given.pop("instance", None)
        settings = {
            "bootstrap.servers": self.address,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **given,
        }
        if given.get("group.protocol") != "consumer":
            settings.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 300})
        if instance:
            settings["group.instance.id"] = instance
        self.consumer = Consumer(settings)
        self.consumer.subscribe([self.where])

    def poll(self):
        got = self.consumer.consume(40, 0.1)
        self.has(p.partition for p in self.consumer.assignment())
        wrong = [m.error() for m in got if m.error()]
        if wrong:
            raise AssertionError(f"consume: {wrong[0]}")
        return [(m.partition(), m.offset(), m.value().decode()) for m in got]

    def commit(self, rows):
        from confluent_kafka import KafkaException, TopicPartition

        behind = [TopicPartition(self.where, p, o) for p, o in positions(rows).items()]
        try:
            return all(p.error is None for p in self.consumer.commit(offsets=behind, asynchronous=False))
        except KafkaException:
            # Fenced by a rebalance: these records come again, to somebody.
            for part in behind:
                self.rewind(part, rows)
            return False

    def rewind(self, part, rows):
        from confluent_kafka import KafkaException, TopicPartition

        first = min(o for p, o, _ in rows if p == part.partition)
        try:
            self.consumer.seek(TopicPartition(self.where, part.partition, first))
        except KafkaException:  # not ours any more
            pass

    def close(self):
        self.consumer.close()


class KafkaPython(Member):
    def open(self):
        from kafka import KafkaConsumer

        more = {"group_instance_id": i} if (i := self.settings.get("instance")) else {}
        self.consumer = KafkaConsumer(
            self.where,
            bootstrap_servers=self.address,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            max_poll_records=40,
            **more,
        )
        # Its leader assigns what it knows of by then, and when it joins again because it has heard of more, a poll that
        # ends in between loses the answer for good.
        self.consumer.partitions_for_topic(self.where)

    def poll(self):
        got = self.consumer.poll(timeout_ms=100)
        self.has(p.partition for p in self.consumer.assignment())
        return [(m.partition, m.offset, m.value.decode()) for part in got.values() for m in part]

    def commit(self, rows):
        from kafka import TopicPartition
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        behind = {TopicPartition(self.where, p): OffsetAndMetadata(o, "", -1) for p, o in positions(rows).items()}
        try:
            self.consumer.commit(behind)
            return True
        except KafkaError:
            for part in set(behind) & set(self.consumer.assignment()):
                self.consumer.seek(part, min(o for p, o, _ in rows if p == part.partition))
            return False

    def close(self):
        self.consumer.close()


class Aiokafka(Member):
    def open(self):
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.begin())

    async def begin(self):
        from aiokafka import AIOKafkaConsumer

        self.consumer = AIOKafkaConsumer(
            self.where,
            bootstrap_servers=self.address,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
        )
        await self.consumer.start()

    def poll(self):
        got = self.loop.run_until_complete(self.consumer.getmany(timeout_ms=100, max_records=40))
        self.has(p.partition for p in self.consumer.assignment())
        return [(m.partition, m.offset, m.value.decode()) for part in got.values() for m in part]

    def commit(self, rows):
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        behind = {TopicPartition(self.where, p): o for p, o in positions(rows).items()}
        try:
            self.loop.run_until_complete(self.consumer.commit(behind))
            return True
        except KafkaError:
            for part in set(behind) & set(self.consumer.assignment()):
                self.consumer.seek(part, min(o for p, o, _ in rows if p == part.partition))
            return False

    def close(self):
        self.loop.run_until_complete(self.consumer.stop())
        self.loop.close()


def unknown_group(address):
    from confluent_kafka import TopicPartition
    from members import made
    from python_confluent import consumer

    name = made(address, "nobody")
    reader = consumer(address, **{"group.id": f"nobody-{name}"})
    got = reader.committed([TopicPartition(name, p) for p in (0, 1)], 10)
    expect("offsets", [(p.offset, p.error) for p in got], [(-1001, None), (-1001, None)])
    reader.close()


def admin(address):
    from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient
    from members import Ledger, fill, made, until

    name, ledger = made(address, "admin"), Ledger()
    group = f"g-{name}"
    fill(address, name, 0, 10)
    member = Rdkafka(address, group, "M", name, ledger)
    member.start()
    until("taken", lambda: ledger.count() >= 60, [member])
    client = AdminClient({"bootstrap.servers": address})
    listed = {g.group_id: g for g in client.list_consumer_groups().result(20).valid}
    expect("listed", (listed[group].state, listed[group].is_simple_consumer_group), (ConsumerGroupState.STABLE, False))
    told = client.describe_consumer_groups([group])[group].result(20)
    expect(
        "described", (told.state, len(told.members), told.partition_assignor), (ConsumerGroupState.STABLE, 1, "range")
    )
    parts = {p.partition for p in told.members[0].assignment.topic_partitions}
    expect("assignment", parts, set(range(6)))
    where = ConsumerGroupTopicPartitions(group)
    offsets = lambda: {
        p.partition: p.offset for p in client.list_consumer_group_offsets([where])[group].result(20).topic_partitions
    }
    expect("offsets", offsets(), {p: 10 for p in range(6)})
    refused = client.delete_consumer_groups([group])[group].exception(20)
    expect("delete with a member", refused.args[0].name(), "NON_EMPTY_GROUP")
    member.end()
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 2, 4)])
    client.alter_consumer_group_offsets([change])[group].result(20)
    expect("altered", offsets()[2], 4)
    client.delete_consumer_groups([group])[group].result(20)
    expect("offsets after the end", offsets(), {})
    gone = client.delete_consumer_groups([group])[group].exception(20)
    expect("delete again", gone.args[0].name(), "GROUP_ID_NOT_FOUND")
