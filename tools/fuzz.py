"""Fuzzing for a bounded time: the targets of tests/fuzz, one after the other, from their seeds and the corpus.

With atheris (libFuzzer) what was covered guides what is tried next; where it is not installed, mutations alone are
tried. Everything that a run tries follows from its seed, which is printed. An input that failed is kept below .fuzz/:

    python tools/fuzz.py                            every target for 5 s each
    python tools/fuzz.py recovery --seconds 600     one of them for longer
    python tools/fuzz.py recovery --input FILE      what one input does

Once the mistake is mended, the input moves to tests/fuzz/corpus/TARGET/ under a name that says what was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import importlib.util
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layout import add_tests_to_path

if TYPE_CHECKING:
    from tests.fuzz.target import Target

ROOT: Final = Path(__file__).resolve().parents[1]
FOUND: Final = ROOT / ".fuzz"
_HANG: Final = 60
"""Seconds that one input may take, on a busy machine too."""
_LOAD: Final = 300
"""Seconds beyond its time after which a target's process is ended: it loads, and tries its seeds."""
_MEMORY_MIB: Final = 2048

_BROKER: Final = ("kadence_broker", "kadence_broker.coordinator")
_MESSAGES: Final = ("kadence.wire", "kadence.protocol")
_WATCHED: Final[dict[str, tuple[str, ...]]] = {
    "requests": _MESSAGES,
    "answers": _MESSAGES,
    "fetched": ("kadence.records",),
    "produced": ("kadence.records", "kadence_broker.storage"),
    "compressed": ("kadence.records",),
    "subscriptions": ("kadence.wire", "kadence.consumer.assignors"),
    "assignments": ("kadence.wire", "kadence.consumer.assignors"),
    "sticky": ("kadence.wire", "kadence.consumer.assignors"),
    "groups": ("kadence.wire", "kadence_broker.coordinator"),
    "transactions": ("kadence.wire", "kadence_broker.coordinator"),
    "recovery": ("kadence_broker.storage",),
    "dispatch": _BROKER,
    "documents": ("kadence_spark.decode",),
    "directories": _BROKER,
    "commits": ("kadence.work",),
    "avro": ("kadence_schemas",),
    "protobuf": ("kadence_schemas",),
    "json-schema": ("kadence_schemas",),
    "json": ("kadence.reading",),
    "challenges": ("kadence.connection",),
    "words": ("kadence_broker.server",),
    "tokens": ("kadence.net",),
    "registries": ("kadence_schemas",),
    "schemas": ("kadence_schemas",),
    "odd-schemas": ("kadence_schemas", "kadence_spark.decode"),
    "settings": ("kadence.config", "kadence.security", "kadence_cli"),
    "letters": ("kadence.work", "kadence_cli"),
}
"""Whose coverage guides what is tried next, by target: to watch all of Kadence takes long to load. Compiled modules
have none, but their twins run beside them."""


def main() -> int:
    """Fuzz what was asked for; the exit status is 0 if nothing was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", help="names of targets (default all)")
    parser.add_argument("--seconds", type=float, default=5, help="for each target (default 5)")
    parser.add_argument("--seed", type=int, help="where all chance comes from (default: another each time)")
    parser.add_argument("--workers", type=int, default=2, help="targets at a time (default 2)")
    parser.add_argument("--input", type=Path, help="check this file with the one target that is named")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.input is not None or given.inside:
        add_tests_to_path()
        # Targets that listen to what is logged have handlers of their own.
        logging.lastResort = None
        (name,) = given.targets
        if given.input is not None:
            _load()[name].check(given.input.read_bytes())
            return 0
        return _fuzz(name, given.seed, given.seconds)
    seed = given.seed or random.SystemRandom().randrange(1, 2**31)
    print(
        f"== fuzzing; to run it again: python tools/fuzz.py --seed {seed} --seconds {given.seconds:g}",
        flush=True,
    )
    names = given.targets or _names()
    with ThreadPoolExecutor(given.workers) as pool:
        is_good = list(pool.map(lambda name: _run(name, seed, given.seconds), names))
    failed = [name for name, good in zip(names, is_good, strict=True) if not good]
    if failed:
        print(f"== failed: {', '.join(failed)}; the inputs are in {FOUND}", flush=True)
    return bool(failed)


def _names() -> list[str]:
    add_tests_to_path()
    return list(_load())


def _load() -> dict[str, Target]:
    from tests.fuzz.targets import TARGETS

    return TARGETS


# One target, in a process of its own: libFuzzer ends it, and so does what it looks for


def _run(name: str, seed: int, seconds: float) -> bool:
    """Fuzz one target in another process; whether nothing was found."""
    command = [sys.executable, __file__, name, "--inside", "--seed", str(seed), "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed % 2**32)}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, timeout=seconds + _LOAD, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: did not end", flush=True)
        return False
    took = f"{time.monotonic() - began:.0f} s"
    if done.returncode:
        print(f"{done.stdout}{done.stderr}\n{name}: failed after {took}", flush=True)
        return False
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("Done", "tried"))]
    print(f"{name}: {told[-1] if told else 'done'} ({took} with loading)", flush=True)
    return True


def _fuzz(name: str, seed: int, seconds: float) -> int:
    FOUND.mkdir(exist_ok=True)
    try:
        import atheris
    except ImportError:
        return _by_mutation(_load()[name], seed, seconds)
    # It takes only whole packages for what to watch, and modules for what not to.
    with atheris.instrument_imports(include=["kadence"], exclude=_unwatched(_WATCHED[name])):
        target = _load()[name]
    _by_coverage(atheris, target, seed, seconds)
    return 0


def _unwatched(rooms: tuple[str, ...]) -> list[str]:
    """Kadence's modules that are in none of the rooms."""
    found = importlib.util.find_spec("kadence")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    modules = (path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py"))
    names = (".".join(each.parts).removesuffix(".__init__") for each in modules)
    return [name for name in names if not any(f"{name}.".startswith(f"{room}.") for room in rooms)]


def _by_coverage(atheris: Any, target: Target, seed: int, seconds: float) -> None:
    """Does not return: libFuzzer ends the process."""
    from tests.fuzz.corpus import inputs
    from tests.fuzz.mutation import LONGEST

    with tempfile.TemporaryDirectory() as folder:
        for data in inputs(target):
            Path(folder, hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
        options = {
            "seed": seed,
            "max_total_time": max(round(seconds), 1),
            "timeout": _HANG,
            "rss_limit_mb": _MEMORY_MIB,
            "max_len": LONGEST,
            "artifact_prefix": f"{FOUND}/{target.name}-",
        }
        arguments = [f"-{option}={value}" for option, value in options.items()]
        atheris.Setup([__file__, *arguments, folder], lambda data: _checked(target, data))
        atheris.Fuzz()


def _checked(target: Target, data: bytes) -> None:
    """libFuzzer takes no answers."""
    target.check(data)


def _by_mutation(target: Target, seed: int, seconds: float) -> int:
    from tests.fuzz.attacking import attacks

    tried, end = 0, time.monotonic() + seconds
    for each, found in attacks(target, seed):
        faulthandler.dump_traceback_later(_HANG, exit=True)
        if isinstance(found, Exception):
            traceback.print_exception(found)
            print(f"python tools/attack.py {target.name} --seed {each} --alone")
            return 1
        tried += 1
        if time.monotonic() >= end:
            break
    faulthandler.cancel_dump_traceback_later()
    print(f"tried {tried} inputs, without coverage: atheris is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
