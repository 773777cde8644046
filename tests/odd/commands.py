"""`oncilla produce` and `oncilla consume` as a user meets them: in transactions, in groups, and when something is wrong."""

import collections
import json
import signal
import socket
import subprocess
import tempfile
import time

from report import expect
from servers import PEER, Oncilla, binary, free_ports

# Members hear of each other within a second.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 250,
    "group.consumer.assignment.interval.ms": 0,
    "num.partitions": 6,
}
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def checks(report, target):
    if target != "oncilla":
        report.skip("produce and consume", "these are Oncilla's own")
        return
    with Oncilla(SETTINGS) as server:
        report.check("two consume --group and a java console consumer share a topic, each record once", share, server)
        for name, run in (
            ("produce keeps keys, headers, order and what is no text", round_trip),
            ("produce in transactions commits every N lines and at the end", committed),
            ("produce aborts its transaction when a line fails, and on Ctrl-C", aborted),
            ("produce names the line that is too large", too_large),
            ("produce ends in time when the broker goes away in the middle", gone),
            ("consume --group goes on where it was, also after head had enough", resumed),
            ("consume --group --exit-at-end ends with nothing to read, and with more members than partitions", at_end),
        ):
            report.check(name, run, server)
    report.check("produce and consume say what is not there or not served", not_served)


def command(server, *args):
    return [str(binary()), *map(str, args), "-b", server.bootstrap]


def oncilla(server, *args, given=b"", seconds=30):
    done = subprocess.run(command(server, *args), input=given, capture_output=True, timeout=seconds)
    return done.returncode, done.stdout, done.stderr.decode()


def good(server, *args, **more):
    code, out, said = oncilla(server, *args, **more)
    assert code == 0, f"{args}: exit code {code}: {said}"
    return out, said


def refused(server, *args, says, **more):
    code, _, said = oncilla(server, *args, **more)
    assert code == 1 and says in said and "panicked" not in said, f"{args}: exit code {code}: {said}"


def lines(*numbers):
    return "".join(f"{n}\n" for n in numbers).encode()


def read(server, topic, *more):
    return good(server, "consume", topic, "--from", "beginning", "--exit-at-end", *more)[0]


def round_trip(server):
    given = b"a:1\nb:\n:3\nnone\na:\xff\xfe:x\nlast"
    said = good(server, "produce", "trip", "-k", ":", "-H", "h=v", "-p", 2, "-v", given=given)[1]
    expect("where they are", said, "partition 2 offset 0 records 6\n")
    rows = [json.loads(row) for row in read(server, "trip", "--format", "json").splitlines()]
    pairs = [(row["key"], row.get("value"), row.get("value_hex")) for row in rows]
    want = [("a", "1", None), ("b", "", None), ("", "3", None), (None, "none", None), ("a", None, "fffe3a78")]
    expect("keys and values", pairs, [*want, (None, "last", None)])
    expect("headers", {json.dumps(row["headers"]) for row in rows}, {'[{"name": "h", "value": "v"}]'})
    many = lines(*range(20000))
    good(server, "produce", "trip", "-p", 1, "-X", "compression.type=zstd", given=many)
    assert read(server, "trip", "-p", 1) == many, "another order, or not all"


def committed(server):
    id_and = ("--transactional-id", "commands-1", "-p", 0, "-v")
    said = good(server, "produce", "txn", *id_and, "--transaction-records", 10, given=lines(*range(25)))[1]
    ends = [line for line in said.splitlines() if "committed" in line]
    expect("transactions", ends, ["committed 10 records", "committed 10 records", "committed 5 records"])
    assert good(server, "produce", "txn", *id_and, given=lines(*range(25, 40)))[1].endswith("committed 15 records\n")
    expect("nothing to commit", good(server, "produce", "txn", *id_and)[1], "")
    expect("what readers see", read(server, "txn"), lines(*range(40)))


def aborted(server):
    refused(
        server,
        *("produce", "abort", "--transactional-id", "commands-2", "-p", 0),
        given=b"one\n" + b"x" * 2_000_000 + b"\nthree\n",
        says="error: line 2: the record is too large; the transaction is aborted",
    )
    args = command(server, "produce", "abort", "--transactional-id", "commands-2", "-p", 0, "-v")
    with subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write("four\n")
        process.stdin.flush()
        assert "records 1" in process.stderr.readline(), "the line is not sent while there may be more"
        process.send_signal(signal.SIGINT)
        expect("what it says", process.stderr.read(), "error: interrupted; the transaction is aborted\n")
        expect("exit code", process.wait(10), 1)
    expect("what readers see", read(server, "abort"), b"")
    assert b"four" in read(server, "abort", "--isolation-level", "read-uncommitted"), "nothing was sent"


def too_large(server):
    says = "error: line 3: the record is too large"
    refused(server, "produce", "large", given=b"a\nb\n" + b"x" * 2_000_000, says=says)
    says = "error: line 1: the record of 5032 bytes is above max.request.size"
    refused(server, "produce", "large", "-X", "max.request.size=5000", given=b"x" * 5000, says=says)


def gone(_):
    with Oncilla(SETTINGS) as server:
        args = command(server, "produce", "gone", "--timeout", 2, "-v")
        with subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            process.stdin.write("one\n")
            process.stdin.flush()
            assert "records 1" in process.stderr.readline()
            server.kill()
            began = time.monotonic()
            process.stdin.write("two\n")
            process.stdin.close()
            said = process.stderr.read()
            expect("exit code", process.wait(20), 1)
            assert "error: line 2: no answer within delivery.timeout.ms" in said, said
            seconds = time.monotonic() - began
            assert seconds < 10, f"it took {seconds:.1f} s"


def resumed(server):
    good(server, "produce", "resume", given=lines(*range(300)))
    group = ("--group", "resumed", "--exit-at-end")
    seen = read(server, "resume", "--group", "resumed", "-n", 100).split()
    expect("at most N", len(seen), 100)
    args = command(server, "consume", "resume", "--from", "beginning", *group)
    with subprocess.Popen(args, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        expect("exit code when nobody reads", process.wait(20), 0)
    seen += read(server, "resume", "--group", "resumed").split()
    expect("each once", collections.Counter(seen), collections.Counter(lines(*range(300)).split()))
    expect("no more", read(server, "resume", "--group", "resumed"), b"")


def at_end(server):
    expect("an empty topic", (good(server, "topic", "create", "end", "-p", 1), read(server, "end", "-g", "e"))[1], b"")
    with Consumer(server, "end", "ends") as first:
        until("the first has it", lambda: len(assigned(server, "ends", "end")) == 1)
        expect("nothing for a second one", read(server, "end", "-g", "ends"), b"")
        good(server, "produce", "end", given=b"x\n")
        until("the first reads on", lambda: first.rows() == [b"x"])
        expect("exit code", first.end(), 0)


def not_served():
    closed = Oncilla()
    closed.port = free_ports(1)
    refused(closed, "produce", "t", given=b"x", says=f"cannot connect to {closed.bootstrap}")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        closed.port = mute.getsockname()[1]
        began = time.monotonic()
        refused(closed, "produce", "t", "--timeout", 1, given=b"x", says=closed.bootstrap)
        assert time.monotonic() - began < 5, "it took more than 5 s"
    without = {"auto.create.topics.enable": "false", "group.coordinator.rebalance.protocols": "classic"}
    with Oncilla(without, cores=1) as server:
        says = "error: the broker does not create the topic: topic no: UnknownTopicOrPartition"
        refused(server, "produce", "no", "--timeout", 1, given=b"x", says=says)
        refused(server, "consume", "no", "-g", "g", says="topic no")
        good(server, "topic", "create", "one", "-p", 1)
        refused(server, "produce", "one", "-p", 1, given=b"x", says="error: topic one has no partition 1")
        says = "does not serve the consumer protocol of KIP-848"
        refused(server, "consume", "one", "-g", "g", "-e", says=says)


class Consumer:
    """A consumer as a process, with what it has printed."""

    def __init__(self, server, topic, group, java=False):
        if java:
            args = [str(PEER), "tool", CONSOLE, "--bootstrap-server", server.bootstrap, "--topic", topic]
            args += ["--group", group, "--from-beginning", "--command-property", "group.protocol=consumer"]
        else:
            args = command(server, "consume", topic, "--group", group, "--from", "beginning")
        self.out = tempfile.TemporaryFile()
        self.process = subprocess.Popen(args, stdout=self.out, stderr=subprocess.DEVNULL)

    def rows(self):
        self.out.seek(0)
        return self.out.read().split()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def assigned(server, group, topic):
    """Numbers of partitions of the group's members, sorted."""
    code, out, _ = oncilla(server, "group", "describe", group, "--format", "json")
    members = json.loads(out)["members"] if code == 0 else []
    return sorted(len(member["assigned"].get(topic, [])) for member in members)


def until(what, ask, seconds=40):
    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def share(server):
    topic, group = "shared", "sharers"
    good(server, "topic", "create", topic, "-p", 6)
    keyed = lambda numbers: "".join(f"{n}:{n}\n" for n in numbers).encode()
    fill = lambda *numbers: good(server, "produce", topic, "-k", ":", given=keyed(numbers))
    with Consumer(server, topic, group, java=True) as java, Consumer(server, topic, group) as a:
        fill(*range(200))
        with Consumer(server, topic, group) as b:
            members = (a, b, java)
            until("two partitions each", lambda: assigned(server, group, topic) == [2, 2, 2])
            counts = [len(member.rows()) for member in members]
            fill(*range(200, 1000))
            total = lambda: sum(len(member.rows()) for member in members)
            until("all is read", lambda: total() >= 1000)
            grown = [len(member.rows()) > count for member, count in zip(members, counts, strict=True)]
            expect("who read some of it", grown, [True] * 3)
            expect("exit code of one that is ended", b.end(), 0)
            until("the others have all", lambda: assigned(server, group, topic) == [3, 3])
            fill(*range(1000, 1200))
            until("all is read", lambda: total() >= 1200)
            expect("exit code", a.end(), 0)
            java.process.terminate()
            java.process.wait(20)
            rows = collections.Counter(row for member in members for row in member.rows())
            expect("rows that are not there once", {row: n for row, n in rows.items() if n != 1}, {})
            expect("rows", len(rows), 1200)
            expect("left over", read(server, topic, "--group", group), b"")
