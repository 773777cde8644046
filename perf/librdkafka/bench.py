"""One measurement of a broker with librdkafka, through its Python binding, on a topic that exists.

    bench.py BOOTSTRAP TOPIC latency key=value...       at `rate` records a second, from the time each was due
    bench.py BOOTSTRAP TOPIC transactions key=value...  one producer, one transaction after the other

partitions, size, rate, records (of one transaction), abort (0 or 1), seconds, warmup (seconds), samples (directory).
x.NAME=VALUE is a setting of librdkafka. Every latency goes to a file of samples/ for each quantity: pairs of two 64-bit
integers, the ns since the warm-up at which it ended and the ns that it took. The binding costs tens of microseconds a
record, so this is for latencies at a rate, and not for what librdkafka can do at best. The last line is JSON.
"""

import array
import json
import pathlib
import sys
import threading
import time

import confluent_kafka

FLUSH_SECONDS = 120
given = {"partitions": 1, "size": 1024, "rate": 1000, "records": 1, "abort": 0, "seconds": 10, "warmup": 3}
settings = {"enable.idempotence": True, "linger.ms": 0}


class Samples:
    """Latencies of one quantity; only one thread at a time adds to them."""

    def __init__(self, name):
        self.name = name
        self.pairs = array.array("q")

    def add(self, ended_ns, took_ns):
        self.pairs.extend((ended_ns, took_ns))

    def keep(self, directory):
        if sys.byteorder == "little":
            self.pairs.byteswap()
        (directory / self.name).write_bytes(self.pairs.tobytes())


def value():
    return bytes(i * 131 % 251 for i in range(given["size"]))


def latency(bootstrap, topic):
    payload, times, failed = value(), Samples("produce"), 0
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    producer.list_topics(topic, 30)
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            producer.poll(0.1)

    server = threading.Thread(target=serve)
    server.start()
    rate, partitions = given["rate"], given["partitions"]
    skipped = given["warmup"] * rate
    start = time.monotonic_ns()
    counting = start + given["warmup"] * 1_000_000_000
    for i in range(skipped + given["seconds"] * rate):
        # A record that is late because an earlier one blocked still counts from when it was due.
        due = start + i * 1_000_000_000 // rate
        while (left := due - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)

        def told(error, _, due=due, counts=i >= skipped):
            nonlocal failed
            now = time.monotonic_ns()
            if error:
                failed += 1
            elif counts:
                times.add(now - counting, now - due)

        while True:
            try:
                producer.produce(topic, payload, partition=i % partitions, on_delivery=told)
                break
            except BufferError:
                time.sleep(0.001)
    left = producer.flush(FLUSH_SECONDS)
    ended.set()
    server.join()
    return [times], failed + left


def transactions(bootstrap, topic):
    payload, failed = value(), 0
    whole, send, end = Samples("txn"), Samples("send"), Samples("abort" if given["abort"] else "commit")
    own = {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{topic}", **settings}
    producer = confluent_kafka.Producer(own)
    producer.init_transactions(60)

    def told(error, _):
        nonlocal failed
        failed += bool(error)

    counting = time.monotonic_ns() + given["warmup"] * 1_000_000_000
    until = counting + given["seconds"] * 1_000_000_000
    while (began := time.monotonic_ns()) < until:
        producer.begin_transaction()
        for i in range(given["records"]):
            producer.produce(topic, payload, partition=i % given["partitions"], on_delivery=told)
        assert producer.flush(FLUSH_SECONDS) == 0, "records without an outcome"
        written = time.monotonic_ns()
        if given["abort"]:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
        ended = time.monotonic_ns()
        if began >= counting:
            whole.add(ended - counting, ended - began)
            send.add(written - counting, written - began)
            end.add(ended - counting, ended - written)
    return [whole, send, end], failed


def main():
    bootstrap, topic, what, *pairs = sys.argv[1:]
    directory = None
    for pair in pairs:
        name, text = pair.split("=", 1)
        if name == "samples":
            directory = pathlib.Path(text)
        elif name.startswith("x."):
            settings[name[2:]] = text
        elif name in given:
            given[name] = int(text)
        else:
            raise SystemExit(f"no such key: {name}")
    all_samples, failed = {"latency": latency, "transactions": transactions}[what](bootstrap, topic)
    counts = {samples.name: len(samples.pairs) // 2 for samples in all_samples}
    for samples in all_samples if directory else []:
        samples.keep(directory)
    version = confluent_kafka.libversion()[0]
    print(json.dumps({"what": what, "n": next(iter(counts.values())), "failed": failed, "version": version}))


if __name__ == "__main__":
    main()
