"""Looks up offsets by the records' own timestamps, for programs that plan ranges before they read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kadence.consumer.application.by_time import first_records
from kadence.consumer.consumer import Consumer
from kadence.types import TopicPartition

__all__ = ["by_own_times"]

_SMALL: Final = {"max.partition.fetch.bytes": 65_536}
"""In most cases one record is enough."""

_OF_GROUPS: Final = ("group.id", "group.instance.id", "enable.auto.commit")


def by_own_times(
    settings: Mapping[str, Any],
    times: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int | None]:
    """The offset of each partition's first record at or after its time; None: no record is so late.

    Args:
        settings: of a consumer. times: ms since 1970. found: the brokers' answers (ListOffsets), which in topics with
            transactions may be a marker before that record. ends: the log end offsets.
    """
    wanted = {p: at for p, at in found.items() if at is not None and at < ends[p]}
    if not wanted:
        return dict.fromkeys(found)
    own = {name: value for name, value in settings.items() if name not in _OF_GROUPS}
    with Consumer({**own, **_SMALL}) as consumer:
        firsts = consumer._run(first_records(consumer._core, times, wanted, ends))
    return {p: firsts.get(p) for p in found}
