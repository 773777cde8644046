#!/usr/bin/env python3
"""A transactional client of librdkafka that tells what it does, in the lines of history.py.

    txn_librdkafka.py BOOTSTRAP TOPIC PARTITIONS TRANSACTIONAL_ID RUN GROUP SEED

Without a group (`-`) it reads all partitions by hand. Every transaction polls and sends; some are aborted. It ends when
its input ends, with 3 when it was fenced, with 4 when its producer is in any other way beyond use.
"""

import os
import random
import select
import sys
import time
import traceback

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

CALL_SECONDS = 10
# A few clients at full speed would leave no processor to those that start.
PAUSE_SECONDS = 0.01
DEBUG = {"debug": "eos,protocol", "log_level": 7} if "ONCILLA_CLIENT_LOGS" in os.environ else {}


class Fatal(Exception):
    """The producer cannot go on."""


class Client:
    def __init__(self, bootstrap, topic, partitions, tid, run, group, seed):
        self.topic, self.partitions, self.name = topic, int(partitions), f"{tid}.{run}"
        self.group = "" if group == "-" else group
        self.random = random.Random(seed)
        self.count = self.values = 0
        self.at = {}  # by partition the offset behind what was polled
        self.given = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
        # With `rebootstrap` (librdkafka 2.16) send_offsets_to_transaction may wait for ever for a coordinator that it
        # forgot when the broker, or its last node, went away.
        self.given["metadata.recovery.strategy"] = "none"
        self.producer = Producer(
            {
                **self.given,
                "transactional.id": tid,
                "transaction.timeout.ms": 20000,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                **DEBUG,
            }
        )
        self.consumer = Consumer(
            {
                **self.given,
                "group.id": self.group or f"none-{self.name}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 2500,
                "heartbeat.interval.ms": 300,
            }
        )

    def say(self, what, *rest):
        line = " ".join(map(str, (time.monotonic_ns(), what, *rest)))
        data = (line + "\n").encode()
        while data:
            data = data[os.write(1, data) :]

    def run(self):
        self.patiently(self.producer.init_transactions)
        self.say("ready")
        if self.group:
            self.consumer.subscribe([self.topic])
        else:
            self.go_back(range(self.partitions))
        while not select.select([sys.stdin], [], [], 0)[0]:
            if not self.group and self.random.random() < 1 / 64:
                self.go_back(self.random.sample(range(self.partitions), 2))
            self.transaction()
            time.sleep(PAUSE_SECONDS)
        self.consumer.close()

    def go_back(self, partitions):
        """Reads these partitions from the beginning; the others go on where they are."""
        self.say("assign", ",".join(map(str, partitions)))
        self.at.update(dict.fromkeys(partitions, 0))
        self.consumer.assign([TopicPartition(self.topic, p, o) for p, o in self.at.items()])

    def patiently(self, call, *args):
        """Calls until it succeeds. librdkafka says itself what may be called again."""
        while True:
            try:
                return call(*args)
            except KafkaException as error:
                what = error.args[0]
                if what.fatal():
                    raise Fatal(f"{what.name()} in {call.__name__}") from None
                if not what.retriable():
                    raise
                self.say("again", call.__name__, what.name(), what.str().replace(" ", "_"))
                time.sleep(0.02)

    def transaction(self):
        rows = self.polled(self.consumer.consume(self.random.choice((1, 5, 20)), 0.05))
        if self.group and not rows:
            return
        self.count += 1
        op = f"{self.name}-{self.count}"
        self.say("begin", op)
        self.producer.begin_transaction()
        self.told(op, rows)
        try:
            for _ in range(self.random.choice((1, 1, 2, 3))):
                self.send(op)
                if not self.group and self.random.random() < 0.3:
                    self.told(op, self.polled(self.consumer.consume(5, 0.01)))
            if self.group:
                ends = {p: o + 1 for p, o, _ in rows}
                parts = [TopicPartition(self.topic, p, o) for p, o in ends.items()]
                meta = self.consumer.consumer_group_metadata()
                self.patiently(self.producer.send_offsets_to_transaction, parts, meta, CALL_SECONDS)
            if self.random.random() < 0.15:
                self.abort(op)
                return
            self.say("commit", op)
            self.patiently(self.producer.commit_transaction, CALL_SECONDS)
            self.say("ok", op)
        except KafkaException as error:
            self.say("error", op, error.args[0].name())
            self.abort(op)

    def polled(self, messages):
        rows = [(m.partition(), m.offset(), m.value().decode()) for m in messages if not m.error()]
        self.at.update({p: o + 1 for p, o, _ in rows})
        return rows

    def told(self, op, rows):
        if rows:
            self.say("poll", op, *(f"{p}:{o}:{v}" for p, o, v in rows))

    def send(self, op):
        self.values += 1
        value, partition = f"{self.name}/{self.values}", self.random.randrange(self.partitions)
        self.say("send", op, partition, value)
        told = lambda error, m: error or self.say("sent", op, m.value().decode(), m.offset())
        self.producer.produce(self.topic, value.encode(), partition=partition, on_delivery=told)
        self.producer.poll(0)

    def abort(self, op):
        # An abort before all is answered makes librdkafka (2.16) use sequences again that the broker may have taken,
        # and end a transaction that the coordinator may not have heard of.
        while self.producer.flush(CALL_SECONDS):
            self.say("flushes", op)
        self.patiently(self.producer.abort_transaction, CALL_SECONDS)
        self.say("aborted", op)
        if self.group:
            self.rewind()

    def rewind(self):
        """Back to what is committed: the next transaction takes again what the aborted one had."""
        while True:
            held = self.consumer.assignment()
            try:
                for part in self.consumer.committed(held, CALL_SECONDS) if held else []:
                    self.consumer.seek(TopicPartition(part.topic, part.partition, max(part.offset, 0)))
                return
            except KafkaException:
                # Not assigned any more, or the broker is away: the consumer hears of either.
                self.consumer.poll(0)


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    try:
        client.run()
    except Fatal as fatal:
        client.say("fatal", fatal)
        sys.exit(3 if "FENCED" in str(fatal) else 4)
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        client.say("fatal", f"line {line}: {type(error).__name__}: {error}".replace("\n", " "))
        sys.exit(1)
