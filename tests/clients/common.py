"""What the checks of all clients share: names of topics, values, commands with a time limit."""

import itertools
import os
import subprocess
import time

_count = itertools.count(1)


def topic(kind):
    return f"{kind}-{os.getpid()}-{time.time_ns() // 1000000 % 10**8}-{next(_count)}"


def values(count, mark="v", size=0):
    """Distinct values; `size` pads them with text that compresses badly enough to mean something."""
    return [
        f"{mark}-{i:06}" + ("" if not size else f"-{(i * 2654435761) % 2**32:08x}" * (size // 9)) for i in range(count)
    ]


def run(command, seconds=60, **more):
    """Standard output of a command; a non-zero exit code fails with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command[:3]} exited {done.returncode}: {(done.stderr + done.stdout)[-1500:]}")
    return done.stdout
