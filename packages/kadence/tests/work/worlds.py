"""Two worlds in which members run `process`: a simulation, in virtual time, and an embedded broker with threads.

What `process` does is shown in the simulation. What depends on threads, processes or signals is shown once in the real
world, whose sessions outlast any pause of the machine. A test that takes a `World` runs in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

from tests.consumer.support import Shell
from tests.patience import PATIENCE
from tests.patience import until as until_real
from tests.virtual import VirtualCluster

from kadence import (
    Admin,
    AsyncConsumer,
    Broker,
    Consumer,
    Producer,
    Record,
    TopicPartition,
)
from kadence.config.table import is_coroutine_function
from kadence.work import Context
from kadence.work.meters import Totals
from kadence_broker.storage import Isolation
from kadence_testing.pytest_plugin.brokers import AT_ONCE
from kadence_testing.simulation import Program
from kadence_testing.simulation.transactions import records_of

__all__ = [
    "CALM_GROUPS",
    "GROUP",
    "ONE",
    "TOPICS",
    "Call",
    "Member",
    "Real",
    "Simulated",
    "World",
    "become",
    "is_going",
]

GROUP: Final = "g"
ONE: Final = TopicPartition("one", 0)
TOPICS: Final = {"orders": 4, "one": 1, "out": 1, "dead": 1, "again": 2}

CALM_GROUPS: Final = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    **AT_ONCE,
}
"""Members hear quickly of what moves. A session lasts 45 s, as by default: a machine that pauses ends none."""

_STEP_S: Final = 0.02
"""How often a simulation looks whether a condition is true, in its own time."""

_LONGEST_S: Final = 600
"""What has not happened in a simulation after so long, in its own time, will not happen."""

At = dict[int, tuple[int, str]]
"""What a group has committed: for each partition the offset and the metadata."""


class Call(ABC):
    """A call of a member that is under way."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether it has ended."""

    @abstractmethod
    def result(self) -> Any:
        """Wait for its end: what it returned, or what it raised."""


class Member(ABC):
    """A consumer of the group, which makes calls one beside the other."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    @abstractmethod
    def consumer(self) -> Any:
        """The consumer."""

    @abstractmethod
    def begin(self, call: Callable[[Any], Any]) -> Call:
        """Begin ``call(consumer)``."""

    def do(self, call: Callable[[Any], Any]) -> Any:
        """``call(consumer)``, to its end."""
        return self.begin(call).result()

    def processes(self, handler: Callable[..., Any], **arguments: Any) -> Call:
        """Begin ``process``."""
        handler = self._world.handler(handler)
        return self.begin(lambda consumer: consumer.process(handler, **arguments))

    def process(
        self, handler: Callable[..., Any], *, until: Callable[[], object] | None = None, **arguments: Any
    ) -> Totals:
        """``process``, to its end, which comes when the handler stops the consumer, or when ``until()`` is true."""
        call = self.processes(handler, **arguments)
        if until is not None:
            self._world.until(lambda: call.is_done or until())
            if not call.is_done:
                self.stop()
        totals = call.result()
        assert isinstance(totals, Totals)
        return totals

    def stop(self) -> None:
        self.consumer.stop()

    def close(self) -> None:
        self.do(lambda consumer: consumer.close())


class World(ABC):
    """A broker with `TOPICS`, and members of the group `GROUP`."""

    @abstractmethod
    def handler(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """How a handler is given to ``process`` here."""

    @abstractmethod
    def member(self, topic: Any = "orders", **settings: Any) -> Member:
        """A consumer that is subscribed to this, if it is not None; it begins with what is there."""

    @abstractmethod
    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until it is so."""

    @abstractmethod
    def committed(self, topic: str = "one") -> At:
        """What the group has committed."""

    @abstractmethod
    def read(self, topic: str) -> list[Record[Any, Any]]:
        """The records of a topic that readers of what is committed see."""

    @abstractmethod
    def send(self, topic: str, records: Sequence[dict[str, Any]]) -> None:
        """Write records, in this order: arguments of ``send``."""

    def write(self, topic: str, values: int | Iterable[bytes], *, keys: int = 0, **more: Any) -> None:
        """Write records; numbers where a count is given. They have one key, or one after the other of so many.

        Args:
            more: arguments of ``send`` for each record.
        """
        given = [b"%d" % n for n in range(values)] if isinstance(values, int) else list(values)
        self.send(
            topic,
            [
                {"value": value, "key": b"key %d" % (n % keys) if keys else b"key", **more}
                for n, value in enumerate(given)
            ],
        )

    def values(self, topic: str = "out") -> list[int]:
        """The numbers in a topic."""
        return [int(record.value or b"") for record in self.read(topic)]

    def offset(self, topic: str = "one") -> int:
        """How much is committed of a topic, over its partitions."""
        return sum(offset for offset, _ in self.committed(topic).values())


async def become(condition: Callable[[], object]) -> None:
    """Wait in a handler until it is so. In a simulation that takes no time of ours."""
    for _ in range(round(_LONGEST_S / _STEP_S)):
        if condition():
            return
        await asyncio.sleep(_STEP_S)
    raise AssertionError(f"not within {_LONGEST_S} s")


def is_going(context: Context) -> bool:
    """Whether a partition goes. `Context.lost` would count as being told so: the record would be handled again."""
    return "lost=True" in repr(context)


# ---------------------------------------------------------------- virtual time


class _SimulatedCall(Call):
    def __init__(self, world: Simulated, call: Callable[[Any], Any]) -> None:
        self._world = world
        self._call = call
        self._has_ended = False
        self._value: Any = None
        self._error: BaseException | None = None

    async def run(self, consumer: AsyncConsumer) -> None:
        try:
            made = self._call(consumer)
            self._value = await made if inspect.isawaitable(made) else made
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._error = error
        self._has_ended = True

    @property
    def is_done(self) -> bool:
        return self._has_ended

    def result(self) -> Any:
        self._world.until(lambda: self._has_ended)
        if self._error is not None:
            raise self._error
        return self._value


class SimulatedMember(Member):
    """A program of a simulation."""

    def __init__(self, world: Simulated, name: str, topic: Any, settings: dict[str, Any]) -> None:
        super().__init__(world)
        self._consumer: AsyncConsumer | None = None
        self._simulation = world
        self._topic = topic
        self._settings = settings
        self._calls: asyncio.Queue[_SimulatedCall] = asyncio.Queue()
        self.program: Program = world.simulation.start(name, self._main)

    @property
    def consumer(self) -> Any:
        if self._consumer is None:
            self._simulation.until(lambda: self._consumer is not None)
        return self._consumer

    def begin(self, call: Callable[[Any], Any]) -> Call:
        begun = _SimulatedCall(self._simulation, call)
        self._calls.put_nowait(begun)
        return begun

    async def _main(self, program: Program) -> None:
        consumer = AsyncConsumer({"bootstrap.servers": program.bootstrap_servers, **self._settings})
        if self._topic is not None:
            await consumer.subscribe(self._topic, listener=program.attach(consumer))
        self._consumer = consumer
        tasks = set()
        while True:
            call = await self._calls.get()
            tasks.add(task := asyncio.create_task(call.run(consumer)))
            task.add_done_callback(tasks.discard)


class Simulated(World):
    """A simulation. Handlers are coroutine functions; plain ones are made such.

    Args:
        config: of the broker.

    Attributes:
        is_checked: whether no record may be lost, or be there more often than it was sent.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.is_checked = True
        self.cluster = VirtualCluster(config=config)
        self.simulation = self.cluster.simulation
        for topic, partitions in TOPICS.items():
            self.cluster.create_topic(topic, partitions)
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self.is_checked:
                self.simulation.check()
        finally:
            self.simulation.close()

    @property
    def faults(self) -> Any:
        return self.simulation.broker.core.faults

    @property
    def now(self) -> float:
        return self.simulation.now

    def limit(self, *topics: str) -> None:
        """From now on these topics take 1,000 bytes at once."""
        cluster = self.simulation.broker.core.cluster
        for topic in topics:
            cluster.configure(cluster.topics[topic], {"max.message.bytes": "1000"})

    def handler(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        if is_coroutine_function(handler) or inspect.isasyncgenfunction(handler):
            return handler

        @functools.wraps(handler)
        async def awaited(*given: Any) -> Any:
            await asyncio.sleep(0)
            return handler(*given)

        return awaited

    def member(self, topic: Any = "orders", **settings: Any) -> SimulatedMember:
        self._names += 1
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        defaults = {"group.id": GROUP, "auto.offset.reset": "earliest"}
        given = {name: value for name, value in {**defaults, **dotted}.items() if value is not None}
        return SimulatedMember(self, f"member{self._names}", topic, given)

    def until(self, condition: Callable[[], object]) -> None:
        end = self.simulation.now + _LONGEST_S
        while not condition():
            assert self.simulation.now < end, f"not within {_LONGEST_S} s: {self.simulation!r}"
            self.simulation.run(_STEP_S)

    def committed(self, topic: str = "one") -> At:
        found = self.simulation.broker.core.coordination.coordinator.offsets.of_group(GROUP)
        return {
            partition: (at.offset, at.metadata) for (name, partition), at in found.items() if name == topic
        }

    def read(self, topic: str) -> list[Record[Any, Any]]:
        core = self.simulation.broker.core
        return [
            record
            for each in core.cluster.topics[topic].partitions
            for record in records_of(core.partition(topic, each.index), 0, Isolation.COMMITTED)
        ]

    def send(self, topic: str, records: Sequence[dict[str, Any]]) -> None:
        async def main(program: Program) -> None:
            async with program.producer() as producer:
                for future in [await producer.send(topic, **record) for record in records]:
                    await future

        self._names += 1
        writer = self.simulation.start(f"writer{self._names}", main)
        self.until(lambda: writer.is_done)
        writer.result()


# ---------------------------------------------------------------- threads


class _RealCall(Call):
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="a call of a test", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.is_done, f"not within {PATIENCE:g} s"
        if self._error is not None:
            raise self._error
        return self._value


class RealMember(Member):
    """A consumer of this process."""

    def __init__(self, world: Real, kind: str, topic: Any, settings: dict[str, Any]) -> None:
        super().__init__(world)
        self._shell = Shell(kind)
        self._consumer = self._shell.make(bootstrap_servers=world.servers, **settings)
        if topic is not None:
            self.do(lambda consumer: consumer.subscribe(topic))

    @property
    def consumer(self) -> Any:
        return self._consumer

    def begin(self, call: Callable[[Any], Any]) -> Call:
        return _RealCall(lambda: self._shell.do(lambda: call(self.consumer)))

    def free(self) -> None:
        """Close it."""
        self.close()
        if self._shell.runner is not None:
            self._shell.runner.close()


class Real(World):
    """An embedded broker, and members on threads of this process.

    Args:
        config: of the broker.

    Attributes:
        kind: whether members are of ``threads`` or of ``asyncio``.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.kind = "threads"
        self._stack = contextlib.ExitStack()
        self.broker = self._stack.enter_context(
            Broker(topics=TOPICS, config={**CALM_GROUPS, **(config or {})})
        )
        self.servers = self.broker.bootstrap_servers
        self.admin = self._stack.enter_context(Admin(bootstrap_servers=self.servers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def faults(self) -> Any:
        return self.broker.faults

    def handler(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return handler

    def member(self, topic: Any = "orders", **settings: Any) -> RealMember:
        given = {"group_id": GROUP, "auto_offset_reset": "earliest", **settings}
        member = RealMember(self, self.kind, topic, given)
        self._stack.callback(member.free)
        return member

    def until(self, condition: Callable[[], object]) -> None:
        until_real(condition)

    def committed(self, topic: str = "one") -> At:
        found = self.admin.list_consumer_group_offsets(GROUP)
        return {each.partition: (at.offset, at.metadata) for each, at in found.items() if each.topic == topic}

    def read(self, topic: str) -> list[Record[Any, Any]]:
        with Consumer(bootstrap_servers=self.servers, isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
            consumer.assign({each: (0, end) for each, end in consumer.end_offsets(partitions).items()})
            return list(consumer)

    def send(self, topic: str, records: Sequence[dict[str, Any]]) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            sent = [producer.send(topic, **record) for record in records]
            for future in sent:
                future.result(PATIENCE)
