"""kcat, the first thing people try (Debian's, on librdkafka 2.0.2)."""

import json
import shutil
import subprocess
import time

from common import run, topic, values
from report import expect

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def checks(report, server):
    if not shutil.which("kcat"):
        report.skip("kcat", "kcat is not installed")
        return
    kcat = lambda *args, **more: run(["kcat", "-b", server.bootstrap, *args], **more)
    report.check("kcat -L lists brokers, and topics once they are there", listing, kcat, server)
    for codec in CODECS:
        report.check(f"kcat -P and -C, {codec}", round_trip, kcat, codec)
    report.check("kcat idempotent producer", round_trip, kcat, "none", "-X", "enable.idempotence=true")
    report.check("kcat acks 1", round_trip, kcat, "none", "-X", "acks=1")
    report.check("kcat acks 0", acks_zero, kcat)
    report.check("kcat headers, null values and empty keys", odd_records, kcat)
    report.check("kcat -Q finds offsets by time", by_time, kcat)
    report.check("kcat -C waits at the end and sees a new record", tail, server)


def listing(kcat, server):
    name = topic("kcat-l")
    kcat("-P", "-t", name, "-p", "0", input="x\n")
    listed = json.loads(kcat("-L", "-J"))
    ports = [b["name"] for b in listed["brokers"]]
    expect("the bootstrap address is a broker", server.bootstrap in ports, True)
    found = [t for t in listed["topics"] if t["topic"] == name]
    expect("partitions", [len(t["partitions"]) for t in found], [4])
    known = {b["id"] for b in listed["brokers"]}
    expect("leaders are brokers", {p["leader"] for p in found[0]["partitions"]} <= known, True)


def read(kcat, name, form="%p %o %k=%s\n", offset="beginning", *more):
    return kcat("-C", "-t", name, "-o", offset, "-e", "-q", "-f", form, *more).splitlines()


def round_trip(kcat, codec, *more):
    name = topic("kcat")
    sent = [f"k{i % 7}={v}" for i, v in enumerate(values(500, codec, 90))]
    kcat("-P", "-t", name, "-K", "=", "-z", codec, *more, input="\n".join(sent) + "\n")
    got = [line.split(" ", 2) for line in read(kcat, name)]
    expect("records", sorted(g[2] for g in got), sorted(sent))
    for partition in {g[0] for g in got}:
        here = [g for g in got if g[0] == partition]
        expect(f"offsets of {partition}", [int(g[1]) for g in here], list(range(len(here))))
        # All records of a key lie in one partition, in the order in which they were sent.
        expect(f"order in {partition}", [g[2] for g in here], [s for s in sent if s in {g[2] for g in here}])


def acks_zero(kcat):
    name = topic("kcat-0")
    kcat("-P", "-t", name, "-p", "1", "-X", "acks=0", input="a\nb\nc\n")
    until = time.monotonic() + 10
    got = []
    while got != ["a", "b", "c"] and time.monotonic() < until:
        got = read(kcat, name, "%s\n")
    expect("records", got, ["a", "b", "c"])


def odd_records(kcat):
    name = topic("kcat-odd")
    kcat("-P", "-t", name, "-p", "0", "-H", "one=1", "-H", "two=zwei", "-Z", "-K", "=", input="k=v\n=empty\nnull=\n")
    got = read(kcat, name, "%K|%k|%S|%s|%h\n")
    heads = "one=1,two=zwei"
    expect("records", got, [f"1|k|1|v|{heads}", f"-1||5|empty|{heads}", f"4|null|-1||{heads}"])


def by_time(kcat):
    name = topic("kcat-q")
    kcat("-P", "-t", name, "-p", "0", input="a\nb\n")
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    kcat("-P", "-t", name, "-p", "0", input="c\n")
    ask = lambda t: kcat("-Q", "-t", f"{name}:0:{t}").split("offset")[-1].strip()
    expect("latest, earliest, between", [ask(-1), ask(-2), ask(between)], ["3", "0", "2"])


def tail(server):
    name = topic("kcat-tail")
    run(["kcat", "-b", server.bootstrap, "-P", "-t", name, "-p", "0"], input="old\n")
    reader = subprocess.Popen(
        ["kcat", "-b", server.bootstrap, "-C", "-t", name, "-p", "0", "-o", "end", "-c", "1", "-q", "-u"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(1.5)
        run(["kcat", "-b", server.bootstrap, "-P", "-t", name, "-p", "0"], input="new\n")
        out, _ = reader.communicate(timeout=15)
        expect("record", out, "new\n")
    finally:
        reader.kill()
        reader.wait()
