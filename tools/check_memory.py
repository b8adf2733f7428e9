"""AddressSanitizer and UndefinedBehaviorSanitizer over the compiled code, while the collector lets other threads in.

    make check-memory
    make check-memory ARGS="packages/kadence/tests/records/test_fetched.py"

The extension is compiled for them below build/memory, and tests of records, arrivals, the appender, steps and JSON run
on it; words in ARGS reach pytest in their place. Python takes all its memory by malloc then, so that the sanitizer sees
each object. Every second container that a test makes begins a collection, which lets other threads run: on CPython 3.11
that is in the midst of any call in C (`tests.collected`).

The exit status is 1 if there is a report, or if a test failed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from sanitizing import ROOT, Sanitizer, given

TESTS: Final = (
    "packages/kadence/tests/net/test_arrivals.py",
    "packages/kadence/tests/net/test_following.py",
    "packages/kadence/tests/net/test_repeating.py",
    "packages/kadence/tests/net/test_poller.py",
    "packages/kadence/tests/records/test_builder.py",
    "packages/kadence/tests/records/test_columns.py",
    "packages/kadence/tests/records/test_fetched.py",
    "packages/kadence/tests/records/test_memory_slice.py",
    "packages/kadence/tests/records/test_record.py",
    "packages/kadence/tests/records/test_spare.py",
    "packages/kadence/tests/records/test_used_again.py",
    "packages/kadence/tests/producer/test_accumulator.py",
    "packages/kadence/tests/producer/test_arrow_parity.py",
    "packages/kadence/tests/producer/test_short_way.py",
    "packages/kadence/tests/consumer/fetch/test_fetch_collector.py",
    "packages/kadence/tests/consumer/fetch/test_steps.py",
    "packages/kadence/tests/consumer/fetch/manager/test_following.py",
    "tests/hostile/test_misfitting_answers.py",
    "packages/kadence-spark/tests/spark/decode/test_json_rows.py",
)

_SANITIZER: Final = Sanitizer(
    "AddressSanitizer and UndefinedBehaviorSanitizer",
    ROOT / "build" / "memory",
    "-fsanitize=address,undefined -fno-omit-frame-pointer",
    "libasan.so",
    {
        "ASAN_OPTIONS": {
            # An interpreter gives back at its end what it has no more use for, and much it does not.
            "detect_leaks": 0,
            # Tests ask for more memory than there is, and get an error.
            "allocator_may_return_null": 1,
            # pyarrow and others bring libraries that define the same names.
            "detect_odr_violation": 0,
        },
        "UBSAN_OPTIONS": {"print_stacktrace": 1},
    },
)


def main(words: Sequence[str]) -> int:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        print("nothing was checked: it takes Linux and gcc", file=sys.stderr)
        return 1
    os.environ["PYTHONMALLOC"] = "malloc"
    # One after the other, or a sanitizer's processor time makes what waits for clocks late.
    tests = [*words] if given(words) else [*words, *TESTS]
    return _SANITIZER.test(
        ["-n", "0", "-m", "not kafka and not heavy", "-p", "tests.collected", *tests], _SANITIZER.build()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
