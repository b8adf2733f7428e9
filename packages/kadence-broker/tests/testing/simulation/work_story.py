"""One random run of `process`: members of a group that handle records, trouble, and then a quiet end.

Records say in their values what becomes of them: they succeed, succeed with an output, fail at the first attempts or
take too long at them, or fail always. In some stories handlers get batches, which are halved or not. The `Journal`
looks at every attempt and every commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.journal import OF_STOPPED, Attempt, Journal, makes_output, must_fail
from tests.testing.simulation.trouble import Trouble

from kadence.consumer.async_consumer import AsyncConsumer
from kadence.errors import (
    FencedInstanceIdError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    UnreleasedInstanceIdError,
)
from kadence.work import Context, ProducerRecord, Retry
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.simulation import Simulation

if TYPE_CHECKING:
    from kadence.records import Record
    from kadence_testing.simulation.simulation import Program

__all__ = ["WorkStory"]

_TOPIC: Final = "t"
_AGAIN: Final = "again"
_DEAD: Final = "dead"
_OUT: Final = "out"
_GROUP: Final = "g"
_REST_S: Final = 900
_PAUSE_S: Final = 5.0
_FATES: Final = ("ok", "out", "fails", "slow", "bad")
_WEIGHTS: Final = (12, 3, 3, 1, 1)


class _FailureError(Exception):
    """What a handler raises."""


class _StoppedError(Exception):
    """What a handler raises that was told that its partition goes."""


class _WorkTrouble(Trouble):
    """Trouble for members that run `process`. ``kills``: they are killed and started again, and nothing else breaks."""

    def __init__(self, simulation: Simulation, programs: list[str], journal: Journal, *, kind: str) -> None:
        super().__init__(simulation, programs, busy_s=(0,), peaceful=kind == "peaceful")
        self._journal = journal
        self._kind = kind

    def _breaks(self) -> list[Any]:
        # More often than elsewhere: it is what this is about.
        return [(self._kill, 10)] if self._kind == "kills" else [*super()._breaks(), (self._kill, 5)]

    def _before_kill(self, program: Program) -> None:
        self._journal.is_killed(program, calm=self._kind == "kills")


class WorkStory:
    """Members that run `process`, a writer and random trouble; the seed decides everything.

    Args:
        transactional: they commit in transactions (`process(transactional_id=)`).

    Attributes:
        journal: the account of the records. trouble: what happened. title: what kind of group it was.
    """

    def __init__(self, seed: int, *, transactional: bool = False) -> None:
        self._transactional = transactional
        rng = self._rng = random.Random(seed)
        self._kind = rng.choice(["peaceful", "kills", "kills", "any", "any", "any", "any"])
        self._order = rng.choice(["key", "key", "key", "partition", "none"])
        self._timeout = rng.choice([None, 1.0, 4.0])
        attempts = rng.choice([1, 2, 3])
        again = _AGAIN if rng.random() < 0.3 else None
        self._retry = Retry(attempts, backoff=rng.choice([0.01, 0.3, 2.0]), topic=again)
        self._slowness = rng.choice([0.0, 0.02, 0.2])
        self._keys = rng.randint(1, 12)
        self._commit_ms = rng.choice([100, 500, 3_000])
        self._arguments: dict[str, Any] = {
            "workers": rng.choice([1, 3, 16]),
            "order": self._order,
            "retry": self._retry,
            "dead_letter": _DEAD,
            "timeout": self._timeout,
            "max_records": rng.choice([3, 20, 200]),
            "drain": rng.choice([0.0, 1.0, 5.0]),
        }
        # Chance of its own: the stories without batches stay as they are.
        batches = random.Random(f"batches of {seed}")
        self._in_batches = batches.random() < 0.3
        if self._in_batches:
            self._arguments["batch"] = batches.choice([2, 5, 50]), batches.choice([0.0, 0.1, 1.0])
            self._arguments["halve"] = batches.random() < 0.5
        # As above: whose handlers look whether their partition goes, and what they do then.
        self._looks = random.Random(f"looks of {seed}")
        self._look_share = self._looks.choice([0.0, 0.5, 1.0])
        protocol = rng.choice(["classic", "consumer"])
        strategy = rng.choice(["cooperative-sticky", "range"])
        topics = {_TOPIC: rng.randint(1, 4), _DEAD: 1, _OUT: rng.randint(1, 2)}
        if again is not None:
            topics[_AGAIN] = rng.randint(1, 2)
        self.simulation = Simulation(seed, nodes=rng.choice([1, 1, 3]), topics=topics)
        self.journal = Journal(
            self.simulation,
            _GROUP,
            order=self._order,
            attempts=attempts,
            topic=_TOPIC,
            again=again,
            dead=_DEAD,
            out=_OUT,
            commit_ms=self._commit_ms,
            halves=self._arguments.get("halve", False),
            transactional=transactional,
            in_batches=self._in_batches,
        )
        names = [f"member{number}" for number in range(rng.randint(1, 3))]
        for number, name in enumerate(names):
            settings: dict[str, Any] = {
                "group.protocol": protocol,
                "max.poll.interval.ms": 60_000,
                "auto.commit.interval.ms": self._commit_ms,
                "isolation.level": "read_committed" if transactional else "read_uncommitted",
            }
            if protocol == "classic":
                settings["partition.assignment.strategy"] = strategy
                settings["session.timeout.ms"] = rng.choice([6_000, 45_000])
            if rng.random() < 0.4:
                settings["group.instance.id"] = f"i{number}"
            self.simulation.start(name, self._member(settings))
        self.simulation.start("writer", self._writer(rng.randint(20, 120), rng.choice([0.005, 0.05, 0.3])))
        self.trouble = _WorkTrouble(self.simulation, names, self.journal, kind=self._kind)
        how = "in transactions, " if transactional else ""
        protocol = f"{protocol} {strategy}" if protocol == "classic" else protocol
        self.title = (
            f"seed {seed}, {how}{self._kind}: {protocol}, {len(names)} members, {topics}, {self._arguments}, "
            f"{self._keys} keys, commits every {self._commit_ms} ms"
        )

    def run(self) -> None:
        """Run it to its end.

        Raises:
            SimulationError: an invariant does not hold, a program raised, or not all is done in the end.
        """
        with self.simulation as simulation:
            try:
                for _ in range(self._rng.randint(2, 12)):
                    simulation.run(self._rng.choice([0.05, 0.5, 2, 6, 20]))
                    self.trouble.happen()
                self.trouble.end()
                simulation.run_until(lambda: simulation.programs["writer"].is_done, _REST_S)
                simulation.run_until(self.journal.is_complete, _REST_S)
                simulation.check()
                # At the end of all trouble a program is killed that was just told to stop, in peaceful stories, too.
                is_unhurt = self._kind == "peaceful" and not self.journal.kills
                # Otherwise what a handler has returned, and is on its way, is not waited for.
                drains = self._arguments["drain"] > 0
                self.journal.check(exactly=drains and is_unhurt, calm=drains and self._kind != "any")
            except SimulationError as error:
                told = "\n  ".join([str(error), self.title, repr(self.journal), *self.trouble.told])
                raise SimulationError(told) from error

    def _member(self, config: dict[str, Any]) -> Any:
        """A program that runs `process` until it is asked to stop."""

        async def main(program: Program) -> None:
            settings = {
                "bootstrap.servers": program.bootstrap_servers,
                "group.id": _GROUP,
                "auto.offset.reset": "earliest",
                **config,
            }
            while not program.stopping.is_set():
                try:
                    await work(program, settings)
                except (
                    FencedInstanceIdError,
                    UnreleasedInstanceIdError,
                    KafkaTimeoutError,
                    ProducerFencedError,
                ):
                    # As in `member`: what restarts programs waits.
                    await program.sleep(_PAUSE_S)

        async def work(program: Program, settings: dict[str, Any]) -> None:
            async with AsyncConsumer(settings) as consumer:
                await consumer.subscribe([_TOPIC], listener=program.attach(consumer))
                beside = asyncio.create_task(watch(program, consumer))
                try:
                    name = program.name if self._transactional else None
                    await consumer.process(self._handler(program), transactional_id=name, **self._arguments)
                finally:
                    beside.cancel()

        async def watch(program: Program, consumer: AsyncConsumer) -> None:
            while not await program.sleep(0.5):
                await program.obey()
            consumer.stop()

        return main

    def _handler(self, program: Program) -> Any:
        async def alone(record: Record, context: Context) -> ProducerRecord | None:
            outputs = await self._handle(program, [record], context)
            return outputs[0] if outputs else None

        async def together(records: list[Record], context: Context) -> list[ProducerRecord]:
            return await self._handle(program, records, context)

        return together if self._in_batches else alone

    async def _handle(
        self, program: Program, records: list[Record], context: Context
    ) -> list[ProducerRecord]:
        """What a handler does with its record, or its batch: that fails if one of its records does."""
        timeout, last = self._timeout, self._retry.attempts
        # A batch may have records that were tried more often than others.
        numbers = [task.attempts + 1 for task in context._tasks]
        attempts: list[Attempt] = []
        for record, number in zip(records, numbers, strict=True):
            attempts.append(self.journal.begins(program, record, number, attempts))
        values = [record.value or b"" for record in records]
        early = [value for value, number in zip(values, numbers, strict=True) if number < last]
        looks = self._looks.random() < self._look_share
        try:
            await asyncio.sleep(self._slowness * 2 * program.rng.random())
            if looks:
                # They are slow, so that partitions go meanwhile.
                until = self._looks.choice([0.0, 0.0, 0.0, 3.0])
                while until > 0 and not context._is_lost():
                    await asyncio.sleep(0.1)
                    until -= 0.1
            if timeout is not None and any(value.endswith(b" slow") for value in early):
                await asyncio.sleep(timeout * 2)
            if looks and context.lost:
                for attempt in attempts:
                    self.journal.stops(attempt)
                if self._looks.random() < 0.5:
                    raise _StoppedError
                return [ProducerRecord(_OUT, OF_STOPPED)]
            if any(map(must_fail, values)) or any(value.endswith(b" fails") for value in early):
                raise _FailureError
        except (_FailureError, asyncio.CancelledError):
            for attempt in attempts:
                self.journal.fails(attempt)
            raise
        outputs = [
            ProducerRecord(_OUT, value, record.key)
            for value, record in zip(values, records, strict=True)
            if makes_output(value)
        ]
        for attempt in attempts:
            self.journal.returns(attempt, is_last=not outputs, is_lost=context._is_lost())
        return outputs

    def _writer(self, count: int, pause_s: float) -> Any:
        async def main(program: Program) -> None:
            rng = program.rng
            async with program.producer() as producer:
                for number in range(count):
                    await asyncio.sleep(pause_s * 2 * rng.random())
                    (fate,) = rng.choices(_FATES, _WEIGHTS)
                    key = rng.choice([None, *(b"key %d" % each for each in range(self._keys))])
                    with contextlib.suppress(KafkaError):
                        await producer.send(_TOPIC, f"{number} {fate}".encode(), key)

        return main
