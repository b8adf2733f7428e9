"""The group coordinator of this broker: what carries requests to it, keeps what it records, and delivers its answers.

One coordinator serves the groups of all nodes. A node answers for those that it coordinates, see
`kadence.broker.groups.coordinator_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kadence.clock import wall_ms
from kadence.coordinator import CoordinatorConfig, GroupCoordinator, Outcome, TopicImage

if TYPE_CHECKING:
    from kadence.broker.cluster import Cluster, Topic
    from kadence.broker.service import Call

__all__ = ["ClusterTopics", "Coordination"]


class Coordination:
    """The shell of `GroupCoordinator`. The broker's thread owns it.

    Args:
        new_id: as for `GroupCoordinator`; None: its own.
    """

    __slots__ = ("coordinator",)

    def __init__(
        self, config: CoordinatorConfig, cluster: Cluster, *, new_id: Callable[[], str] | None = None
    ) -> None:
        self.coordinator = GroupCoordinator(
            config, topics=ClusterTopics(cluster), new_id=new_id, wall=lambda _now: wall_ms()
        )

    def serve(self, call: Call, amend: Callable[[Any], None] | None = None) -> None:
        """Let the coordinator serve the call, and whoever else it has an answer for.

        Args:
            amend: what the broker adds to this call's answer, if it is answered at once.
        """
        outcome = self.coordinator.handle(call.now, call.caller(), call.message)
        if amend is not None:
            for answer in outcome.answers:
                if answer.caller.ticket is call:
                    amend(answer.response)
        self._settle(outcome)

    def poll(self, now: int) -> None:
        """Fire the coordinator's timers that are due."""
        if self.coordinator.next_deadline() <= now:
            self._settle(self.coordinator.poll(now))

    def next_deadline(self) -> int:
        return self.coordinator.next_deadline()

    def topic_deleted(self, now: int, topic: str) -> None:
        """Offsets in ``topic`` go."""
        self._settle(self.coordinator.topic_deleted(now, topic))

    def _settle(self, outcome: Outcome) -> None:
        """Send the answers to those who wait for them."""
        for answer in outcome.answers:
            answer.caller.ticket.reply(answer.response)


class ClusterTopics:
    """The broker's topics, as the coordinator asks for them. All nodes are in one place, so there are no racks."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.topics_version

    def by_name(self, name: str) -> TopicImage | None:
        return _image(self._cluster.topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        return _image(self._cluster.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        return self._cluster.topics.keys()


def _image(topic: Topic | None) -> TopicImage | None:
    return None if topic is None else TopicImage(topic.name, topic.topic_id, len(topic.partitions))
