"""kcat -G: a group of one, then of two."""

import shutil
import subprocess

from common import run
from members import PARTITIONS, fill, made
from report import expect

FORM = "%p %o %s\\n"


def checks(report, server):
    if not shutil.which("kcat"):
        report.skip("kcat -G", "kcat is not installed")
        return
    for strategy in ("range,roundrobin", "cooperative-sticky"):
        report.check(f"kcat -G goes on where it ended, {strategy}", resume, server.bootstrap, strategy)
    report.check("kcat -G twice: each partition is one's", two, server.bootstrap)


def command(address, group, name, *more):
    settings = ("auto.offset.reset=earliest", "session.timeout.ms=6000", "heartbeat.interval.ms=300")
    given = [word for s in settings for word in ("-X", s)]
    return ["kcat", "-b", address, "-G", group, "-q", "-u", "-f", FORM, *given, *more, name]


def rows(text):
    return [(int(p), int(o), v) for p, o, v in (line.split(" ", 2) for line in text.splitlines())]


def whole(each):
    return [(p, n, f"{p}:{n}") for p in range(PARTITIONS) for n in range(each)]


def resume(address, strategy):
    name = made(address, "kcat-g")
    fill(address, name, 0, 50)
    more = ("-X", f"partition.assignment.strategy={strategy}")
    took = [rows(run(command(address, f"g-{name}", name, "-c", str(n), *more))) for n in (70, 110)]
    fill(address, name, 50, 10)
    took.append(rows(run(command(address, f"g-{name}", name, "-e", *more))))
    expect("taken in turns", [len(t) for t in took], [70, 110, 180])
    expect("records", sorted(r for t in took for r in t), whole(60))


def two(address):
    name = made(address, "kcat-g2")
    start = lambda: subprocess.Popen(command(address, f"g-{name}", name), stdout=subprocess.PIPE, text=True)
    members = [start(), start()]
    try:
        settled(address, f"g-{name}")
        fill(address, name, 0, 40)
        outs = [[m.stdout.readline() for _ in range(40 * PARTITIONS // 2)] for m in members]
    finally:
        for m in members:
            m.terminate()
        for m in members:
            m.communicate(timeout=20)
    got = [rows("".join(out)) for out in outs]
    expect("records", sorted(r for g in got for r in g), whole(40))
    owned = [{p for p, _, _ in g} for g in got]
    expect("partitions in common, of each", (owned[0] & owned[1], sorted(map(len, owned))), (set(), [3, 3]))


def settled(address, group):
    from confluent_kafka import ConsumerGroupState
    from confluent_kafka.admin import AdminClient
    from members import until

    client = AdminClient({"bootstrap.servers": address})

    def stable():
        told = client.describe_consumer_groups([group])[group].result(20)
        return told.state == ConsumerGroupState.STABLE and len(told.members) == 2

    until("two members are stable", stable)
