"""The Java client of Apache Kafka: its command line tools, and a program of ours for what the tools do not show."""

import json
import pathlib
import subprocess
import tempfile

from common import run, topic
from foreign import collect
from report import expect
from servers import PEER

DIRECT = pathlib.Path(__file__).resolve().parent / "java" / "Direct.java"
COMPACTED = DIRECT.with_name("Compacted.java")
TOOLS = "org.apache.kafka.tools."


def tool(name, *args, seconds=90):
    return run([str(PEER), "tool", name, *args], seconds)


def checks(report, server):
    address = server.bootstrap
    to = ("--bootstrap-server", address)
    collect(report, "java", [str(PEER), "java", str(DIRECT), address], seconds=240)
    collect(report, "java", [str(PEER), "java", str(COMPACTED), address], seconds=400)
    report.check("java VerifiableProducer: all acknowledged, offsets agree", verifiable, address, to)
    report.check("java kafka-topics: create, list, describe, alter, delete", topics, to)
    report.check("java kafka-configs: topic settings shown, set, deleted", configs, to)
    report.check("java kafka-delete-records and kafka-get-offsets", delete_records, address, to)
    report.check("java kafka-log-dirs", log_dirs, address, to)
    report.check("java kafka-broker-api-versions, kafka-cluster", announced, to)
    report.check("java ProducerPerformance ends without an error", performance, address)


def make(to, name, partitions=2, *more):
    tool(TOOLS + "TopicCommand", *to, "--create", "--topic", name, "--partitions", str(partitions), *more)


def offsets(to, name, time="-1"):
    lines = tool(TOOLS + "GetOffsetShell", *to, "--topic", name, "--time", time).split()
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}


def verifiable(address, to):
    name = topic("verifiable")
    make(to, name, 3)
    said = tool(
        TOOLS + "VerifiableProducer",
        "--bootstrap-server",
        address,
        "--topic",
        name,
        "--max-messages",
        "5000",
        "--throughput",
        "-1",
        "--acks",
        "-1",
    )
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    good = [r for r in rows if r["name"] == "producer_send_success"]
    expect("refused", [r for r in rows if r["name"] == "producer_send_error"], [])
    expect("values", sorted(int(r["value"]) for r in good), list(range(5000)))
    expect("offsets are told once", len({(r["partition"], r["offset"]) for r in good}), 5000)
    expect("end offsets", sum(offsets(to, name).values()), 5000)


def topics(to):
    name = topic("java-topics")
    make(to, name, 2, "--config", "retention.ms=3600000")
    expect("listed", name in tool(TOOLS + "TopicCommand", *to, "--list").split(), True)
    told = tool(TOOLS + "TopicCommand", *to, "--describe", "--topic", name)
    expect(
        "described",
        ("PartitionCount: 2" in told, "retention.ms=3600000" in told, told.count("Leader:")),
        (True, True, 2),
    )
    tool(TOOLS + "TopicCommand", *to, "--alter", "--topic", name, "--partitions", "4")
    expect("grown", "PartitionCount: 4" in tool(TOOLS + "TopicCommand", *to, "--describe", "--topic", name), True)
    tool(TOOLS + "TopicCommand", *to, "--delete", "--topic", name)
    expect("gone", name in tool(TOOLS + "TopicCommand", *to, "--list").split(), False)


def configs(to):
    name = topic("java-configs")
    make(to, name)
    entity = (*to, "--entity-type", "topics", "--entity-name", name)
    command = "kafka.admin.ConfigCommand"
    tool(command, *entity, "--alter", "--add-config", "retention.ms=1234567,max.message.bytes=2000000")
    told = tool(command, *entity, "--describe")
    expect("set", ("retention.ms=1234567" in told, "max.message.bytes=2000000" in told), (True, True))
    tool(command, *entity, "--alter", "--delete-config", "retention.ms")
    told = tool(command, *entity, "--describe")
    expect("deleted", ("retention.ms=" in told, "max.message.bytes=2000000" in told), (False, True))
    bad = subprocess.run(
        [str(PEER), "tool", command, *entity, "--alter", "--add-config", "no.such.name=1"],
        capture_output=True,
        text=True,
        timeout=90,
    )
    expect("an unknown setting is refused", bad.returncode != 0 and "no.such.name" in bad.stdout + bad.stderr, True)


def delete_records(address, to):
    name = topic("java-delete")
    make(to, name, 1)
    run(["kcat", "-b", address, "-P", "-t", name, "-p", "0"], input="".join(f"{i}\n" for i in range(10)))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
        json.dump({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 6}]}, plan)
        plan.flush()
        told = tool(TOOLS + "DeleteRecordsCommand", *to, "--offset-json-file", plan.name)
    expect("low watermark", "low_watermark: 6" in told, True)
    expect("earliest, latest", (offsets(to, name, "-2"), offsets(to, name)), ({0: 6}, {0: 10}))
    expect(
        "read",
        run(["kcat", "-b", address, "-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q"]).split(),
        ["6", "7", "8", "9"],
    )


def log_dirs(address, to):
    name = topic("java-dirs")
    make(to, name, 2)
    run(["kcat", "-b", address, "-P", "-t", name, "-p", "0"], input="x" * 500 + "\n")
    told = tool(TOOLS + "LogDirsCommand", *to, "--describe", "--topic-list", name)
    rows = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    sizes = {p["partition"]: p["size"] for b in rows["brokers"] for d in b["logDirs"] for p in d["partitions"]}
    expect("partitions", sorted(sizes), [f"{name}-0", f"{name}-1"])
    expect("bytes", (sizes[f"{name}-0"] > 500, sizes[f"{name}-1"]), (True, 0))


def announced(to):
    told = tool(TOOLS + "BrokerApiVersionsCommand", *to)
    expect("announced", "Produce(0): 0 to 13" in told and "Fetch(1): 4 to 18" in told, True)
    expect("cluster id", "Cluster ID:" in tool(TOOLS + "ClusterTool", "cluster-id", *to), True)


def performance(address):
    name = topic("java-perf")
    told = tool(
        TOOLS + "ProducerPerformance",
        "--topic",
        name,
        "--num-records",
        "20000",
        "--record-size",
        "200",
        "--throughput",
        "-1",
        "--bootstrap-server",
        address,
    )
    expect("sent", "20000 records sent" in told, True)
