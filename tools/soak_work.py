"""Simulations of `Consumer.process` by seed: members, kills, trouble, and an account of every record.

    make soak-work SEEDS=10000
    make soak-work SEEDS=10000 ARGS='--first 5000 --workers 4'
    make soak-work SEEDS=10000 ARGS=--transactional

A seed that fails is named with what happened in it, and can be run alone: ``--first N --seeds 1``. Each takes about a
second of a processor.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from kadence.testing.simulation import SimulationError

ROOT = Path(__file__).resolve().parents[1]

_COUNTS = ("kills", "records", "begun", "repeats", "late", "undone")


def run(seed: int, *, transactional: bool) -> tuple[int, dict[str, int], str]:
    """One story: its seed, its figures, and what was wrong."""
    from tests.testing.simulation.work_story import WorkStory

    logging.disable(logging.CRITICAL)
    story = WorkStory(seed, transactional=transactional)
    wrong = ""
    try:
        story.run()
    except SimulationError as error:
        wrong = str(error)
    counts = {name: getattr(story.journal, name) for name in _COUNTS}
    counts["transactions"] = len(story.simulation.history.transactions.all)
    return seed, counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--workers", type=int, default=2, help="processes that share them")
    parser.add_argument("--transactional", action="store_true", help="members commit in transactions")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    failed = []
    sys.path.insert(0, str(ROOT))
    # Nothing of a story outlives it but in circles, so the collector need not look so often: a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000)
    with multiprocessing.Pool(given.workers) as pool:
        one = partial(run, transactional=given.transactional)
        seeds = range(given.first, given.first + given.seeds)
        for done, (seed, counts, wrong) in enumerate(pool.imap_unordered(one, seeds), 1):
            total.update(counts)
            if wrong:
                failed.append(seed)
                print(wrong, flush=True)
            if done % 100 == 0 or done == given.seeds:
                print(
                    f"{done:,} seeds, {len(failed)} failed: {total['records']:,} records, {total['begun']:,} attempts, "
                    f"{total['kills']:,} kills, at which {total['undone']:,} records were done and not committed, "
                    f"{total['repeats']:,} handled again, {total['late']:,} too late, "
                    f"{total['transactions']:,} transactions",
                    flush=True,
                )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
