"""What callers give is refused on their own line, with one sentence that says what is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Shell

from kadence import AsyncRebalanceListener, Broker, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from kadence.consumer.application.arguments import cap, partitions_of, pattern_of


class Half:
    """A listener of another client, which knows of no loss."""

    def on_partitions_assigned(self, partitions: object, /) -> None: ...

    def on_partitions_revoked(self, partitions: object, /) -> None: ...


class Async(AsyncRebalanceListener):
    async def on_partitions_revoked(self, partitions: object, /) -> None:
        pass

    async def committed(self, offsets: object, error: object) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (lambda c: c.subscribe("t", listener=5), r"listener: 5 has no on_partitions_assigned\(\)"),
    "a function": (lambda c: c.subscribe("t", listener=print), r"subclass kadence.(Async)?RebalanceListener"),
    "half of one": (lambda c: c.subscribe("t", listener=Half()), r"has no on_partitions_lost\(\)"),
    "a class": (lambda c: c.subscribe("t", listener=Async), r"Async is a class; give an object: Async\(\)"),
    "a pattern of bytes": (lambda c: c.subscribe(re.compile(b"t")), "a pattern of topics is a str, not b't'"),
    "no pattern": (lambda c: c.subscribe(SubscriptionPattern(5)), "is made of a str, not 5"),  # type: ignore[arg-type]
    "no callback": (lambda c: c.commit_async(None, 5), r"must be a function of \(offsets, error\), not 5"),
    "topics that are bytes": (
        lambda c: c.subscribe(b"t"),
        r"topics are names, such as 'orders' or .*, not b't'",
    ),
    "no topics": (lambda c: c.subscribe(None), "topics are names, .*, not None"),
    "a pattern for assign_topics": (
        lambda c: c.assign_topics(re.compile("t")),
        "topics are names, .*, not re",
    ),
    "no partitions": (lambda c: c.assign(None), "partitions must be one partition, or several .*, not None"),
    "a name to commit": (
        lambda c: c.commit("t"),
        "commit\\(\\) takes a mapping of offsets, or records, not str",
    ),
    "no reason": (lambda c: c.enforce_rebalance(5), "a reason is a str, not 5"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_listener_callback_or_pattern_is_refused_at_once(
    broker: Broker, shell: Shell, what: str
) -> None:
    """Found out by a later poll it would be a bug in the midst of a rebalance, or on the network thread."""
    call, message = REFUSED[what]
    consumer = shell.make(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    with pytest.raises(TypeError, match=message):
        shell.do(lambda: call(consumer))
    assert consumer.subscription() == frozenset()
    shell.do(consumer.close)


def test_coroutine_functions_are_for_asyncio(broker: Broker, shell: Shell) -> None:
    consumer = shell.make(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: consumer.subscribe("t", listener=Async()),
        lambda: consumer.commit_async({}, Async().committed),
    )
    for call in calls:
        if shell.kind == "asyncio":
            shell.do(call)
        else:
            with pytest.raises(TypeError, match="coroutine function, which Consumer does not await"):
                call()
    shell.do(consumer.close)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (re.compile("orders-.*"), "orders-.*"),
        (re.compile("(?i)orders"), "(?i)orders"),
        (re.compile("orders", re.IGNORECASE), "(?i)orders"),
        (re.compile("(?i)or ders", re.VERBOSE | re.ASCII), "(?aix)or ders"),
    ],
)
def test_a_pattern_keeps_its_flags(pattern: re.Pattern[str], text: str) -> None:
    assert pattern_of(pattern) == text
    assert re.compile(text).flags == pattern.flags


def test_one_partition_may_be_given_as_a_pair() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("u", 1)
    assert partitions_of(("t", 0)) == partitions_of(one) == partitions_of([("t", 0), one]) == (one,)
    assert partitions_of((("t", 0), other)) == partitions_of((one, ("u", 1))) == (one, other)
    names: Any = ("t", "u")
    with pytest.raises(TypeError, match=r"a partition is .*, not \('t', 'u'\)"):
        partitions_of(names)


def test_a_number_of_records_is_a_whole_one() -> None:
    text: Any = "3"
    with pytest.raises(TypeError, match="max_records is a whole number, not '3'"):
        cap(text, 500)


@pytest.mark.parametrize("number", [0, -2, 2**31, 10**30])
def test_a_number_of_records_is_one_that_a_poll_can_have(number: int) -> None:
    with pytest.raises(ValueError, match="max_records must be at least 1 and at most 2147483647, or -1"):
        cap(number, 500)


_HALF = "half of a pair: \ud83d"


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.commit({TopicPartition("t", 0): OffsetAndMetadata(1, metadata=_HALF)}),
        lambda c: c.commit({TopicPartition("t", 0): OffsetAndMetadata(1, 2**31)}),
        lambda c: c.commit({TopicPartition(_HALF, 0): 1}),
        lambda c: c.committed([(_HALF, 0)]),
        lambda c: c.partitions_for(_HALF),
        lambda c: c.enforce_rebalance(_HALF),
        lambda c: c.poll(0, max_records=10**30),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(broker: Broker, shell: Shell, call: Any) -> None:
    consumer = shell.make(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    shell.do(lambda: consumer.subscribe("t"))
    with pytest.raises(ValueError, match=r"UTF-8|leader epoch|at most"):
        shell.do(lambda: call(consumer))
    shell.do(consumer.close)
