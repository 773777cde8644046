"""Reports about offsets in transactions."""

import time

from groups import settle_members
from report import expect
from scene import until
from txn import Txn

UNSTABLE = 88


def committed(group, topic, partition=0, stable=False):
    """(code, offset) of one partition."""
    code, rows = group.fetch({topic: [partition]}, stable=stable)
    assert code == 0 and len(rows) == 1, (code, rows)
    return rows[0][2], rows[0][3]


def staged(s, txn, group, topic, offset, version=5):
    if version < 5:
        expect("group added", txn.add_group(group.name), 0)
    expect("offset staged", txn.commit_offsets(group, {topic: {0: offset}}, version), 0)


def case_56_the_group_can_be_added_again_after_an_abort_in_a_rebalance(s):
    topic, group, txn = s.topic(), s.group(), s.txn()
    staged(s, txn, group, topic, 5, 3)
    group.member("a", topic).join()
    expect("abort", txn.ended(False, 4), 0)
    staged(s, txn, group, topic, 6, 3)
    expect("commit", txn.ended(True, 4), 0)
    until("committed", lambda: committed(group, topic, stable=True) == (0, 6))


def case_84_offsets_are_unstable_only_as_long_as_their_transaction_is_open(s):
    topic, group = s.topic(), s.group()
    for commit, seen in ((False, -1), (True, 7)):
        txn = s.txn()
        staged(s, txn, group, topic, 7)
        expect("while open", [committed(group, topic, stable=True)[0], committed(group, topic)], [UNSTABLE, (0, -1)])
        expect("end", txn.ended(commit)[0], 0)
        until("stable", lambda seen=seen: committed(group, topic, stable=True) == (0, seen))
    txn = Txn(s)
    expect("init", txn.init(timeout=300)[0], 0)
    staged(s, txn, group, topic, 9)
    expect("while open", committed(group, topic, stable=True)[0], UNSTABLE)
    until("aborted by time", lambda: committed(group, topic, stable=True) == (0, 7))


def case_85_metadata_that_is_too_long_leaves_nothing_behind(s):
    topic, group, txn = s.topic(2), s.group(), s.txn()
    codes = txn.commit_offsets(group, {topic: {0: (5, "m" * 4097), 1: (6, "m" * 4096)}})
    expect("codes", codes, [12, 0])
    expect("commit", txn.ended()[0], 0)
    until("the good one", lambda: committed(group, topic, 1, stable=True) == (0, 6))
    expect("the other", committed(group, topic, 0, stable=True), (0, -1))


def case_87_a_transaction_of_offsets_alone_is_a_transaction(s):
    topic, group, txn = s.topic(), s.group(), Txn(s)
    expect("init", txn.init(timeout=400)[0], 0)
    seen = lambda offset: until(offset, lambda: committed(group, topic, stable=True) == (0, offset))
    staged(s, txn, group, topic, 5, 3)
    expect("open", txn.describe()["TransactionState"], "Ongoing")
    expect("commit", txn.ended(True, 4), 0)
    seen(5)
    staged(s, txn, group, topic, 9, 3)
    expect("abort", txn.ended(False, 4), 0)
    seen(5)
    staged(s, txn, group, topic, 11, 3)
    until("aborted by time", lambda: txn.rest() == "CompleteAbort")
    seen(5)
    expect("a new producer", txn.init()[0], 0)
    t2 = s.topic()
    txn.add({t2: [0]})
    expect("commit", txn.ended(True, 4), 0)
    seen(5)


def case_88_offsets_of_no_transaction_are_refused(s):
    topic, group, txn = s.topic(), s.group(), s.txn()
    parts = {topic: {0: 5}}
    expect("nothing open", [txn.commit_offsets(group, parts, v) for v in (3, 4)], [48, 120])
    staged(s, txn, group, topic, 5, 3)
    expect("end", txn.ended(True, 4), 0)
    expect("after the end", [txn.commit_offsets(group, parts, v) for v in (3, 4)], [48, 120])
    assert txn.commit_offsets(group, parts, 4, of=-1) in (47, 90)
    staged(s, txn, group, topic, 6, 3)
    expect("unknown", txn.commit_offsets(group, {"no-such-topic": {0: 1}, topic: {0: 7, 9: 1}}, 3), [3, 0, 3])
    expect("commit", txn.ended(True, 4), 0)
    until("committed", lambda: committed(group, topic, stable=True) == (0, 7))


def case_96_members_stage_offsets_and_zombies_do_not(s):
    """Also case 97."""
    topic, group, txn = s.topic(), s.group(), s.txn()
    a = group.member("a", topic)
    settle_members(a)
    who = {"member": a.id, "generation": a.generation}
    stage = lambda **as_who: txn.commit_offsets(group, {topic: {0: 1}}, **{**who, **as_who})
    expect("a member", stage(), 0)
    expect("zombies", [stage(generation=a.generation + 1), stage(member="someone")], [22, 25])
    expect("nobody", stage(member="", generation=-1), 0)
    other = s.group()
    expect("a group without members", txn.commit_offsets(other, {topic: {0: 1}}, generation=3), 22)
    expect("abort", txn.ended(False)[0], 0)
    until("unchanged", lambda: committed(group, topic, stable=True) == (0, -1))


def case_103_the_next_owner_waits_for_the_transaction_before(s):
    topic, group = s.topic(), s.group()
    for commit, seen in ((True, 10), (False, 10)):
        txn = s.txn()
        staged(s, txn, group, topic, 10 if commit else 20)
        expect("the next owner", committed(group, topic, stable=True)[0], UNSTABLE)
        expect("end", txn.ended(commit)[0], 0)
        until("what it reads", lambda: committed(group, topic, stable=True) == (0, seen))


def case_158_staging_many_offsets_costs_about_what_one_costs(s):
    topic, group, txn = s.topic(100), s.group(), s.txn()

    def time_of(offsets):
        took = []
        for n in range(9):
            began = time.monotonic()
            codes = txn.commit_offsets(group, {topic: {p: n for p in range(offsets)}})
            took.append(time.monotonic() - began)
            assert codes in (0, [0] * offsets), codes
        return sorted(took)[4]

    one, hundred = time_of(1), time_of(100)
    expect("abort", txn.ended(False)[0], 0)
    assert hundred < 20 * one + 0.05, f"{one * 1e3:.1f} ms for one, {hundred * 1e3:.1f} ms for a hundred"
