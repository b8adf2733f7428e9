"""Lives of many seeds: ``python -m tests.spark.source.lives --first 0 --count 1000``; 1 if one is wrong."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from tests.spark.source.lives.life import Life, WrongError


def main() -> int:
    """Print the story of each life that is wrong, and what happened in all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--brief", action="store_true", help="the first line of each story")
    given = parser.parse_args()
    logging.getLogger("kadence").setLevel(logging.CRITICAL)
    wrong, outcomes = 0, Counter[str]()
    for seed in range(given.first, given.first + given.count):
        life = Life(seed)
        try:
            life.live()
        except WrongError as problem:
            wrong += 1
            print(str(problem).split("\n", 1)[0] if given.brief else problem, flush=True)
        outcomes += life.outcomes
    print(f"{given.count} lives from seed {given.first} on, {wrong} wrong: {dict(sorted(outcomes.items()))}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
