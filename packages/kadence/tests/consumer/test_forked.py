"""A process that was forked: the consumer of its parent refuses, and one of its own works."""

from __future__ import annotations

import os

import pytest
from tests.consumer.served import Served
from tests.consumer.support import Shell, read

from kadence import Consumer, RebalanceListener, TopicPartition
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


class Forks(RebalanceListener):
    """Forks when partitions come first; in the child, too, it returns then."""

    child: int | None = None

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        if self.child is None:
            self.child = os.fork()


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_child_that_a_callback_forks_leaves_its_poll_at_once(served: Served, kind: str) -> None:
    """There is nobody in it to bring records to that poll."""
    served.produce(10)
    forks = Forks()
    shell = Shell(kind)
    settings = {"bootstrap_servers": served.broker.bootstrap_servers, "group_id": "g"}
    consumer = shell.make(auto_offset_reset="earliest", **settings)
    shell.do(lambda: consumer.subscribe("t", listener=forks))
    code = 1
    try:
        records = shell.do(lambda: consumer.poll(3_600))
    except ForkedError:
        code = 5
    finally:
        if not forks.child:
            os._exit(code)
    assert records
    assert os.waitstatus_to_exitcode(os.waitpid(forks.child, 0)[1]) == 5
    shell.do(consumer.close)
    if shell.runner is not None:
        shell.runner.close()
