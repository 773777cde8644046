"""kill -9 of the broker and of transactional clients: their histories have no anomaly, and none of them gets stuck.

Clients of librdkafka and of Java, each with a transactional id that its successors take over, poll and send in
transactions, some by hand, some in groups whose offsets they commit with the transaction. Some are killed, some get a
twin that fences them, some are stopped until their group has given them up, and go on.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from anomalies import anomalies
from groups import Group
from history import Process
from servers import PEER, against
from wire import Cluster

HERE = pathlib.Path(__file__).resolve().parent
TOPIC = "histories"
PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2500",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
}
RDKAFKA = {"a0": "", "a1": "", "g0": "g-rdkafka", "g1": "g-rdkafka"}
JAVA = {"ja": "", "jg0": "g-java", "jg1": "g-java"}
IN_GROUPS = ("g0", "g1", "java")
PAUSE_SECONDS = 3
PROGRESS_SECONDS = 60


class Client:
    """A process with one or more transactional clients, and what they said."""

    def __init__(self, command, processes, env=None, tagged=False):
        self.processes, self.tagged = processes, tagged
        self.is_twinned = False  # it may be fenced
        # ONCILLA_CLIENT_LOGS names a directory for what the clients log.
        logs = os.environ.get("ONCILLA_CLIENT_LOGS")
        path = f"{logs}/{'-'.join(p.name for p in processes.values())}.log" if logs else os.devnull
        pipe = subprocess.PIPE
        with open(path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=env, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # killed within it
            name, _, rest = line.partition(" ") if self.tagged else (*self.processes, "", line)
            self.processes[name].take(rest)

    def kill(self):
        self.process.kill()
        self.gone()

    def gone(self, seconds=60):
        code = self.process.wait(seconds)
        self.reader.join(20)
        for process in self.processes.values():
            process.close()
        return code

    def end(self):
        self.process.stdin.close()

    def gave_up(self):
        """librdkafka asks to abort although its partitions and offsets were not taken in for certain. Where the broker
        has not heard of them the answer is INVALID_TXN_STATE (contract B6), which is fatal. Not so once anything was
        acknowledged.
        """
        if not any("INVALID_TXN_STATE in abort_transaction" in line for line in self.said("fatal")):
            return False
        (process,) = self.processes.values()
        return not list(process.ops.values())[-1].acked

    def is_fine(self):
        code = self.process.poll()
        if code in (3, 4):
            self.reader.join(20)
        if self.is_twinned and code in (None, 3) or code in (None, 4) and self.gave_up():
            return True
        return code in (None, 0, -9) and not self.said("fatal") and not self.said("fenced")

    def said(self, word):
        return [line for p in self.processes.values() for line in list(p.said) if line.split()[1] == word]


class Campaign:
    def __init__(self, server, cycles, seed, protocol):
        self.server, self.cycles, self.protocol = server, cycles, protocol
        self.random = random.Random(seed)
        self.all, self.live, self.runs = [], {}, 0
        self.counts = dict.fromkeys(("broker", "client", "java", "twin", "pause", "gave up"), 0)

    def start_client(self, tid):
        """A client of librdkafka, or all of Java, which live in one process."""
        self.runs += 1
        bootstrap, seed = self.server.bootstrap, str(self.random.random())
        if tid == "java":
            command = [str(PEER), "class", "TxnClient", bootstrap, TOPIC, str(PARTITIONS), str(self.runs), seed]
            command += [self.protocol, *(w or "-" for pair in JAVA.items() for w in pair)]
            made = {t: Process(f"{t}.{self.runs}", group) for t, group in JAVA.items()}
            client = Client(command, made, {**os.environ, "PEER_CLASSES": classes()}, tagged=True)
        else:
            command = [sys.executable, str(HERE / "txn_librdkafka.py"), bootstrap, TOPIC, str(PARTITIONS), tid]
            command += [str(self.runs), RDKAFKA[tid] or "-", seed]
            client = Client(command, {tid: Process(f"{tid}.{self.runs}", RDKAFKA[tid])})
        self.all.append(client)
        self.live[tid] = client

    def replace(self, tid):
        self.live[tid].kill()
        self.start_client(tid)
        self.counts["java" if tid == "java" else "client"] += 1

    def twin(self, tid):
        """Another instance of an id: the older one is fenced, and ends."""
        self.live[tid].is_twinned = True
        self.start_client(tid)
        self.counts["twin"] += 1

    def pause(self, tid):
        """Stops a member for longer than its session lasts, and shorter than its transaction may."""
        self.live[tid].process.send_signal(signal.SIGSTOP)
        self.counts["pause"] += 1
        return self.live[tid]

    def cycle(self, number):
        time.sleep(self.random.choice((0.05, 0.2, 0.5, 1.0)))
        broker, what, paused = self.random.random() < 0.85, self.random.random(), None
        if broker:
            self.server.kill()
            self.counts["broker"] += 1
        tid = self.random.choice(list(RDKAFKA))
        if number % 20 == 5 or number % 50 == 49:
            self.replace("java")
        elif what < 0.3:
            self.replace(tid)
        elif what < 0.45:
            self.twin(tid)
        elif what < 0.55:
            paused = self.pause(self.random.choice(IN_GROUPS))
        if broker:
            while self.random.random() < 0.25:
                self.server.start_and_kill(self.random.random() * 0.1)
            self.server.start()
        if paused:
            # Its group goes on without it; what it then does in the name of the group must come to nothing.
            time.sleep(PAUSE_SECONDS)
            paused.process.send_signal(signal.SIGCONT)
        self.progress()

    def done(self):
        """Transactions that succeeded, by transactional id, of the instances that live."""
        return {
            (id(p), p.name): sum(op.state == "ok" for op in list(p.ops.values()))
            for client in self.live.values()
            for p in client.processes.values()
        }

    def progress(self):
        before, until = self.done(), time.monotonic() + PROGRESS_SECONDS
        while True:
            still = sorted(name for (key, name), n in self.done().items() if n <= before.get((key, name), 0))
            if not still:
                return
            self.judge()
            self.replace_those_that_gave_up()
            assert time.monotonic() < until, f"no commit within {PROGRESS_SECONDS} s: {still}{self.last_words(still)}"
            time.sleep(0.02)

    def last_words(self, names):
        stuck = [p for c in self.live.values() for p in c.processes.values() if p.name in names]
        return "".join(f"; {p.name}: {list(p.ops.values())[-1:]}, said {p.said[-3:]}" for p in stuck)

    def replace_those_that_gave_up(self):
        for tid, client in list(self.live.items()):
            if client.process.poll() == 4 and client.gave_up():
                self.counts["gave up"] += 1
                self.start_client(tid)

    def judge(self):
        """Nobody ends by itself but for one that was fenced by its twin, or that gave up where it may."""
        for client in self.all:
            if not client.is_fine():
                names = [p.name for p in client.processes.values()]
                said = client.said("fatal") + client.said("fenced")
                raise AssertionError(f"{names} ended with {client.process.poll()}: {said}{self.last_words(names)}")

    def run(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        cluster.create(TOPIC, PARTITIONS, segment_bytes=1 << 20)
        cluster.drop()
        for tid in (*RDKAFKA, "java"):
            self.start_client(tid)
        self.progress()
        for number in range(self.cycles):
            try:
                self.cycle(number)
            except AssertionError as wrong:
                raise AssertionError(f"in cycle {number + 1}: {wrong}") from None
        return self.end()

    def end(self):
        for client in self.all:
            client.end()
        for client in self.all:
            client.gone()
        self.judge()
        log = final_log(self.server)
        committed = {g: committed_offsets(self.server, g) for g in sorted({*RDKAFKA.values(), *JAVA.values()} - {""})}
        processes = [p for client in self.all for p in client.processes.values()]
        found = anomalies(processes, log, committed)
        assert not found, f"{len(found)} anomalies: {found[:8]}"
        return self.summary(processes, log)

    def summary(self, processes, log):
        ops = [op for p in processes for op in p.ops.values()]
        states = {state: sum(op.state == state for op in ops) for state in ("ok", "fail", "info")}
        polled = sum(len(rows) for op in ops for rows in op.polls)
        assert states["ok"] and states["fail"] and polled, f"this run shows nothing: {states}, {polled} polled"
        c = self.counts
        return (
            f"{self.cycles} cycles with {c['broker']} kills of the broker, {c['client']} of clients, {c['java']} of all"
            f" in Java, {c['twin']} twins, {c['pause']} pauses, {c['gave up']} that gave up; transactions: "
            f"{states['ok']} committed, {states['fail']} not, {states['info']} unknown; "
            f"{sum(map(len, log.values()))} values, {polled} polled"
        )

    def abandon(self):
        for client in self.all:
            if client.process.poll() is None:
                client.process.kill()


def classes():
    command = [str(PEER), "classes", str(HERE / "java" / "TxnClient.java")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def final_log(server):
    """{partition: {offset: value}} as a read_committed consumer sees it; no transaction may be left open."""
    from confluent_kafka import Consumer, TopicPartition

    cluster = Cluster(server.address())
    cluster.find(TOPIC, PARTITIONS)
    ends, until = {}, time.monotonic() + 30
    for partition in range(PARTITIONS):
        while True:
            part = cluster.fetch(TOPIC, cluster.offset(TOPIC, partition), partition, wait_ms=0)
            ends[partition] = part["HighWatermark"]
            if part["LastStableOffset"] == part["HighWatermark"]:
                break
            assert time.monotonic() < until, f"a transaction of {partition} hangs: {part}"
            time.sleep(0.05)
    cluster.drop()
    given = {"bootstrap.servers": server.bootstrap, "group.id": "final", "isolation.level": "read_committed"}
    consumer = Consumer({**given, "enable.auto.commit": False, "log_level": 0})
    parts = [TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)]
    consumer.assign(parts)
    log = {p: {} for p in range(PARTITIONS)}
    until = time.monotonic() + 120
    while any(p.offset < ends[p.partition] for p in consumer.position(parts)):
        for m in consumer.consume(1000, 0.2):
            assert not m.error(), m.error()
            log[m.partition()][m.offset()] = m.value().decode()
        assert time.monotonic() < until, f"the final reader is stuck: {consumer.position(parts)}, ends {ends}"
    consumer.close()
    return log


def committed_offsets(server, name):
    group, until = Group(server.address(), name), time.monotonic() + 30
    try:
        while True:
            code, rows = group.fetch({TOPIC: list(range(PARTITIONS))}, stable=True)
            if code == 0 and not any(r[2] for r in rows):
                return {r[1]: r[3] for r in rows if r[3] >= 0}
            assert time.monotonic() < until, f"the offsets of {name} stay unstable: {code} {rows}"
            time.sleep(0.05)
    finally:
        group.end()


def checks(report, given, mode):
    def run():
        protocol = random.Random(given.seed).choice(("classic", "consumer"))
        server = against(given.against, SETTINGS, mode=mode)
        campaign = Campaign(server, given.cycles, given.seed, protocol)
        try:
            return f"{campaign.run()}, group.protocol={protocol} of Java"
        finally:
            campaign.abandon()
            server.__exit__()

    report.check(f"kill -9 under transactions, {mode}, seed {given.seed}", run)
