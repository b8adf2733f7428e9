"""Short words for tests that play a group in a simulation: members that only poll, and what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kadence import AsyncConsumer, Record, TopicPartition
from kadence.consumer.events import Rebalance
from kadence.consumer.shared_partition import NotFetchedReason
from kadence_broker.coordinator import ClassicGroup
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_testing.simulation import Program, Simulation, member

__all__ = ["Group", "causes", "flowing", "order", "partitions", "rebalances", "revoked", "work"]

_MOMENT_S = 0.2


class Group(Simulation):
    """A simulation of one group, ``g``, that reads topics in which there are no records unless a test writes some.

    Args:
        protocol: what its members speak, unless they are told otherwise.
    """

    def __init__(self, topics: dict[str, int], *, protocol: str = "classic", **more: Any) -> None:
        super().__init__(1, topics=topics, **more)
        self._protocol = protocol
        self.read_topics = dict(topics)

    @property
    def coordinated(self) -> Any:
        """The group as the coordinator has it: `ClassicGroup`, `ConsumerGroup`."""
        group = self.broker.core.coordination.coordinator.groups["g"]
        assert isinstance(group, ClassicGroup | ConsumerGroup)
        return group

    @property
    def members(self) -> list[Program]:
        """Those that run."""
        return [program for program in self.programs.values() if program.is_running]

    def member(self, name: str, topics: Iterable[str] = ("t",), **config: Any) -> Program:
        """Start a member; settings as of `kadence.ConsumerConfig`, with underscores."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return self.start(name, member("g", topics, _ignore, {"group.protocol": self._protocol, **settings}))

    def is_settled(self) -> bool:
        """Everybody has been told what it owns, and between them they own everything."""
        if "g" not in self.broker.core.coordination.coordinator.groups:
            return False
        owned = sorted(partition for program in self.members for partition in program.owned)
        return (
            all(program.owned == program.held == flowing(program) for program in self.members)
            and owned
            == [TopicPartition(t, n) for t in sorted(self.read_topics) for n in range(self.read_topics[t])]
            and len(self.coordinated.members) == len(self.members)
            and self.coordinated.state_name == "Stable"
        )

    def settle(self, seconds: float = 30) -> float:
        """Let time pass until it is, and stays so for a moment. Returns how many seconds that took."""
        since = self.now
        while True:
            self.run_until(self.is_settled, seconds)
            took = self.now - since
            # Between the two rounds of a cooperative rebalance all is quiet, too, until the first one gives up.
            self.run(_MOMENT_S)
            if self.is_settled():
                return took

    def until(self, condition: Callable[[], bool], seconds: float = 120) -> float:
        """Let time pass until it holds. Returns how many seconds that took."""
        since = self.now
        self.run_until(condition, seconds)
        return self.now - since

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic gets more partitions."""
        cluster = self.broker.core.cluster
        cluster.add_partitions(cluster.topics[topic], count)
        self.read_topics[topic] = count

    def observe(self, request: type[Any], program: Program | None = None) -> Any:
        """Requests of this kind that the broker gets from now on, of everybody or of one member."""
        of = None if program is None else f"{program.name}-"
        return self.broker.core.faults.observe(
            request, where=lambda call: of is None or call.client_id.startswith(of)
        )


async def _ignore(program: Program, record: Record) -> None:
    """Process a record in no time."""


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def flowing(program: Program) -> frozenset[TopicPartition]:
    """What it owns and is not giving up."""
    if program.consumer is None:
        return frozenset()
    waiting = program.consumer.not_fetched()
    return frozenset(
        each
        for each in program.owned
        if each not in waiting or waiting[each].reason is not NotFetchedReason.REVOKING
    )


def rebalances(program: Program) -> list[Rebalance]:
    return [] if program.consumer is None else list(program.consumer.rebalances())


def causes(program: Program) -> list[str]:
    return [each.cause for each in rebalances(program)]


def revoked(program: Program) -> list[frozenset[TopicPartition]]:
    """What its listener was told to give up, call by call."""
    return [frozenset(told.partitions) for told in program.told if told.kind == "revoked"]


def order(program: Program, action: Callable[[AsyncConsumer], Any]) -> None:
    """Have the program do something with its consumer that need not be awaited."""

    async def act(consumer: AsyncConsumer) -> None:
        action(consumer)

    program.order(act)


def work(group: Simulation, program: Program, seconds: float) -> None:
    """Have the program process, and not poll, for so long, from now on."""
    begun = False

    async def busy(consumer: AsyncConsumer) -> None:
        nonlocal begun
        begun = True
        await asyncio.sleep(seconds)

    program.order(busy)
    group.run_until(lambda: begun, 5)
