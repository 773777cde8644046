"""The last epochs of a producer id, 32766 and 32767: contract B2, B3, B6, B11.5, B11.6, F43, F47, F53, F57.

Every epoch is one InitProducerId, so these cases take a minute; they belong to the long run.
"""

import threading

from batches import batches
from table import case
from txn import Txn, fence, producers
from txn_levels import set_level
from txn_reading import read
from wire import Connection, decode_answer

SERVER = "epochs"
LAST = 32766
AT_ONCE = 200


def climb(txn, to):
    """Brings an id to an epoch, many requests in flight."""
    connection = Connection(txn.address, 60)
    value = {"TransactionalId": txn.tid, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1}
    while txn.epoch < to:
        count = min(AT_ONCE, to - txn.epoch)
        connection.send(b"".join(connection.request("InitProducerId", 4, value) for _ in range(count)))
        for _ in range(count):
            got = decode_answer("InitProducerId", 4, connection.answer()[1])
            assert got["ErrorCode"] in (0, 51), got
            txn.epoch = max(txn.epoch, got["ProducerEpoch"])
    connection.close()


def high(o, labels):
    """Ids at the last epoch but one, by label."""
    made = {label: Txn(o) for label in labels}
    for txn in made.values():
        txn.init()
    threads = [threading.Thread(target=climb, args=(txn, LAST)) for txn in made.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    o.producers.clear()
    for txn in made.values():
        txn.label(txn.pid)
    return made


@case("B2 B6 B11.6 F43 F47 F53 F57 epoch 32766", SERVER)
def _(o):
    set_level(o, 2)
    topic = o.topic()
    made = high(o, ("given", "nobody", "ended", "fenced", "empty abort"))
    at = {label: (txn.pid, txn.epoch) for label, txn in made.items()}
    before = lambda label: (at[label][0], LAST - 1)
    out = {}
    x = made["given"]
    told = [x.state(), x.init(given=before("given"), keep=False), x.init(3, given=before("given"), keep=False)]
    told += [x.init(given=at["given"]) for _ in range(2)]
    out["given"] = [*told, x.init(given=at["given"], keep=False), x.init(given=before("given"), keep=False), x.state()]
    x = made["nobody"]
    told = [x.init(), x.init(given=at["nobody"], keep=False), x.end(True, 5, at["nobody"]), x.state()]
    out["nobody"] = [*told, x.produce(topic)[0], x.ended(True, 5)]
    x = made["ended"]
    told = [x.produce(topic)[0], x.ended(True, 5), x.end(True, 5, at["ended"], keep=False)]
    told += [x.end(False, 5, at["ended"], keep=False), x.state(), x.add({topic: [0]}), x.end(True, 5, at["ended"])]
    out["ended"] = [*told, x.produce(topic)[0], x.ended(False, 5), x.state()]
    x = made["fenced"]
    told = [x.produce(topic)[0]]
    told += [x.init(given=(at["fenced"][0], 5), keep=False), x.rest(), x.state()]
    told += [x.end(True, 5, at["fenced"], keep=False), x.end(False, 4, at["fenced"]), x.end(False, 5, at["fenced"])]
    out["fenced"] = [*told, x.produce(topic)[0], x.ended(True, 5), x.state()]
    x = made["empty abort"]
    told = [x.ended(False, 5), x.state(), x.end(False, 5, at["empty abort"], keep=False)]
    out["empty abort"] = [*told, x.init(given=at["empty abort"]), x.state()]
    markers = [[b.epoch, x.labels.get(b.pid)] for b in batches(o.cluster.fetch(topic)["Records"]) if b.attributes & 32]
    return [out, markers, producers(o, topic), read(o, topic)]


@case("B6 B11.5 F47 epoch 32767, where a server's abort on the old path leads", SERVER)
def _(o):
    set_level(o, 2)
    topic = o.topic()
    made = high(o, ("commit 4", "commit 5", "abort 5", "init", "given", "fenced again"))
    set_level(o, 1)
    out = {}
    for txn in made.values():
        txn.produce(topic, version=12)
        fence(txn)
    x = made["commit 4"]
    told = [x.state(), x.add({topic: [0]}), x.produce(topic, version=11)[0], x.ended(True, 4), x.state()]
    out["commit 4"] = [*told, x.end(True, 4), x.init(given=0), x.state()]
    x = made["commit 5"]
    told = [x.produce(topic)[0], x.end(True, 5, keep=False), x.rest(), x.state([topic])]
    out["commit 5"] = told
    x = made["abort 5"]
    out["abort 5"] = [x.ended(False, 5), x.state(), x.produce(topic)[0], x.ended(True, 5)]
    x = made["init"]
    out["init"] = [x.init(), x.state()]
    x = made["given"]
    me = (x.pid, x.epoch)
    out["given"] = [x.init(given=-1, keep=False), x.init(given=0), x.init(given=me), x.state()]
    x = made["fenced again"]
    told = [x.add({topic: [0]}), x.init(given=(x.pid, 7), keep=False), x.rest(), x.state()]
    out["fenced again"] = told
    return out
