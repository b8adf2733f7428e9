"""ThreadSanitizer over the native code: what threads do to the same memory without a lock between them.

    make check-threads
    make check-threads ARGS="packages/kadence/tests/consumer/test_async.py -k cancelled"

First tests/net/threads.c, a program of its own over the headers of the native heartbeat and the poller, where a mutex
stands for the interpreter's lock. Then the extension, which is compiled for it below build/threads, on tests with
several threads; words in ARGS reach pytest in their place.

The interpreter itself need not be compiled for it: the sanitizer sees the mutex and the condition variable that are
the interpreter's lock. So it reports what races with code that runs without that lock: the poller, waits, the native
thread, checking, decoding and building of batches. A free-threaded Python has no such mutex. There this means something
only if that Python was configured --with-thread-sanitizer, too; it runs this file itself.

The exit status is 1 if there is a report, or if a test failed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from layout import CLIENT
from sanitizing import ROOT, Sanitizer, given, run, say

_BUILD: Final = ROOT / "build" / "threads"
_SANITIZER: Final = Sanitizer(
    "ThreadSanitizer",
    _BUILD,
    "-fsanitize=thread",
    "libtsan.so",
    {
        "TSAN_OPTIONS": {
            # The reports are counted. A child of a test must not seem to have failed.
            "exitcode": 0,
            # A test forks, and the child's native thread is a new one.
            "die_after_fork": 0,
            "history_size": 7,
            "suppressions": Path(__file__).with_suffix(".supp"),
        }
    },
)

PROGRAM: Final = CLIENT / "tests" / "net" / "threads.c"
PARTS: Final = ("heartbeats", "poller", "direct")
"""What the program can do, and must do without a report."""

TESTS: Final = (
    "packages/kadence/tests/test_free_threaded.py",
    "packages/kadence/tests/net/test_native_heartbeat.py",
    "packages/kadence/tests/net/test_following.py",
    "packages/kadence/tests/net/test_repeating.py",
    "packages/kadence/tests/net/test_poller.py",
    "packages/kadence/tests/net/test_wakeup.py",
    "packages/kadence/tests/consumer/test_native_heartbeat.py",
    "packages/kadence/tests/consumer/test_async.py",
    "packages/kadence/tests/consumer/test_closing.py",
    "packages/kadence/tests/consumer/test_direct_commits.py",
    "packages/kadence/tests/consumer/network_thread",
)
"""Those with threads of their own. None loads librdkafka: its threads begin in a way that GCC 12's sanitizer does not
see, and it crashes. None ends itself by a signal: the sanitizer puts handlers off."""


class MissingError(Exception):
    """What there must be for the sanitizer, and is not."""


def compiled(folder: Path) -> list[str]:
    """The command that runs the program, which is compiled into this folder.

    Raises:
        MissingError: there is no compiler, or no sanitizer that works here.
    """
    if sys.platform != "linux":
        raise MissingError("the program is for Linux")
    compiler = shutil.which("gcc")
    if compiler is None:
        raise MissingError("there is no gcc")
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "threads"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wno-unused-function", "-fsanitize=thread"]
    headers = CLIENT / "src" / "kadence" / "_native"
    done = run([compiler, *flags, f"-I{headers}", str(PROGRAM), "-o", str(made), "-lpthread"])
    if done.returncode and "tsan" in done.stderr:
        raise MissingError("gcc has no ThreadSanitizer: libtsan is not installed")
    if done.returncode:
        raise SystemExit(done.stderr)
    # The sanitizer lays out memory by fixed addresses, which a kernel that chooses others at random may have taken.
    for before in ([], ["setarch", "-R"]):
        command = [*before, str(made)]
        if (not before or shutil.which(before[0])) and "data race" in run([*command, "race"]).stderr:
            return command
    raise MissingError("ThreadSanitizer does not report a race here that there is")


def run_program(command: Sequence[str], part: str) -> str:
    """What the sanitizer reports, or the program itself says to be wrong; nothing if all is well."""
    done = run([*command, part])
    return done.stderr or (f"exit status {done.returncode}" if done.returncode else "")


def main(words: Sequence[str]) -> int:
    try:
        command = compiled(_BUILD)
    except MissingError as missing:
        print(f"nothing was checked: {missing}", file=sys.stderr)
        return 1
    for part in PARTS:
        say(f"{PROGRAM.relative_to(ROOT)} {part}")
        if reported := run_program(command, part):
            print(reported, file=sys.stderr)
            return 1
    # OpenSSL is not compiled for the sanitizer, and these take minutes; the program has a stand-in for it.
    tests = [*words] if given(words) else ["-k", "not tls", *words, *TESTS]
    return _SANITIZER.test(["-m", "not kafka and not heavy", *tests], _SANITIZER.build(), before=command[:-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
