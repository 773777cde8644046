"""What is left of transactions after kill -9: contract A8, B1, F15, F42, F61, F62. After its yield a case meets the new
broker."""

from table import case
from txn import Txn, began, producers
from txn_reading import read, read_on


@case("B1 F42 F62 states, epochs and timeouts of ids are as they were", "restart")
def _(o):
    topic = o.topic(2)
    made = {}
    for label in ("Empty", "retried", "Ongoing", "CompleteCommit 4", "CompleteAbort 5", "rotated back"):
        txn = made[label] = Txn(o)
        txn.init(timeout=20000), txn.init(timeout=20000)
        if label != "Empty" and label != "retried":
            txn.add({topic: [0, 1]})
        if label.startswith("Complete"):
            txn.ended(label.startswith("CompleteCommit"), int(label[-1]))
        if label == "retried":
            txn.init(given=0, timeout=20000)
    look = lambda: {k: [x.state([topic]), x.describe()["TransactionTimeoutMs"]] for k, x in made.items()}
    before = look()
    yield
    out = {"same": look() == before}
    # The epoch before the last is forgotten (F42), what EndTxn 5 compares is not.
    out["retried"] = [made["retried"].init(given=-1, keep=False), made["retried"].init(given=0)]
    out["EndTxn 5 again"] = made["CompleteAbort 5"].end(False, 5, -1)
    out["Empty"] = [made["Empty"].end(True, 4), made["Empty"].init()]
    out["Ongoing"] = [made["Ongoing"].add({topic: [1]}), made["Ongoing"].ended(True, 5), made["Ongoing"].state()]
    out["CompleteCommit 4"] = [made["CompleteCommit 4"].end(True, 4), made["CompleteCommit 4"].init()]
    yield out


@case("A8 F15 F62 an open transaction goes on without asking anybody, and ends", "restart")
def _(o):
    topic = o.topic()
    a, b = began(o, topic), began(o, topic, version=11)
    c = began(o, topic)
    c.ended(False, 5)
    o.fill(topic)
    before = read_on(o, topic), producers(o, topic)
    yield
    out = [read_on(o, topic) == before[0], producers(o, topic) == before[1]]
    out += [a.produce(topic, 1), b.produce(topic, 1, version=11), c.produce(topic, 0), read_on(o, topic)]
    # The last batch is a duplicate still, with the coordinator asked only where nothing is open.
    out += [a.produce(topic, 1), c.produce(topic, 0), a.ended(False, 5), b.ended(True, 4), c.ended(True, 5)]
    yield [*out, read_on(o, topic), producers(o, topic)]


@case("A8 F15 duplicates after kill -9: the last batch, not those before it", "restart")
def _(o):
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    for seq in range(6):
        txn.produce(topic, seq)
    yield
    yield [txn.produce(topic, s)[0] for s in (5, 0, 7, 6)] + [txn.ended(True, 5), read(o, topic)[1:3]]


@case("A8 F15 older duplicates after kill -9", "restart")
def _(o):
    topic = o.topic()
    txn = Txn(o)
    txn.init()
    for seq in range(6):
        txn.produce(topic, seq)
    yield
    yield [txn.produce(topic, s) for s in (1, 2, 3, 4)]


@case("C3 F70 pending offsets are pending still", "restart")
def _(o):
    topic = o.topic()
    made = {}
    for label in ("commit", "abort", "plain after"):
        g, txn = o.group(), Txn(o)
        txn.init()
        g.commit({topic: {0: 1}})
        txn.commit_offsets(g, {topic: {0: 10}})
        if label == "plain after":
            g.commit({topic: {0: 5}})
        made[label] = g, txn
    yield
    out = {}
    for label, (g, txn) in made.items():
        g.again()
        look = lambda stable, g=g: g.fetch({topic: [0]}, 7, stable=stable)[1][0][2:4]
        told = [look(True), look(False), txn.commit_offsets(g, {"never": {0: 1}}), txn.ended(label != "abort")]
        out[label] = [*told, look(True)]
    yield out


@case(
    "B6 F61 ends that were answered hold, whatever of their markers was written",
    "restart",
    unsteady="in 3 of 4 runs Kafka told all ids complete and had some open on every partition, once still after 10 s",
)
def _(o):
    topic = o.topic(4)
    made = []
    for n in range(8):
        txn = Txn(o)
        txn.init()
        for partition in range(4):
            txn.produce(topic, partition=partition)
        made.append(txn)
    for n, txn in enumerate(made):
        txn.end(n % 2 == 0, 5)
    yield
    states = [txn.rest() for txn in made]
    lags = [(lambda got: got[1] - got[2])(read(o, topic, partition=p)) for p in range(4)]
    retried = [txn.end(n % 2 == 0, 5, -1)[0] for n, txn in enumerate(made)]
    aborted = sorted({a["ProducerId"] for a in o.cluster.fetch(topic, 0, isolation=1)["AbortedTransactions"]})
    yield [states, lags, retried, aborted == sorted(x.pid for n, x in enumerate(made) if n % 2)]
