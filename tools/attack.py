"""A million mutations of all that strangers may send: frames, answers, documents, data directories, lies of brokers.

The targets and stories of tests/fuzz and tests/hostile, each in a process of its own, one line each: how many
mutations, from which seed on, by how much the process grew, and the documented errors by type. What must not happen is
printed with the command that repeats it alone: a raw error, a thread that died, a hang, more memory than the target
says.

    python tools/attack.py                            a million, of every kind
    python tools/attack.py avro --count 5000          so many of one kind
    python tools/attack.py avro --seed 1234 --alone   one mutation, or one story, again
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import mmap
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layout import add_tests_to_path

if TYPE_CHECKING:
    from tests.fuzz.target import Story, Target

ROOT: Final = Path(__file__).resolve().parents[1]
_ALL: Final = 1_000_000
_HANG_S: Final = 300
"""Seconds that one mutation, or one story, may take on a busy machine."""
_LONGEST_S: Final = 4 * 3_600
_BACKSTOP_MIB: Final = 3_072
"""Address space beyond what a process has when it begins: a bomb ends in a MemoryError."""
_MOST_SHOWN: Final = 5
"""Failures of one kind: each is shown once, with how often it came."""
_SEED: Final = struct.Struct("q")


def main() -> int:
    """Carry out what was asked for; the exit status is 0 if nothing was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help="names of targets and stories (default all)")
    parser.add_argument("--count", type=int, help="mutations of each kind (default: its part of --mutations)")
    parser.add_argument("--mutations", type=int, default=_ALL, help=f"in all (default {_ALL:,})")
    parser.add_argument("--seed", type=int, help="the first one of each kind (default: another each time)")
    parser.add_argument("--alone", action="store_true", help="only the mutation, or the story, of --seed")
    parser.add_argument("--workers", type=int, default=2, help="kinds at a time (default 2)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    add_tests_to_path()
    if given.inside is not None:
        return _attack(given.kinds[0], given.seed, given.count, Path(given.inside))
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1, 2**31)
    kinds = _kinds()
    unknown = set(given.kinds) - kinds.keys()
    if unknown:
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    if not given.alone:
        print(f"== {'':24} {'mutations':>9}  {'seed':>10}  {'memory':>8}  errors", flush=True)
    total = sum(kind.share for kind in kinds.values())
    counts = {
        name: 1 if given.alone else given.count or -(-kinds[name].share * given.mutations // total)
        for name in given.kinds or kinds
    }
    with ThreadPoolExecutor(given.workers) as pool:
        found = list(pool.map(lambda name: _run(name, seed, counts[name]), counts))
    done = sum(mutations for mutations, _ in found)
    failed = sum(not good for _, good in found)
    print(f"== {done:,} mutations of {len(found)} kinds, {failed} kinds failed")
    return bool(failed)


def _kinds() -> dict[str, Target | Story]:
    from tests.fuzz.stories import STORIES
    from tests.fuzz.targets import TARGETS

    # Those that take longest come first.
    return {**STORIES, **TARGETS}


# One kind, in a process of its own: it may hang, or end


def _run(name: str, seed: int, count: int) -> tuple[int, bool]:
    """How many mutations there were, and whether nothing was found."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder, "seed")
        at.write_bytes(_SEED.pack(seed))
        command = [
            sys.executable,
            __file__,
            name,
            "--seed",
            str(seed),
            "--count",
            str(count),
            "--inside",
            str(at),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(
                command, env=environment, timeout=_LONGEST_S, check=False, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            print(f"{name}: did not end within {_LONGEST_S} s", flush=True)
            return 0, False
        (last,) = _SEED.unpack(at.read_bytes())
    if not done.stdout.startswith("{"):
        print(
            f"{done.stdout}{done.stderr[-8_000:]}\n{_repeating(name, last)}: it ended with {done.returncode}",
            flush=True,
        )
        return 0, False
    report = json.loads(done.stdout)
    errors = ", ".join(f"{kind} {times:,}" for kind, times in report["errors"])
    print(
        f"{name:<27} {report['mutations']:>9,}  {seed:>10}  {report['memory_mib']:>4} MiB  {errors or 'none'}",
        flush=True,
    )
    for failure in report["failures"]:
        print(f"{failure['text']}\n{_repeating(name, failure['seed'])}: {failure['times']} times", flush=True)
    return report["mutations"], not report["failures"]


def _repeating(name: str, seed: int) -> str:
    return f"== python tools/attack.py {name} --seed {seed} --alone"


def _attack(name: str, first_seed: int, count: int, at: Path) -> int:
    """Carry out so many mutations, and say what became of them as JSON."""
    from tests.fuzz.attacking import attacks
    from tests.fuzz.target import Tally

    # Lines are made, as where somebody reads them, and thrown away.
    logging.basicConfig(handlers=[logging.NullHandler()], level=logging.INFO)
    kind, total = _kinds()[name], Tally()
    failures: dict[tuple[str, str], dict[str, Any]] = {}
    _arm()
    # What is loaded and kept at the first use counts for nobody.
    next(attacks(kind, first_seed))
    _limit(_BACKSTOP_MIB)
    before = most = _peak_mib()
    armed_at = time.monotonic()
    with at.open("r+b") as file, mmap.mmap(file.fileno(), _SEED.size) as current:
        for seed, found in attacks(kind, first_seed):
            _SEED.pack_into(current, 0, seed + 1)
            if time.monotonic() > armed_at + 1:
                armed_at = time.monotonic()
                _arm()
            if isinstance(found, Exception):
                total.mutations += 1
                _keep(failures, found, seed)
            else:
                total.add(found)
            used = _peak_mib()
            if used > most:
                most = used
                if most - before > kind.memory:
                    _keep(failures, MemoryError(f"{most - before} MiB more; {kind.memory} were said"), seed)
            if total.mutations >= count:
                break
    faulthandler.cancel_dump_traceback_later()
    json.dump(
        {
            "mutations": total.mutations,
            "errors": Counter(total.errors).most_common(),
            "memory_mib": most - before,
            "failures": list(failures.values()),
        },
        sys.stdout,
    )
    return 0


def _arm() -> None:
    """From now on what takes so long is a hang: the process ends, and says where it was."""
    faulthandler.dump_traceback_later(_HANG_S, exit=True)


def _keep(failures: dict[tuple[str, str], dict[str, Any]], error: Exception, seed: int) -> None:
    """A failure is known by its type and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    key = (type(error).__name__, f"{last[0].filename}:{last[0].lineno}" if last else "")
    if key not in failures and len(failures) >= _MOST_SHOWN:
        return
    text = "".join(traceback.format_exception(error)) if last else repr(error)
    failures.setdefault(key, {"text": text, "seed": seed, "times": 0})["times"] += 1


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _limit(more_mib: int) -> None:
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    )
    if pages is not None:
        limit = pages * resource.getpagesize() + (more_mib << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
