"""One random run of a queue: members of a share group, a writer, trouble, and then a quiet end.

Records say in their values what becomes of them: they are accepted, released at first, rejected, renewed, worked on for
longer than a lock holds, or released for ever. The simulation's history compares every step of the broker with Kafka's
rules; here is what only a whole story can show.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.trouble import Trouble

from kadence import AcknowledgeType
from kadence.errors import KafkaError
from kadence.protocol import error_codes as codes
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence_broker.storage import Isolation
from kadence_testing.simulation import Program, Simulation, SimulationError, queue_member
from kadence_testing.simulation.share_partitions import Fate
from kadence_testing.simulation.transactions import records_of

if TYPE_CHECKING:
    from kadence.records import Record

__all__ = ["QueueStory"]

_TOPIC: Final = "t"
_DEAD: Final = "dlq.t"
_GROUP: Final = "g"
_REST_S: Final = 900
_PAUSE_S: Final = 2.0

_FATES: Final = ("ok", "again", "reject", "renew", "long", "bad")
_WEIGHTS: Final = (14, 3, 1, 2, 1, 1)

_REFUSALS: Final[dict[type[Any], list[int]]] = {
    ShareFetchRequest: [codes.NOT_LEADER_OR_FOLLOWER, codes.UNKNOWN_SERVER_ERROR],
    ShareAcknowledgeRequest: [codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_LEADER_OR_FOLLOWER],
    ShareGroupHeartbeatRequest: [
        codes.NOT_COORDINATOR,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.FENCED_MEMBER_EPOCH,
        codes.UNKNOWN_MEMBER_ID,
    ],
}


class _QueueTrouble(Trouble):
    """Trouble for the members of a queue.

    Args:
        kind: peaceful: members are stopped and started again. restarts: they are killed, too. any: all of it.
        group: the group's settings, in which the length of locks changes. None: it stays.
    """

    def __init__(
        self,
        simulation: Simulation,
        programs: list[str],
        *,
        kind: str,
        group: Mapping[str, Any] | None,
        lock_s: float,
    ) -> None:
        super().__init__(simulation, programs, peaceful=kind == "peaceful")
        self._kind = kind
        self._group = group
        self._lock_s = lock_s

    def happen(self) -> None:
        kinds: list[tuple[Callable[[], str], int]] = [(self._stop, 3), (self._restart, 5)]
        if self._group is not None:
            kinds.append((self._lock, 4))
        if self._kind == "restarts":
            kinds.append((self._kill, 4))
        elif self._kind == "any":
            kinds += [*self._breaks(), (self._pause, 4), (self._lose_answers, 3), (self._delete_records, 1)]
        act = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.told.append(f"{self._simulation.now:9.3f} s  {act()}")

    def _lock(self) -> str:
        broker = self._simulation.broker
        if self._group is None or not broker.is_up:
            return "nothing"
        seconds = self._rng.choice([1.0, 2.5, 9.0])
        broker.configure_group(
            _GROUP, {**self._group, "share.record.lock.duration.ms": round(seconds * 1000)}
        )
        return f"records are locked for {seconds} s from now on"

    def _pause(self) -> str:
        program, seconds = self._anybody(), self._lock_s * self._rng.choice([0.6, 1.1, 2.5])
        program.freeze(seconds)
        return f"{program.name} is frozen for {seconds} s"

    def _refuse(self) -> str:
        broker = self._simulation.broker
        if not broker.is_up:
            return "nothing"
        request = self._rng.choice(list(_REFUSALS))
        code, times = self._rng.choice(_REFUSALS[request]), self._rng.choice([1, 1, 4])
        self._refused.append(broker.core.faults.error(request, code, times=times))
        return f"{times} x {request.__name__} will be refused with {code}"

    def _lose_answers(self) -> str:
        broker = self._simulation.broker
        if not broker.is_up:
            return "nothing"
        request = self._rng.choice([ShareFetchRequest, ShareAcknowledgeRequest])
        lose = self._rng.choice(
            [broker.core.faults.drop, broker.core.faults.truncate, broker.core.faults.disconnect]
        )
        times = self._rng.choice([1, 2])
        self._refused.append(lose(request, times=times))
        return f"{times} x {request.__name__}: {lose.__name__}"

    def _delete_records(self) -> str:
        broker = self._simulation.broker
        if not broker.is_up:
            return "nothing"
        partition = self._rng.choice(broker.core.cluster.topics[_TOPIC].partitions)
        before = self._rng.randint(partition.start_offset, partition.high_watermark)
        broker.delete_records(_TOPIC, partition.index, before)
        return f"the records of {partition.index} below {before} are deleted"


class QueueStory:
    """Members of a share group, a writer and random trouble; the seed decides everything.

    Attributes:
        trouble: what happened. title: what kind of queue it was.
    """

    def __init__(self, seed: int, *, changes_locks: bool = False) -> None:
        rng = self._rng = random.Random(seed)
        self._kind = rng.choice(["peaceful", "restarts", "any", "any", "any", "any"])
        self._lock_s = rng.choice([1.0, 2.0, 4.0])
        self._limit = rng.choice([2, 3, 5, 5, 8])
        self._is_transactional = rng.random() < 0.25
        self._has_letters = rng.random() < 0.4
        self._renews = rng.random() < 0.7
        self._slowness = rng.choice([0.0, 0.01, 0.1])
        self._batch = rng.choice([1, 5, 40])
        nodes = rng.choice([1, 1, 3])
        partitions = rng.randint(1, 3)
        self.simulation = Simulation(
            seed,
            nodes=nodes,
            topics={_TOPIC: partitions},
            config={
                "group.share.min.record.lock.duration.ms": 500,
                "group.share.min.delivery.count.limit": 2,
                "group.share.min.session.timeout.ms": 5_000,
                "group.share.min.partition.max.record.locks": 10,
            },
        )
        broker = self.simulation.broker
        group = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": round(self._lock_s * 1000),
            "share.delivery.count.limit": self._limit,
            "share.session.timeout.ms": 6_000,
            "share.partition.max.record.locks": rng.choice([100, 2_000]),
        }
        if self._is_transactional:
            group["share.isolation.level"] = "read_committed"
        if self._has_letters:
            broker.core.cluster.create_topic(_DEAD, 1, {"errors.deadletterqueue.group.enable": "true"})
            group["errors.deadletterqueue.topic.name"] = _DEAD
        broker.configure_group(_GROUP, group)
        settings: dict[str, Any] = {
            "share.acquire.mode": rng.choice(["batch_optimized", "record_limit"]),
            "share.acknowledgement.mode": rng.choice(["explicit", "explicit", "implicit"]),
            "share.lock.renewal": self._renews,
            "max.poll.records": rng.choice([1, 5, 500]),
            "max.poll.interval.ms": rng.choice([3_000, 300_000]),
            "request.timeout.ms": 4_000,
        }
        self._is_explicit = settings["share.acknowledgement.mode"] == "explicit"
        self._settings = settings
        commits = rng.random() < 0.3
        names = [f"member{number}" for number in range(rng.randint(1, 3))]
        for name in names:
            self.simulation.start(
                name, queue_member(_GROUP, [_TOPIC], self._handle, settings, commits=commits)
            )
        count = rng.randint(10, 60) if self._batch == 1 else rng.randint(2, 8) * self._batch
        self.simulation.start("writer", self._writer(count, rng.choice([0.0, 0.02, 0.2])))
        self.trouble = _QueueTrouble(
            self.simulation,
            names,
            kind=self._kind,
            group=group if changes_locks else None,
            lock_s=self._lock_s,
        )
        self.title = (
            f"seed {seed}, {self._kind}: {len(names)} members, {nodes} nodes, {partitions} partitions, {group}, "
            f"{settings}, commits={commits}, {count} records in batches of {self._batch}, "
            f"transactional={self._is_transactional}"
        )

    def run(self) -> None:
        """Run it to its end.

        Raises:
            SimulationError: a rule is broken, a program raised, or not all is done in the end.
        """
        with self.simulation as simulation:
            try:
                for _ in range(self._rng.randint(2, 8)):
                    simulation.run(self._rng.choice([0.05, 0.5, 2, 5]))
                    self.trouble.happen()
                self.trouble.end()
                simulation.run_until(lambda: simulation.programs["writer"].is_done, _REST_S)
                simulation.run_until(lambda: simulation.is_empty(_GROUP), _REST_S)
                simulation.check()
                self._check()
            except SimulationError as error:
                told = "\n  ".join(
                    [str(error), self.title, repr(simulation.history.shares), *self.trouble.told]
                )
                raise SimulationError(told) from error

    def counts(self) -> dict[str, int]:
        """Figures of the run."""
        shares = self.simulation.history.shares
        fates = list(shares.fates(_GROUP).values())
        return {
            **{fate.value: fates.count(fate) for fate in Fate},
            "ended locks": len(shares.late),
            "archived unseen": len(shares.unseen),
            "troubles": len(self.trouble.told),
        }

    def _check(self) -> None:
        shares = self.simulation.history.shares
        is_patient = self._settings["max.poll.interval.ms"] > _REST_S // 9 * 1000
        if self._kind == "peaceful" and self._renews and is_patient and shares.late:
            raise SimulationError(f"locks ended, though nothing was wrong: {shares.late[:3]}")
        if self._kind != "any" and self._limit >= 5 and shares.unseen:
            raise SimulationError(f"archived, and nobody saw them: {shares.unseen[:3]}")
        if self._has_letters:
            self._check_letters()

    def _check_letters(self) -> None:
        """Each record that the group gave up has its dead letter."""
        core = self.simulation.broker.core
        found: set[tuple[int, int]] = set()
        for record in records_of(core.partition(_DEAD, 0), 0, Isolation.UNCOMMITTED):
            headers = dict(record.headers)
            found.add((int(headers["__dlq.errors.partition"] or 0), int(headers["__dlq.errors.offset"] or 0)))
        for (partition, offset), fate in self.simulation.history.shares.fates(_GROUP).items():
            if fate in (Fate.REJECTED, Fate.AT_THE_LIMIT) and (partition.partition, offset) not in found:
                raise SimulationError(f"{partition} offset {offset} is {fate.value}, and has no dead letter")

    async def _handle(self, program: Program, record: Record) -> AcknowledgeType | None:
        fate = (record.value or b"").split()[0].decode()
        if self._slowness:
            await asyncio.sleep(self._slowness * 2 * program.rng.random())
        count = record.delivery_count or 0
        if fate == "long" and count == 1:
            await asyncio.sleep(self._lock_s * program.rng.choice([0.7, 1.5, 2.5]))
        if not self._is_explicit:
            return None
        if (fate == "again" and count < 3) or fate == "bad":
            return AcknowledgeType.RELEASE
        if fate == "reject":
            return AcknowledgeType.REJECT
        if fate == "renew" and program.rng.random() < 0.5:
            return AcknowledgeType.RENEW
        return None

    def _writer(self, count: int, pause_s: float) -> Any:
        config: dict[str, Any] = {"linger.ms": 5 if self._batch > 1 else 0}
        if self._is_transactional:
            config["transactional.id"] = "w"

        async def main(program: Program) -> None:
            left = count
            while left > 0:
                try:
                    async with program.producer(config) as producer:
                        if self._is_transactional:
                            await producer.init_transactions()
                        while left > 0:
                            await asyncio.sleep(pause_s * 2 * program.rng.random())
                            if self._is_transactional:
                                await producer.begin_transaction()
                            values = [
                                f"{program.rng.choices(_FATES, _WEIGHTS)[0]} {left - number}".encode()
                                for number in range(self._batch)
                            ]
                            left -= self._batch
                            await asyncio.gather(
                                *(producer.send_and_wait(_TOPIC, value) for value in values),
                                return_exceptions=True,
                            )
                            if self._is_transactional and program.rng.random() < 0.3:
                                await producer.abort_transaction()
                            elif self._is_transactional:
                                await producer.commit_transaction()
                except KafkaError:
                    await program.sleep(_PAUSE_S)

        return main
