"""Starts of a broker with many partitions, which it opens while it serves: killed in between, asked for what is not
open yet, its topics deleted meanwhile, and a transaction whose markers have nowhere to go at first.
"""

import pathlib
import random
import re
import subprocess
import time
import urllib.request

from batches import batch, batches
from servers import against, binary
from wire import Cluster, Connection

KEPT, GONE = "starts", "starts-gone"
OF_TRANSACTION = 24
RECORDS = 10
VALUE = bytes(2000)
FIRST_ID = 5_000_000
NOT_YET = (5, 6)
CONTROL = 0x20
WAIT_S = 60


def idempotent(partition):
    return batch([VALUE] * RECORDS, pid=FIRST_ID + partition, epoch=0, seq=0)


def by_leader(cluster, topic, partitions):
    found = {}
    for partition in partitions:
        found.setdefault(cluster.leader(topic, partition), []).append(partition)
    return found


def fill(cluster, topic, partitions):
    """Into every partition one batch of nobody, so that an empty one would be told from it by offsets, and one by a
    producer of its own."""
    for of_nobody in (True, False):
        fill_each(cluster, topic, partitions, lambda p: batch([VALUE] * RECORDS) if of_nobody else idempotent(p))


def fill_each(cluster, topic, partitions, records):
    for address, led in by_leader(cluster, topic, range(partitions)).items():
        for first in range(0, len(led), 200):
            data = [{"Index": p, "Records": records(p)} for p in led[first : first + 200]]
            value = {"Acks": -1, "TimeoutMs": 30000, "TopicData": [{"Name": topic, "PartitionData": data}]}
            answer = cluster._call(address, "Produce", 9, value, {"seconds": 60})
            bad = [p for t in answer["Responses"] for p in t["PartitionResponses"] if p["ErrorCode"]]
            assert not bad, bad[0]


def soon(what, ask):
    """Asks until an answer has another code than that the partition has no leader yet."""
    until = time.monotonic() + WAIT_S
    while True:
        answer = ask()
        if answer["ErrorCode"] not in NOT_YET:
            return answer
        assert time.monotonic() < until, f"{what}: {answer} after {WAIT_S} s"
        time.sleep(0.02)


def duplicate(cluster, partition):
    """The batch that is there already is told its offset, and not written again."""
    answer = soon(f"a duplicate to {partition}", lambda: cluster.produce(KEPT, idempotent(partition), partition))
    assert (answer["ErrorCode"], answer["BaseOffset"]) == (0, RECORDS), answer


def opening(server):
    text = urllib.request.urlopen(f"http://{server.http}/metrics", timeout=5).read().decode()
    return sum(int(float(n)) for n in re.findall(r"^\w*kafka_opening_partitions\S* (\S+)$", text, re.M))


class Transaction:
    """Records in the first partitions, committed as far as the coordinator: the broker is killed behind the answer."""

    def __init__(self, cluster):
        found = cluster.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["starts"]})["Coordinators"][0]
        self.cluster, self.at = cluster, Connection((found["Host"], found["Port"]))
        self.who = {"TransactionalId": "starts"}
        made = self.call("InitProducerId", 4, {"TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1})
        self.who.update({"ProducerId": made["ProducerId"], "ProducerEpoch": made["ProducerEpoch"]})

    def call(self, name, version, more):
        return self.at.call(name, version, {**self.who, **more})

    def commit(self):
        topics = [{"Name": KEPT, "Partitions": list(range(OF_TRANSACTION))}]
        old = {f"V3AndBelow{k}": v for k, v in {**self.who, "Topics": topics}.items()}
        self.at.call("AddPartitionsToTxn", 3, old)
        pid, epoch = self.who["ProducerId"], self.who["ProducerEpoch"]
        for partition in range(OF_TRANSACTION):
            records = batch([b"in a transaction"], pid=pid, epoch=epoch, seq=0, transactional=True)
            answer = self.cluster.produce(KEPT, records, partition, transactional_id="starts")
            assert answer["ErrorCode"] == 0, answer
        answer = self.call("EndTxn", 3, {"Committed": True})
        assert answer["ErrorCode"] == 0, answer


def ends(cluster, partitions, isolation=0):
    found = {}
    for address, led in by_leader(cluster, KEPT, range(partitions)).items():
        asked = [{"PartitionIndex": p, "Timestamp": -1} for p in led]
        value = {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": [{"Name": KEPT, "Partitions": asked}]}
        answer = cluster._call(address, "ListOffsets", 5, value, {"seconds": 60})
        for told in answer["Topics"][0]["Partitions"]:
            found[told["PartitionIndex"]] = told["Offset"] if told["ErrorCode"] == 0 else told["ErrorCode"] - 1000
    return found


def settled(cluster, partitions):
    """Ends of all partitions, once all are open and no transaction is. A coordinator that does not know whether its
    marker was written writes it again, so there may be more than one."""
    until = time.monotonic() + WAIT_S
    while True:
        found, stable = ends(cluster, partitions), ends(cluster, partitions, isolation=1)
        least = {p: 2 * RECORDS + 2 * (p < OF_TRANSACTION) for p in range(partitions)}
        wrong = [p for p in least if stable[p] != found[p] or found[p] < least[p]]
        wrong += [p for p in range(OF_TRANSACTION, partitions) if found[p] != 2 * RECORDS]
        if not wrong:
            return found
        first = [(p, found[p], stable[p]) for p in wrong[:5]]
        assert time.monotonic() < until, f"{len(wrong)} partitions: (partition, its end, its stable end) {first}"
        time.sleep(0.05)


def consumed(server, partition):
    """What the command reads of a partition that may not be open yet."""
    args = ["consume", KEPT, "--bootstrap", server.bootstrap, "--partition", str(partition), "--from", "beginning"]
    done = subprocess.run([binary(), *args, "--exit-at-end"], capture_output=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.count(b"\n")


def run(given, mode):
    partitions = 4000 if given.cycles >= 200 else 1000
    rng = random.Random(given.seed)
    server = against(given.against, mode=mode)
    try:
        server.start()
        cluster = Cluster(server.address(), seconds=60)
        for topic in (KEPT, GONE):
            cluster.create(topic, partitions, max_message_bytes=1 << 20)
            fill(cluster, topic, partitions)
        Transaction(cluster).commit()
        server.kill()
        cluster.drop()
        still_opening = [first_start(server, partitions)]
        for _ in range(4):
            time.sleep(rng.random() * 0.8)
            server.kill()
            server.start()
            still_opening.append(opening(server))
            cluster = Cluster(server.address(), seconds=60)
            cluster.find(KEPT, partitions)
            for partition in rng.sample(range(partitions), 10):
                duplicate(cluster, partition)
            cluster.drop()
        return f"{partitions} partitions, {still_opening} still to be opened when the broker served; " + judge(
            server, partitions, rng
        )
    finally:
        server.__exit__()


def first_start(server, partitions):
    """Nothing is open but what half a second was enough for, and it is used at once."""
    server.start()
    left = opening(server)
    cluster = Cluster(server.address(), seconds=60)
    cluster.delete(GONE)
    cluster.find(KEPT, partitions)
    duplicate(cluster, partitions - 1)
    assert consumed(server, partitions - 2) == 2 * RECORDS
    cluster.drop()
    return left


def judge(server, partitions, rng):
    cluster = Cluster(server.address(), seconds=60)
    cluster.find(KEPT, partitions)
    wanted = settled(cluster, partitions)
    for partition in {*range(OF_TRANSACTION), *rng.sample(range(partitions), 20)}:
        duplicate(cluster, partition)
        found = [b for b in batches(cluster.fetch(KEPT, partition=partition)["Records"]) if not b.attributes & CONTROL]
        records = sum(len(b.records()) for b in found)
        assert records == 2 * RECORDS + (partition < OF_TRANSACTION), f"{records} records in partition {partition}"
    assert ends(cluster, partitions) == wanted, "duplicates were written"
    cluster.drop()
    left = [name for name in (pathlib.Path(server.data) / "topics").iterdir() if name.name.startswith(GONE)]
    assert not left, f"files of a topic that was deleted: {left}"
    return f"all {sum(wanted.values())} offsets are there once"


def checks(report, given, mode):
    report.check(f"starts that serve before everything is open, {mode}, seed {given.seed}", run, given, mode)
