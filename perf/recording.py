"""What perf/record, perf/offcpu and perf/uring share: the broker that they look at, its load, and the tools.

They look at a process that runs (`--pid`), or start a broker of their own, built with symbols and frame pointers, in a
temporary directory and under a load, and end both. With ONCILLA_BIN that program is started instead, and nothing built.
What the kernel or a missing tool refuses ends with one sentence that says what to do.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib")]

from servers import CACHE, Oncilla  # noqa: E402

LOAD = "{perf} produce --bootstrap {bootstrap} --saturate --seconds {seconds}"
# Time for the build of the load and for its first records; it ends when it is told to.
LOAD_SECONDS_MORE = 60
STARTED_SECONDS_MAX = 30
PARANOID = pathlib.Path("/proc/sys/kernel/perf_event_paranoid")


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def parser(doc, seconds):
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--pid", type=int, help="a broker that runs; without it one is built, started and loaded")
    made.add_argument("--seconds", type=int, default=seconds, help=f"how long to look [default: {seconds}]")
    made.add_argument(
        "--load",
        metavar="COMMAND",
        default=LOAD,
        help="shell command that loads the broker; {bootstrap}, {oncilla}, {perf} (oncilla-perf) and {seconds} are"
        f" filled in [default: {LOAD}]",
    )
    made.add_argument("--cores", type=int, default=1, help="cores of the broker that is started [default: 1]")
    out = ROOT / "target" / "profile"
    made.add_argument("--out", type=pathlib.Path, default=out, help=f"directory for what it writes [default: {out}]")
    return made


def need(tool, package):
    if not shutil.which(tool):
        fail(f"{tool} is not installed: install the package {package}")


def run(command):
    """Runs a command to its end and gives what it printed; its errors are shown only if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        refused = any(word in said for word in ("ermission", "paranoid", "not permitted"))
        fail(f"{' '.join(words[:6])} ...: exit code {done.returncode}\n{said}" + (f"\n{permission()}" if refused else ""))
    return done.stdout


def permission():
    level = PARANOID.read_text().strip() if PARANOID.exists() else "unknown"
    return (
        f"kernel.perf_event_paranoid is {level}. Run this as root, or `sysctl kernel.perf_event_paranoid=1` for samples"
        " of your own processes (-1 for tracepoints and the whole machine)."
    )


def build():
    """The broker and its load as they are released, but with symbols and frame pointers; gives their paths."""
    flags = os.environ.get("RUSTFLAGS", "") + " -C force-frame-pointers=yes"
    command = ["cargo", "build", "--locked", "--profile", "profiling", "-p", "oncilla", "-p", "oncilla-perf", "--bins"]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "RUSTFLAGS": flags.strip()})
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "profiling"
    return target / "oncilla", target / "oncilla-perf"


@contextlib.contextmanager
def broker(asked):
    """Process id of a broker under load, and the address of its metrics if it is ours."""
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.pid:
        if not pathlib.Path(f"/proc/{asked.pid}").exists():
            fail(f"there is no process {asked.pid}")
        yield asked.pid, None
        return
    named = os.environ.get("ONCILLA_BIN")
    oncilla, perf = (pathlib.Path(named), pathlib.Path(named).with_name("oncilla-perf")) if named else build()
    os.environ["ONCILLA_BIN"] = str(oncilla)
    with Oncilla(cores=asked.cores) as server:
        names = {"bootstrap": server.bootstrap, "oncilla": oncilla, "perf": perf}
        command = asked.load.format(seconds=asked.seconds + LOAD_SECONDS_MORE, **names)
        with loaded(server, command, asked.out / "load.log"):
            yield server.process.pid, server.http


@contextlib.contextmanager
def loaded(server, command, log):
    """A load in a process group of its own; what is inside runs when the broker is busy with it."""
    with open(log, "wb") as out:
        load = subprocess.Popen(command, shell=True, stdout=out, stderr=out, start_new_session=True)
    try:
        before, until = server.cpu_seconds(), time.monotonic() + STARTED_SECONDS_MAX
        while server.cpu_seconds() < before + 0.2:
            if load.poll() is not None:
                fail(f"the load has ended (exit code {load.returncode}): {command}\n{tail(log)}")
            if time.monotonic() > until:
                fail(f"the broker is idle after {STARTED_SECONDS_MAX} s of load: {command}\n{tail(log)}")
            time.sleep(0.05)
        yield
        if load.poll() not in (None, 0):
            print(f"The load ended before the recording (exit code {load.returncode}): {tail(log)}", file=sys.stderr)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(load.pid, signal.SIGKILL)
        load.wait()


def tail(path, lines=8):
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def cpu_event():
    """What to sample by: the processor's own counter, or the clock where a virtual machine hides it."""
    tried = subprocess.run(["perf", "stat", "-e", "cycles", "true"], stderr=subprocess.PIPE, text=True)
    return "cpu-clock" if tried.returncode or "<not supported>" in tried.stderr else "cycles"


def inferno(name):
    """A program of inferno, installed under the cache if it is nowhere; None if it cannot be."""
    found = shutil.which(name) or shutil.which(name, path=str(CACHE / "inferno" / "bin"))
    if found:
        return found
    print("Installing inferno for the flame graph (cargo install inferno), once.", file=sys.stderr)
    install = ["cargo", "install", "--quiet", "--locked", "inferno", "--root", str(CACHE / "inferno")]
    done = subprocess.run(install, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"No flame graph: `cargo install inferno` failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return shutil.which(name, path=str(CACHE / "inferno" / "bin"))


def flame_graph(folded, svg, title, count):
    """Draws stacks, one a line with its weight behind it."""
    draw = inferno("inferno-flamegraph")
    if draw:
        with open(svg, "wb") as out:
            subprocess.run([draw, "--title", title, "--countname", count, str(folded)], stdout=out, check=True)
        print(f"flame graph: {svg}")
