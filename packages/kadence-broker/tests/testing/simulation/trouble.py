"""Random trouble for a simulation: to programs, brokers and the network, by the simulation's seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from kadence.consumer.async_consumer import AsyncConsumer
    from kadence_broker.faults import Injected
    from kadence_testing.simulation.simulation import Action, Program, Simulation

__all__ = ["Trouble"]

_CALM_DELAY_MS: Final = (0, 2)

_REFUSALS: Final[dict[type[Any], list[int]]] = {
    HeartbeatRequest: [
        codes.NOT_COORDINATOR,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.REBALANCE_IN_PROGRESS,
        codes.UNKNOWN_MEMBER_ID,
    ],
    ConsumerGroupHeartbeatRequest: [
        codes.NOT_COORDINATOR,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.FENCED_MEMBER_EPOCH,
        codes.UNKNOWN_MEMBER_ID,
    ],
}


class Trouble:
    """Call `happen` as often as you like, let time pass in between, then `end` it.

    Args:
        programs: the programs that it may happen to, by name.
        topics: the topics to which programs made by `member` may change their subscriptions. At the end they read
            all of them.
        busy_s: how many seconds the handlers of such programs may take. Longer than max.poll.interval.ms, and they
            lose their membership.
        peaceful: only changes that programs make themselves happen; nothing breaks.

    Attributes:
        told: what has happened, one line each, with the time.
    """

    def __init__(
        self,
        simulation: Simulation,
        programs: list[str],
        *,
        topics: Iterable[str] = (),
        busy_s: Iterable[float] = (5, 40),
        peaceful: bool = False,
    ) -> None:
        self._simulation = simulation
        self._names = programs
        self._rng = simulation.new_rng()
        self._topics = sorted(topics)
        self._busy_s = list(busy_s)
        self._is_peaceful = peaceful
        self._refused: list[Injected] = []
        self.told: list[str] = []

    def __repr__(self) -> str:
        return f"<trouble: {len(self.told)} things happened>"

    def happen(self) -> None:
        """Cause one random trouble."""
        kinds: list[tuple[Callable[[], str], int]] = [
            (self._stop, 2),
            (self._restart, 4),
            (self._work, 3),
            (self._rebalance, 1),
        ]
        if self._topics:
            kinds.append((self._subscribe, 2))
        if not self._is_peaceful:
            kinds += self._breaks()
        act = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.told.append(f"{self._simulation.now:9.3f} s  {act()}")

    def _breaks(self) -> list[tuple[Callable[[], str], int]]:
        return [
            (self._kill, 3),
            (self._freeze, 3),
            (self._cut, 3),
            (self._reset, 3),
            (self._slow_down, 2),
            (self._crash_broker, 2),
            (self._freeze_broker, 1),
            (self._move, 2),
            (self._refuse, 2),
        ]

    def end(self) -> None:
        """End all trouble: everything works again, and every program runs."""
        simulation = self._simulation
        simulation.network.heal()
        simulation.network.delay_ms = _CALM_DELAY_MS
        if not simulation.broker.is_up:
            simulation.broker.restart()
        simulation.broker.process.thaw()
        for injected in self._refused:
            injected.remove()
        for name in self._names:
            program = simulation.programs[name]
            program.thaw()
            if program.stopping.is_set():
                self._before_kill(program)
                program.kill()
            if not program.is_running:
                program.restart()
            if self._topics:
                program.order(self._subscribed(program, self._topics))
        self.told.append(f"{simulation.now:9.3f} s  all is well again")

    # What may happen; each tells it.

    def _kill(self) -> str:
        program = self._anybody()
        self._before_kill(program)
        silently = self._rng.random() < 0.3
        program.kill(silently=silently)
        return f"{program.name} is killed{', silently' if silently else ''}"

    def _before_kill(self, program: Program) -> None:
        """For those who look at what it has done."""

    def _stop(self) -> str:
        program = self._anybody()
        program.stop()
        return f"{program.name} gets SIGTERM"

    def _restart(self) -> str:
        simulation = self._simulation
        if not simulation.broker.is_up:
            simulation.broker.restart()
            return "the broker starts again"
        down = [name for name in self._names if not simulation.programs[name].is_running]
        if not down:
            return "nothing"
        name = self._rng.choice(down)
        simulation.programs[name].restart()
        return f"{name} starts again"

    def _work(self) -> str:
        program, seconds = self._anybody(), self._rng.choice(self._busy_s)

        async def work(consumer: AsyncConsumer) -> None:
            del consumer
            await asyncio.sleep(seconds)

        program.order(work)
        return f"{program.name} will not poll for {seconds} s"

    def _rebalance(self) -> str:
        program = self._anybody()

        async def rebalance(consumer: AsyncConsumer) -> None:
            consumer.enforce_rebalance("trouble")

        program.order(rebalance)
        return f"{program.name} will ask for a rebalance"

    def _subscribe(self) -> str:
        program = self._anybody()
        topics = self._rng.sample(self._topics, self._rng.randint(1, len(self._topics)))
        program.order(self._subscribed(program, topics))
        return f"{program.name} will subscribe to {', '.join(topics)}"

    def _subscribed(self, program: Program, topics: list[str]) -> Action:
        async def subscribe(consumer: AsyncConsumer) -> None:
            await consumer.subscribe(topics, listener=program.listener)

        return subscribe

    def _refuse(self) -> str:
        broker = self._simulation.broker
        if not broker.is_up:
            return "nothing"
        request = self._rng.choice(list(_REFUSALS))
        code, times = self._rng.choice(_REFUSALS[request]), self._rng.choice([1, 1, 4])
        self._refused.append(broker.core.faults.error(request, code, times=times))
        return f"{times} x {request.__name__} will be refused with {code}"

    def _freeze(self) -> str:
        program, seconds = self._anybody(), self._rng.choice([0.5, 3, 12, 50])
        program.freeze(seconds)
        return f"{program.name} is frozen for {seconds} s"

    def _cut(self) -> str:
        program, seconds = self._anybody(), self._rng.choice([0.5, 3, 12, 50])
        simulation = self._simulation
        simulation.network.cut(program.name)
        simulation.later(seconds, lambda: simulation.network.heal(program.name))
        return f"{program.name} reaches nobody for {seconds} s"

    def _reset(self) -> str:
        program = self._anybody()
        self._simulation.network.reset(program.name)
        return f"{program.name} loses its connections"

    def _slow_down(self) -> str:
        network = self._simulation.network
        network.delay_ms = self._rng.choice([_CALM_DELAY_MS, (0, 20), (5, 300), (0, 2_000)])
        return f"the network takes {network.delay_ms[0]} to {network.delay_ms[1]} ms"

    def _crash_broker(self) -> str:
        simulation = self._simulation
        if not simulation.broker.is_up:
            return "nothing"
        simulation.broker.crash()
        if self._rng.random() < 0.7:
            seconds = self._rng.choice([0.1, 2, 15])
            simulation.later(
                seconds, lambda: None if simulation.broker.is_up else simulation.broker.restart()
            )
            return f"the broker crashes, to start again after {seconds} s"
        return "the broker crashes"

    def _freeze_broker(self) -> str:
        process, seconds = self._simulation.broker.process, self._rng.choice([0.2, 2, 8])
        process.freeze(self._simulation.scheduler.now_ms() + round(seconds * 1000))
        return f"the broker is frozen for {seconds} s"

    def _move(self) -> str:
        broker = self._simulation.broker
        if not broker.is_up:
            return "nothing"
        topic = self._rng.choice(list(broker.core.cluster.topics.values()))
        partition = self._rng.choice(topic.partitions)
        node = self._rng.choice(sorted(broker.core.cluster.nodes))
        broker.core.lead(partition, node)
        return f"node {node} leads {topic.name}-{partition.index}"

    def _anybody(self) -> Program:
        return self._simulation.programs[self._rng.choice(self._names)]
