"""librdkafka for perf/compare: its own load generator, or the Python binding where that is not built."""

import os
import subprocess
import time

from servers import CACHE

RDKAFKA = CACHE / "librdkafka" / "examples" / "rdkafka_performance"


def rdkafka_performance(server, *args):
    """MB/s over the whole run, as librdkafka's own load generator tells in the last row of its table."""
    command = [str(RDKAFKA), "-b", server.bootstrap, "-q", "-u", *map(str, args)]
    env = {**os.environ, "LD_LIBRARY_PATH": str(RDKAFKA.parents[1] / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    rows = [[c.strip() for c in line.split("|")[1:]] for line in done.stdout.splitlines() if line.startswith("|")]
    assert done.returncode == 0 and len(rows) > 1, f"{args}: {(done.stdout + done.stderr)[-600:]}"
    head, last = rows[0], rows[-1]
    assert "dr_err" not in head or last[head.index("dr_err")] == "0", f"{args}: records were refused: {last}"
    return float(last[head.index("dr_MB/s" if "dr_MB/s" in head else "MB/s")])


def produce(server, topic, partitions, count, size, linger):
    """MB/s of one run. What warms a broker up is a run before it, so that CPU can be read in between."""
    if RDKAFKA.exists():
        made = ("-P", "-t", topic, "-s", size, "-a", -1, "-X", "enable.idempotence=true", "-X", f"linger.ms={linger}")
        return rdkafka_performance(server, *made, "-c", count)
    # Without it Python is the limit at about 100 MB/s.
    from confluent_kafka import Producer

    value = bytes(i * 131 % 251 for i in range(size))
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 1 << 19,
            "batch.size": 1_000_000,
            "on_delivery": lambda error, _: error and failed.append(error),
        }
    )

    began = time.monotonic()
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0 and not failed, f"produce at {server.kind}: {failed[:1]}"
    return count * size / 1e6 / (time.monotonic() - began)


def fetch(server, topic, partitions, count, size):
    if RDKAFKA.exists():
        parts = [word for p in range(partitions) for word in ("-p", p)]
        return rdkafka_performance(server, "-C", "-t", topic, "-o", "beginning", "-c", count, *parts)
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1 << 19,
            "fetch.message.max.bytes": 8 << 20,
            "fetch.max.bytes": 64 << 20,
            "check.crcs": False,
        }
    )
    reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    got, began = 0, time.monotonic()
    while got < count:
        got += len(reader.consume(10_000, 1.0))
        assert time.monotonic() - began < 300, f"{got} of {count} records were read"
    seconds = time.monotonic() - began
    reader.close()
    return count * size / 1e6 / seconds
