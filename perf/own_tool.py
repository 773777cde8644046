"""oncilla-perf for perf/compare: where it is, what its table says of a load, and the floors that it measures."""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOAD_SECONDS_MAX = 300


def tool():
    """ONCILLA_PERF_BIN, else the release build: a debug build would measure itself."""
    named = os.environ.get("ONCILLA_PERF_BIN")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = pathlib.Path(named) if named else target / "release" / "oncilla-perf"
    if not path.exists():
        raise FileNotFoundError(f"no {path}: `cargo build --release -p oncilla-perf`, or set ONCILLA_PERF_BIN")
    return path


def loaded(server, mode, *args):
    """Runs a load; microseconds by percentile by quantity. A load with a failed operation is an error."""
    command = [tool(), mode, "--bootstrap", server.bootstrap, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX)
    assert done.returncode == 0, f"{mode} at {server.kind}: {done.stderr[-600:]}"
    return latencies(done.stdout)


def floors(directory):
    """Microseconds by percentile by what was measured, on the disk of that directory."""
    command = [tool(), "floor", "--json", "--dir", directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX)
    assert done.returncode == 0, f"floor in {directory}: {done.stderr[-600:]}"
    return json.loads(done.stdout)


def latencies(table):
    """The columns of latencies, which are in ms, by the first word of each line that has them."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    head = next(cells for cells in lines if any(cell.endswith(" ms") for cell in cells))
    names = [cell.removesuffix(" ms") for cell in head if cell.endswith(" ms")]
    # The head has no name above the names of the quantities.
    rows = [cells for cells in lines if len(cells) == len(head) + 1]
    assert rows, f"no latencies in:\n{table}"
    return {cells[0]: dict(zip(names, (float(cell) * 1000 for cell in cells[-len(names) :]))) for cells in rows}
