"""A process that was forked: the consumer of its parent refuses, and one of its own works."""

from __future__ import annotations

import os

from tests.consumer.served import Served
from tests.consumer.support import read

from kadence import Consumer, TopicPartition
from kadence.errors import ForkedError

PARTITION = TopicPartition("t", 0)


def in_child(work: object) -> int:
    """Exit code of a child that does ``work``: 0 when it returned true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_is_told_and_its_own_consumer_works(served: Served) -> None:
    """In a forked child poll() hangs (KP #1866, #1687, #1515) or returns None for ever (CK #351, #612)."""
    served.produce(10)
    parent = served.consumer()
    parent.assign([PARTITION])
    read(parent, 10)

    def refused() -> bool:
        try:
            parent.poll(0)
        except ForkedError:
            return True
        return False

    def of_its_own() -> bool:
        with Consumer(bootstrap_servers=served.broker.bootstrap_servers, auto_offset_reset="earliest") as own:
            own.assign([PARTITION])
            return len(read(own, 10)) == 10

    assert in_child(refused) == 0
    assert in_child(of_its_own) == 0
    served.produce(3, start=10)
    assert len(read(parent, 3)) == 3
