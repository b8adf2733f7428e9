"""Whether the suite is calm: `make test` several times in a row, every second time beside a load.

    python tools/calm.py --rounds 10 --load 8 -- -m "not kafka and not heavy"

Each round is a line: how many tests passed and failed, seconds, the load, and the names of those that failed. It ends
with status 1 when a test failed in any round, or a round did not come to its end. ``build/calm`` has what pytest wrote.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "calm"

# The first process has a session of its own, as another program's load has. Each ends with its parent.
_BUSY: Final = """
import os, sys
parent, first = os.getppid(), os.getpid()
for _ in range(int(sys.argv[1]) - 1):
    if not os.fork():
        parent = first
        break
while os.getppid() == parent:
    sum(range(100_000))
"""


@dataclass(frozen=True, slots=True)
class Round:
    """What one run of the tests came to; ``failed`` has their names, ``status`` is that of the command."""

    passed: int
    failed: tuple[str, ...]
    seconds: float
    load: int
    status: int

    @property
    def is_calm(self) -> bool:
        return self.passed > 0 and not self.failed and not self.status

    def line(self, number: int) -> str:
        """One line for the note."""
        came_to = f"{self.passed} passed, {len(self.failed)} failed"
        said = f"round {number}: {came_to}, {self.seconds:.0f} s, load {self.load}"
        if not self.is_calm and not self.failed:
            said += f", ended with status {self.status}: see {FOLDER.relative_to(ROOT)}/{number}.log"
        return said + "".join(f"\n  {name}" for name in self.failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds; 1 when one was not calm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="how many runs (10)")
    parser.add_argument("--load", type=int, default=8, help="busy processes beside every second run (8)")
    parser.add_argument(
        "--command", default="make test", help="what runs the tests and gives $ARGS to pytest (make test)"
    )
    parser.add_argument("pytest", nargs="*", help="further arguments of pytest")
    options = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(1, options.rounds + 1):
        load = 0 if number % 2 else options.load
        found.append(run(shlex.split(options.command), options.pytest, number, load))
        print(found[-1].line(number), flush=True)
    calm = sum(each.is_calm for each in found)
    print(f"{calm} of {len(found)} rounds were calm")
    return 0 if calm == len(found) else 1


def run(command: Sequence[str], arguments: Sequence[str], number: int, load: int) -> Round:
    """Run the tests once, beside ``load`` processes that compute."""
    results = FOLDER / f"{number}.xml"
    results.unlink(missing_ok=True)
    further = shlex.join([*arguments, f"--junit-xml={results}"])
    if command[0] == "make":
        # `make calm ARGS=...` hands its own down to the make that it starts, and there they beat the environment.
        command = [*command, f"ARGS={further}"]
    started = time.monotonic()
    with busy(load), (FOLDER / f"{number}.log").open("wb") as log:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "ARGS": further}, stdout=log, stderr=log, check=False
        )
    passed, failed = outcomes(results)
    return Round(passed, failed, time.monotonic() - started, load, done.returncode)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    if not count:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", _BUSY, str(count)], start_new_session=True) as running:
        try:
            yield
        finally:
            running.kill()


def outcomes(results: Path) -> tuple[int, tuple[str, ...]]:
    """How many tests passed, and the names of those that did not; nothing where pytest wrote no results."""
    if not results.exists():
        return 0, ()
    passed, failed = 0, []
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is None:
            passed += 1
    return passed, tuple(failed)


if __name__ == "__main__":
    sys.exit(main())
