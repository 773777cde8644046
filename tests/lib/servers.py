"""Brokers as processes of a test: Oncilla and the Kafka peer, each on a free port with a directory of its own.

Every server started here dies with the test that started it, also when the test is killed (PR_SET_PDEATHSIG).
"""

import atexit
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("ONCILLA_CACHE", pathlib.Path.home() / ".cache" / "oncilla"))
PEER = ROOT / "tests" / "peer" / "kafka-peer"
MODES = ("per-core", "shared")
START_SECONDS = 60
_running = []


def binary():
    """The broker under test: ONCILLA_BIN, else the release build, else the debug build."""
    named = os.environ.get("ONCILLA_BIN")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for path in [pathlib.Path(named)] if named else [target / "release" / "oncilla", target / "debug" / "oncilla"]:
        if path.exists():
            return path
    raise FileNotFoundError("no oncilla binary: run `cargo build --release`, or set ONCILLA_BIN")


def free_ports(count):
    """The first of `count` adjacent ports that nobody listens on. Below the ephemeral range, so no client takes one."""
    base = 20000 + os.getpid() * 37 % 10000
    for step in range(0, 10000, count + 1):
        first = 20000 + (base - 20000 + step) % 10000
        held = []
        try:
            for port in range(first, first + count):
                s = socket.socket()
                held.append(s)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise OSError("no free ports between 20000 and 30000")


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    """A broker process. `start` returns when it serves; `stop` asks it to end; `kill` is kill -9."""

    kind = ""

    def __init__(self, settings=None, data=None, env=None):
        self.settings = dict(settings or {})
        self.own_data = data is None
        self.data = pathlib.Path(data or tempfile.mkdtemp(prefix=f"oncilla-test-{self.kind}-"))
        self.env = {**os.environ, **(env or {})}
        self.process = None
        self.log = self.data.with_name(self.data.name + ".log")
        self.ready_seconds = None

    def address(self):
        return "127.0.0.1", self.port

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def _spawn(self, command, **more):
        log = open(self.log, "ab")
        self.process = subprocess.Popen(command, stderr=log, env=self.env, preexec_fn=_die_with_parent, **more)
        log.close()
        _running.append(self)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds=30, how=signal.SIGTERM):
        """Ends the process and returns its exit code."""
        if self.process is None:
            return None
        if self.alive():
            self.process.send_signal(how)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = f"still running {seconds} s after {how.name}"
        self._forget()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._forget()

    def start_and_kill(self, seconds):
        """kill -9 while it starts."""
        self._spawn(self.command(), stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        self.kill()

    def _forget(self):
        if self.process.stdout:
            self.process.stdout.close()
        if self in _running:
            _running.remove(self)
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process is not None:
            self.stop(seconds=20)
        if self.own_data:
            shutil.rmtree(self.data, ignore_errors=True)
            self.log.unlink(missing_ok=True)

    def log_tail(self, lines=15):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def rss_kib(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1))

    def threads(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"Threads:\s+(\d+)", text).group(1))

    def open_sockets(self):
        count = 0
        for link in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                count += os.readlink(link).startswith("socket:")
            except OSError:  # closed in between
                pass
        return count

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Oncilla(Server):
    kind = "oncilla"

    def __init__(self, settings=None, mode="per-core", cores=2, data=None, env=None):
        super().__init__(settings, data, env)
        self.mode, self.cores = mode, cores
        self.port = free_ports(cores)
        self.http = None

    def command(self):
        given = {"shard.listeners": self.mode, "http.listen": "127.0.0.1:0", **self.settings}
        extra = [part for key, value in given.items() for part in ("-X", f"{key}={value}")]
        return [
            str(binary()),
            "serve",
            "--data",
            str(self.data),
            "--listen",
            f"127.0.0.1:{self.port}",
            "--cores",
            str(self.cores),
            *extra,
        ]

    def start(self):
        began = time.monotonic()
        self._spawn(self.command(), stdout=subprocess.PIPE, text=True)
        # A thread, so that a broker that says nothing cannot hold the test.
        lines = []
        reader = threading.Thread(
            target=lambda out: lines.append(out.readline()), args=(self.process.stdout,), daemon=True
        )
        reader.start()
        reader.join(START_SECONDS)
        found = re.match(r"oncilla \S+ ready kafka=(\S+) http=(\S+) data=.* cores=(\d+)", lines[0] if lines else "")
        if not found:
            ended = self.process.poll()
            self.stop(seconds=5)
            raise RuntimeError(f"no ready line (exit code {ended}): {lines} {self.log_tail()}")
        self.ready_seconds = time.monotonic() - began
        self.http = found.group(2)
        return self


class Kafka(Server):
    kind = "kafka"

    def __init__(self, settings=None, data=None, env=None):
        super().__init__(settings, data, env)
        self.mode = "kafka"
        self.port = free_ports(2)
        self.env["PEER_SETTINGS"] = " ".join(f"{k}={v}" for k, v in self.settings.items())

    def command(self):
        return [str(PEER), "serve", str(self.port), str(self.data)]

    def start(self):
        began = time.monotonic()
        self.log.unlink(missing_ok=True)
        self._spawn(self.command(), stdout=subprocess.DEVNULL)
        while time.monotonic() - began < START_SECONDS:
            if "Kafka Server started" in self.log_tail(200):
                self.ready_seconds = time.monotonic() - began
                return self
            if not self.alive():
                break
            time.sleep(0.05)
        self.stop(seconds=5)
        raise RuntimeError(f"the Kafka peer did not start: {self.log_tail()}")


class Remote:
    """A broker that runs already; it is only talked to."""

    mode = "remote"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        host, port = bootstrap.rsplit(":", 1)
        self.port = int(port)
        self.host = host

    def address(self):
        return self.host, self.port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def against(target, settings=None, mode="per-core", **more):
    """The server that `--against` names: `oncilla`, `kafka`, or the address of one that runs."""
    if target == "oncilla":
        return Oncilla(settings, mode=mode, **more)
    if target == "kafka":
        # Names that only Oncilla has are left out for the peer.
        own = ("shard.", "poll.", "http.", "replication.factor.accept.max")
        return Kafka({k: v for k, v in (settings or {}).items() if not k.startswith(own)})
    return Remote(target)


def modes(target):
    return MODES if target == "oncilla" else (target,)


@atexit.register
def _end_all():
    for server in list(_running):
        server.kill()
