"""The first record at or after a time, by the records' own times. Application side.

Brokers find the marker that ends a transaction by time, too, and its time is the broker's clock. So in topics with
transactions and older records, the offset from ListOffsets may lie before the wanted record, but never after it. We
read from there until the record comes. Usually it is the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kadence.client.waits import Waits
from kadence.clock import add_ms
from kadence.consumer import events as m
from kadence.consumer.application.assigning import assign, remove
from kadence.consumer.application.core import Core
from kadence.errors import ClosedError, KafkaTimeoutError
from kadence.types import TopicPartition

__all__ = ["first_records", "led_to", "looked_up"]

_AT_ONCE: Final = 500
"""Records that are looked at together."""


def first_records(
    core: Core,
    times: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int],
) -> Waits[dict[TopicPartition, int]]:
    """For each partition that has one, the offset of the first record at or after its time.

    Nothing is committed. The consumer has no assignment afterwards.

    Args:
        times: ms since 1970. found: the offsets that brokers returned for them. ends: where to stop looking.

    Raises:
        KafkaTimeoutError: no record came for default.api.timeout.ms.
        ClosedError: `stop` was called before all were found.
    """
    firsts: dict[TopicPartition, int] = {}
    starts = {p: (at, None) for p, at in found.items() if at is not None and at < ends[p]}
    if not starts:
        return firsts
    commits, clock, patience = core.commits, core.clock, core.config.default_api_timeout_ms
    until = add_ms(clock.now_ms(), patience)
    is_automatic, commits.is_automatic = commits.is_automatic, False
    try:
        yield from assign(core, tuple(starts), starts, {p: ends[p] for p in starts}, until)
        is_whole = False
        while not (is_whole or core.stopping):
            chunks = yield from core.polls.poll_bytes(until, _AT_ONCE)
            for partition, records in chunks:
                at = next((r.offset for r in records if r.timestamp >= times[partition]), None)
                if at is not None and partition not in firsts:
                    firsts[partition] = at
                    yield from remove(core, (partition,), until)
            is_whole = core.polls.is_finished or len(firsts) == len(starts)
            now = clock.now_ms()
            if chunks:
                until = add_ms(now, patience)
            elif now >= until:
                break
        yield from assign(core, (), {}, {}, add_ms(clock.now_ms(), patience))
    finally:
        commits.is_automatic = is_automatic
    if is_whole:
        return firsts
    # Of the partitions without an answer nothing is known: they may have such records.
    if core.stopping:
        raise ClosedError(
            "the look-up of offsets by time ended early: stop() was called, perhaps by a signal"
        )
    raise KafkaTimeoutError("the first records at or after the given times could not be read in time")


def led_to(
    core: Core, timestamp: int, lasts: Mapping[TopicPartition, int], deadline: int
) -> Waits[dict[TopicPartition, int]]:
    """Start of reading for a timestamp of ListOffsets, at most ``lasts``: no record is later than that.

    A record that arrived after ``lasts`` was looked up may be the first at or after the time.
    """
    found = yield from looked_up(core, tuple(lasts), timestamp, deadline)
    if timestamp >= 0:
        found = yield from first_records(core, dict.fromkeys(lasts, timestamp), found, lasts)
    return {p: min(found.get(p, last), last) for p, last in lasts.items()}


def looked_up(
    core: Core, partitions: Sequence[TopicPartition], timestamp: int, deadline: int
) -> Waits[dict[TopicPartition, int]]:
    """The offsets that brokers find for a timestamp of ListOffsets (−1 latest, −2 earliest, or ms)."""
    if not partitions:
        return {}
    found = yield from core.call(m.ListOffsets, deadline, timestamps=dict.fromkeys(partitions, timestamp))
    return {partition: at.offset for partition, at in found.items() if at is not None}
