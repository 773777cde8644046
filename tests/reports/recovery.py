"""Reports about what a restart leaves of transactions. Each has a broker of its own, which ends by kill -9."""

import time

from offsets import committed, staged
from report import expect
from scene import put, until
from txn import Txn


def case_36_what_was_answered_holds_after_a_kill(s):
    """Also case 38 and case 136."""
    topic, group = s.topic(3), s.group()
    for turn in range(6):
        txn = s.txn()
        for p in range(3):
            put(txn, topic, b"%d" % turn, partition=p)
        if turn % 2:
            s.restart()
            s.cluster.find(topic, 3)
            txn.address = None
        staged(s, txn, group, topic, turn + 1)
        expect("commit", txn.end()[0], 0)
        if turn % 2 == 0:
            s.restart()
            s.cluster.find(topic, 3)
        want = [b"%d" % n for n in range(turn + 1)]
        until("all three are seen", lambda w=want: all(s.read(topic, p) == w for p in range(3)))
        until("and the offset", lambda t=turn: committed(group, topic, stable=True) == (0, t + 1))


def case_37_a_producer_is_known_after_a_restart(s):
    topic, txn = s.topic(), s.txn()
    s.restart()
    txn.address = None
    expect("added", txn.add({topic: [0]}), 0)
    expect("commit", txn.ended(True, 4), 0)
    again = s.txn(tid=txn.tid)
    expect("the same, bumped", (again.pid, again.epoch), (txn.pid, txn.epoch + 1))


def case_47_an_idle_id_is_forgotten_and_its_producer_told(s):
    # The time is a setting of the whole broker, so this one is started anew.
    s.server.settings["transactional.id.expiration.ms"] = "1500"
    s.restart()
    topic, txn, busy = s.topic(), s.txn(), s.txn()
    txn.add({topic: [0]})
    expect("commit", txn.ended(True, 4), 0)
    put(busy, topic, b"open")
    until("forgotten", lambda: txn.describe()["ErrorCode"] == 105, 15)
    expect("the old producer", [txn.add({topic: [0]}), txn.end(True, 4)], [49, 49])
    expect("one with an open transaction stays", busy.describe()["TransactionState"], "Ongoing")
    old = txn.pid
    expect("a new one", txn.init()[0], 0)
    assert txn.pid != old, "it has the old one's id"


def case_89_a_later_plain_commit_wins_before_and_after_a_restart(s):
    topic, group, txn = s.topic(), s.group(), s.txn()
    staged(s, txn, group, topic, 5)
    expect("plain", group.commit({topic: {0: 7}}), [[0]])
    expect("commit", txn.ended()[0], 0)
    until("stable", lambda: committed(group, topic, stable=True)[0] == 0)
    expect("live", committed(group, topic, stable=True), (0, 7))
    s.restart()
    expect("after the restart", committed(group, topic, stable=True), (0, 7))


def case_137_a_transactions_time_goes_on_over_a_restart(s):
    topic, txn = s.topic(), Txn(s)
    expect("init", txn.init(timeout=2500)[0], 0)
    began = time.monotonic()
    put(txn, topic, b"x")
    s.restart()
    s.cluster.find(topic)
    until("aborted", lambda: s.ends(topic) == (2, 2), 15)
    took = time.monotonic() - began
    assert 2.4 < took < 8, f"after {took:.1f} s"
    expect("seen", s.read(topic), [])
    expect("the id goes on", txn.init()[0], 0)
