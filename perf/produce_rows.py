"""Producers for perf/compare: a sustained load by librdkafka (P1, P8), the same with one core and with two (S6), and
what a broker adds to disk and network with Oncilla's native client (P12).
"""

import tempfile

import librdkafka_load
import own_tool
import transaction_rows

PARTITIONS = 16
RECORD_BYTES = 1024
LINGER_MS = 5
# More than Oncilla's cache holds, which is 1 GiB, and enough for a JVM to have made its machine code.
WARMUP_RECORDS = 1_500_000
MEASURED_RECORDS = 3_000_000
NATIVE_PER_SECOND = 1000
# The names that `oncilla-perf floor` gives to what it measures at the pace of that load.
PACED_WRITE = "durable 4 KiB write, one a ms to 4 files"
PACED_TRIP = "TCP round trip, 64 bytes, one a ms"


def sustained(side, server, scaled):
    """MB/s, and the broker's CPU seconds per million records, both of what follows the warm-up."""
    topic = side.topic(server, PARTITIONS)
    count = scaled(MEASURED_RECORDS, 200_000)
    load = {"size": RECORD_BYTES, "linger": LINGER_MS}
    librdkafka_load.produce(server, topic, PARTITIONS, scaled(WARMUP_RECORDS, 40_000), **load)
    before = server.cpu_seconds()
    rate = librdkafka_load.produce(server, topic, PARTITIONS, count, **load)
    return rate, (server.cpu_seconds() - before) / (count / 1e6)


def saturated(side, scaled):
    after = f"after a warm-up of {scaled(WARMUP_RECORDS, 40_000):,} records"
    with side.start() as server:
        rate, cpu = sustained(side, server, scaled)
        return {
            f"P1 sustained produce {after}, librdkafka, 16 partitions, 1 KiB (MB/s, more is better)": rate,
            f"P8 broker CPU s per million records {after} (less)": cpu,
            "P9 memory under load (MiB, less)": server.rss_kib() / 1024,
        }


def cores(side, scaled):
    """Oncilla alone. Where the client shares the cores MB/s cannot double: CPU per record is then what tells."""
    if side.name != "oncilla":
        return {}
    rows = {}
    for count in (1, 2):
        with side.start(cores=count) as server:
            rate, cpu = sustained(side, server, scaled)
        label = f"S6 sustained produce with {count} core{'s' * (count > 1)},"
        rows[f"{label} librdkafka, 16 partitions, 1 KiB (MB/s, more)"] = rate
        rows[f"{label} broker CPU s per million records (less)"] = cpu
    return rows


def floors_beside(server):
    """p50 of the paced write and of the paced round trip, in us, on the disk of the broker's data."""
    with tempfile.TemporaryDirectory(prefix="oncilla-floor-", dir=server.data.parent) as scratch:
        floors = own_tool.floors(scratch)
    return floors[PACED_WRITE]["p50"], floors[PACED_TRIP]["p50"]


def overhead(side, scaled):
    """The floors are those just before the load, when the broker is idle. The disk's is measured after it too: where
    the two differ the disk was not the same all the time, and the difference says nothing of the broker.
    """
    with side.start() as server:
        topic = side.topic(server, 4)
        write, trip = floors_beside(server)
        # The client would wait 5 ms for more records, as Java's does.
        load = ("--topic", topic, "--rate", NATIVE_PER_SECOND, "-X", "linger.ms=0")
        length = ("--seconds", scaled(20, 4), "--warmup-seconds", scaled(transaction_rows.WARMUP_S, 2))
        times = own_tool.loaded(server, "produce", *load, *length)["produce"]
        write_after, _ = floors_beside(server)
    label = f"P12 native client at {NATIVE_PER_SECOND:,}/s over 4 partitions, linger 0,"
    return {
        f"{label} p50 (us, less)": times["p50"],
        f"P12 floor before it: {PACED_WRITE}, p50 (us)": write,
        f"P12 floor before it: {PACED_TRIP}, p50 (us)": trip,
        f"P12 floor after it: {PACED_WRITE}, p50 (us)": write_after,
        f"{label} p50 less both floors before it (us, less)": times["p50"] - write - trip,
    }
