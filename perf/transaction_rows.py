"""Transactions for perf/compare: one and sixteen producers, the phases of a commit and an abort, a reader behind them,
and what a transactional id costs when there are 100,000 of them.

The Java client measures all but the last (perf/java/TxnBench.java). Sixteen producers and one count the whole
transaction: ten records over four partitions until they are acknowledged, then its end.
"""

import selectors
import time

from group_rows import flush_each_write, offsets_durable
from wire import Cluster, Connection, decode_answer

COORDINATOR_OF_TRANSACTIONS = 1
TIMEOUT_MS = 60_000
MANY_IDS = 100_000
LANES = 64
# The client's machine code takes 10 to 20 s to be made where broker and client share two cores. Until then a
# sequential transaction waits for the compiler's threads: p99 is four times what it is afterwards.
WARMUP_S = 20


def durable(side, server):
    """Waits until the coordinator serves, and has Kafka flush its topics of transactions and offsets."""
    coordinators(server, ["warm-up"])
    flush_each_write(side, server, "__transaction_state")
    offsets_durable(side, server)


def coordinators(server, ids, seconds=60):
    """Address by transactional id; asks again until all are there."""
    connection, found, until = Connection(server.address()), {}, time.monotonic() + seconds
    try:
        while missing := [i for i in ids if i not in found]:
            assert time.monotonic() < until, f"no coordinator for {missing[:3]}"
            keys = {"KeyType": COORDINATOR_OF_TRANSACTIONS, "CoordinatorKeys": missing[:1000]}
            for one in connection.call("FindCoordinator", 4, keys)["Coordinators"]:
                if one["ErrorCode"] == 0:
                    found[one["Key"]] = (one["Host"], one["Port"])
            if missing[0] not in found:
                time.sleep(0.1)
    finally:
        connection.close()
    return found


def producers(side, java, scaled, count, label):
    with side.start() as server:
        topic = side.topic(server, 4)
        durable(side, server)
        row = java(server, topic, "transactions", producers=count, seconds=scaled(10, 4), warmup=scaled(WARMUP_S, 2))
        return {
            f"{label} (transactions/s, more is better)": row["per_s"],
            f"{label} p50 (us, less)": row["whole_p50"],
            f"{label} p99 (us, less)": row["whole_p99"],
        }


def phases(side, java, scaled):
    rows = {}
    with side.start() as server:
        durable(side, server)
        for partitions in (1, 3, 10, 100):
            for abort in (0, 1):
                topic = side.topic(server, partitions)
                shape = {"partitions": partitions, "records": partitions, "abort": abort}
                row = java(server, topic, "transactions", seconds=scaled(8, 3), warmup=scaled(3, 1), **shape)
                label = f"{'abort' if abort else 'commit'} of {partitions} partition{'s' * (partitions > 1)}"
                for phase in ("written", "end"):
                    for point in ("p50", "p99", "p999"):
                        rows[f"P4 {label}, {phase} {point} (us, less)"] = row[f"{phase}_{point}"]
    return rows


def end_to_end(side, java, scaled):
    with side.start() as server:
        topic = side.topic(server, 4)
        row = java(server, topic, "e2e", seconds=scaled(10, 4), warmup=scaled(WARMUP_S, 2))
        label = "P6 end to end at 1,000/s, read_committed,"
        return {f"{label} {point} (us, less)": row[f"e2e_{point}"] for point in ("p50", "p99", "p999")}


def fill(server, ids):
    """Every id gets a producer id, over a bounded number of connections that each have one request out."""
    by_address = {}
    for name, address in coordinators(server, ids).items():
        by_address.setdefault(address, []).append(name)
    selector, waiting = selectors.DefaultSelector(), 0

    def send(lane):
        nonlocal waiting
        connection, names = lane
        if not names:
            selector.unregister(connection.socket)
            connection.close()
            return
        value = {"TransactionalId": names.pop(), "TransactionTimeoutMs": TIMEOUT_MS, "ProducerId": -1, "ProducerEpoch": -1}
        connection.send(connection.request("InitProducerId", 4, value))
        waiting += 1

    for address, names in by_address.items():
        count = max(1, LANES // len(by_address))
        for n in range(count):
            lane = (Connection(address), names[n::count])
            selector.register(lane[0].socket, selectors.EVENT_READ, lane)
            send(lane)
    while waiting:
        for key, _ in selector.select(30):
            waiting -= 1
            answer = decode_answer("InitProducerId", 4, key.data[0].answer()[1])
            assert answer["ErrorCode"] == 0, answer
            send(key.data)


def id_latencies(server, topic, ids, seconds):
    """Sorted microseconds of InitProducerId and EndTxn, one id after the other."""
    at = coordinators(server, ids)
    connections = {address: Connection(address) for address in set(at.values())}
    inits, ends, until = [], [], time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        name = ids[number % len(ids)]
        number += 1
        connection = connections[at[name]]
        began = time.monotonic()
        value = {"TransactionalId": name, "TransactionTimeoutMs": TIMEOUT_MS, "ProducerId": -1, "ProducerEpoch": -1}
        made = again(connection, "InitProducerId", 4, value)
        inits.append((time.monotonic() - began) * 1e6)
        who = {"TransactionalId": name, "ProducerId": made["ProducerId"], "ProducerEpoch": made["ProducerEpoch"]}
        wanted = {"Topics": [{"Name": topic, "Partitions": [0]}]}
        old = {f"V3AndBelow{k}": v for k, v in {**who, **wanted}.items()}
        added = connection.call("AddPartitionsToTxn", 3, old)
        assert added["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"] == 0, added
        began = time.monotonic()
        again(connection, "EndTxn", 3, {**who, "Committed": True})
        ends.append((time.monotonic() - began) * 1e6)
    for connection in connections.values():
        connection.close()
    return sorted(inits), sorted(ends)


CONCURRENT_TRANSACTIONS = 51


def again(connection, name, version, value):
    """Asks until no earlier transaction is being completed, as every client does."""
    while (answer := connection.call(name, version, value))["ErrorCode"] == CONCURRENT_TRANSACTIONS:
        time.sleep(0.0002)
    assert answer["ErrorCode"] == 0, answer
    return answer


def many_ids(side, scaled):
    rows = {}
    with side.start({"transaction.max.timeout.ms": "900000"}) as server:
        topic = side.topic(server, 1)
        durable(side, server)
        few = [f"few-{n}" for n in range(10)]
        id_latencies(server, topic, few, scaled(2, 1))
        for label, ids in (("10", 0), (f"{MANY_IDS:,}", scaled(MANY_IDS, 5000))):
            fill(server, [f"many-{n}" for n in range(ids)])
            inits, ends = id_latencies(server, topic, few, scaled(10, 3))
            for what, times in (("InitProducerId", inits), ("EndTxn", ends)):
                for name, share in (("p50", 0.5), ("p99", 0.99)):
                    rows[f"S4 {what} with {label} ids, {name} (us, less)"] = times[int(len(times) * share)]
        Cluster(server.address()).drop()
    return rows
