"""The programs of stories: what each kind of them does by itself, and the calls that a story lets them make besides."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.testing.simulation.alphabet.ledger import DEAD, OTHER, OUT, TOPIC, makes_output, must_fail

from kadence import AsyncConsumer, TopicPartition
from kadence.errors import KafkaError, WakeupError
from kadence.types import OffsetAndMetadata
from kadence.work import Context, ProducerRecord, Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from tests.testing.simulation.alphabet.ledger import Fact, Log
    from tests.testing.simulation.alphabet.story import Story

    from kadence.consumer.decoded_records import Records
    from kadence.records import Record
    from kadence_testing.simulation import Program

__all__ = ["CLOSE_S", "DRAIN_S", "MAX_RECORDS", "Life", "Style"]

DRAIN_S: Final = 2.0
CLOSE_S: Final = 20.0
MAX_RECORDS: Final = 20

_CALM_S: Final = 4.0
"""No call lasts longer while all is well, but a poll."""

_MOST_S: Final = 30.0
"""…and none at all lasts longer than this, whatever happens: each has a limit of 10 s, or 20 s (`close`)."""

_WATCH_S: Final = 0.5


class _FailureError(Exception):
    """What a handler raises."""


@dataclass
class Style:
    """How the members of a story's group are made.

    Attributes:
        config: of the consumer. commits: how a loop does. process: arguments of `process`. slowness: seconds of work on
            a record. reads_again: whether ranges are of what was read before. by_time: since when a loop reads (ms).
        has_letters: whether `process` has a topic of dead letters; else those of the consumer's settings count.
    """

    kind: str
    config: dict[str, Any]
    commits: str = "auto"
    process: dict[str, Any] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    slowness: float = 0.0
    reads_again: bool = False
    by_time: int | None = None
    has_letters: bool = True


class _Listener:
    """Tells the simulation's listener and the model, and makes the calls that are planned for it."""

    def __init__(self, life: Life, recorder: Any) -> None:
        self._life = life
        self._recorder = recorder

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._recorder.on_partitions_assigned(partitions)
        await self._life.at("assigned")

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._life.loses(partitions)
        self._recorder.on_partitions_revoked(partitions)
        await self._life.at("revoked")
        self._life.loses(partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._life.loses(partitions)
        self._recorder.on_partitions_lost(partitions)
        await self._life.at("lost")
        self._life.loses(partitions)


class _Interceptor:
    """Makes calls that are not awaited."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def on_consume(self, records: Any) -> Any:
        self._life.at_once("consumes")
        return records

    def on_commit(self, offsets: Any) -> None:
        del offsets
        self._life.at_once("commits")


class Life:
    """One program, over all its lives.

    Attributes:
        plans: the calls that it is to make, by place. asked: the fault that holds up the coordinator for "asked".
            hangs_until: when the handler of the first record goes on. losses: how often it gave up a partition.
    """

    def __init__(self, story: Story, name: str, style: Style) -> None:
        self.story, self.name, self.style = story, name, style
        self.model = story.model
        self.plans: defaultdict[str, list[str]] = defaultdict(list)
        self.asked: Any = None
        self.hangs_until = 0.0
        self.losses: Counter[TopicPartition] = Counter()
        self._in_hand: list[bytes] = []
        self._woken: AsyncConsumer | None = None
        self._polls = 0
        self._asked_by_time: dict[Log, int] = {}
        self.program: Program = story.simulation.start(name, self._main)

    async def _main(self, program: Program) -> None:
        self.program = program
        while not program.stopping.is_set():
            try:
                await self._live(program)
            except KafkaError as error:
                self.story.ends += 1
                self.story.tell(f"{self.name} ends a life: {error!r}")
            await program.sleep(1.0)

    async def _live(self, program: Program) -> None:
        config = {"bootstrap.servers": program.bootstrap_servers, **self.style.config}
        if self.style.kind in "pibt":
            config["interceptors"] = [_Interceptor(self)]
        self.consumer = consumer = AsyncConsumer(config)
        self._listener = _Listener(self, program.attach(consumer))
        beside = asyncio.create_task(self._watch())
        try:
            if self.style.kind in "pibwx" or (self.style.kind == "t" and self.style.by_time is None):
                await consumer.subscribe([TOPIC, OTHER], listener=self._listener)
            await getattr(self, f"_{self.style.kind}")()
        finally:
            beside.cancel()
            self._woken = None
            self.model.resumes(self.name, self.model.paused(self.name))
            await self._timed("close at the end", consumer.close(CLOSE_S))
            # By a callback of that close.
            self._woken = None

    async def _watch(self) -> None:
        """Beside what reads: calls of another task, and the end."""
        consumer, tasks, looks = self.consumer, set[asyncio.Task[None]](), 0
        try:
            while not consumer.stopping:
                if await self.program.sleep(_WATCH_S):
                    self.stop()
                    return
                for place in ("beside", "asked"):
                    if self.plans[place] and (place == "beside" or (self.asked and self.asked.hits)):
                        tasks.add(asyncio.create_task(self.at(place)))
                # A callback that tells of a partition's leave and return may still wait for handlers.
                missing = self.model.paused(self.name) & consumer.assignment() - consumer.paused()
                looks = looks + 1 if missing else 0
                if looks * _WATCH_S > _CALM_S:
                    self.model.object_to(f"{self.name} paused {missing}, and paused() does not name them")
        finally:
            for task in tasks:
                task.cancel()

    # ------------------------------------------------------------ what each kind does

    async def _p(self) -> None:
        consumer, commits = self.consumer, self.style.commits
        while not consumer.stopping:
            records = await self._poll()
            work = consumer.track(records) if commits == "track" else None
            self._in_hand = [bytes(record.value or b"") for record in records]
            for record in records:
                await self._handle(record)
                if work is not None:
                    work.done(record)
            if commits in ("track", "records", "all"):
                try:
                    await consumer.commit({"track": work, "records": records, "all": None}[commits])
                except KafkaError as error:
                    self._is_told(error)
                    self.story.tell(f"{self.name}: a commit raised {error!r}")
            elif commits == "async":
                consumer.commit_async(records, self._committed)
            self._in_hand = []
            await self.at("between")

    async def _t(self) -> None:
        self._asked_by_time = {}
        if self.style.by_time is not None:
            ends = self.story.ends_of(TOPIC)
            await self.consumer.assign_topics(TOPIC, start=self.style.by_time)
            self._asked_by_time = ends
        await self._p()

    async def _committed(self, *_: Any) -> None:
        await self.at("committed")

    async def _i(self) -> None:
        async for record in self.consumer:
            self._in_hand = [bytes(record.value or b"")]
            await self._handle(record)
            self._in_hand = []
            await self.at("between")

    async def _b(self) -> None:
        """As docs/transactions.md has it."""
        consumer = self.consumer
        settings = {"transactional.id": self.name, "transaction.timeout.ms": 8_000, "max.block.ms": 10_000}
        async with self.program.producer(settings) as producer:
            await producer.init_transactions()
            while not consumer.stopping:
                records = await self._poll()
                if not records.next_offsets():
                    await self.at("between")
                    continue
                facts: list[Fact | None] = []
                values = [bytes(record.value or b"") for record in records]
                await producer.begin_transaction()
                try:
                    for record in records:
                        facts.append(await self._handle(record, values))
                        if makes_output(record.value or b""):
                            await producer.send_and_wait(OUT, record.value, record.key)
                    await producer.send_offsets_to_transaction(
                        records.next_offsets(), consumer.group_metadata()
                    )
                    for fact in facts:
                        self.model.ends(fact, well=True)
                    await producer.commit_transaction()
                except KafkaError:
                    await producer.abort_transaction()
                    owned = consumer.assignment()
                    for partition, read in records.by_partition().items():
                        if read and partition in owned:
                            await consumer.seek(partition, read[0].offset)
                await self.at("between")

    async def _w(self) -> None:
        await self._process()

    async def _x(self) -> None:
        await self._process(transactional_id=self.name)

    async def _process(self, **more: Any) -> None:
        arguments = {
            "retry": self.style.retry,
            "drain": DRAIN_S,
            "max_records": MAX_RECORDS,
            **self.style.process,
        }
        handler = self._batch if "batch" in arguments else self._alone
        letters = DEAD if self.style.has_letters else None
        await self.consumer.process(handler, dead_letter=letters, **arguments, **more)

    async def _r(self) -> None:
        consumer = self.consumer
        infos = await consumer.partitions_for(TOPIC)
        partitions = [TopicPartition(TOPIC, info.partition) for info in infos]
        if not partitions:
            return
        if self.style.reads_again:
            await consumer.assign(partitions)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process(), 3.0)
        ends = await consumer.end_offsets(partitions)
        before = {
            fact.value: fact.begun
            for fact in self.model.ledger.facts.values()
            if fact.offset < ends[TopicPartition(TOPIC, fact.log[1])] and self.model.is_there(fact)
        }
        await consumer.assign({partition: (0, end) for partition, end in ends.items()})
        await self._process()
        if not consumer.stopping and consumer.finished() == ends.keys() and self.story.is_untouched:
            for value, begun in before.items():
                if self.model.ledger.facts[value].begun == begun and self.model.is_there(
                    self.model.ledger.facts[value]
                ):
                    self.model.object_to(f"{value!r} lies in a range that was read, and was not handled")
        await consumer.assign(partitions)
        await self._process()

    async def _poll(self) -> Records[Any, Any]:
        consumer = self.consumer
        self._polls += 1
        if is_woken := self._woken is consumer:
            self._limits_wakeup()
        try:
            records = await consumer.poll(1.0)
        finally:
            self._polls += 1
        if is_woken and self._woken is consumer:
            self.model.object_to(f"{self.name} called wakeup(), and a poll returned")
        return records

    def _is_told(self, error: KafkaError) -> None:
        """A call has raised."""
        if isinstance(error, WakeupError):
            self._woken = None

    async def _handle(
        self, record: Record[Any, Any], beside: Sequence[bytes] = (), *, is_beside: bool = False
    ) -> Fact | None:
        """Work on a record. It ends with those ``beside`` it, if there are any. ``is_beside``: beside the loop."""
        kind = self.style.kind
        # `process` keeps no order with what the program polls by itself.
        fact = self.model.begins(self.name, record, beside, in_order=not (is_beside and kind in "wx"))
        if fact is not None and is_beside and kind in "bwx":
            # The loop's next commit passes it, and there is no output of it.
            self.model.waives([fact.value])
        self.model.begins_by_time(record, self._asked_by_time)
        await self.at("handling")
        if self.style.slowness:
            await asyncio.sleep(self.style.slowness)
        if not beside:
            self.model.ends(fact, well=True)
        return fact

    async def _alone(self, record: Record[Any, Any], context: Context) -> Any:
        return next(iter(await self._batch([record], context)), None)

    async def _batch(self, records: Sequence[Record[Any, Any]], context: Context) -> list[ProducerRecord]:
        """A handler of `process`: what becomes of a record stands in its value."""
        values = [bytes(record.value or b"") for record in records]
        facts = [self.model.begins(self.name, record, values) for record in records]
        losses = [self.losses[record.topic, record.partition] for record in records]  # type: ignore[index]
        await self.at("handling")
        is_well = False
        try:
            if values[0].startswith(b"0 "):
                await asyncio.sleep(max(0.0, self.hangs_until - self.story.now))
            await asyncio.sleep(self.style.slowness * (4 if values[0].endswith(b"slow") else 1))
            if any(map(must_fail, values)) or (
                context.attempt == 1 and any(b"fails" in each for each in values)
            ):
                raise _FailureError
            is_well = True
        finally:
            for fact, record, lost in zip(facts, records, losses, strict=True):
                if not is_well or self.losses[record.topic, record.partition] == lost:  # type: ignore[index]
                    self.model.ends(fact, well=is_well)
        return [
            ProducerRecord(OUT, value, record.key)
            for value, record in zip(values, records, strict=True)
            if makes_output(value)
        ]

    # ------------------------------------------------------------ what a story lets it do

    async def at(self, place: str) -> None:
        """Make the calls that are planned for here."""
        while self.plans[place]:
            call = self.plans[place].pop(0)
            self.story.happens(call, place)
            if "assign" in call:
                # It begins elsewhere.
                self._asked_by_time = {}
            with contextlib.suppress(ValueError, TimeoutError, StopAsyncIteration):
                try:
                    made = self._makes(call)
                    if inspect.isawaitable(made):
                        await self._timed(f"{call} ({place})", made)
                    if "assign" in call:
                        # What the program has taken away itself, and takes again, is paused no more.
                        gone = self.model.paused(self.name) - self.consumer.assignment()
                        self.model.resumes(self.name, gone)
                except KafkaError as error:
                    self._is_told(error)
                    self.story.tell(f"{self.name}: {call} ({place}) raised {error!r}")

    def at_once(self, place: str) -> None:
        """The same, where nothing can be awaited."""
        while self.plans[place]:
            call = self.plans[place].pop(0)
            self.story.happens(call, place)
            with contextlib.suppress(KafkaError, ValueError):
                self._makes(call)

    async def _timed(self, what: str, call: Awaitable[Any]) -> Any:
        # It waits for a group to give it partitions.
        calm_s = 12.0 if what.startswith("records") else _CALM_S
        with self.story.limits(self, what, calm_s, _MOST_S):
            return await call

    def stop(self) -> None:
        """`stop`, after which a life ends soon."""
        consumer = self.consumer
        consumer.stop()
        limits = self.story.limits(self, "what stop() ends", _CALM_S + DRAIN_S, 2 * _MOST_S)
        limits.__enter__()
        limits.unless = lambda: self.consumer is not consumer or self.program.is_done

    def loses(self, partitions: list[TopicPartition]) -> None:
        """What it did of these and has not committed counts no more."""
        self.losses.update(partitions)
        self.model.resumes(self.name, partitions)

    def resumes_all(self) -> None:
        """All that it has paused."""
        paused = self.model.paused(self.name)
        self.model.resumes(self.name, paused)
        if self.program.is_running:
            with contextlib.suppress(KafkaError):
                self.consumer.resume(paused)

    def _mine(self) -> list[TopicPartition]:
        # While callbacks tell of a rebalance, what goes is still there.
        mine = self.consumer.assignment()
        if self.style.kind in "pibwx":
            mine &= self.program.held
        return sorted(each for each in mine if each.topic == TOPIC)

    def _one(self) -> TopicPartition:
        return (self._mine() or [TopicPartition(TOPIC, 0)])[0]

    def _done(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: OffsetAndMetadata(self.model.frontier(each)) for each in self._mine()}

    def _makes(self, call: str) -> Any:
        consumer, one = self.consumer, self._one()
        if special := getattr(self, f"_makes_{call}", None):
            return special(consumer, one)
        made: Callable[[], Any] = {
            "assign": lambda: consumer.assign([TopicPartition(TOPIC, 0)]),
            "assign_topics": lambda: consumer.assign_topics(TOPIC),
            "beginning_offsets": lambda: consumer.beginning_offsets([one]),
            "commit": lambda: consumer.commit(self._done()),
            "commit_async": lambda: consumer.commit_async(self._done(), self._committed),
            "committed": lambda: consumer.committed([one]),
            "current_lag": lambda: consumer.current_lag(one),
            "end_offsets": lambda: consumer.end_offsets([one]),
            "incremental_assign": lambda: consumer.incremental_assign([one]),
            "incremental_unassign": lambda: consumer.incremental_unassign([one]),
            "offsets_for_times": lambda: consumer.offsets_for_times({one: 0}),
            "partitions_for": lambda: consumer.partitions_for(TOPIC),
            "poll_arrow": lambda: consumer.poll_arrow(0.5, max_records=0),
            "position": lambda: consumer.position(one),
            "process": lambda: asyncio.wait_for(consumer.process(self._alone), 1.0),
            "stop": self.stop,
            "stopping": lambda: consumer.stopping,
            "subscribe": lambda: consumer.subscribe([TOPIC], listener=self._listener),
            "tasks": self._assigns_at_once,
            "track": lambda: consumer.track([]),
            "write": lambda: self.story.write(3),
        }.get(call) or getattr(consumer, call)
        return made()

    def _makes_pause(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        consumer.pause([one])
        self.model.pauses(self.name, [one])
        self.story.write(2 * MAX_RECORDS)

    def _makes_resume(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        self.model.resumes(self.name, [one])
        consumer.resume([one])

    def _makes_close(self, consumer: AsyncConsumer, one: TopicPartition) -> Awaitable[None]:
        del one
        self.model.waives(self._in_hand)
        return consumer.close(CLOSE_S)

    def _makes_unsubscribe(self, consumer: AsyncConsumer, one: TopicPartition) -> Awaitable[None]:
        del one
        self.model.waives(self._in_hand)
        return consumer.unsubscribe()

    async def _makes_poll(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        del one
        for record in await consumer.poll(0.5):
            await self._handle_beside_the_loop(record)

    async def _makes_records(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        del one
        async for record in consumer.records(idle_timeout=0.5):
            await self._handle_beside_the_loop(record)
            break

    async def _handle_beside_the_loop(self, record: Record[Any, Any]) -> None:
        await self._handle(record, is_beside=True)

    async def _makes_seek(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        read = [
            each.offset
            for each in self.model.ledger.facts.values()
            if each.begun and each.log == self.model.ledger.log_of(one)
        ]
        self.story.has_gone_back = True
        await consumer.seek(one, min(read, default=0))

    async def _makes_seek_to_beginning(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        del one
        self.story.has_gone_back = True
        await consumer.seek_to_beginning()

    async def _makes_seek_to_end(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        self.model.passes(one, 1 << 62)
        await consumer.seek_to_end([one])
        self.model.passes(one, await consumer.position(one))

    def _makes_wakeup(self, consumer: AsyncConsumer, one: TopicPartition) -> None:
        del one
        consumer.wakeup()
        self._woken = consumer
        self._limits_wakeup()

    def _limits_wakeup(self) -> None:
        """A call of the consumer meets a wakeup() soon.

        In the guide's loop a poll meets it: a wakeup() ends no call of the producer between two polls, and such calls
        may last longer than the limit.
        """
        consumer, poll, is_guide = self.consumer, self._polls, self.style.kind == "b"
        if is_guide and not poll % 2:
            return
        limits = self.story.limits(self, "a call that wakeup() ends", _CALM_S + DRAIN_S, _MOST_S)
        limits.__enter__()
        limits.unless = lambda: self._woken is not consumer or (is_guide and self._polls != poll)

    async def _assigns_at_once(self) -> None:
        """Tasks add partitions, one each, at the same time."""
        consumer, added = self.consumer, [TopicPartition("many", number) for number in range(5)]
        await asyncio.gather(*(consumer.incremental_assign([each]) for each in added))
        if missing := set(added) - consumer.assignment():
            self.model.object_to(f"{missing} were assigned by tasks, and are not")
        await asyncio.gather(*(consumer.incremental_unassign([each]) for each in added))
        if left := set(added) & consumer.assignment():
            self.model.object_to(f"{left} were taken by tasks, and are there")
