"""The checker checks itself: each kind of fault, put into a made-up log, must be noticed."""

from group_commits import Record
from load import faults
from report import expect


class Made:
    """A producer that had 0, 1 and 2 acknowledged and left 3 and 4 in flight."""

    uid, partition, violation = "p0", 0, None
    acked = [(0, 2, 0), (2, 1, 2)]
    waiting = [(3, 3, 2, b"")]

    @staticmethod
    def value(number):
        return f"p0:{number}".encode()


def log(*numbers):
    return {i: f"p0:{n}".encode() for i, n in enumerate(numbers)}


def checks(report):
    rows = {
        "a whole log": (log(0, 1, 2), {}, ""),
        "what was in flight, once": (log(0, 1, 2, 3, 4), {}, ""),
        "a record twice": (log(0, 1, 2, 2), {}, "twice"),
        "a record lost": (log(0, 1), {}, "not at their offsets"),
        "records out of order": (log(0, 2, 1), {}, "stands behind"),
        "a stranger": (log(0, 1, 2, 77), {}, "never sent"),
        "a record that was read and is gone": (log(0, 1, 2), {3: b"p0:3"}, "not there now"),
        "a hole": ({0: b"p0:0", 1: b"p0:1", 2: b"p0:2", 5: b"p0:3"}, {}, "holes"),
    }
    for name, (made, seen, want) in rows.items():

        def run(made=made, seen=seen, want=want):
            found = " ".join(faults({0: made}, [Made], {0: seen}))
            expect("noticed", want in found if want else found == "", True)

        report.check(f"the checker judges {name}", run)
    commits(report)


def commits(report):
    """The judge of committed offsets: 10 was acknowledged, 20 was tried."""
    rows = {
        "a commit that was kept": ([(10, "at 10")], ""),
        "a commit whose answer was lost": ([(20, "")], ""),
        "a commit lost": ([(9, "")], "was acknowledged"),
        "no commit at all": ([], "was acknowledged"),
        "a commit that nobody made": ([(21, "")], "nobody tried"),
        "a commit that went back": ([(20, ""), (15, "")], "went back"),
        "the text of another commit": ([(20, "at 10")], "with the text"),
    }
    for name, (fetched, want) in rows.items():

        def run(fetched=fetched, want=want):
            record, said = Record("g"), ""
            record.trying({0: 20})
            record.acknowledged({0: 10})
            try:
                for got in fetched or [None]:
                    record.judge(dict(record.acked), {0: got} if got else {})
            except AssertionError as wrong:
                said = str(wrong)
            expect("noticed", want in said if want else said == "", True)

        report.check(f"the checker judges {name}", run)
    for name, offsets, want in (("a record skipped", (0, 2), "went from"), ("a record again", (0, 1, 0), "came after")):

        def deliver(offsets=offsets, want=want):
            record = Record("g")
            for offset in offsets:
                record.delivered(0, offset, f"0:{offset}".encode())
                record.acked[0] = offset
            expect("noticed", want in (record.violation or ""), True)

        report.check(f"the checker judges {name}", deliver)
