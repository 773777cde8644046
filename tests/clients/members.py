"""Members of a group as threads, whatever client they use: what they take, commit and hand over is counted exactly.

A record counts as taken once the commit behind it was acknowledged. So each record must be taken once: never twice, and
none may be missing, through any number of rebalances.
"""

import collections
import threading
import time

from common import topic
from report import expect

PARTITIONS = 6


class Ledger:
    """What all members of a group took, by partition."""

    def __init__(self):
        self.lock = threading.Lock()
        self.rows = collections.defaultdict(list)
        self.by = collections.Counter()

    def took(self, who, rows):
        with self.lock:
            for partition, offset, value in rows:
                self.rows[partition].append((offset, value))
            self.by[who] += len(rows)

    def count(self):
        with self.lock:
            return sum(map(len, self.rows.values()))

    def check(self, each):
        """`each` records lie in every partition."""
        for partition in range(PARTITIONS):
            want = [(n, f"{partition}:{n}") for n in range(each)]
            got = sorted(self.rows[partition])
            missing = [o for o, _ in want if o not in {g[0] for g in got}]
            twice = [o for o, n in collections.Counter(o for o, _ in got).items() if n > 1]
            expect(f"partition {partition}: offsets missing, offsets twice", (missing[:9], twice[:9]), ([], []))
            expect(f"values of {partition}", got, want)


class Member(threading.Thread):
    """One member. A client's own class says how to open, poll, commit, close and what is assigned."""

    def __init__(self, address, group, name, where, ledger, **settings):
        super().__init__(daemon=True)
        self.address, self.group, self.who, self.where, self.ledger = address, group, name, where, ledger
        self.settings = settings
        self.halt = threading.Event()
        self.assigned = frozenset()
        self.assignments = 0
        self.error = None
        self.limit = None

    def open(self):
        raise NotImplementedError

    def poll(self):
        """[(partition, offset, value)]; may change `assigned`."""
        raise NotImplementedError

    def commit(self, rows):
        """Whether the positions behind these rows were acknowledged."""
        raise NotImplementedError

    def close(self):
        raise NotImplementedError

    def has(self, partitions):
        got = frozenset(partitions)
        if got != self.assigned:
            self.assigned = got
            self.assignments += 1

    def run(self):
        try:
            self.open()
            try:
                while not self.halt.is_set() and (self.limit is None or self.ledger.by[self.who] < self.limit):
                    rows = self.poll()
                    if rows and self.commit(rows):
                        self.ledger.took(self.who, rows)
            finally:
                self.close()
        except Exception as error:  # a thread's failure is its check's failure
            self.error = error

    def end(self, seconds=30):
        self.halt.set()
        self.join(seconds)
        if self.is_alive():
            raise AssertionError(f"member {self.who} does not end")
        if self.error:
            raise AssertionError(f"member {self.who}: {type(self.error).__name__}: {self.error}")


def positions(rows):
    """{partition: offset to go on from}."""
    return {p: max(o for q, o, _ in rows if q == p) + 1 for p, _, _ in rows}


def fill(address, name, first, count):
    """Records first..first+count of every partition, each saying where it lies."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 2})
    for n in range(first, first + count):
        for partition in range(PARTITIONS):
            producer.produce(name, f"{partition}:{n}".encode(), partition=partition)
        producer.poll(0)
    expect("not flushed", producer.flush(30), 0)


def made(address, kind):
    from python_confluent import create

    name = topic(kind)
    create(address, name, PARTITIONS)
    return name


def until(what, ask, members=(), seconds=40):
    end = time.monotonic() + seconds
    while not ask():
        for m in members:
            if m.error:
                raise AssertionError(f"member {m.who}: {type(m.error).__name__}: {m.error}")
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}: {[(m.who, sorted(m.assigned)) for m in members]}")
        time.sleep(0.05)


def shared(members):
    """Whether the members have all partitions among them, each about as many."""
    sizes = [len(m.assigned) for m in members]
    whole = sorted(p for m in members for p in m.assigned) == list(range(PARTITIONS))
    return whole and max(sizes) - min(sizes) <= 1


def resume(kind, address, **settings):
    """A member takes a part and ends; the next one goes on where it committed."""
    name, ledger = made(address, "resume"), Ledger()
    group = f"g-{name}"
    fill(address, name, 0, 100)
    turns = []
    for turn, limit in enumerate((150, 200, None)):
        member = kind(address, group, f"m{turn}", name, ledger, **settings)
        member.limit = limit
        member.start()
        if limit is None:
            until("everything is taken", lambda: ledger.count() >= 100 * PARTITIONS, [member])
            time.sleep(0.5)
        else:
            member.join(40)
        member.end()
        turns.append(ledger.by[f"m{turn}"])
    ledger.check(100)
    expect("each turn took some", all(turns), True)
    return f"{turns}"


def rebalance(kind, address, **settings):
    """Members come and go while records are written."""
    name, ledger = made(address, "rebalance"), Ledger()
    fill(address, name, 0, 50)
    member = lambda who: kind(address, f"g-{name}", who, name, ledger, **settings)
    a, b, c = (member(who) for who in "ABC")
    try:
        a.start()
        until("A has everything", lambda: shared([a]), [a])
        b.start()
        until("A and B share", lambda: shared([a, b]), [a, b])
        fill(address, name, 50, 50)
        c.start()
        until("A, B and C share", lambda: shared([a, b, c]), [a, b, c])
        fill(address, name, 100, 50)
        b.end()
        until("A and C share", lambda: shared([a, c]), [a, c])
        fill(address, name, 150, 50)
        until("everything is taken", lambda: ledger.count() >= 200 * PARTITIONS, [a, c])
        time.sleep(0.3)
    finally:
        for m in (a, b, c):
            m.halt.set()
    for m in (a, c):
        m.end()
    ledger.check(200)
    expect("all took some", all(ledger.by[m] for m in "ABC"), True)
    return f"{dict(ledger.by)}"


def static(kind, address, **settings):
    """A static member ends and comes back within its session: nobody else notices."""
    name, ledger = made(address, "static"), Ledger()
    fill(address, name, 0, 20)
    member = lambda who, instance: kind(address, f"g-{name}", who, name, ledger, instance=instance, **settings)
    a, b = member("A", "i-a"), member("B", "i-b")
    again = member("B2", "i-b")
    try:
        a.start()
        until("A has everything", lambda: shared([a]), [a])
        b.start()
        until("A and B share", lambda: shared([a, b]), [a, b])
        until("taken", lambda: ledger.count() >= 20 * PARTITIONS, [a, b])
        had, changes = b.assigned, a.assignments
        b.end()
        fill(address, name, 20, 20)
        again.start()
        until("B is back", lambda: again.assigned, [a, again])
        until("taken", lambda: ledger.count() >= 40 * PARTITIONS, [a, again])
        expect("the same partitions", sorted(again.assigned), sorted(had))
        expect("changes that A saw", a.assignments - changes, 0)
    finally:
        for m in (a, b, again):
            m.halt.set()
    again.end()
    a.end()
    ledger.check(40)
