"""Groups with Kafka's own tools: VerifiableConsumer, the console consumer, kafka-consumer-groups."""

import json
import subprocess

from members import PARTITIONS, Ledger, fill, made, until
from report import expect
from servers import PEER
from shell_java import TOOLS, tool

PROTOCOLS = {
    "classic": ("--group-protocol", "classic"),
    "cooperative": ("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
    "consumer": ("--group-protocol", "consumer"),
}


def checks(report, server):
    address = server.bootstrap
    # Every start of a JVM costs seconds: where there are two listener modes, the second repeats the core of it.
    short = server.mode == "shared"
    for protocol in ("consumer",) if short else PROTOCOLS:
        report.check(f"java VerifiableConsumer, {protocol}: members come and go", come_and_go, address, protocol)
        if protocol != "cooperative":
            report.check(f"java VerifiableConsumer, {protocol}: one goes on where one ended", turns, address, protocol)
    if short:
        return
    report.check("java VerifiableConsumer: a static member restarts unnoticed", static, address)
    for protocol in ("classic", "consumer"):
        report.check(f"java console consumer, {protocol}, in a group", console, address, protocol)
    report.check("java kafka-consumer-groups: list, describe", describe, address)
    report.check("java kafka-consumer-groups: reset, delete offsets, delete", change, address)


class Verifiable:
    """A VerifiableConsumer: its events so far, and the records that it committed."""

    def __init__(self, address, name, protocol, *more):
        given = ("--bootstrap-server", address, "--topic", name, "--group-id", f"g-{name}", "--verbose")
        # The session timeout is a setting of classic members only.
        short = () if protocol == "consumer" or "--session-timeout" in more else ("--session-timeout", "6000")
        given += PROTOCOLS[protocol] + short
        command = [str(PEER), "tool", TOOLS + "VerifiableConsumer", *given, "--reset-policy", "earliest", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events = []
        import threading

        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name):
        return [e for e in list(self.events) if e["name"] == name]

    def assigned(self):
        """The partitions that it holds, from what it was given and what was taken."""
        held = set()
        for event in list(self.events):
            parts = {p["partition"] for p in event.get("partitions", []) if "partition" in p}
            if event["name"] == "partitions_assigned":
                held |= parts
            elif event["name"] == "partitions_revoked":
                held -= parts
        return held

    def records(self):
        return [(e["partition"], e["offset"], e["value"]) for e in self.named("record_data")]

    def end(self, ask=True):
        if ask:
            self.process.terminate()
        code = self.process.wait(40)
        self.reader.join(5)
        failed = [e for e in self.named("offsets_committed") if not e["success"]]
        return code, failed


def whole(each):
    return [(p, n, f"{p}:{n}") for p in range(PARTITIONS) for n in range(each)]


def turns(address, protocol):
    name = made(address, "vc")
    fill(address, name, 0, 50)
    got = []
    for limit in (80, 220):
        one = Verifiable(address, name, protocol, "--max-messages", str(limit))
        code, failed = one.end(ask=False)
        expect("exit code, failed commits", (code, failed), (0, []))
        got.append(one.records())
    expect("counts", [len(g) for g in got], [80, 220])
    expect("records", sorted(r for g in got for r in g), whole(50))


def come_and_go(address, protocol):
    name = made(address, "vc2")
    fill(address, name, 0, 20)
    members = [Verifiable(address, name, protocol)]
    taken = lambda: sum(len(m.records()) for m in members)
    try:
        until("A has everything", lambda: len(members[0].assigned()) == PARTITIONS)
        members.append(Verifiable(address, name, protocol))
        until("A and B share", lambda: [len(m.assigned()) for m in members] == [3, 3])
        fill(address, name, 20, 20)
        until("all is taken", lambda: taken() >= 40 * PARTITIONS)
        expect("B takes part", len(members[1].records()) > 0, True)
        members[1].end()
        until("A has everything again", lambda: len(members[0].assigned()) == PARTITIONS)
        fill(address, name, 40, 20)
        until("all is taken", lambda: taken() >= 60 * PARTITIONS)
    finally:
        for m in members:
            m.end()
    expect("records", sorted(r for m in members for r in m.records()), whole(60))


def static(address):
    name = made(address, "vcs")
    fill(address, name, 0, 20)
    # A session that outlives the start of a process on a busy machine.
    more = ("--session-timeout", "60000", "--group-instance-id")
    start = lambda instance: Verifiable(address, name, "classic", *more, instance)
    a = start("a")
    try:
        until("A has everything", lambda: len(a.assigned()) == PARTITIONS)
        b = start("b")
        until("A and B share", lambda: (len(a.assigned()), len(b.assigned())) == (3, 3))
        had, changes = b.assigned(), len(a.named("partitions_revoked"))
        b.process.kill()
        b.process.wait()
        again = start("b")
        until("B is back", lambda: len(again.assigned()) == 3)
        expect("the same partitions", again.assigned(), had)
        fill(address, name, 20, 20)
        until("all is taken", lambda: len(a.records()) + len(again.records()) + len(b.records()) >= 40 * PARTITIONS)
        expect("rebalances that A saw", len(a.named("partitions_revoked")) - changes, 0)
    finally:
        a.end()
    again.end()
    # Killed between its records and their commit it may have left some that come twice.
    expect("records", sorted({*a.records(), *b.records(), *again.records()}), whole(40))


def console(address, protocol):
    name = made(address, "cc")
    fill(address, name, 0, 30)
    given = ("--bootstrap-server", address, "--topic", name, "--group", f"g-{name}", "--from-beginning")
    given += ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000")
    values = []
    for count in (60, 120):
        values += tool(TOOLS + "consumer.ConsoleConsumer", *given, "--max-messages", str(count)).split()
    expect("values", sorted(values), sorted(v for _, _, v in whole(30)))


def groups(address, *args):
    return tool(TOOLS + "consumer.group.ConsumerGroupCommand", "--bootstrap-server", address, *args)


def table(text):
    """Rows of a tool's table as dicts by its head."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    at = next(i for i, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[at], line, strict=False)) for line in lines[at + 1 :]]


def describe(address):
    from groups_python import CONSUMER, Rdkafka

    for settings, kind in (({}, "Classic"), (CONSUMER, "Consumer")):
        name, ledger = made(address, "cgc"), Ledger()
        group = f"g-{name}"
        fill(address, name, 0, 10)
        member = Rdkafka(address, group, "M", name, ledger, **settings)
        member.start()
        try:
            until("taken", lambda: ledger.count() >= 60, [member])
            listed = {r["GROUP"]: r for r in table(groups(address, "--list", "--state", "--type"))}
            expect("listed", (listed[group]["STATE"], listed[group]["TYPE"]), ("Stable", kind))
            rows = table(groups(address, "--describe", "--group", group))
            told = {int(r["PARTITION"]): (r["CURRENT-OFFSET"], r["LOG-END-OFFSET"], r["LAG"]) for r in rows}
            expect("offsets", told, {p: ("10", "10", "0") for p in range(PARTITIONS)})
            expect("owners", {r["CLIENT-ID"] for r in rows}, {"rdkafka"})
            shown = groups(address, "--describe", "--group", group, "--members", "--verbose")
            expect("members", [r["#PARTITIONS"] for r in table(shown)], [str(PARTITIONS)])
            expect("what it holds", f"{name}:0,1,2,3,4,5" in shown.replace("(", ":").replace(")", ""), True)
        finally:
            member.end()


def change(address):
    from groups_python import Rdkafka

    name, ledger = made(address, "cgr"), Ledger()
    group = f"g-{name}"
    fill(address, name, 0, 10)
    member = Rdkafka(address, group, "M", name, ledger)
    member.start()
    until("taken", lambda: ledger.count() >= 60, [member])
    reset = ("--reset-offsets", "--group", group, "--topic", name)
    refused = groups(address, *reset, "--to-earliest", "--execute")
    expect("a reset under a member", "inactive" in refused or "Error" in refused, True)
    member.end()
    offsets = lambda: {
        int(r["PARTITION"]): r["CURRENT-OFFSET"]
        for r in table(groups(address, "--describe", "--group", group, "--offsets"))
    }
    told = lambda text: {int(r["PARTITION"]): r["NEW-OFFSET"] for r in table(text)}
    expect("dry run", told(groups(address, *reset, "--to-earliest", "--dry-run")), dict.fromkeys(range(6), "0"))
    expect("after the dry run", offsets(), dict.fromkeys(range(6), "10"))
    groups(address, *reset, "--shift-by", "-3", "--execute")
    expect("after a shift", offsets(), dict.fromkeys(range(6), "7"))
    groups(address, "--reset-offsets", "--group", group, "--topic", f"{name}:1,2", "--to-offset", "2", "--execute")
    expect("after an offset", offsets(), {0: "7", 1: "2", 2: "2", 3: "7", 4: "7", 5: "7"})
    groups(address, "--delete-offsets", "--group", group, "--topic", f"{name}:5")
    expect("one deleted", offsets().get(5, "-"), "-")
    said = groups(address, "--delete", "--group", group)
    expect("deleted", "was successful" in said, True)
    expect("listed", group in groups(address, "--list").split(), False)
    done = subprocess.run(
        [str(PEER), "tool", TOOLS + "consumer.group.ConsumerGroupCommand", "--bootstrap-server", address]
        + ["--delete", "--group", group],
        capture_output=True,
        text=True,
        timeout=60,
    )
    expect(
        "deleted again", "does not exist" in done.stdout + done.stderr or "NotFound" in done.stdout + done.stderr, True
    )
