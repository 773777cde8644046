"""kill -9 in the middle of cleans: after every start a compacted topic says of each key what was written last.

Two threads write numbered values of a few keys; the broker cleans at a bounded rate, so that most kills fall into a
clean. What was acknowledged must be what a reader from the start to the end offset ends with, or something newer that
was sent and not answered. Offsets never change their records, and the log end never moves back.
"""

import random
import threading
import time

from batches import batch, batches, record
from load import BROKEN
from servers import against
from wire import Cluster

TOPIC = "compacted"
PARTITIONS = 2
KEYS = 40
PAUSE_SECONDS = 0.01
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.io.max.bytes.per.second": str(24 << 20),
    # Fewer keys than there are: cleans end early and go on.
    "log.cleaner.dedupe.buffer.size": "1200",
}


class Wrong(Exception):
    """The broker broke a promise."""


class Writer(threading.Thread):
    """Writes one partition until its connection breaks."""

    def __init__(self, address, partition, log, seed):
        super().__init__(daemon=True)
        self.address, self.partition, self.log = address, partition, log
        self.random = random.Random(seed)
        self.halt = threading.Event()
        self.wrong = None

    def run(self):
        cluster = Cluster(self.address, seconds=10)
        try:
            cluster.find(TOPIC, PARTITIONS)
            # No more than the cleaner's pace can follow, however fast the broker.
            while not self.halt.wait(PAUSE_SECONDS):
                self.write(cluster)
        except Wrong as what:
            self.wrong = what
        except BROKEN:
            pass
        finally:
            cluster.drop()

    def write(self, cluster):
        log, made = self.log, []
        for _ in range(self.random.choice((1, 3, 8))):
            log.number += 1
            tombstone = self.random.random() < 0.05
            made.append((f"k{self.random.randrange(KEYS)}".encode(), None if tombstone else f"{log.number}".encode()))
        pad = b"." * self.random.choice((100, 8000, 20000))
        parts = [record(i, v and v + pad, k) for i, (k, v) in enumerate(made)]
        log.asked = made
        answer = cluster.produce(TOPIC, batch([b""] * len(made), records=b"".join(parts)), self.partition)
        if answer["ErrorCode"]:
            raise Wrong(f"a batch was answered with {answer['ErrorCode']}")
        log.asked = []
        for i, (key, value) in enumerate(made):
            log.newest[key] = value
            log.at[answer["BaseOffset"] + i] = (key, value)
        log.end = answer["BaseOffset"] + len(made)


class Log:
    """What was written to one partition."""

    def __init__(self):
        self.number = self.end = 0
        self.newest = {}  # acknowledged last, by key
        self.asked = []  # sent and not answered
        self.at = {}  # acknowledged, by offset


def read(cluster, partition):
    """(offset, key, value) from the start to the end offset, and that offset."""
    end = cluster.offset(TOPIC, partition)
    at, out = cluster.offset(TOPIC, partition, timestamp=-2), []
    while at < end:
        part = cluster.fetch(TOPIC, at, partition, max_bytes=4 << 20)
        found = [one for one in batches(part["Records"]) if one.last_offset >= at]
        if part["ErrorCode"] or not found:
            raise Wrong(f"reading {at} below {end} gave code {part['ErrorCode']} and nothing")
        for one in found:
            if not one.crc_holds():
                raise Wrong(f"the batch at {one.base_offset} has a wrong CRC")
            out += [(r[0], r[2], r[3] and r[3].rstrip(b".")) for r in one.records() if r[0] >= at]
            at = one.last_offset + 1
    return out, end


def check(cluster, partition, log):
    """The promises; takes what was unanswered and is there for written. Gives the number of records."""
    found, end = read(cluster, partition)
    if end < log.end or end not in (log.end, log.end + len(log.asked)):
        raise Wrong(f"partition {partition} ends at {end}: {log.end} are acknowledged, {len(log.asked)} unanswered")
    if end > log.end:
        for i, (key, value) in enumerate(log.asked):
            log.newest[key] = value
            log.at[log.end + i] = (key, value)
        log.end = end
    log.asked = []
    moved = [offset for offset, key, value in found if log.at[offset] != (key, value)]
    state = {}
    for _, key, value in found:
        state[key] = value
    alive = {key: value for key, value in log.newest.items() if value is not None}
    lost = {k: (v, state.get(k)) for k, v in alive.items() if state.get(k) != v}
    risen = {k: v for k, v in state.items() if v is not None and k not in alive}
    if moved or lost or risen:
        raise Wrong(f"partition {partition}: changed {moved[:5]}, lost {lost}, came back {risen}")
    # A clean may take the first record away between two looks, but not for ever: nobody writes now.
    for _ in range(20):
        by_time = cluster.offset(TOPIC, partition, timestamp=1)
        if not found or by_time == found[0][0]:
            break
        found, _ = read(cluster, partition)
    else:
        raise Wrong(f"partition {partition}: the first record by time is {by_time}, the first one is {found[0][0]}")
    return len(found)


def unfinished(server):
    """Whether a kill fell into a clean."""
    names = [path.name for path in (server.data / "topics").glob(f"{TOPIC}.*/*/*.log.cleaned")]
    return bool(names)


def campaign(given, mode):
    server = against(given.against, SETTINGS, mode=mode)
    rng = random.Random(given.seed)
    logs = [Log() for _ in range(PARTITIONS)]
    into_clean = 0
    try:
        server.start()
        cluster = Cluster(server.address())
        cluster.create(
            TOPIC,
            PARTITIONS,
            cleanup_policy="compact",
            segment_bytes=1 << 20,
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms=rng.choice((0, 2000)),
        )
        for number in range(given.cycles):
            writers = [Writer(server.address(), p, log, rng.random()) for p, log in enumerate(logs)]
            for writer in writers:
                writer.start()
            time.sleep(rng.choice((0.3, 0.8, 1.5, 2.5)))
            server.kill()
            for writer in writers:
                writer.halt.set()
                writer.join(20)
                if writer.wrong:
                    raise writer.wrong
            into_clean += unfinished(server)
            while rng.random() < 0.25:
                server.start_and_kill(rng.random() * 0.1)
            server.start()
            cluster = Cluster(server.address())
            cluster.find(TOPIC, PARTITIONS)
            counts = [check(cluster, p, log) for p, log in enumerate(logs)]
            cluster.drop()
        written, left = sum(log.end for log in logs), sum(counts)
        assert left < written * 0.8, f"{left} of {written} records are left: next to nothing was compacted"
        assert into_clean, "no kill fell into a clean: this run shows nothing"
        said = server.log.read_text(errors="replace")
        assert "is not compacted until" not in said, server.log_tail()
        return f"{given.cycles} cycles, {into_clean} kills in a clean, {left} of {written} records left"
    except Wrong as what:
        raise AssertionError(f"seed {given.seed}: {what}") from None
    finally:
        server.__exit__()


def checks(report, given, mode):
    report.check(f"kill -9 in a clean, {mode}, seed {given.seed}", campaign, given, mode)
