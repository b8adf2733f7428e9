"""One random history: a group of some kind, under trouble, and the end of it, when all must be well again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from kadence.testing.simulation.members import member, writer
from kadence.testing.simulation.scheduler import SimulationError
from kadence.testing.simulation.simulation import Simulation
from kadence.testing.simulation.trouble import Trouble

if TYPE_CHECKING:
    from kadence.records import Record
    from kadence.testing.simulation.simulation import Program

__all__ = ["Story"]

_STRATEGIES: Final = ("cooperative-sticky", "range", "sticky", "roundrobin")
_REST_S: Final = 900


class Story:
    """Members of one group, writers, and trouble; everything is drawn from the seed.

    Attributes:
        trouble: what happened to them. title: what kind of group it was.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self._rng = rng
        topics = {"t": rng.randint(1, 6), "u": rng.randint(1, 3)}
        nodes = rng.choice([1, 1, 3])
        protocol = rng.choice(["classic", "consumer", "mixed"])
        self.simulation = Simulation(seed, nodes=nodes, topics=topics)
        names = [f"member{number}" for number in range(rng.randint(1, 4))]
        # Groups that members of both protocols share are migrated as they come and go.
        strategy = rng.choice(_STRATEGIES[:2] if protocol == "mixed" else _STRATEGIES)
        for number, name in enumerate(names):
            speaks = rng.choice(["classic", "consumer"]) if protocol == "mixed" else protocol
            config: dict[str, object] = {"group.protocol": speaks, "max.poll.interval.ms": 60_000}
            if speaks == "classic":
                config["partition.assignment.strategy"] = strategy
            if rng.random() < 0.3:
                config["group.instance.id"] = f"i{number}"
            handler = _Sleeper(rng.choice([0.0, 0.01, 0.2]))
            self.simulation.start(name, member("g", topics, handler, config, commits=rng.random() < 0.5))
        self.simulation.start("writer", writer(topics, rng.randint(20, 150), rng.choice([0.02, 0.3])))
        self.trouble = Trouble(self.simulation, names)
        self.title = f"{protocol} ({strategy}), {len(names)} members, {nodes} nodes, topics {topics}"

    def run(self) -> None:
        """Live through it.

        Raises:
            SimulationError: an invariant does not hold, a program raised, or not all is processed in the end.
        """
        with self.simulation as simulation:
            try:
                for _ in range(self._rng.randint(2, 15)):
                    simulation.run(self._rng.choice([0.05, 0.5, 2, 10, 40]))
                    self.trouble.happen()
                self.trouble.end()
                simulation.run_until(lambda: simulation.programs["writer"].is_done, _REST_S)
                simulation.run_until(self._is_processed, _REST_S)
                simulation.check()
            except SimulationError as error:
                raise SimulationError("\n  ".join([str(error), self.title, *self.trouble.told])) from error

    def _is_processed(self) -> bool:
        history = self.simulation.history
        return all(
            offsets.keys() <= history.processed.get(("g", partition), set())
            for partition, offsets in history.acknowledged.items()
        )


class _Sleeper:
    """A handler that takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, program: Program, record: Record) -> None:
        del record
        await asyncio.sleep(self._seconds * 2 * program.rng.random())
