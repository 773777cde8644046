"""SIGINT and SIGTERM under load: the broker ends with 0 in time, and the next start has nothing to read again."""

import random
import signal
import threading
import time

from batches import batch
from load import BROKEN, Producer, Reader, faults, read_all
from report import expect
from servers import against
from wire import Cluster, Connection

TOPIC = "stop"
PARTITIONS = 4
DRAIN_SECONDS = 10
# What a start after an orderly end never says.
RECOVERY = ("the log ends here", "is dropped", "are rebuilt", "set aside", "could not be", "ERROR", "panicked")


class Careless(threading.Thread):
    """Sends with acks=0 as fast as the broker reads: records that nobody waits for are in work at the end too."""

    def __init__(self, address, partition):
        super().__init__(daemon=True)
        self.address, self.partition = address, partition
        self.halt = threading.Event()

    def run(self):
        while not self.halt.is_set():
            try:
                cluster = Cluster(self.address, seconds=5)
                cluster.find(TOPIC, PARTITIONS)
                connection = Connection(cluster.leader(TOPIC, self.partition), seconds=5)
                cluster.drop()
                self.send(connection)
                connection.close()
            except BROKEN:
                time.sleep(0.02)

    def send(self, connection):
        number = 0
        while not self.halt.is_set():
            part = {"Index": self.partition, "Records": batch([f"careless:{number}".encode() + b"." * 3000])}
            value = {"Acks": 0, "TimeoutMs": 1000, "TopicData": [{"Name": TOPIC, "PartitionData": [part]}]}
            connection.send(connection.request("Produce", 9, value))
            number += 1
            if number % 50 == 0:
                time.sleep(0.005)


def run(given, mode, how):
    settings = {"shutdown.drain.timeout.ms": str(DRAIN_SECONDS * 1000)}
    server = against(given.against, settings, mode=mode)
    rounds = max(2, given.cycles // 5)
    rng = random.Random(given.seed)
    try:
        server.start()
        cluster = Cluster(server.address())
        # The partitions of careless records are beside those that are judged.
        cluster.create(TOPIC, PARTITIONS, segment_bytes=1 << 20)
        cluster.drop()
        judged = range(PARTITIONS - 1)
        producers = [Producer(server.address(), TOPIC, p, f"p{p}", 5, rng.random()) for p in judged]
        careless = Careless(server.address(), PARTITIONS - 1)
        reader = Reader(server.address(), TOPIC, len(judged))
        for thread in (*producers, careless, reader):
            thread.start()
        slowest = 0.0
        for number in range(rounds):
            slowest = max(slowest, one_round(server, rng, how, number))
            broken = [p.violation for p in producers if p.violation] + [reader.violation] * bool(reader.violation)
            assert not broken, f"after round {number + 1}: {broken}"
        for thread in (*producers, careless):
            thread.halt.set()
        for thread in producers:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.uid} was not answered within 60 s"
        reader.halt.set()
        reader.join(20)
        logs = {p: read_all(server.address(), TOPIC, p) for p in judged}
        wrong = faults(logs, producers, reader.seen)
        assert not wrong, wrong
        acked = sum(count for p in producers for _, count, _ in p.acked)
        assert acked, "nothing was acknowledged: this run shows nothing"
        again = sum(p.resent for p in producers)
        return f"{rounds} ends, the slowest {slowest:.2f} s, {acked} records all there once, {again} batches sent again"
    finally:
        server.__exit__()


def one_round(server, rng, how, number):
    time.sleep(rng.choice((0.2, 0.6, 1.2)))
    began = time.monotonic()
    expect("exit code", server.stop(DRAIN_SECONDS + 20, how), 0)
    seconds = time.monotonic() - began
    assert seconds < DRAIN_SECONDS, f"ended after {seconds:.1f} s"
    said = server.log.stat().st_size if server.log.exists() else 0
    server.start()
    if server.kind == "oncilla":
        with open(server.log, errors="replace") as log:
            log.seek(said)
            lines = log.read().splitlines()
        bad = [line for line in lines if any(word in line for word in RECOVERY)]
        assert not bad, f"round {number + 1}: the start after an orderly end says {bad[:3]}"
    return seconds


def checks(report, given, mode):
    for how in (signal.SIGINT, signal.SIGTERM):
        report.check(f"{how.name} under load, {mode}, seed {given.seed}", run, given, mode, how)
