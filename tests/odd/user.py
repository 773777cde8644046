"""What a user does: a wrong flag or key, a port in use, a second broker, Ctrl-C, Kafka's own tool on our files."""

import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from batches import batch
from report import expect
from servers import PEER, Oncilla, binary
from wire import Cluster

NOBODY = 65534


def checks(report, target):
    if target != "oncilla":
        report.skip("the command line", "this is Oncilla's own")
        return
    for name, run in (
        ("an unknown flag names itself and exits non-zero", wrong_flag),
        ("an unknown setting is refused and the nearest is named", wrong_key),
        ("a bad value of a setting is refused with key and value", wrong_value),
        ("an unknown setting in the file is refused", wrong_file),
        ("a port in use is named", port_in_use),
        ("a second broker on one directory is refused, the first serves on", second_broker),
        ("a data directory that cannot be written is named", read_only),
        ("Ctrl-C ends with exit code 0 within seconds, also under load", ctrl_c),
        ("a second Ctrl-C ends at once", ctrl_c_twice),
        ("stdout of serve is one line", one_line),
        ("check exits 0 here", check_command),
        ("who may lock 512 KiB a core can serve, who may lock less is told", locked_memory),
        ("the embedded defaults start from nothing", defaults),
        ("kafka-dump-log reads a sealed segment", dump_log),
        ("demo shows both isolation levels and leaves nothing behind", demo),
        ("demo that is interrupted leaves nothing behind", demo_interrupted),
    ):
        report.check(name, run)


def oncilla(*args, seconds=20, cwd=None):
    done = subprocess.run([str(binary()), *map(str, args)], capture_output=True, text=True, timeout=seconds, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def refused(said, *words):
    code, text = said
    assert code not in (0, None) and code > 0, f"exit code {code}: {text[-300:]}"
    missing = [w for w in words if w not in text]
    assert not missing, f"does not say {missing}: {text[-500:]}"
    assert "panicked" not in text, text[-500:]


def scratch():
    return tempfile.TemporaryDirectory(prefix="oncilla-test-user-")


def wrong_flag():
    refused(oncilla("serve", "--no-such-flag"), "--no-such-flag")


def wrong_key():
    with scratch() as d:
        refused(oncilla("serve", "--data", d, "-X", "num.partitons=3"), "num.partitons", "num.partitions")


def wrong_value():
    with scratch() as d:
        refused(oncilla("serve", "--data", d, "-X", "num.partitions=many"), "num.partitions", "many")


def wrong_file():
    with scratch() as d:
        path = pathlib.Path(d) / "oncilla.toml"
        path.write_text('"log.retention.hour" = 5\n')
        refused(oncilla("serve", "--config", path, "--data", f"{d}/data"), "log.retention.hour")


def port_in_use():
    with scratch() as d, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        refused(
            oncilla("serve", "--data", d, "--listen", f"127.0.0.1:{port}", "--cores", 1, "-X", "http.listen=off"),
            str(port),
        )


def second_broker():
    with Oncilla() as first:
        refused(
            oncilla("serve", "--data", first.data, "--listen", "127.0.0.1:0", "--cores", 1, "-X", "http.listen=off"),
            str(first.data),
        )
        expect(
            "the first serves", len(Cluster(first.address()).call("Metadata", 9, {"Topics": []})["Brokers"]) > 0, True
        )


def read_only():
    with scratch() as d:
        path = pathlib.Path(d) / "file"
        path.write_text("not a directory")
        refused(oncilla("serve", "--data", path, "--listen", "127.0.0.1:0", "-X", "http.listen=off"), str(path))


def loaded(server):
    cluster = Cluster(server.address())
    cluster.create("user", 2)
    for _ in range(20):
        expect("produce", cluster.produce("user", batch())["ErrorCode"], 0)
    # A fetch that waits for a minute must not hold the end.
    connection = cluster.at(cluster.leader("user"))
    connection.send(
        connection.request(
            "Fetch",
            12,
            {
                "MaxWaitMs": 60000,
                "MinBytes": 1,
                "MaxBytes": 1000,
                "Topics": [
                    {"Topic": "user", "Partitions": [{"Partition": 0, "FetchOffset": 20, "PartitionMaxBytes": 1000}]}
                ],
            },
        )
    )
    return cluster


def ctrl_c():
    with Oncilla() as server:
        loaded(server)
        began = time.monotonic()
        expect("exit code", server.stop(seconds=15, how=signal.SIGINT), 0)
        seconds = time.monotonic() - began
        assert seconds < 10, f"it took {seconds:.1f} s"
        server.start()
        expect("records after the restart", Cluster(server.address()).offset("user"), 20)
        expect("exit code of SIGTERM", server.stop(seconds=15), 0)
        return f"{seconds:.2f} s"


def ctrl_c_twice():
    with Oncilla() as server:
        loaded(server)
        process = server.process
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        process.wait(10)
        assert time.monotonic() - began < 3, "it went on for more than 3 s"


def one_line():
    with Oncilla() as server:
        out = server.process.stdout
        loaded(server)
        server.process.send_signal(signal.SIGTERM)
        rest = out.read()
        expect("stdout after the ready line", rest, "")


def check_command():
    with scratch() as d:
        code, text = oncilla("check", "--data", d, "--listen", "127.0.0.1:0", "-X", "http.listen=off")
        assert code == 0, f"exit code {code}: {text[-500:]}"


def locked_memory():
    with scratch() as d:
        os.chmod(d, 0o755)
        program = shutil.copy(binary(), d)
        data = pathlib.Path(d) / "data"
        data.mkdir()
        somebody = {}
        if os.geteuid() == 0:
            # Root is not held to the limit.
            os.chown(data, NOBODY, NOBODY)
            somebody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

        def serve(cores, kib):
            listen = ("--listen", "127.0.0.1:0", "-X", "http.listen=off")
            return subprocess.Popen(
                [program, "serve", "--data", data, "--cores", str(cores), *listen],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (kib << 10, kib << 10)),
                **somebody,
            )

        with serve(2, 1024) as enough:
            line = enough.stdout.readline()
            enough.terminate()
            assert " ready " in line, line + enough.stderr.read()
            expect("exit code", enough.wait(20), 0)
        with serve(1, 256) as little:
            said = little.stderr.read()
            refused((little.wait(20), said), "256 KiB", "512 KiB", "ulimit -l")


def defaults():
    with scratch() as d:
        # The default port may be taken on the machine that runs the tests.
        with socket.socket() as probe:
            taken = any(probe.connect_ex(("127.0.0.1", p)) == 0 for p in (9092, 9644))
        extra = ["--listen", "127.0.0.1:0", "-X", "http.listen=off"] if taken else []
        process = subprocess.Popen(
            [str(binary()), "serve", *extra], cwd=d, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        try:
            line = process.stdout.readline()
            assert re.match(r"oncilla \S+ ready kafka=\S+ http=\S+ data=\S+ cores=\d+", line), f"first line: {line!r}"
            expect("data directory", (pathlib.Path(d) / "oncilla-data").is_dir(), True)
        finally:
            process.send_signal(signal.SIGTERM)
            expect("exit code", process.wait(15), 0)
            process.stdout.close()


def demo():
    with scratch() as d:
        code, text = oncilla("demo", "--dir", d, seconds=60)
        expect(text, code, 0)
        sees = dict(re.findall(r"(read_\w+) +sees (.*)", text))
        want = {"read_committed": "a1 a2 a3 c1 c2 c3", "read_uncommitted": "a1 a2 a3 b1 b2 b3 c1 c2 c3"}
        expect("what readers see", sees, want)
        times = re.findall(r"^  (.+?) +p50 +([\d.]+) ms   p99 +([\d.]+) ms$", text, re.M)
        assert len(times) == 4 and all(0 < float(p50) <= float(p99) for _, p50, p99 in times), text
        expect("left behind", list(pathlib.Path(d).iterdir()), [])


def demo_interrupted():
    with scratch() as d:
        command = [str(binary()), "demo", "--dir", d]
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        with subprocess.Popen(command, **more) as process:
            # What the broker warns of may come before.
            begun = any(line.startswith("a broker on ") for line in process.stdout)
            assert begun, "it ended before its broker was there"
            process.send_signal(signal.SIGINT)
            text = process.stdout.read()
            refused((process.wait(20), text), "interrupted")
        expect("left behind", list(pathlib.Path(d).iterdir()), [])


def dump_log():
    with Oncilla() as server:
        cluster = Cluster(server.address())
        cluster.create("dump", 1, segment_bytes=1 << 20)
        pid, epoch = cluster.producer_id()
        for seq in range(40):
            got = cluster.produce(
                "dump", batch([b"v" * 60000], pid=pid, epoch=epoch, seq=seq, codec="gzip" if seq % 2 else "none")
            )
            expect("produce", got["ErrorCode"], 0)
        segments = sorted(server.data.glob("topics/dump.*/0/*.log"))
        assert len(segments) >= 2, f"nothing was sealed: {segments}"
        said = subprocess.run(
            [
                str(PEER),
                "tool",
                "org.apache.kafka.tools.DumpLogSegments",
                "--deep-iteration",
                "--files",
                str(segments[0]),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        text = said.stdout + said.stderr
        batches_seen = re.findall(r"baseOffset: (\d+) lastOffset: (\d+)", text)
        assert batches_seen and batches_seen[0] == ("0", "0"), text[-800:]
        records = re.findall(r"\| offset: (\d+)", text)
        bad = [line for line in text.splitlines() if "isvalid: false" in line.lower() or "Exception" in line]
        expect("problems", bad, [])
        expect("records", records, [str(i) for i in range(len(batches_seen))])
        return f"{len(batches_seen)} batches"
