"""One KIP-848 member with its managers, its broker played by hand, and an application that obeys the test."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.consumer.managers.driver import FakeMetadata, id_of

from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.border import messages as m
from kadence.consumer.border.progress import Progress
from kadence.consumer.managers.consumer_protocol import ConsumerMembership
from kadence.consumer.managers.consumer_states import State
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.heartbeat import HeartbeatManager
from kadence.consumer.state.subscription import Subscription
from kadence.errors import KafkaError
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.types import Node, TopicPartition

NOW = 1_000_003
INTERVAL = 1_000


class Bench:
    """One member's managers, and an application that runs callbacks when the test says so."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        self.now = NOW
        self.config = ConsumerConfig(**{"group_id": "g", "group_protocol": "consumer", **config})
        self.metadata = FakeMetadata(topics or {"t": 4})
        self.progress = Progress()
        self.facts: list[m.Fact] = []
        self.subscription = Subscription()
        self.coordinator = CoordinatorManager("g", self.config, self.facts.append)
        self.find()
        ids = itertools.count(1)
        self.member = ConsumerMembership(
            self.coordinator,
            self.subscription,
            self.metadata,
            self.config,
            self.facts.append,
            lambda: f"m{next(ids)}",
        )
        self.heartbeat = HeartbeatManager(
            self.coordinator, self.member, self.progress, self.config, self.facts.append
        )
        self.owners: dict[Request, Any] = {}
        self.served = 0

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
        requests: list[Request] = []
        for _ in range(3):
            for manager in (self.heartbeat, self.member):
                new = manager.poll(self.now).requests
                self.owners |= dict.fromkeys(new, manager)
                requests += new
        return requests

    def beat(self) -> Request:
        """The one heartbeat that is due, whenever that is."""
        for _ in range(5):
            if requests := self.sent():
                (request,) = requests
                assert isinstance(request, Request)
                return request
            self.now = min(manager.poll(self.now).wake_at for manager in (self.heartbeat, self.member))
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
        self.owners.pop(request).on_response(self.now, Completed(request, response, None, 1, self.now))

    def fail(self, request: Request, error: KafkaError) -> None:
        self.owners.pop(request).on_response(self.now, Completed(request, None, error, -1, self.now))

    def serve(self) -> list[tuple[str, list[TopicPartition]]]:
        """Run the callbacks that wait; returns them."""
        ran = []
        while self.served < len(self.facts):
            fact = self.facts[self.served]
            self.served += 1
            if isinstance(fact, m.CallbackNeeded):
                ran.append((type(fact).__name__, list(fact.partitions)))
                self.member.callback_done(self.now, fact.id, None)
        return ran

    def settle(self, *numbers: int) -> None:
        """Join, own these partitions of t, and have said so."""
        self.subscribe("t")
        self.answer(self.beat(), 1, {"t": list(numbers)})
        self.answer(self.beat(), 1)
        self.serve()
        assert self.state() is State.STABLE

    def state(self) -> State:
        return self.member.state

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def owned(self) -> list[TopicPartition]:
        return sorted(self.subscription.partitions)

    @property
    def causes(self) -> list[str]:
        return [fact.rebalance.cause for fact in self.of(m.RebalanceFinished)]


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
