"""What a worker tells the benchmark: now and then, how many records its handlers have ended."""

from __future__ import annotations

import itertools
import threading
import time

EVERY_S = 0.02


class Counter:
    """Counts on any thread; an addition is one step of the interpreter."""

    def __init__(self) -> None:
        count = itertools.count(1)
        self._last = 0
        self._next = count.__next__

    def add(self) -> None:
        self._last = self._next()

    def tell(self) -> None:
        """Print lines of "wall time in ms, count" from now on."""

        def run() -> None:
            while True:
                time.sleep(EVERY_S)
                print(int(time.time() * 1000), self._last, flush=True)

        threading.Thread(target=run, daemon=True).start()
