"""A share consumer that holds its interpreter, in a process of its own: what is tested must not stop the test.

    python -m tests.share.holding '{"hold": 3.0, "settings": {...}}'

Polls records of "t", holds the interpreter, accepts them, and says in one line of JSON what became of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from tests.consumer.holding import hold_the_interpreter
from tests.patience import PATIENCE

from kadence import ShareConsumer

__all__ = ["held_for"]


def held_for(hold: float, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the program at the top of the file and return what it says."""
    asked = json.dumps({"hold": hold, "settings": settings})
    done = subprocess.run(
        [sys.executable, "-m", "tests.share.holding", asked],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said | {"log": done.stderr}


def main(hold: float, settings: dict[str, Any]) -> None:
    with ShareConsumer(**settings) as consumer:
        consumer.subscribe("t")
        end = time.monotonic() + PATIENCE
        while not (records := consumer.poll(0.5)):
            assert time.monotonic() < end, "no records"
        hold_the_interpreter(hold)
        results = consumer.commit(timeout=20)
        said = {
            "deliveries": [record.delivery_count for record in records],
            "errors": [str(error) for error in results.values() if error is not None],
            "lock": consumer.lock_timeout,
        }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
