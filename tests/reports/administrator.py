"""An administrator looks for transactions that hang, and ends them, with the commands of the broker itself.

Without verification older clients can leave records in a partition that no coordinator knows of (KIP-664, F79). The
broker has this setting from its start, so it is one of this module's own.
"""

import json
import subprocess

from report import expect
from scene import put
from servers import binary


def txn(s, *args):
    command = [str(binary()), "txn", "--bootstrap", s.server.bootstrap, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def hanging(s, *args):
    code, out, error = txn(s, "find-hanging", "--older-than-ms", "0", "--format", "json", *args)
    expect(error, code, 0)
    return [json.loads(line) for line in out.splitlines()]


def case_52_what_hangs_is_found_and_aborted_by_command(s):
    s.server.settings["transaction.partition.verification.enable"] = "false"
    s.restart()
    topic, known, left = s.topic(2), s.txn(), s.txn()
    known.add({topic: [0]})
    put(known, topic, b"known", version=11)
    put(left, topic, b"left", version=11, partition=1)
    found = hanging(s)
    keys = ("topic", "partition", "producer_id", "epoch", "start_offset")
    expect("found", [[one[k] for k in keys] for one in found], [[topic, 1, left.pid, left.epoch, 0]])
    expect("in another topic", hanging(s, "--topic", s.topic()), [])
    code, _, error = txn(s, "abort", "--topic", topic, "--partition", "1", "--start-offset", "7")
    expect("a wrong offset", (code != 0, "no transaction is open" in error), (True, True))
    code, out, error = txn(s, "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    expect("abort", (code, f"producer {left.pid}" in out, error), (0, True, ""))
    expect("ended", [s.ends(topic, 1), s.read(topic, 1), hanging(s)], [(2, 2), [], []])
    expect("the other goes on", known.ended(True, 4), 0)
    expect("seen", s.read(topic), [b"known"])
    code, out, _ = txn(s, "list")
    assert code == 0 and known.tid in out and "CompleteCommit" in out, out
