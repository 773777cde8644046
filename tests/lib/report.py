"""One line a check: `ok`, `FAIL` or `skip`, the stage, the name. `tests/all` counts these lines."""

import os
import sys
import time
import traceback


class Skip(Exception):
    """Raised by a check that cannot run here; its text says why."""


class Report:
    def __init__(self, stage):
        self.stage = stage
        self.passed = self.failed = self.skipped = 0

    def _say(self, word, name, note=""):
        print(f"{word:<4} {self.stage}: {name}{' -- ' + note if note else ''}", flush=True)

    def ok(self, name, note=""):
        self.passed += 1
        self._say("ok", name, note)

    def fail(self, name, why):
        self.failed += 1
        self._say("FAIL", name, " / ".join(str(why).splitlines())[:2000])

    def skip(self, name, why):
        self.skipped += 1
        self._say("skip", name, why)

    def check(self, name, run, *args, **more):
        """Runs one check. What it returns, if text, is printed beside its name."""
        began = time.monotonic()
        try:
            note = run(*args, **more)
        except Skip as why:
            self.skip(name, str(why))
            return False
        except Exception as error:  # a check may fail in any way; all of them are failures of that check
            if os.environ.get("ONCILLA_TRACE"):
                traceback.print_exc()
            self.fail(name, f"{type(error).__name__}: {error}")
            return False
        seconds = time.monotonic() - began
        parts = [note] if isinstance(note, str) else []
        self.ok(name, ", ".join(parts + ([f"{seconds:.1f} s"] if seconds >= 1 else [])))
        return True

    def close(self):
        sys.exit(1 if self.failed else 0)


def expect(what, got, want):
    """Fails with both sides in the text."""
    if got != want:
        raise AssertionError(f"{what}: got {shorten(got)}, want {shorten(want)}")


def shorten(value, limit=600):
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
