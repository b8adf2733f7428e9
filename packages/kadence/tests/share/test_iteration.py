"""Iterating over a queue: a step accepts the record before it, and only `stop` ends it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, HandNetwork

from kadence import ShareConsumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


def test_a_step_accepts_the_record_before_it(made: Made) -> None:
    consumer, network = made
    network.put(3)
    assert next(consumer).offset == 0
    assert network.taken() == []
    assert next(consumer).offset == 1
    assert network.taken() == [("jobs", 0, 0, ACCEPT)]


def test_a_break_leaves_the_last_record_until_commit(made: Made) -> None:
    consumer, network = made
    network.put(3)
    for record in consumer:
        if record.offset == 1:
            break
    network.said.clear()
    consumer.commit()
    assert network.taken() == [("jobs", 1, 1, ACCEPT)]


def test_stop_ends_it_after_the_record_that_is_worked_on_which_is_accepted(made: Made) -> None:
    consumer, network = made
    network.put(3)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        consumer.stop()
    assert seen == [0]
    assert network.taken() == [("jobs", 0, 0, ACCEPT)]
    with pytest.raises(StopIteration):
        next(consumer)


def test_it_waits_for_the_next_record(made: Made) -> None:
    consumer, network = made
    network.coming += [network.fetch(1), network.fetch(1, first=1)]
    assert [next(consumer).offset, next(consumer).offset] == [0, 1]
