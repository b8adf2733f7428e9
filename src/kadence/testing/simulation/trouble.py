"""Random trouble for a simulation: what happens to programs, brokers and wires, by the simulation's seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kadence.testing.simulation.simulation import Program, Simulation

__all__ = ["Trouble"]

_CALM_DELAY_MS: Final = (0, 2)


class Trouble:
    """Call `happen` as often as you like, let time pass in between, then `end` it.

    Args:
        programs: whom it may befall, by name.

    Attributes:
        told: what has happened, a line each with its time.
    """

    def __init__(self, simulation: Simulation, programs: list[str]) -> None:
        self._simulation = simulation
        self._names = programs
        self._rng = simulation.new_rng()
        self.told: list[str] = []

    def __repr__(self) -> str:
        return f"<trouble: {len(self.told)} things happened>"

    def happen(self) -> None:
        """Let one thing happen."""
        kinds: list[tuple[Callable[[], str], int]] = [
            (self._kill, 3),
            (self._stop, 2),
            (self._freeze, 3),
            (self._cut, 3),
            (self._reset, 3),
            (self._slow_down, 2),
            (self._crash_broker, 2),
            (self._freeze_broker, 1),
            (self._move, 2),
            (self._restart, 4),
        ]
        act = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.told.append(f"{self._simulation.now:9.3f} s  {act()}")

    def end(self) -> None:
        """Everything works again, and every program runs."""
        simulation = self._simulation
        simulation.network.heal()
        simulation.network.delay_ms = _CALM_DELAY_MS
        if not simulation.broker.is_up:
            simulation.broker.restart()
        simulation.broker.process.thaw()
        for name in self._names:
            program = simulation.programs[name]
            program.thaw()
            if program.stopping.is_set():
                program.kill()
            if not program.is_running:
                program.restart()
        self.told.append(f"{simulation.now:9.3f} s  all is well again")

    # What may happen; each tells it.

    def _kill(self) -> str:
        program = self._anybody()
        silently = self._rng.random() < 0.3
        program.kill(silently=silently)
        return f"{program.name} is killed{', silently' if silently else ''}"

    def _stop(self) -> str:
        program = self._anybody()
        program.stop()
        return f"{program.name} is told to stop"

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
        process.freeze()
        self._simulation.later(seconds, process.thaw)
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
