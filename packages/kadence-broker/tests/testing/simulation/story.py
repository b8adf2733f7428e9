"""One random run: a group of some kind, random trouble, and then a quiet end after which all must be processed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.trouble import Trouble

from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.sync_group import SyncGroupRequest
from kadence_testing.simulation.members import member, transformer, writer
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kadence.records import Record
    from kadence_testing.simulation.simulation import Main, Program

__all__ = ["Story"]

_STRATEGIES: Final = ("cooperative-sticky", "range", "sticky", "roundrobin")
_UPGRADES: Final = (
    ("cooperative-sticky", "range"),
    ("cooperative-sticky", "sticky"),
    ("sticky", "roundrobin"),
)
"""What members offer in the middle of a rolling upgrade: the new assignor before the old one (KIP-429)."""

_CLASSIC: Final[tuple[type[Any], ...]] = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
)
_OUTPUTS: Final = "v"
"""The topic of those that make something of the records, exactly once."""
_REST_S: Final = 900
_MAX_POLL_MS: Final = 60_000
_BUSY_S: Final = (2, 20, 90)
"""The longest is beyond max.poll.interval.ms."""


class Story:
    """Members of one group, a writer and random trouble; the seed decides everything.

    With some seeds a second group writes an output of each record to another topic, exactly once.

    Attributes:
        trouble: what happened to the programs and the network. title: what kind of group it was.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self._rng = rng
        topics = {"t": rng.randint(1, 6), "u": rng.randint(1, 3)}
        nodes = rng.choice([1, 1, 3])
        protocol = rng.choice(["classic", "consumer", "mixed"])
        # Only later versions of JoinGroup know static members.
        self._is_old = protocol == "classic" and rng.random() < 0.3
        versions = {each: rng.randint(0, each.MAX_VERSION) for each in _CLASSIC} if self._is_old else {}
        transforms = rng.choice([0, 0, 0, 1, 2])
        outputs = {_OUTPUTS: rng.randint(1, 3)} if transforms else {}
        self.simulation = Simulation(seed, nodes=nodes, topics={**topics, **outputs}, versions=versions)
        names = [f"member{number}" for number in range(rng.randint(1, 4))]
        # Groups that members of both protocols share are migrated as they come and go.
        strategies: tuple[str, ...] = (rng.choice(_STRATEGIES[:2] if protocol == "mixed" else _STRATEGIES),)
        if protocol == "classic" and rng.random() < 0.4:
            strategies = rng.choice(_UPGRADES)
        for number, name in enumerate(names):
            speaks = rng.choice(["classic", "consumer"]) if protocol == "mixed" else protocol
            config = {
                "group.protocol": speaks,
                "max.poll.interval.ms": _MAX_POLL_MS,
                "client.rack": rng.choice(["", "r1"]),
            }
            if not self._is_old and rng.random() < 0.3:
                config["group.instance.id"] = f"i{number}"
            self.simulation.start(name, self._member(topics, strategies, config))
        self._groups = [names]
        if transforms:
            self._groups.append([f"transformer{number}" for number in range(transforms)])
            for name in self._groups[-1]:
                speaks = rng.choice(["classic", "consumer"]) if protocol == "mixed" else protocol
                config = {"group.protocol": speaks, "max.poll.interval.ms": _MAX_POLL_MS}
                pause_s = rng.choice([0.0, 0.1, 3.0])
                self.simulation.start(name, transformer("w", topics, _OUTPUTS, config, pause_s=pause_s))
        self.simulation.start("writer", writer(topics, rng.randint(20, 150), rng.choice([0.02, 0.3])))
        self._is_cooperative = (protocol, strategies) == ("classic", _STRATEGIES[:1])
        self._is_peaceful = rng.random() < 0.2
        self.trouble = Trouble(
            self.simulation,
            [name for group in self._groups for name in group],
            topics=topics,
            busy_s=_BUSY_S,
            peaceful=self._is_peaceful,
        )
        self.title = (
            f"{protocol} ({', '.join(strategies)}), {len(names)} members, {nodes} nodes, topics {topics}"
            f"{f', {transforms} transformers' if transforms else ''}"
            f"{', old versions' if self._is_old else ''}{', peaceful' if self._is_peaceful else ''}"
        )

    def run(self) -> None:
        """Run it to its end.

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
                simulation.run_until(self._is_at_rest, _REST_S)
                simulation.check()
                self._look_at_causes()
            except SimulationError as error:
                raise SimulationError("\n  ".join([str(error), self.title, *self.trouble.told])) from error

    def _member(
        self, topics: Mapping[str, int], strategies: tuple[str, ...], config: Mapping[str, object]
    ) -> Main:
        handler = _Sleeper(self._rng.choice([0.0, 0.01, 0.2]))
        commits = self._rng.random() < 0.5

        async def main(program: Program) -> None:
            # Each time that it is started it may be the upgraded one, which offers the old assignor, too, or not yet.
            offers = strategies if program.rng.random() < 0.5 else strategies[-1:]
            more = (
                {"partition.assignment.strategy": ",".join(offers)}
                if config["group.protocol"] == "classic"
                else {}
            )
            await member("g", topics, handler, {**config, **more}, commits=commits)(program)

        return main

    def _is_processed(self) -> bool:
        history = self.simulation.history
        return history.outputs.are_complete(self.simulation.broker.core) and all(
            offsets.keys() <= history.processed.get(("g", partition), set())
            for partition, offsets in history.acknowledged.items()
            if partition.topic != _OUTPUTS
        )

    def _is_at_rest(self) -> bool:
        """Every member has what its listener was told, and between them those of a group have everything."""
        topics = self.simulation.broker.core.cluster.topics
        everything = sum(len(topics[name].partitions) for name in ("t", "u"))
        for names in self._groups:
            programs = [self.simulation.programs[name] for name in names]
            owned = [partition for program in programs for partition in program.owned]
            if not len(owned) == len(set(owned)) == everything:
                return False
            if any(program.owned != program.held for program in programs):
                return False
        return True

    def _look_at_causes(self) -> None:
        """Where nothing broke and classic members gave up only what moved, nobody was thrown out."""
        if not (self._is_peaceful and self._is_cooperative):
            return
        for program in self.simulation.programs.values():
            for rebalance in program.consumer.rebalances() if program.consumer is not None else ():
                if rebalance.cause.startswith("session lost"):
                    raise SimulationError(
                        f"seed {self.simulation.seed}: {program.name} lost its session, and nothing broke: "
                        f"{rebalance.cause}"
                    )


class _Sleeper:
    """A handler that takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, program: Program, record: Record) -> None:
        del record
        await asyncio.sleep(self._seconds * 2 * program.rng.random())
