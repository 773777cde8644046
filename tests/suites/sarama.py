"""Sarama's functional tests of transactions. They find their brokers at ports 29091 to 29095, by a toxiproxy that tells
them it has nothing to do; what cuts the network or stops a broker by docker is left out."""

import http.server
import os
import re
import subprocess
import tempfile
import threading

from servers import Oncilla

VERSION = "v1.61.1"
PORT = 29091
TESTS = (
    "TxnProduceNoBegin",
    "TxnCommitNoMessages",
    "TxnProduce",
    "TxnProduceEpochBump",
    "TxnProduceAndCommitOffset",
    "TxnProduceMultiTxn",
    "TxnAbortedProduce",
    "InitProducerId3",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
)
LEFT_OUT = {"TxnProduceWithBrokerFailure": "stops a broker by docker"}


class Proxy(http.server.BaseHTTPRequestHandler):
    """A toxiproxy that has every proxy asked for and does nothing with it."""

    def say(self, code, body=b""):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.say(200, b'{"name": "%s", "enabled": true}' % name.encode())

    def do_POST(self):
        self.say(204) if self.path == "/reset" else self.say(200, b"{}")

    def log_message(self, *_):
        pass


def sarama(report, settings, mode):
    server = Oncilla(settings, mode=mode)
    server.port = PORT
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        with server, tempfile.TemporaryDirectory(prefix="oncilla-test-sarama-") as scratch:
            done = tests(scratch, f"http://127.0.0.1:{proxy.server_port}")
    finally:
        proxy.shutdown()
    found = re.findall(r"(?m)^--- (PASS|FAIL|SKIP): Test(\S+) \((\S+)s\)", done.stdout)
    told = {name: verdict for verdict, name, _ in found}
    for name in TESTS:
        verdict = told.get(f"Func{name}", "did not run")
        if verdict == "PASS":
            report.ok(f"sarama {name}")
        else:
            report.fail(f"sarama {name}", f"{verdict}: {(done.stdout + done.stderr)[-1200:]}")
    for name, reason in LEFT_OUT.items():
        report.skip(f"sarama {name}", reason)


def tests(scratch, proxy):
    env = {**os.environ, "TOXIPROXY_ADDR": proxy, "KAFKA_VERSION": "4.0.0", "GOFLAGS": "-mod=mod -buildvcs=false"}
    go = lambda *args: subprocess.run(
        ["go", *args], cwd=scratch, env=env, capture_output=True, text=True, timeout=700, errors="replace"
    )
    go("mod", "init", "scratch")
    go("get", "-t", f"github.com/IBM/sarama@{VERSION}")
    wanted = f"^TestFunc({'|'.join(TESTS)})$"
    package = "github.com/IBM/sarama"
    return go("test", "-count=1", "-timeout", "600s", "-v", "-tags", "functional", package, "-run", wanted)
