"""The calls that assign partitions by hand; members of groups do not load it. Application side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kadence.client.waits import Waits
from kadence.clock import add_ms
from kadence.consumer import events as m
from kadence.consumer.application.arguments import (
    Assignable,
    Partitions,
    StartOfTopics,
    partitions_of,
    ranges,
    refuse_own_dead_letters,
    time_of_topics,
    topic_names,
)
from kadence.consumer.application.assigning import add, assign, follow, remove
from kadence.consumer.application.by_time import led_to, looked_up
from kadence.consumer.application.core import Core
from kadence.errors import IllegalStateError, UnknownTopicOrPartitionError
from kadence.types import TopicPartition

__all__ = ["ByHand"]

_LATEST: Final = -1


class ByHand:
    """Implements these calls; `Calls` offers them under their public names."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def assign(self, partitions: Assignable, deadline: int) -> Waits[None]:
        core = self._core
        if core.chosen.subscribed is not None or core.chosen.pattern is not None:
            raise IllegalStateError("this consumer has topics by subscribe(); unsubscribe() before assign()")
        wanted = partitions_of(partitions)
        starts, ends = ranges(partitions)
        if not wanted:
            yield from core.unsubscribe(deadline)
            return
        self._refuse_own_dead_letters(wanted, ends)
        yield from core.auto_commit_now(deadline, processed_only=True)
        yield from assign(core, wanted, starts, {**dict.fromkeys(wanted), **ends}, deadline)

    def assign_topics(
        self,
        topics: str | Iterable[str],
        start: StartOfTopics | None,
        end: StartOfTopics | None,
        deadline: int,
    ) -> Waits[None]:
        core = self._core
        if core.chosen.subscribed is not None or core.chosen.pattern is not None:
            raise IllegalStateError(
                "this consumer has topics by subscribe(); unsubscribe() before assign_topics()"
            )
        names, timestamp, until = topic_names(topics), time_of_topics(start), time_of_topics(end, "end")
        if not names:
            raise ValueError("assign_topics() needs a topic; to stop reading, call unsubscribe()")
        if until is not None:
            yield from self._assign_ranges(names, timestamp, until, deadline)
            return
        refuse_own_dead_letters(core.config.dead_letter_topic, names)
        yield from core.auto_commit_now(deadline, processed_only=True)
        # So that the assignment exists when the call returns, and not only after a later poll.
        found = yield from core.call(m.TopicMetadata, deadline, topics=tuple(sorted(names)))
        places: dict[TopicPartition, int] = {}
        if timestamp is not None and timestamp >= 0:
            partitions = [TopicPartition(name, info.partition) for name in found for info in found[name]]
            # The end first: records that arrive before the start time is looked up still belong to the range.
            lasts = yield from looked_up(core, partitions, _LATEST, deadline)
            places = yield from led_to(core, timestamp, lasts, deadline)
        yield from follow(core, names, timestamp, deadline)
        for partition, offset in places.items():
            by = add_ms(core.clock.now_ms(), core.config.default_api_timeout_ms)
            yield from core.seek(core.known.shared_partition(partition), offset, None, by)
        if timestamp == _LATEST:
            # The end must be known before the caller writes anything.
            for partition in tuple(core.known.partitions):
                yield from core.placed(partition, deadline)

    def _assign_ranges(
        self, names: frozenset[str], timestamp: int | None, until: int, deadline: int
    ) -> Waits[None]:
        """All partitions that these topics have now, each up to where ``until`` is now."""
        core = self._core
        found = yield from core.call(m.TopicMetadata, deadline, topics=tuple(sorted(names)))
        if missing := sorted(names - {name for name, infos in found.items() if infos}):
            raise UnknownTopicOrPartitionError(
                f"topic {missing[0]!r} does not exist, so where its partitions end cannot be looked up"
            )
        partitions = [TopicPartition(name, info.partition) for name in found for info in found[name]]
        lasts = yield from looked_up(core, partitions, _LATEST, deadline)
        yield from core.auto_commit_now(deadline, processed_only=True)
        ends = lasts if until == _LATEST else (yield from led_to(core, until, lasts, deadline))
        starts: dict[TopicPartition, int] = {}
        if timestamp is not None:
            firsts = lasts if timestamp == _LATEST else (yield from led_to(core, timestamp, lasts, deadline))
            # A range that begins after its end is empty.
            starts = {p: min(firsts[p], ends[p]) for p in partitions}
        places = {p: (at, None) for p, at in starts.items()}
        yield from assign(core, tuple(partitions), places, ends, deadline)

    def add(self, partitions: Assignable, deadline: int) -> Waits[None]:
        core = self._core
        if core.chosen.subscribed is not None or core.chosen.pattern is not None:
            raise IllegalStateError("this consumer has topics by subscribe(): the group says what it reads")
        self._refuse_followed()
        wanted = partitions_of(partitions)
        starts, ends = ranges(partitions)
        self._refuse_own_dead_letters(wanted, ends)
        yield from add(core, wanted, starts, ends, deadline)

    def remove(self, partitions: Partitions, deadline: int) -> Waits[None]:
        core = self._core
        if not core.chosen.by_hand:
            raise IllegalStateError("this consumer has no partitions by assign()")
        self._refuse_followed()
        removed = partitions_of(partitions)
        for partition in removed:
            core.known.shared_partition(partition)
        yield from core.auto_commit_now(deadline, processed_only=True)
        yield from remove(core, removed, deadline)

    def _refuse_own_dead_letters(
        self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int | None]
    ) -> None:
        """Refuse them, except in ranges: a range ends, whatever is written after it."""
        endless = {each.topic for each in partitions if ends.get(each) is None}
        refuse_own_dead_letters(self._core.config.dead_letter_topic, endless)

    def _refuse_followed(self) -> None:
        if self._core.chosen.followed:
            raise IllegalStateError(
                "this consumer reads all partitions of its topics, by assign_topics(): assign() takes single ones"
            )
