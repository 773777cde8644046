"""The row of compaction: what a cleaner at work costs the producers beside it.

Both runs have the same background load on a second topic, written over and over with the same keys; in one of them the
topic is compacted, with settings that keep the cleaner busy all the time.
"""

import itertools
import random
import threading

from batches import batch, record
from wire import Cluster

KEYS = 1000
RECORDS = 100
VALUE = bytes(1024)
KEPT_BUSY = {"segment_bytes": 1 << 20, "min_cleanable_dirty_ratio": "0.01"}


class Rewriter:
    """Writes batches of 100 KiB at a steady rate until it is closed."""

    def __init__(self, server, topic, per_second=50):
        self.ended = threading.Event()
        self.written = 0
        self.thread = threading.Thread(target=self.run, args=(server, topic, 1 / per_second), daemon=True)
        self.thread.start()

    def run(self, server, topic, pause):
        cluster = Cluster(server.address(), seconds=60)
        cluster.find(topic)
        order = random.Random(7)
        for _ in itertools.count():
            if self.ended.wait(pause):
                return
            records = b"".join(record(n, VALUE, b"%06d" % order.randrange(KEYS)) for n in range(RECORDS))
            answer = cluster.produce(topic, batch([VALUE] * RECORDS, records=records))
            assert answer["ErrorCode"] == 0, answer
            self.written += RECORDS * len(VALUE)

    def close(self):
        self.ended.set()
        self.thread.join(20)


def beside(side, policy):
    """What `latency_rows` prepares: a topic of that policy, and its rewriter at work."""

    def prepare(_, server):
        cluster = Cluster(server.address(), seconds=60)
        settings = KEPT_BUSY if policy == "compact" else {"segment_bytes": KEPT_BUSY["segment_bytes"]}
        topic = cluster.create(f"rewritten-{policy}", 1, cleanup_policy=policy, **settings, **side.topic_configs())
        cluster.drop()
        return Rewriter(server, topic)

    return prepare
