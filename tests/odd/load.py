"""oncilla-perf against a broker that runs: what it reports of short runs, and what it refuses."""

import json
import os
import pathlib
import subprocess

from report import Skip, expect
from servers import ROOT
from wire import Cluster, Connection

from groups import Group

SHORT = ("--seconds", "0.8", "--warmup-seconds", "0.2", "--record-bytes", "100")


def checks(report, server):
    for name, run in (
        ("perf produce reports every record of its schedule and takes its topic away", produce),
        ("perf e2e finds every record once and in order, also in transactions", e2e),
        ("perf txn reports the phases of commits and aborts", txn),
        ("perf offsets reports every commit of its schedule and takes its groups away", offsets),
        ("perf ends with 1 and one sentence for what it cannot do", refusals),
    ):
        report.check(name, run, server)


def binary():
    named = os.environ.get("ONCILLA_PERF_BIN")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / kind / "oncilla-perf" for kind in ("release", "debug")]
    found = [pathlib.Path(named)] if named else [path for path in built if path.exists()]
    if not found:
        raise Skip("no oncilla-perf: `cargo build --release --workspace` builds it")
    return found[0]


def perf(server, mode, *args, bootstrap=None):
    command = [binary(), mode, "--bootstrap", bootstrap or server.bootstrap, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def measured(server, mode, *args):
    done = perf(server, mode, *SHORT, "--json", "-", *args)
    assert done.returncode == 0, done.stderr[-800:]
    run = json.loads(done.stdout)
    expect("mode and target", (run["mode"], run["target"]["bootstrap"]), (mode, server.bootstrap))
    failed = {one["name"]: one["failed"] for one in run["quantities"] if one["failed"]}
    expect("failed", failed, {})
    return run, {one["name"]: one for one in run["quantities"]}


def topics(server):
    """Those of users: a broker makes its own when it needs them."""
    listed = Cluster(server.address()).call("Metadata", 9, {"Topics": None})["Topics"]
    return {topic["Name"] for topic in listed if not topic["IsInternal"]}


def produce(server):
    before = topics(server)
    run, quantities = measured(server, "produce", "--rate", 500, "--partitions", 4)
    one = quantities["produce"]
    # 0.8 s of 500 a second: all of them, however long each took.
    assert abs(one["count"] - 400) <= 1, one["count"]
    expect("bytes", one["bytes"], one["count"] * 100)
    expect("by second", sum(second["count"] for second in one["by_second"]), one["count"])
    expect("topics", topics(server), before)
    assert one["latency_ns"].startswith("HISTF"), one["latency_ns"][:20]
    assert dict(run["figures"])["produce_sent_late_p50_us"] > 0, run["figures"]


def e2e(server):
    for more in ((), ("--transactional", 20)):
        run, quantities = measured(server, "e2e", "--rate", 300, "--partitions", 3, "-X", "linger.ms=0", *more)
        assert abs(quantities["e2e"]["count"] - 240) <= 1, quantities["e2e"]["count"]
        expect("produced and read", quantities["produce"]["count"], quantities["e2e"]["count"])
        expect("checked, with the warm-up", dict(run["figures"])["checked_records"], 300.0)


def txn(server):
    more = ("--saturate", "--partitions", 2, "--producers", 2, "--records-per-txn", 4, "--abort-ratio", 0.25)
    _, quantities = measured(server, "txn", *more)
    count = {name: one["count"] for name, one in quantities.items()}
    expect("transactions", count["txn"], count["commit"] + count["abort"])
    expect("sends", count["send"], count["txn"])
    assert count["commit"] > 0 and count["abort"] > 0, count
    expect("bytes", quantities["txn"]["bytes"], count["txn"] * 400)
    return f"{count['commit']} commits"


def groups(server):
    """Groups of every node, as each knows its own."""
    nodes = Cluster(server.address()).call("Metadata", 9, {"Topics": []})["Brokers"]
    listed = [Connection((n["Host"], n["Port"])).call("ListGroups", 4, {"StatesFilter": []})["Groups"] for n in nodes]
    return {group["GroupId"] for of_node in listed for group in of_node}


def offsets(server):
    before = topics(server), groups(server)
    length = ("--partitions", 3, "--groups", 5)
    run, quantities = measured(server, "offsets", "--rate", 500, *length)
    one = quantities["offset_commit"]
    assert abs(one["count"] - 400) <= 1, one["count"]
    expect("by second", sum(second["count"] for second in one["by_second"]), one["count"])
    assert dict(run["figures"])["offset_commit_sent_late_p50_us"] > 0, run["figures"]
    expect("options", [dict(run["options"])[name] for name in ("groups", "partitions", "rate")], ["5", "3", "500"])
    _, saturated = measured(server, "offsets", "--saturate", "--outstanding", 3, *length)
    assert saturated["offset_commit"]["count"] > 0, saturated
    expect("topics and groups", (topics(server), groups(server)), before)
    # The last commit of a group is there, for each partition: the warm-up and the first one count too.
    kept = ("--topic", "perf-offsets", "--keep", "--groups", 1, "--partitions", 3)
    run, quantities = measured(server, "offsets", "--rate", 100, *kept)
    name = (groups(server) - before[1]).pop()
    group = Group(server.address(), name)
    committed = {tuple(row[:2]): row[3] for row in group.fetch({"perf-offsets": [0, 1, 2]})[1]}
    last = max(committed.values())
    expect("offsets of the last commit", committed, {("perf-offsets", p): last for p in range(3)})
    assert last + 1 >= quantities["offset_commit"]["count"], (last, quantities["offset_commit"]["count"])
    expect("delete", group.delete(), 0)
    group.end()
    Cluster(server.address()).delete("perf-offsets")
    return f"{saturated['offset_commit']['count']} commits at saturation"


def refusals(server):
    rate = ("--rate", 10)
    small = ("--topic", "perf-small", "--topic-config", "max.message.bytes=200", "--seconds", 0.3)
    for said, words in (
        (perf(server, "produce", *rate, bootstrap="127.0.0.1:1"), ["127.0.0.1:1", "refused"]),
        (perf(server, "produce", *rate, "-X", "linger.sm=1"), ["linger.sm"]),
        (perf(server, "produce", *rate, "--topic-config", "no.such=1"), ["no.such"]),
        (perf(server, "offsets", *rate, "-X", "linger.ms=1"), ["-X", "no producers"]),
        (perf(server, "fetch", "--topic", "perf-none"), ["perf-none", "UnknownTopicOrPartition"]),
        (perf(server, "e2e", *rate, *small, "--warmup-seconds", 0), ["3 of 3", "too large"]),
    ):
        expect(f"exit code of {said.args}: {said.stderr[-300:]}", said.returncode, 1)
        last = said.stderr.strip().splitlines()[-1]
        assert all(word in last for word in words), f"{words} are not in: {last}"
        assert "panicked" not in said.stderr, said.stderr[-500:]
    left = [name for name in topics(server) if name.startswith(("perf-", "oncilla-perf-"))]
    expect("topics left behind", left, [])
