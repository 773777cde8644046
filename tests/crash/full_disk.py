"""A disk that fills up: a small loop mount. Refusals name the storage error, reads go on, a restart serves all."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from batches import batch
from report import Skip, expect
from servers import against
from wire import Closed, Cluster, Silent

STORAGE_ERROR = 56
SIZE_MIB = 96
FILLER_MIB = 40
PARTITIONS = 2


def checks(report, target):
    if target != "oncilla":
        report.skip("full disk", "Kafka ends itself when its only directory fails; this is Oncilla's own promise")
        return
    report.check(
        "full disk: refused with KAFKA_STORAGE_ERROR, reads go on, a restart serves everything acknowledged", run
    )


class SmallDisk:
    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("mounting a small file system needs root")
        if not shutil.which("mkfs.ext4"):
            raise Skip("mkfs.ext4 is not installed")
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="oncilla-test-disk-"))
        self.at = self.base / "mount"
        self.at.mkdir()
        image = self.base / "image"
        with open(image, "wb") as f:
            f.truncate(SIZE_MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
        done = subprocess.run(["mount", "-o", "loop", str(image), str(self.at)], capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(self.base)
            raise Skip(f"a loop mount is not allowed here: {done.stderr.strip()}")
        return self.at

    def __exit__(self, *_):
        for _ in range(50):
            if subprocess.run(["umount", str(self.at)], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        shutil.rmtree(self.base, ignore_errors=True)


def run():
    with SmallDisk() as disk:
        filler = disk / "filler"
        with open(filler, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, FILLER_MIB << 20)
        data = disk / "data"
        data.mkdir()
        server = against("oncilla", {"num.partitions": "1"}, data=data)
        server.log = disk.parent / "broker.log"
        with server:
            cluster = Cluster(server.address(), seconds=15)
            cluster.create("full", PARTITIONS, segment_bytes=4 << 20)
            acked = {p: [] for p in range(PARTITIONS)}
            codes = fill(cluster, acked)
            assert codes == {STORAGE_ERROR}, f"refused with {sorted(codes)}, want {STORAGE_ERROR}"
            assert server.alive(), "the broker ended"
            same(cluster, acked, "while the disk is full")
            expect("Metadata is served", len(cluster.call("Metadata", 9, {"Topics": None})["Topics"]) > 0, True)
            server.stop()
            filler.unlink()
            server.start()
            cluster.drop()
            cluster.find("full", PARTITIONS)
            same(cluster, acked, "after space was made and a restart")
            again = cluster.produce("full", batch([b"after"]))
            expect("a record after the restart", again["ErrorCode"], 0)
            cluster.drop()
            return f"{sum(map(len, acked.values()))} records of 64 KiB acknowledged before the disk was full"


def fill(cluster, acked):
    """Writes until every partition refuses; the codes of the refusals."""
    codes, open_parts, number = set(), set(range(PARTITIONS)), 0
    while open_parts:
        assert number < SIZE_MIB * 32, "far more was taken than the disk can hold"
        for partition in sorted(open_parts):
            value = f"{number}:".encode() + os.urandom(32 << 10) * 2
            number += 1
            try:
                got = cluster.produce("full", batch([value]), partition)
            except (Closed, Silent) as what:
                raise AssertionError(f"partition {partition}: {type(what).__name__} instead of an error") from None
            if got["ErrorCode"]:
                codes.add(got["ErrorCode"])
                open_parts.discard(partition)
            else:
                acked[partition].append((got["BaseOffset"], value))
    return codes


def same(cluster, acked, when):
    from batches import batches

    for partition, rows in acked.items():
        for offset, value in rows[:: max(1, len(rows) // 50)] + rows[-1:]:
            part = cluster.fetch("full", offset, partition)
            got = [r[3] for b in batches(part["Records"]) for r in b.records() if r[0] == offset]
            assert part["ErrorCode"] == 0 and got == [value], f"{when}: {partition}/{offset}: code {part['ErrorCode']}"
