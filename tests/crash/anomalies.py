"""Anomalies in histories of transactional clients.

The names are those of Jepsen's Kafka workload. `log` is what a read_committed consumer reads in the end,
{partition: {offset: value}}; all values are distinct.
"""


def anomalies(processes, log, committed=None):
    """Sentences, empty if there are none. `committed`: {group: {partition: offset}} at the end."""
    ops = [op for process in processes for op in process.ops.values()]
    view = View(ops, log)
    out = list(view.wrong)
    for op in ops:
        out += of_sends(op, view)
        out += of_reads(op, view)
    for process in processes:
        out += of_positions(process, view)
        out += of_order(process, view)
    for group, offsets in (committed or {}).items():
        out += of_group(group, offsets, ops, view)
    out += of_cycles(ops, view)
    return out


class View:
    """Places of values, ranks of offsets, writers; which transactions were committed."""

    def __init__(self, ops, log):
        self.log, self.wrong = log, []
        self.place, self.writer, at = {}, {}, {}
        for partition, rows in log.items():
            for offset, value in rows.items():
                at[(partition, offset)] = value
                if value in self.place:
                    self.wrong.append(f"duplicate: {value} is at {self.place[value]} and {partition}:{offset}")
                self.place[value] = (partition, offset)
        self.rank = {p: {o: i for i, o in enumerate(sorted(rows))} for p, rows in log.items()}
        for op in ops:
            for partition, value in op.sends:
                self.writer[value] = op
                offset = op.acked.get(value, -1)
                self.agree(at, partition, offset, value, f"{op.name} was told")
            for rows in op.polls:
                for partition, offset, value in rows:
                    self.agree(at, partition, offset, value, f"{op.name} read")
        strangers = [v for v in self.place if v not in self.writer]
        if strangers:
            self.wrong.append(f"strangers: {strangers[:3]} were never sent")
        self.committed = {op.name for op in ops if self.is_committed(op)}

    def agree(self, at, partition, offset, value, who):
        if offset >= 0 and at.setdefault((partition, offset), value) != value:
            self.wrong.append(
                f"inconsistent-offsets: {who} {value} at {partition}:{offset}, another {at[(partition, offset)]}"
            )

    def is_committed(self, op):
        return op.state == "ok" or op.state == "info" and any(v in self.place for _, v in op.sends)


def of_sends(op, view):
    """Of a transaction all is there or nothing, where it was acknowledged, in the order of its sends."""
    seen = [v in view.place for _, v in op.sends]
    if op.state == "fail" and any(seen):
        yield f"G1a: {op.name} was aborted, and {op.sends[seen.index(True)][1]} is there"
    if op.name in view.committed and not all(seen):
        yield f"lost-write: {op.name} ({op.state}) is committed without {op.sends[seen.index(False)][1]}"
    for partition, value in op.sends:
        place = view.place.get(value)
        if place and place[0] != partition:
            yield f"misplaced: {value} was sent to {partition} and is at {place}"
        if place and op.acked.get(value, -1) not in (-1, place[1]):
            yield f"inconsistent-offsets: {value} was acknowledged at {op.acked[value]} and is at {place}"


def of_reads(op, view):
    own = {v for _, v in op.sends}
    for rows in op.polls:
        for partition, offset, value in rows:
            writer = view.writer.get(value)
            if value in own:
                yield f"precommitted-read: {op.name} polls {value} of its own"
            elif writer and writer.state == "fail":
                yield f"G1a: {op.name} polls {value} of {writer.name}, which was aborted"
            if view.log.get(partition, {}).get(offset) != value:
                yield f"lost-write: {op.name} polled {value} at {partition}:{offset}, and it is not there now"


def of_positions(process, view):
    """A consumer with partitions assigned by hand passes over nothing and goes back only when it says so."""
    if process.group:
        return
    last = {}
    for what, rows in process.turns:
        if what == "assign":
            last.update(dict.fromkeys(rows, -1))
            continue
        for partition, offset, _ in rows:
            rank = view.rank[partition].get(offset)
            if rank is None:
                continue  # told as a lost write
            if partition in last and rank != last[partition] + 1:
                name = "poll-skip" if rank > last[partition] else "nonmonotonic-poll"
                yield f"{name}: {process.name} went from {last[partition]} to {rank} on {partition} (offset {offset})"
            last[partition] = rank


def of_order(process, view):
    """What a process sends to a partition stands there in the order of sending."""
    last = {}
    for op in process.ops.values():
        for partition, value in op.sends:
            if value not in view.place:
                continue
            offset = view.place[value][1]
            before = last.get(partition, -1)
            if offset <= before:
                yield f"nonmonotonic-send: {value} of {process.name} is at {partition}:{offset}, after {before}"
            last[partition] = offset


def of_group(group, offsets, ops, view):
    """Up to its committed offset a group consumed each value in one committed transaction, and nothing beyond."""
    counts = {}
    for op in ops:
        if op.group == group and op.name in view.committed:
            for rows in op.polls:
                for _, _, value in rows:
                    counts[value] = counts.get(value, 0) + 1
    for value, count in counts.items():
        if count > 1:
            yield f"consume-counts: {group} consumed {value} {count} times"
    for partition, rows in view.log.items():
        end = offsets.get(partition, 0)
        below = {v for o, v in rows.items() if o < end}
        left = [v for v in below if v not in counts]
        if left:
            yield f"consume-skip: {group} committed {end} of {partition} without {len(left)} values, such as {left[0]}"
        beyond = [v for o, v in rows.items() if o >= end and v in counts]
        if beyond:
            yield f"consume-lost: {group} consumed {beyond[0]} of {partition}, and {end} is committed"


def of_cycles(ops, view):
    """G1c by what was read from whom, and by time: a chain of nodes stands for the edges from ends to later begins."""
    alive = [op for op in ops if op.name in view.committed]
    edges = {op.name: set() for op in alive}
    for op in alive:
        for rows in op.polls:
            for _, _, value in rows:
                writer = view.writer.get(value)
                if writer and writer.name in edges and writer is not op:
                    edges[writer.name].add(op.name)
    events = sorted(
        [(op.began, 1, op.name) for op in alive] + [(op.ended, 0, op.name) for op in alive if op.ended is not None]
    )
    chain = 0
    for _, is_begin, name in events:
        if is_begin:
            edges.setdefault(chain, set()).add(name)
        else:
            chain += 1
            edges.setdefault(chain - 1, set()).add(chain)
            edges[name].add(chain)
    edges.setdefault(chain, set())
    for part in components(edges):
        names = [n for n in part if isinstance(n, str)]
        if names:
            yield f"G1c: a cycle of {len(names)} transactions, such as {sorted(names)[:4]}"


def components(edges):
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    index, low, on, stack, out = {}, {}, set(), [], []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(edges[to])))
                    break
                if to in on:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        one = stack.pop()
                        on.discard(one)
                        part.append(one)
                        if one == node:
                            break
                    if len(part) > 1:
                        out.append(part)
    return out
