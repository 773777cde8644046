"""Clients in other languages that check for themselves: each prints `check ok NAME` or `check FAIL NAME: why`."""

import os
import pathlib
import shutil
import subprocess

from servers import CACHE

HERE = pathlib.Path(__file__).resolve().parent


def checks(report, server):
    franz(report, server)
    kafkajs(report, server)


def franz(report, server):
    if not shutil.which("go"):
        report.skip("franz-go", "go is not installed")
        return
    program = CACHE / "franz-check"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=HERE / "franz",
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"},
    )
    if built.returncode != 0:
        report.fail("franz-go builds", built.stderr[-1500:])
        return
    collect(report, "franz-go", [str(program), server.bootstrap])


def kafkajs(report, server):
    if not shutil.which("node"):
        report.skip("kafkajs", "node is not installed")
        return
    env = {**os.environ, "NODE_PATH": str(CACHE / "node" / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    collect(report, "kafkajs", ["node", str(HERE / "kafkajs" / "check.js"), server.bootstrap], env=env)


def collect(report, client, command, seconds=180, **more):
    """Turns the lines of a client into checks. A client that ends early or says nothing has failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **more)
        said, code, rest = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as late:
        said, code, rest = (late.stdout or b"").decode(), f"not ended after {seconds} s", (late.stderr or b"").decode()
    lines = [line.split(" ", 2)[1:] for line in said.splitlines() if line.startswith("check ")]
    for verdict, text in lines:
        if verdict == "ok":
            report.ok(f"{client} {text}")
        else:
            name, _, why = text.partition(": ")
            report.fail(f"{client} {name}", why)
    if code != 0 and not any(v != "ok" for v, _ in lines) or not lines:
        report.fail(f"{client} runs to its end", f"exit {code}: {(rest + said)[-1500:]}")
