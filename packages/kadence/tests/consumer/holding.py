"""A member that holds its interpreter, in a process of its own: what is tested must not stop the test.

    python -m tests.consumer.holding '{"topic": "t", "hold": 3.0, "settings": {...}}'

Joins, holds the interpreter, and says in one line of JSON what became of its membership.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import Consumer

__all__ = ["Holder", "hold_the_interpreter", "membership_after", "needs_the_lock"]

HOLDS = "holds\n"

needs_the_lock = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="nobody can hold the interpreter of a free-threaded Python",
)


def hold_the_interpreter(seconds: float) -> None:
    """As an extension does that never lets go of the GIL: functions of a PyDLL are called with it."""
    ctypes.PyDLL(None).poll(None, 0, int(seconds * 1000))


class Holder:
    """The program at the top of the file, under way.

    Args:
        grows_to: how many partitions it is to own afterwards; None: those that it owned before.
        at_once: hold when the first records are there, which is before the first heartbeat.
    """

    def __init__(
        self,
        topic: str,
        hold: float,
        settings: dict[str, Any],
        grows_to: int | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        asked = {
            "topic": topic,
            "hold": hold,
            "settings": settings,
            "grows_to": grows_to,
            "at_once": at_once,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.consumer.holding", json.dumps(asked)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_it_holds(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == HOLDS, self._process.communicate(timeout=60)

    def result(self) -> dict[str, Any]:
        """What became of its membership."""
        out, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, err
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        return said | {"log": err}


def membership_after(topic: str, hold: float, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the program at the top of the file and return what it says."""
    return Holder(topic, hold, settings).result()


def _poll_until(consumer: Consumer, done: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, repr(consumer)
        consumer.poll(0.1)


def _after_a_heartbeat(consumer: Consumer) -> None:
    sent = "last-heartbeat-seconds-ago"
    _poll_until(
        consumer,
        lambda: any(name.name == sent and value >= 0 for name, value in consumer.metrics().items()),
    )
    consumer.poll(0.5)


def main(topic: str, hold: float, settings: dict[str, Any], grows_to: int | None, *, at_once: bool) -> None:
    with Consumer(**settings) as consumer:
        consumer.subscribe(topic)
        if at_once:
            while not consumer.poll(30):
                pass
        else:
            _poll_until(consumer, lambda: len(consumer.assignment()) > 0)
        before, owned = consumer.group_metadata(), consumer.assignment()
        if not at_once:
            _after_a_heartbeat(consumer)
        sys.stdout.write(HOLDS)
        sys.stdout.flush()
        hold_the_interpreter(hold)
        consumer.poll(0.5)
        if grows_to is not None:
            _poll_until(consumer, lambda: len(consumer.assignment()) == grows_to)
        lateness = consumer.network_lateness()
        # As this member: a commit of one that was thrown out fails.
        consumer.commit(dict.fromkeys(consumer.assignment(), 1), timeout=20)
        after = consumer.group_metadata()
        said = {
            "same member": before.member_id == after.member_id and owned <= consumer.assignment(),
            "generations": [before.generation_id, after.generation_id],
            "rebalances": len(consumer.rebalances()),
            "lost": sum(rebalance.cause.startswith("session lost") for rebalance in consumer.rebalances()),
            "stood in": lateness.fallback_heartbeats,
            "late": lateness.longest,
        }
        sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
