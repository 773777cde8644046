"""Transactions with Kafka's Java client and its tools: kafka-transactions, ProducerPerformance."""

import re
import subprocess
import time

import batches
from common import topic
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign import collect
from members import until
from report import expect
from servers import PEER
from shell_java import DIRECT, TOOLS, make, offsets, tool
from wire import Cluster

TRANSACTIONS = DIRECT.with_name("Transactions.java")
VERIFIES = "transaction.partition.verification.enable"


def checks(report, server):
    address = server.bootstrap
    to = ("--bootstrap-server", address)
    # What differs by the way of listening does not differ by level.
    levels = "2,1,0" if server.full else "2" if server.mode == "shared" else "2,1"
    more = ("long",) if server.full else ()
    program = [str(PEER), "java", str(TRANSACTIONS), address, levels, *more]
    collect(report, "java", program, seconds=900 if more else 300)
    if server.full:
        report.check("java TransactionalMessageCopier: two copy, with aborts", copiers, address, to)
    if server.mode == "shared":
        return
    report.check("java kafka-transactions: list, describe, describe-producers, terminate", shown, address, to)
    report.check("java kafka-transactions: find-hanging, abort", hanging, server, to)
    report.check("java ProducerPerformance in transactions", performance, address, to)


def transactions(to, *args):
    return tool(TOOLS + "TransactionsCommand", *to, *args)


def rows(text):
    """A tool's table, whose columns are padded, as dicts by its head."""
    lines = [re.split(r"\s{2,}|\t", line.strip()) for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def shown(address, to):
    name = topic("txn-shown")
    make(to, name, 2)
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(name, b"v", partition=partition)
    expect("not flushed", producer.flush(20), 0)
    listed = {r["TransactionalId"]: r for r in rows(transactions(to, "list"))}
    expect("state", listed[name]["TransactionState"], "Ongoing")
    told = rows(transactions(to, "describe", "--transactional-id", name))[0]
    expect("described", (told["ProducerId"], told["TransactionState"]), (listed[name]["ProducerId"], "Ongoing"))
    expect("partitions", set(told["TopicPartitions"].split(",")), {f"{name}-0", f"{name}-1"})
    at = rows(transactions(to, "describe-producers", "--topic", name, "--partition", "1"))
    starts = [(r["ProducerId"], r["CurrentTransactionStartOffset"]) for r in at]
    expect("producers", starts, [(told["ProducerId"], "0")])
    transactions(to, "forceTerminateTransaction", "--transactionalId", name)
    cluster = Cluster(pair(address))
    until("it is over", lambda: isolated(cluster, name, 2) == [[], []])
    try:
        producer.commit_transaction(20)
    except Exception as fenced:  # of librdkafka; its text says which
        expect("fenced", "fenced" in str(fenced).lower() or "epoch" in str(fenced).lower(), True)
    else:
        raise AssertionError("a terminated transaction was committed")


def pair(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def isolated(cluster, name, partitions):
    """Start offsets of the open transactions of each partition."""
    out = []
    for p in range(partitions):
        asked = {"Topics": [{"Name": name, "PartitionIndexes": [p]}]}
        got = cluster.to_leader(name, p, "DescribeProducers", 0, asked)["Topics"][0]["Partitions"][0]
        starts = [a["CurrentTxnStartOffset"] for a in got["ActiveProducers"]]
        out.append([start for start in starts if start >= 0])
    return out


def verify(cluster, value):
    """At all brokers: whether Produce 11 and below asks the coordinator."""
    change = {"Name": VERIFIES, "ConfigOperation": 0, "Value": value}
    resource = {"ResourceType": 4, "ResourceName": "", "Configs": [change]}
    answer = cluster.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
    expect("set", answer["Responses"][0]["ErrorCode"], 0)


def hanging(server, to):
    """What a broker without verification let in: open at the partition, and known to no coordinator."""
    cluster = Cluster(server.address())
    name = topic("txn-hanging")
    cluster.create(name, 1)
    pid, _ = cluster.producer_id()
    old = batches.now_ms() - 3_600_000
    records = batches.batch([b"a", b"b"], pid=pid, epoch=0, seq=0, transactional=True, timestamp=old)
    verify(cluster, "false")
    try:
        write = lambda: cluster.produce(name, records, version=10, transactional_id="nobody")["ErrorCode"]
        # A broker hears of the setting a moment later.
        until("it is written", lambda: write() == 0)
    finally:
        verify(cluster, "true")
    found = rows(transactions(to, "find-hanging", "--topic", name))
    expect("found", [(r["Topic"], r["ProducerId"], r["StartOffset"]) for r in found], [(name, str(pid), "0")])
    transactions(to, "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    until("it is over", lambda: isolated(cluster, name, 1) == [[]])
    expect("end", offsets(to, name), {0: 3})


def performance(address, to):
    name = topic("java-txn-perf")
    make(to, name, 2)
    given = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1", "--bootstrap-server", address)
    told = tool(
        TOOLS + "ProducerPerformance",
        *("--topic", name, "--transactional-id", name, "--transaction-duration-ms", "50", *given),
    )
    expect("sent", "20000 records sent" in told, True)
    expect("with markers", sum(offsets(to, name).values()) > 20000, True)


def copiers(address, to):
    """Kafka's system test of exactly once, in miniature: members of a group that abort some of their transactions."""
    source, into, total = topic("copy-in"), topic("copy-out"), 4000
    make(to, source, 4)
    make(to, into, 4)
    given = ("--bootstrap-server", address, "--topic", source, "--max-messages", str(total), "--throughput", "-1")
    tool(TOOLS + "VerifiableProducer", *given)
    given = ("--broker-list", address, "--input-topic", source, "--output-topic", into)
    # In group mode the partition is not looked at, and has to be given.
    given += ("--consumer-group", f"g-{source}", "--input-partition", "0")
    given += ("--transaction-size", "100", "--transaction-timeout", "30000", "--enable-random-aborts")
    given += ("--group-mode", "--use-group-metadata", "--max-messages", "-1", "--transactional-id")
    command = [str(PEER), "tool", TOOLS + "TransactionalMessageCopier", *given]
    members = [subprocess.Popen([*command, f"{source}-{n}"], stdout=subprocess.DEVNULL) for n in (1, 2)]
    try:
        got = copied(address, into, total)
    finally:
        for member in members:
            member.terminate()
        for member in members:
            member.wait(40)
    expect("values", sorted(got, key=int), [str(n) for n in range(total)])


def copied(address, name, total, seconds=200):
    """What a read_committed reader finds, and a little on."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "not-used", "enable.auto.commit": False})
    reader.assign([TopicPartition(name, p, 0) for p in range(4)])
    got, quiet, late = [], 0, time.monotonic() + seconds
    while quiet < 3:
        if time.monotonic() > late:
            raise AssertionError(f"{len(got)} of {total} are copied")
        messages = reader.consume(500, 0.5)
        got.extend(m.value().decode() for m in messages if not m.error())
        quiet = quiet + 1 if not messages and len(got) >= total else 0
    reader.close()
    return got
