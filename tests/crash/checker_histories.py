"""The judge of histories is judged: each anomaly, put into a made-up history, must be noticed."""

from anomalies import anomalies
from history import Process

# By hand: a transaction that committed, one that was aborted, and one whose client was killed in its commit.
BY_HAND = """1 assign 0
2 begin A1
3 send A1 0 x
4 send A1 0 y
5 sent A1 x 0
6 commit A1
7 ok A1
8 begin A2
9 send A2 0 z
20 begin A3
21 poll A3 0:0:x 0:1:y
22 send A3 0 u
23 commit A3"""
# In a group, which took what the first one wrote.
IN_GROUP = """11 begin B1
12 poll B1 0:0:x 0:1:y
13 send B1 0 v
14 commit B1
15 ok B1"""
LOG = {0: "x", 1: "y", 5: "v", 7: "u"}
SECOND_IN_GROUP = "\n16 begin B2\n17 poll B2 0:0:x\n18 send B2 0 w\n19 commit B2\n19 ok B2"

# What is replaced in the lines, the log, the group's offset, the anomaly.
ROWS = {
    "a history without an anomaly": ((), LOG, 2, ""),
    "a commit in doubt that did not happen": ((), {0: "x", 1: "y", 5: "v"}, 2, ""),
    "half a transaction": ((), {0: "x", 5: "v"}, 2, "lost-write"),
    "an aborted value in the log": ((), {**LOG, 3: "z"}, 2, "G1a"),
    "an aborted value that was read": ((("0:1:y\n22", "0:1:y 0:3:z\n22"),), LOG, 2, "polls z of A2"),
    "a value twice": ((), {**LOG, 8: "x"}, 2, "duplicate"),
    "an answer with another offset": ((("sent A1 x 0", "sent A1 x 4"),), LOG, 2, "inconsistent-offsets"),
    "two values at one offset": ((("0:1:y\n13", "0:1:q\n13"),), LOG, 2, "inconsistent-offsets"),
    "a value of its own that is read": ((("0:1:y\n22", "0:1:y 0:5:v 0:7:u\n22"),), LOG, 2, "precommitted-read"),
    "a value passed over": ((("0:0:x 0:1:y\n22", "0:1:y\n22"),), LOG, 2, "poll-skip"),
    "a value read again": ((("0:1:y\n22", "0:1:y 0:0:x\n22"),), LOG, 2, "nonmonotonic-poll"),
    "a value read again on demand": ((("\n22", "\n21 assign 0\n21 poll A3 0:0:x\n22"),), LOG, 2, ""),
    "values in another order": ((("5 sent A1 x 0\n", ""),), {0: "y", 1: "x", 5: "v", 7: "u"}, 2, "nonmonotonic-send"),
    "a value consumed twice": ((("15 ok B1", "15 ok B1" + SECOND_IN_GROUP),), {**LOG, 9: "w"}, 2, "consume-counts"),
    "a value not consumed": ((("0:0:x 0:1:y\n13", "0:1:y\n13"),), LOG, 2, "consume-skip"),
    "a commit of offsets that is gone": ((), LOG, 1, "consume-lost"),
    "two that read each other": ((("5 sent A1 x 0", "5 poll A1 0:5:v"),), LOG, 2, "G1c"),
    "a read of what is written later": ((("15 ok", "14 poll B1 0:7:u\n15 ok"),), LOG, 2, "G1c"),
    "a stranger": ((), {**LOG, 9: "q"}, 2, "strangers"),
}


def checks(report):
    for name, (changes, log, offset, want) in ROWS.items():
        report.check(f"the checker judges {name}", judged, changes, log, offset, want)


def judged(changes, log, offset, want):
    found = " ".join(anomalies(made(changes), {0: log}, {"g": {0: offset}}))
    assert want in found if want else not found, f"found {found!r}, want {want!r}"


def made(changes):
    processes = []
    for name, group, lines in (("A", "", BY_HAND), ("B", "g", IN_GROUP)):
        for old, new in changes:
            lines = lines.replace(old, new)
        process = Process(name, group)
        for line in lines.splitlines():
            process.take(line)
        process.close()
        processes.append(process)
    return processes
