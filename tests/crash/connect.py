"""Kafka Connect, distributed, with exactly.once.source.support=enabled, under kill -9 of its worker and of the broker.

A file that keeps growing is the source. What a read_committed consumer finds in the topic is the file: each line once,
in order.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from copier import JVM
from servers import PEER, against, free_ports
from streams import committed
from wire import Cluster

TOPIC = "file-lines"
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
# A worker reads its topics up to what is open: it waits for the transactions of the one that was killed to time out.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
WAIT_SECONDS = 120
# The source keeps what it has read beyond a full batch to itself until the file grows again: at the end it is given a
# line now and then. That is longer than it takes one to come through.
NEXT_LINE_SECONDS = 5


class Writer(threading.Thread):
    """Appends numbered lines to the file."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.halt, self.lines = path, threading.Event(), 0

    def run(self):
        while not self.halt.wait(0.05):
            self.write(5)

    def write(self, count):
        with open(self.path, "a") as file:
            for _ in range(count):
                file.write(f"line {self.lines:08}\n")
                self.lines += 1


class Campaign:
    def __init__(self, server, kills, seed):
        self.server, self.kills = server, kills
        self.random = random.Random(seed)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="oncilla-test-connect-"))
        self.writer = Writer(self.directory / "source.txt")
        self.port = None
        self.process = None
        self.counts = {"broker": 0, "worker": 0}

    def worker(self):
        """A worker with a new port: the one before may still be held by what was killed."""
        self.port = free_ports(1)
        storage = ("config", "offset", "status")
        given = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "offset.flush.interval.ms": 500,
            "plugin.discovery": "only_scan",
            **{f"{s}.storage.topic": f"connect-{s}" for s in storage},
            **{f"{s}.storage.replication.factor": 1 for s in storage},
            "offset.storage.partitions": 3,
            "status.storage.partitions": 2,
        }
        settings = self.directory / "worker.properties"
        settings.write_text("".join(f"{k}={v}\n" for k, v in given.items()))
        with open(self.directory / "worker.log", "ab") as log:
            command = [str(PEER), "tool", WORKER, str(settings)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **JVM})

    def rest(self, method, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        url, kind = f"http://127.0.0.1:{self.port}{path}", {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, data, kind, method=method), timeout=20) as answer:
            return json.loads(answer.read() or b"null")

    def connector(self):
        given = {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(self.directory / "source.txt"),
            "topic": TOPIC,
            "batch.size": "50",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
            "producer.override.transaction.timeout.ms": "5000",
        }

        def created():
            try:
                return bool(self.rest("PUT", "/connectors/lines/config", given))
            except (OSError, urllib.error.HTTPError):
                return False

        self.wait("the connector is there", created)

    def wait(self, what, holds):
        until = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert self.process.poll() is None, f"{what}: the worker ended: {self.log()}"
            self.restart_failed()
            if time.monotonic() > until:
                told = f"the log ends at {self.end_offset()}, {self.writer.lines} lines are written, {self.status()}"
                raise AssertionError(f"{what}: not within {WAIT_SECONDS} s, {told}: {self.log()}")
            time.sleep(0.5)

    def log(self):
        return (self.directory / "worker.log").read_text(errors="replace")[-3000:]

    def status(self):
        try:
            return self.rest("GET", "/connectors/lines/status")
        except (OSError, urllib.error.HTTPError) as error:
            return str(error)

    def restart_failed(self):
        """A task that was told to fail stays so until an operator starts it again, as one would."""
        try:
            tasks = self.rest("GET", "/connectors/lines/status")["tasks"]
            for task in tasks:
                if task["state"] == "FAILED":
                    self.rest("POST", f"/connectors/lines/tasks/{task['id']}/restart")
        except (OSError, urllib.error.HTTPError, KeyError, TypeError):
            pass

    def run(self):
        self.server.start()
        cluster = Cluster(self.server.address())
        cluster.create(TOPIC, 1)
        cluster.drop()
        self.writer.start()
        self.worker()
        self.connector()
        for number in range(self.kills):
            self.going_on()
            time.sleep(self.random.random())
            if number % 2 == 0:
                self.process.kill()
                self.process.wait()
                self.worker()
                self.counts["worker"] += 1
            else:
                self.server.kill()
                time.sleep(self.random.choice((0, 0.5)))
                self.server.start()
                self.counts["broker"] += 1
        self.going_on()
        return self.end()

    def going_on(self):
        had = self.end_offset()
        self.wait("more lines come in", lambda: self.end_offset() > had)

    def end_offset(self):
        cluster = Cluster(self.server.address(), seconds=10)
        try:
            cluster.find(TOPIC, 1)
            return cluster.offset(TOPIC)
        finally:
            cluster.drop()

    def end(self):
        self.writer.halt.set()
        self.writer.join(10)
        next_line = time.monotonic() + NEXT_LINE_SECONDS

        def all_there():
            nonlocal next_line
            if len(committed(self.server, TOPIC, 1)) >= self.writer.lines:
                return True
            if time.monotonic() > next_line:
                self.writer.write(1)
                next_line = time.monotonic() + NEXT_LINE_SECONDS
            return False

        self.wait(f"all {self.writer.lines} lines are there", all_there)
        self.process.terminate()
        self.process.wait(60)
        got = [value.decode() for _, value in committed(self.server, TOPIC, 1)]
        want = [f"line {n:08}" for n in range(self.writer.lines)]
        wrong = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), None)
        assert wrong is None, f"line {wrong} is {got[wrong : wrong + 3]}, want {want[wrong : wrong + 3]}"
        assert len(got) == len(want), f"{len(got)} lines, want {len(want)}: {got[len(want) :][:3]}"
        c = self.counts
        return f"{c['worker']} kills of the worker, {c['broker']} of the broker, {len(want)} lines once, in order"

    def abandon(self):
        self.writer.halt.set()
        if self.process and self.process.poll() is None:
            self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def checks(report, given, mode):
    kills = max(2, given.cycles // 10)

    def run():
        server = against(given.against, SETTINGS, mode=mode)
        campaign = Campaign(server, kills, given.seed)
        try:
            return campaign.run()
        finally:
            campaign.abandon()
            server.__exit__()

    report.check(f"kill -9 under Connect, {mode}, seed {given.seed}", run)
