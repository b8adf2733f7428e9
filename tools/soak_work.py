"""Simulations of `Consumer.process` or of queues by seed: members, kills, trouble, and an account of every record.

    make soak-work SEEDS=10000
    make soak-work SEEDS=10000 ARGS='--first 5000 --workers 4'
    make soak-work SEEDS=10000 ARGS=--transactional
    make soak-alphabet SEEDS=10000
    make soak-queues SEEDS=10000

``--queues`` runs stories of share groups instead (tests/testing/simulation/queue_story.py). ``--alphabet`` runs stories
that are drawn from the alphabet of the simulation (tests/testing/simulation/alphabet): all that a program may do, and
all that a cluster may do. At the end it tells how often each row of the table has happened, the rarest first; a row
that never did is an error.

Ctrl-C ends it, with what there is. A seed that fails is named with what happened in it, and can be run alone:
``--first N --seeds 1``. Each takes about a second of a processor, one of the alphabet a tenth.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from kadence_testing.simulation import SimulationError
from layout import add_tests_to_path

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


def run_queue(seed: int) -> tuple[int, dict[str, int], str]:
    """The same of a story of a share group: what became of its records, and how many locks ended."""
    from tests.testing.simulation.queue_story import QueueStory

    logging.disable(logging.CRITICAL)
    story = QueueStory(seed, changes_locks=seed % 3 == 0)
    wrong = ""
    try:
        story.run()
    except SimulationError as error:
        wrong = str(error)
    except Exception:  # noqa: BLE001 - it is told with its seed, and others go on
        wrong = f"seed {seed}: {traceback.format_exc()}"
    return seed, story.counts(), wrong


def run_alphabet(seed: int) -> tuple[int, dict[str, int], str]:
    """The same of a story drawn from the alphabet: its figures are how often each row has happened."""
    from tests.testing.simulation.alphabet.story import Story

    logging.disable(logging.CRITICAL)
    story = Story(seed)
    wrong = ""
    try:
        story.run()
    except SimulationError as error:
        wrong = f"seed {seed}: {error}"
    except Exception:  # noqa: BLE001 - it is told with its seed, and others go on
        wrong = f"seed {seed}: {traceback.format_exc()}"
    return seed, {str(row): count for row, count in story.happened.items()}, wrong


def never_happened(total: Counter[str]) -> bool:
    """Tell how often each row has happened. Returns whether one never did."""
    from tests.testing.simulation.alphabet.table import ROWS

    rows = sorted(map(str, ROWS), key=lambda row: total[row])
    for row in rows:
        print(f"{total[row]:8,}  {row}")
    return not total[rows[0]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--workers", type=int, default=2, help="processes that share them")
    parser.add_argument("--transactional", action="store_true", help="members commit in transactions")
    parser.add_argument("--queues", action="store_true", help="stories of share groups")
    parser.add_argument("--alphabet", action="store_true", help="stories drawn from the alphabet")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    failed = []
    add_tests_to_path()
    # Nothing of a story outlives it but in circles, so the collector need not look so often: a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000)
    with multiprocessing.Pool(given.workers) as pool, suppress(KeyboardInterrupt):
        one: Callable[[int], tuple[int, dict[str, int], str]]
        if given.alphabet:
            one = run_alphabet
        elif given.queues:
            one = run_queue
        else:
            one = partial(run, transactional=given.transactional)
        seeds = range(given.first, given.first + given.seeds)
        for done, (seed, counts, wrong) in enumerate(pool.imap_unordered(one, seeds), 1):
            total.update(counts)
            if wrong:
                failed.append(seed)
                print(wrong, flush=True)
            if done % 100 and done != given.seeds:
                continue
            if given.alphabet:
                print(f"{done:,} seeds, {len(failed)} failed", flush=True)
            elif given.queues:
                told = ", ".join(f"{count:,} {name}" for name, count in total.items())
                print(f"{done:,} seeds, {len(failed)} failed: {told}", flush=True)
            else:
                print(
                    f"{done:,} seeds, {len(failed)} failed: {total['records']:,} records, {total['begun']:,} attempts, "
                    f"{total['kills']:,} kills, at which {total['undone']:,} records were done and not committed, "
                    f"{total['repeats']:,} handled again, {total['late']:,} too late, "
                    f"{total['transactions']:,} transactions",
                    flush=True,
                )
    is_incomplete = given.alphabet and never_happened(total)
    return 1 if failed or is_incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
