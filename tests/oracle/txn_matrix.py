"""The summary matrix of the coordinator, each cell on an id of its own: contract B10, B2 to B5, and the tables of B6
(F54, F55).
"""

from table import case
from txn import Txn, fence

# How an id comes to a state; always to an epoch above 0, so that the one before it exists.
REACHED = {
    "Empty": lambda x, t: x.init(),
    "Empty by (PID, E)": lambda x, t: x.init(given=0),
    "Ongoing by 3": lambda x, t: [x.init(), x.add({t: [0]})],
    "Ongoing by 5": lambda x, t: [x.init(), x.ask({t: [0]}, verify=False)],
    "CompleteCommit by EndTxn 4": lambda x, t: [x.init(), x.add({t: [0]}), x.ended(True, 4)],
    "CompleteAbort by EndTxn 4": lambda x, t: [x.init(), x.add({t: [0]}), x.ended(False, 4)],
    "CompleteCommit by EndTxn 5": lambda x, t: [x.add({t: [0]}), x.ended(True, 5)],
    "CompleteAbort by EndTxn 5": lambda x, t: [x.add({t: [0]}), x.ended(False, 5)],
    "CompleteAbort without partitions": lambda x, t: x.ended(False, 5),
    "CompleteAbort by a fence": lambda x, t: [x.add({t: [0]}), fence(x)],
}


OTHER = lambda x: (x.pid + 1000000, x.epoch)
# Who asks, by the names of the matrix.
WHO = {"E": 0, "E-1": -1, "E+1": 1}

REQUESTS = {
    "init": lambda x, t: x.init(),
    "init (PID, E)": lambda x, t: x.init(given=0),
    "init (PID, E-1)": lambda x, t: x.init(given=-1),
    "init (PID, E+1)": lambda x, t: x.init(given=1),
    "init (PID, E+1) v3": lambda x, t: x.init(3, given=1),
    "init (other, E)": lambda x, t: x.init(given=OTHER(x)),
    "add again": lambda x, t: x.add({t: [0]}),
    "add one more": lambda x, t: x.add({t: [0, 1]}),
    "add other": lambda x, t: x.add({t: [0]}, of=OTHER(x)),
    "add group": lambda x, t: x.add_group("g"),
    "add group other": lambda x, t: x.add_group("g", of=OTHER(x)),
    "add v5": lambda x, t: x.ask({t: [0]}, verify=False),
    "verify": lambda x, t: x.ask({t: [0]}),
    "verify two": lambda x, t: x.ask({t: [0, 1]}, 4),
    "verify other": lambda x, t: x.ask({t: [0]}, of=OTHER(x)),
}
for _w in ("E-1", "E+1"):
    REQUESTS |= {
        f"add {_w}": lambda x, t, w=_w: x.add({t: [0]}, of=WHO[w]),
        f"add {_w} v1": lambda x, t, w=_w: x.add({t: [0]}, 1, of=WHO[w]),
        f"add v5 {_w}": lambda x, t, w=_w: x.ask({t: [0]}, verify=False, of=WHO[w]),
        f"add group {_w}": lambda x, t, w=_w: x.add_group("g", of=WHO[w]),
        f"add group {_w} v1": lambda x, t, w=_w: x.add_group("g", 1, of=WHO[w]),
        f"verify {_w}": lambda x, t, w=_w: x.ask({t: [0]}, of=WHO[w]),
    }
for _commit in (True, False):
    _what = "commit" if _commit else "abort"
    for _version in (1, 4, 5):
        for _w in WHO if _version != 1 else ("E-1",):
            REQUESTS[f"{_what} v{_version} {_w}"] = lambda x, t, c=_commit, v=_version, w=_w: x.end(c, v, of=WHO[w])
        REQUESTS[f"{_what} v{_version} other"] = lambda x, t, c=_commit, v=_version: x.end(c, v, of=OTHER(x))
    REQUESTS[f"{_what} v5 E-2"] = lambda x, t, c=_commit: x.end(c, 5, of=-2)


# Other ways to states that have a whole row: the requests for which the way could count.
WAYS = {
    "Empty by (PID, E)": ("init",),
    "Ongoing by 5": ("init (PID", "add again", "verify", "commit v4 E", "abort v5 E"),
    "CompleteAbort without partitions": ("init", "add v5", "abort v5", "commit v5"),
    "CompleteAbort by a fence": ("init", "add again", "abort v5", "commit v5", "abort v4"),
}


def reached(o, topic, how):
    txn = Txn(o)
    txn.init()
    REACHED[how](txn, topic)
    txn.labels.clear()
    txn.label(txn.pid)
    return txn


def add_rows():
    for how in REACHED:

        def run(o, how=how):
            topic = o.topic(2)
            out = {}
            for label, request in REQUESTS.items():
                if how in WAYS and not label.startswith(WAYS[how]):
                    continue
                txn = reached(o, topic, how)
                told = request(txn, topic)
                txn.rest()
                out[label] = [told, txn.state([topic])]
            return out

        case(f"B10 B6 F54 F55 row {how}", "txn")(run)


add_rows()


@case("B10 F49 row without an entry", "txn")
def _(o):
    topic = o.topic(2)
    out = {}
    for label, request in REQUESTS.items():
        txn = Txn(o)
        txn.pid, txn.epoch = 5000000, 3
        told = request(txn, topic)
        out[label] = [told, txn.state()] if not label.startswith("init") else [told[0], told[2], txn.state()[1:2]]
    return out


# Each kind of request at least once.
HELD = (
    "init; init (PID, E); init (other, E); add again; add one more; add other; add E-1 v1; add v5; add group; verify; "
    "verify two; verify E-1; verify other; commit v1 E-1; commit v4 E; abort v4 E; commit v4 E-1; commit v4 other; "
    "commit v5 E; abort v5 E; commit v5 E-1; abort v5 E-1; commit v5 other"
).split("; ")


@case("B10 F45 F54 F55 F58 B11.3 row of a pending Complete: the topic has no room for the marker", "txn")
def _(o):
    topic = o.topic(2, max_message_bytes=70)
    out = {}
    for commit, version in ((True, 4), (False, 4), (True, 5), (False, 5)):
        row = {}
        for label in HELD:
            txn = Txn(o)
            txn.init(), txn.init()
            txn.labels.clear()
            txn.label(txn.pid)
            txn.add({topic: [0]})
            txn.end(commit, version)
            txn.patient = False
            row[label] = REQUESTS[label](txn, topic)
        out[f"{'commit' if commit else 'abort'} v{version}"] = row
    return out
