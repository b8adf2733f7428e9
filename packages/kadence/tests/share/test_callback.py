"""The acknowledgement callback: where it runs, what it is told, and what it may not do (KIP-932)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.share.test_interrupted_polls import OURS
from tests.worlds.queue import ACCEPT, HandNetwork

from kadence import KafkaError, ShareConsumer, TopicPartition
from kadence.errors import IllegalStateError, InvalidRecordStateError

Made = tuple[ShareConsumer[Any, Any], HandNetwork]
JOBS = TopicPartition("jobs", 0)


def test_it_is_told_of_each_partition_with_its_offsets_without_gaps(made: Made) -> None:
    consumer, network = made
    told: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
    consumer.set_acknowledgement_commit_callback(lambda *what: told.append(what))
    network.put(2, acquired=[(0, 3, 1)])
    network.put(1, partition=1)
    error = network.errors[TopicPartition("jobs", 1)] = InvalidRecordStateError("gone")
    for _ in range(3):
        consumer.poll()
    assert told == [
        (JOBS, frozenset({0, 1}), None),
        (TopicPartition("jobs", 1), frozenset({0}), error),
    ]


@pytest.mark.parametrize("where", ["poll", "commit", "commit_async", "unsubscribe", "close"])
def test_it_runs_inside_the_calls_that_acknowledge(made: Made, where: str) -> None:
    consumer, network = made
    told: list[frozenset[int]] = []
    consumer.set_acknowledgement_commit_callback(lambda partition, offsets, error: told.append(offsets))
    network.answers_at_once = False
    network.put(1)
    consumer.poll()
    consumer.commit_async()
    network.answer()
    network.answers_at_once = True
    assert told == []
    getattr(consumer, where)()
    assert told == [{0}]


def test_an_exception_in_it_is_logged_and_goes_no_further(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, network = made

    def fails(*what: Any) -> None:
        raise ValueError("of the application")

    consumer.set_acknowledgement_commit_callback(fails)
    network.put(2)
    consumer.poll()
    with caplog.at_level(logging.ERROR, "kadence.share"):
        assert consumer.commit() == {JOBS: None}
    assert "the acknowledgement callback raised" in caplog.text
    assert "of the application" in caplog.text


def calls(consumer: ShareConsumer[Any, Any]) -> dict[str, Callable[[], object]]:
    return {
        "poll()": consumer.poll,
        "acknowledge()": lambda: consumer.acknowledge("jobs", 0, 0),
        "commit()": consumer.commit,
        "commit_async()": consumer.commit_async,
        "subscribe()": lambda: consumer.subscribe("more"),
        "unsubscribe()": consumer.unsubscribe,
        "close()": consumer.close,
        "process()": lambda: consumer.process(print),
    }


def test_a_call_of_the_consumer_inside_it_is_refused(made: Made) -> None:
    consumer, network = made
    refused: dict[str, str] = {}

    def tries(*what: Any) -> None:
        for name, call in calls(consumer).items():
            with pytest.raises(IllegalStateError) as error:
                call()
            refused[name] = str(error.value)

    consumer.set_acknowledgement_commit_callback(tries)
    network.put(1)
    for _ in range(3):
        consumer.poll()
    assert refused == {
        name: f"{name} is not possible inside the acknowledgement callback" for name in calls(consumer)
    }


def test_without_one_nothing_is_told_and_a_callable_is_wanted(made: Made) -> None:
    consumer, network = made
    wanted = []
    for callback in (print, None):
        consumer.set_acknowledgement_commit_callback(callback)
        wanted.append(network.state.wants_results)
    assert wanted == [True, False]
    no_callable: Any = 5
    with pytest.raises(TypeError, match=r"callback must be a function of \(partition, offsets, error\)"):
        consumer.set_acknowledgement_commit_callback(no_callable)

    async def coroutine(*what: Any) -> None: ...

    with pytest.raises(TypeError, match="coroutine function"):
        consumer.set_acknowledgement_commit_callback(coroutine)


def test_what_a_callback_throws_through_a_poll_brings_nothing_back_that_was_accepted(
    make: Callable[..., Made],
) -> None:
    consumer, network = make()

    def throws(partition: TopicPartition, offsets: frozenset[int], error: object) -> None:
        raise KeyboardInterrupt

    consumer.set_acknowledgement_commit_callback(throws)
    network.put(2)
    assert len(consumer.poll()) == 2
    consumer.commit_async()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    consumer.set_acknowledgement_commit_callback(None)
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 1, ACCEPT)]


def tell(told: list[Any], *what: Any) -> None:
    told.append(what)


@pytest.mark.parametrize("where", ["poll", "commit", "commit_async", "unsubscribe", "close"])
def test_ctrl_c_at_any_line_loses_no_call(make: Callable[..., Made], where: str) -> None:
    """The next call of the consumer makes it. A call in which Ctrl-C came may be made again."""
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make()
        told: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
        consumer.set_acknowledgement_commit_callback(partial(tell, told))
        network.answers_at_once = False
        network.put(2)
        network.put(1, partition=1)
        while consumer.poll():
            pass
        consumer.commit_async()
        network.answer()
        network.answers_at_once = True
        interruption = Interruption(at, OURS)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            getattr(consumer, where)()
        happened = interruption.happened
        consumer.close()
        expected = {(JOBS, frozenset({0, 1}), None), (TopicPartition("jobs", 1), frozenset({0}), None)}
        assert set(told) == expected, (at, interruption.where)
        assert len(told) <= 3
    assert at > 20
