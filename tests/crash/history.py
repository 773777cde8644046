"""What transactional clients did, from the lines that they print.

A line is `TIME WHAT ...`; times are of the machine's monotonic clock, so that those of all processes compare.

    T assign P,P        from here on P is read from its beginning (hand-made assignment)
    T begin OP          T send OP P VALUE (before it is sent)      T sent OP VALUE OFFSET (acknowledged)
    T poll OP P:OFFSET:VALUE ...
    T commit OP         before the client is asked to commit
    T ok OP             the commit succeeded; `fail OP`: never committed; `info OP`: the commit may have happened

A transaction for which no commit was asked must never be seen. One whose client died in the commit may be.
"""

from dataclasses import dataclass, field


@dataclass
class Op:
    name: str
    process: str
    group: str  # of a group whose offsets its transactions commit, or empty
    began: int
    ended: int | None = None
    state: str = "open"
    sends: list = field(default_factory=list)  # (partition, value), as sent
    acked: dict = field(default_factory=dict)  # value -> offset
    polls: list = field(default_factory=list)  # [(partition, offset, value)] each


@dataclass
class Process:
    """One run of a client: what it polled, in order, with the points where it went back to the beginning."""

    name: str
    group: str
    ops: dict = field(default_factory=dict)
    turns: list = field(default_factory=list)  # ("assign", [partition]) or ("poll", [(partition, offset, value)])
    said: list = field(default_factory=list)  # lines of other kinds

    def take(self, line):
        when, what, *rest = line.split()
        when = int(when)
        if what == "assign":
            self.turns.append(("assign", [int(p) for p in rest[0].split(",")]))
        elif what == "begin":
            self.ops[rest[0]] = Op(rest[0], self.name, self.group, when)
        elif what == "send":
            self.ops[rest[0]].sends.append((int(rest[1]), rest[2]))
        elif what == "sent":
            self.ops[rest[0]].acked[rest[1]] = int(rest[2])
        elif what == "poll":
            rows = [(int(p), int(o), v) for p, o, v in (row.split(":") for row in rest[1:])]
            self.turns.append(("poll", rows))
            self.ops[rest[0]].polls.append(rows)
        elif what == "commit":
            self.ops[rest[0]].state = "committing"
        elif what in ("ok", "fail", "info"):
            op = self.ops[rest[0]]
            op.state = what
            op.ended = when if what != "info" else None
        else:
            self.said.append(line)

    def close(self):
        """The process is gone: what it had not ended has the outcome that can be said of it."""
        for op in self.ops.values():
            op.state = {"open": "fail", "committing": "info"}.get(op.state, op.state)
