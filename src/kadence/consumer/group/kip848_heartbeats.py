"""What a member of a KIP-848 group says in its heartbeats.

A heartbeat tells each thing once, and everything again when an answer was lost (`HeartbeatState`). A field that it
leaves out means "as I said last time". So the member remembers what it said, and forgets that with any failure: what is
told in full repairs whatever got lost. A restarted coordinator needs nothing else. Its last heartbeat is its goodbye
(`HeartbeatDepartures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kadence.connection.request import Request
from kadence.consumer.group.leaving import (
    Departure,
    Departures,
)
from kadence.consumer.group.membership import GroupConfig
from kadence.consumer.subscription import Subscription
from kadence.logs import logger
from kadence.protocol import consumer_group_heartbeat
from kadence.protocol.consumer_group_heartbeat import TopicPartitions
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import Writer

__all__ = ["WITH_REGEX", "ConsumerGroupHeartbeatRequest", "HeartbeatDepartures", "HeartbeatState"]

log = logger("kadence.consumer")

WITH_REGEX: Final = 1
"""The version of the heartbeat that can carry one."""

_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2


class ConsumerGroupHeartbeatRequest(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
    """Holds an empty ``subscribed_topic_regex`` beside names (v1+): none, where null would leave an earlier one.

    One that is not empty cannot be left out: writing it in version 0 raises `VersionError`.
    """

    def write(self, w: Writer, version: int) -> None:
        regex = self.subscribed_topic_regex
        if version < WITH_REGEX and not regex:
            self.subscribed_topic_regex = None
        super().write(w, version)
        self.subscribed_topic_regex = regex


class _SentFields(NamedTuple):
    topics: frozenset[str]
    regex: str | None
    round: int


class HeartbeatState:
    """The memory of one membership's heartbeats."""

    def __init__(self, config: GroupConfig, subscription: Subscription) -> None:
        self._config = config
        self._subscription = subscription
        self._topics: frozenset[str] = frozenset()
        self._said: _SentFields | None = None

    def forget(self) -> None:
        """It is not known whether the broker heard the last one: the next one says everything."""
        self._said = None

    def reset(self) -> None:
        """Another membership."""
        self._topics, self._said = frozenset(), None

    @property
    def forgotten(self) -> bool:
        return self._said is None

    def owes(self, round_: int, *, subscription: bool) -> bool:
        """Whether there is something to say before the interval is over.

        Args:
            round_: the latest acknowledgement. subscription: whether a changed one is to be told already.
        """
        said = self._said
        if said is None or said.round != round_:
            return True
        return subscription and (said.topics != self._topics_now() or said.regex != self._subscription.regex)

    def _says(self, round_: int) -> _SentFields:
        return _SentFields(self._topics_now(), self._subscription.regex, round_)

    def _topics_now(self) -> frozenset[str]:
        """A pattern that matches nothing any more changes nothing: the broker refuses an empty subscription."""
        subscription = self._subscription
        return frozenset() if subscription.regex is not None else subscription.topics or self._topics

    def message(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes], *, joins: bool
    ) -> tuple[ConsumerGroupHeartbeatRequest, bool]:
        """The next heartbeat, which from now on counts as said.

        Args:
            group: who says it. owned: partitions with the ids of their topics; nothing when it ``joins``.

        Returns:
            It, and whether it changes the subscription of a member.
        """
        if joins:
            self._said = None
        before, says = self._said, self._says(round_)
        retold = before is None or (before.topics, before.regex) != (says.topics, says.regex)
        message = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=0 if joins else group.generation_id,
            instance_id=group.group_instance_id,
        )
        if before is None:
            message.rack_id = self._config.client_rack or None
            message.rebalance_timeout_ms = self._config.processing_timeout_ms
            message.server_assignor = self._config.group_remote_assignor
        if retold:
            message.subscribed_topic_names = sorted(says.topics)
            message.subscribed_topic_regex = says.regex or ""
        if before is None or before.round != says.round:
            message.topic_partitions = [] if joins else _by_id(owned)
        self._said, self._topics = says, says.topics
        return message, before is not None and retold

    def everything(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes]
    ) -> ConsumerGroupHeartbeatRequest:
        """All that was said, once more; counts as nothing new. The native thread may send it any number of times.

        A broker that has assigned anew in an answer that nobody has read takes the member for one whose answer was
        lost, if it says with its old epoch what it owns, and tells the assignment again. To a shorter heartbeat it
        would answer FENCED_MEMBER_EPOCH.
        """
        said = self._said or self._says(round_)
        return ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.generation_id,
            instance_id=group.group_instance_id,
            rack_id=self._config.client_rack or None,
            rebalance_timeout_ms=self._config.processing_timeout_ms,
            server_assignor=self._config.group_remote_assignor,
            subscribed_topic_names=sorted(said.topics),
            subscribed_topic_regex=said.regex or "",
            topic_partitions=_by_id(owned),
        )

    @property
    def said(self) -> object:
        """What was said last, to be compared."""
        return self._said


class HeartbeatDepartures(Departures):
    """Says the last heartbeat. The member id is known from the start.

    A static member says that it goes for a while: its place is kept, and the next process of its name may take it
    at once.
    """

    def add(
        self, now: int, group: GroupMetadata, joining: Request | None, reason: str, *, awaited: bool = False
    ) -> None:
        if self.goodbye is not False:
            super().add(now, group, joining, reason, awaited=awaited)

    def _goodbye(self, departure: Departure) -> Any:
        for_good = departure.instance_id is None or self.goodbye is True
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=departure.member_id,
            member_epoch=_LEAVES if for_good else _LEAVES_FOR_A_WHILE,
            instance_id=departure.instance_id,
        )


def _by_id(owned: Mapping[TopicPartition, bytes]) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for partition in sorted(owned):
        topics.setdefault(owned[partition], []).append(partition.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
