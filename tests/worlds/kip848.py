"""One KIP-848 member with its managers, its broker played by hand, and an application that obeys the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worlds.cluster import id_of
from tests.worlds.hand import START, Hand, Managers
from tests.worlds.members import Member

from kadence.connection.request import Request
from kadence.consumer.group.member_states import State
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.types import Node, TopicPartition

NOW = START
INTERVAL = 1_000


class Bench:
    """One member's managers, and an application that runs callbacks when the test says so."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        self.player = Member("m", topics or {"t": 4}, protocol="consumer", **config)
        self.member = self.player.membership
        self.config = self.player.config
        self.metadata = self.player.metadata
        self.progress = self.player.progress
        self.background_events = self.player.background_events
        self.subscription = self.player.subscription
        self.coordinator = self.player.coordinator
        self.heartbeat = self.player.heartbeat
        # Without the coordinator's own manager: the test says whether the coordinator is known.
        asked = Managers(self.heartbeat, self.member)
        self._hand = Hand(asked, version=1)
        self.owners = asked.owners
        self.fail = self._hand.fail
        self.find()

    @property
    def now(self) -> int:
        return self._hand.now

    @now.setter
    def now(self, now: int) -> None:
        self._hand.now = now

    def find(self) -> None:
        """The coordinator is known, newly if it was not."""
        if self.coordinator.node is None:
            self.coordinator.node, self.coordinator.found_at = Node(7, "b7", 9092), self.now

    def subscribe(self, *topics: str) -> None:
        self.subscription.subscribe(frozenset(topics), None, has_listener=False)
        self.subscription.mark_revoking(p for p in self.subscription.assigned if p.topic not in topics)
        self.member.subscription_changed(self.now)
        self.member.polled(self.now)

    def sent(self) -> list[Any]:
        """What goes out now."""
        return [request for _ in range(3) for request in self._hand.turn()]

    def beat(self) -> Request:
        """The one heartbeat that is due, whenever that is."""
        for _ in range(5):
            if requests := self.sent():
                (request,) = requests
                assert isinstance(request, Request)
                return request
            self.now = self._hand.wake_at()
        raise AssertionError("no heartbeat")

    def answer(
        self,
        request: Request,
        epoch: int = 1,
        assigned: Mapping[Any, list[int]] | None = None,
        code: int = 0,
    ) -> None:
        assignment = None
        if assigned is not None:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=t if isinstance(t, bytes) else id_of(t), partitions=numbers)
                    for t, numbers in assigned.items()
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id=request.message.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL,
            assignment=assignment,
        )
        self._hand.answer(request, response)

    def serve(self) -> list[tuple[str, list[TopicPartition]]]:
        """Run the callbacks that wait; returns them."""
        return [(kind, list(partitions)) for kind, partitions in self.player.run_callbacks(self.now)]

    def settle(self, *numbers: int) -> None:
        """Join, own these partitions of t, and have said so."""
        self.subscribe("t")
        self.answer(self.beat(), 1, {"t": list(numbers)})
        self.answer(self.beat(), 1)
        self.serve()
        assert self.state() is State.STABLE

    def state(self) -> State:
        state: State = self.member.state
        return state

    def of(self, kind: type[Any]) -> list[Any]:
        return self.background_events.of(kind)

    @property
    def owned(self) -> list[TopicPartition]:
        return self.player.owned

    @property
    def causes(self) -> list[str]:
        return self.background_events.causes


def said(request: Request) -> dict[str, Any]:
    """What a heartbeat says beside its identity."""
    message = request.message
    told = {
        "rebalance_timeout_ms": message.rebalance_timeout_ms if message.rebalance_timeout_ms >= 0 else None,
        "topics": message.subscribed_topic_names,
        "assignor": message.server_assignor,
        "owned": message.topic_partitions and {t.topic_id: t.partitions for t in message.topic_partitions},
    }
    return {name: value for name, value in told.items() if value is not None}


def own(*numbers: int) -> dict[bytes, list[int]]:
    return {id_of("t"): list(numbers)}
