"""What a durable 4 KiB write costs while a broker is measured: the floor of that moment, on the disk of that broker.

One thread, O_DIRECT and O_DSYNC, over blocks that were written before, 100 a second: little beside the load, and enough
for a p99. What a broker adds to its disk is told from what the disk, or a busy machine, did to everybody.
"""

import mmap
import os
import threading
import time

BLOCK = 4096
BLOCKS = 1024
PER_SECOND = 100


class Floor:
    """Measures from its making on until `micros` is asked for."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "floor-of-the-disk")
        with open(self.path, "wb") as file:
            file.write(bytes(BLOCK * BLOCKS))
            file.flush()
            os.fsync(file.fileno())
        self.times, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        handle = os.open(self.path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
        # A mapping begins at a page, which is what O_DIRECT asks of memory.
        block, number = mmap.mmap(-1, BLOCK), 0
        while not self.ended.wait(1 / PER_SECOND):
            began = time.monotonic()
            os.pwritev(handle, [block], number % BLOCKS * BLOCK)
            self.times.append((time.monotonic() - began) * 1e6)
            number += 1
        os.close(handle)

    def micros(self, share):
        """Ends the measurement; the time that this share of the writes did not exceed."""
        self.ended.set()
        self.thread.join(20)
        if os.path.exists(self.path):
            os.unlink(self.path)
        times = sorted(self.times)
        return times[min(len(times) - 1, int(len(times) * share))]
