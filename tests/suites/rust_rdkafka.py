"""rust-rdkafka's own tests, which its crate brings along: they take any broker, and make topics with three partitions."""

import json
import os
import pathlib
import re
import shutil
import subprocess

from servers import CACHE, Oncilla

VERSION = "0.39.0"
HOME = CACHE / f"rust-rdkafka-{VERSION}"
SUITES = (
    "test_admin",
    "test_high_consumers",
    "test_high_producers",
    "test_low_consumers",
    "test_low_producers",
    "test_metadata",
    "test_topic_partition_list",
    "test_transactions",
)
# Test by name, and why it is left out.
LEFT_OUT = {
    "test_base_producer_timeout": "asks that creating a topic and writing to it take more than 100 ms",
    # The start of the partition goes through the same queue as its records and wakes who waits there, if the client's
    # thread comes to it only behind the call that sets the callback.
    "test_produce_consume_message_queue_nonempty_callback": "5 of 48 fail against Kafka beside a busy processor",
}


def sources():
    """The crate, unpacked to where it can be built."""
    if (HOME / "crate" / "Cargo.toml").exists():
        return HOME / "crate"
    fetch = HOME / "fetch"
    (fetch / "src").mkdir(parents=True, exist_ok=True)
    (fetch / "src" / "lib.rs").write_text("")
    (fetch / "Cargo.toml").write_text(
        f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\nrdkafka = "={VERSION}"\n[workspace]\n'
    )
    told = subprocess.run(
        ["cargo", "metadata", "--format-version", "1"], cwd=fetch, capture_output=True, text=True, check=True
    )
    found = [p["manifest_path"] for p in json.loads(told.stdout)["packages"] if p["name"] == "rdkafka"]
    shutil.copytree(pathlib.Path(found[0]).parent, HOME / "crate", dirs_exist_ok=True)
    return HOME / "crate"


def rust_rdkafka(report, settings):
    server = Oncilla({**settings, "num.partitions": "3"}, mode="shared")
    # Some of them ask for a broker at the usual port, and that it is the only one.
    server.port = 9092
    with server:
        env = {
            **os.environ,
            "KAFKA_HOST": server.bootstrap,
            "KAFKA_VERSION": "4.0",
            "CARGO_TARGET_DIR": str(HOME / "target"),
        }
        wanted = [word for suite in SUITES for word in ("--test", suite)]
        skipped = [word for name in LEFT_OUT for word in ("--skip", name)]
        done = subprocess.run(
            ["cargo", "test", "--no-fail-fast", *wanted, "--", *skipped],
            cwd=sources(),
            env=env,
            capture_output=True,
            text=True,
            timeout=1800,
            errors="replace",
        )
    told = re.findall(r"(?m)^test (\S+) \.\.\. (ok|FAILED|ignored)", done.stdout)
    if not told:
        report.fail("rust-rdkafka", (done.stdout + done.stderr)[-1500:])
    for name, verdict in told:
        if verdict == "ok":
            report.ok(f"rust-rdkafka {name}")
        elif verdict == "ignored":
            report.skip(f"rust-rdkafka {name}", "its own tests ignore it")
        else:
            why = re.search(rf"---- {name} stdout ----\n((?:.*\n){{1,12}})", done.stdout)
            report.fail(f"rust-rdkafka {name}", why.group(1) if why else verdict)
    for name, reason in LEFT_OUT.items():
        report.skip(f"rust-rdkafka {name}", reason)
