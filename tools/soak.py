"""Property tests, simulations and fuzzing with fresh chance, round after round, until the time is over.

Each round runs the tests that carry the mark `chance` with a seed of its own, which is printed, and then fuzzes for a
bounded time (tools/fuzz.py). A round that failed is run again by ``make soak SEED=...``. No round begins after the time
is over, and one that hangs is ended.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

_FUZZ = Path(__file__).with_name("fuzz.py")
_LONGEST_ROUND = 20 * 60
"""Seconds; a round takes a few minutes."""


def main() -> int:
    """Run rounds; the exit status is that of the first round that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10, help="no round begins later than this (default 10)"
    )
    parser.add_argument("--seed", type=int, help="run one round, with this seed")
    parser.add_argument("--workers", default="2", help="processes that share a round (default 2)")
    parser.add_argument(
        "--fuzz-seconds",
        type=float,
        default=10,
        help="for each target in each round; 0: no fuzzing (default 10)",
    )
    parser.add_argument("arguments", nargs="*", help="further arguments for pytest")
    given = parser.parse_args()
    end = time.monotonic() + given.minutes * 60
    rounds = 0
    while not rounds or (given.seed is None and time.monotonic() < end):
        seed = given.seed or random.SystemRandom().randrange(1, 2**31)
        rounds += 1
        print(f"== round {rounds}; to run it again: make soak SEED={seed}", flush=True)
        status = _round(seed, given.workers, given.arguments)
        if not status and given.fuzz_seconds:
            status = _fuzz(seed, given.workers, given.fuzz_seconds)
        if status:
            print(f"== failed: make soak SEED={seed} runs this round again", flush=True)
            return status
    print(f"== {rounds} rounds without a failure")
    return 0


def _round(seed: int, workers: str, more: list[str]) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "chance",
        "-n",
        workers,
        f"--hypothesis-seed={seed}",
        *more,
    ]
    # Sets and dicts are in another order each time, too: nothing may depend on it.
    environment = {**os.environ, "KADENCE_SOAK": str(seed), "PYTHONHASHSEED": str(seed % 2**32)}
    try:
        return subprocess.run(command, env=environment, timeout=_LONGEST_ROUND, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"== a round did not end within {_LONGEST_ROUND} s", flush=True)
        return 1


def _fuzz(seed: int, workers: str, seconds: float) -> int:
    options = ["--seed", str(seed), "--seconds", str(seconds), "--workers", workers]
    return subprocess.run([sys.executable, str(_FUZZ), *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
