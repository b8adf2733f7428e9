"""The consumer of threads, as a test writes it, in a simulation: each call returns when it is done, in virtual time.

Behind a `VirtualConsumer` are the real `AsyncConsumer`, its network side, a simulated network and the embedded broker.
While a call waits, time passes for everybody: for the other consumers' network sides, and for the broker. Between calls
time stands still, so a test lets it pass with `VirtualCluster.sleep` or `VirtualCluster.until`. Nothing depends on the
machine: a session of 45 s takes no longer than one of a second, and no pause of the machine ends one.

There is one thread. A callback runs inside the call that it belongs to, and may make calls of its own, as under
threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from tests.consumer.support import Cluster

from kadence import AsyncConsumer, AsyncProducer, Broker, Record
from kadence_broker.cluster import Topic
from kadence_broker.faults.injected import Injected, Observed
from kadence_testing.simulation import Program, Simulation

__all__ = ["VirtualBroker", "VirtualCluster", "VirtualConsumer"]

T = TypeVar("T")

_PATIENCE_S: Final = 600.0
"""Virtual seconds after which what must happen counts as a hang."""


class VirtualCluster(Cluster):
    """A simulation with the methods of `Cluster`.

    Args:
        nodes: the number of brokers. config: Kafka's broker configuration keys.
    """

    def __init__(self, *, nodes: int = 1, config: dict[str, Any] | None = None) -> None:
        self.simulation = Simulation(1, nodes=nodes, config=config)
        self.virtual_broker = VirtualBroker(self)
        broker = cast("Broker", self.virtual_broker)
        super().__init__("virtual", self.simulation.bootstrap_servers, broker=broker)
        self._processes: dict[str, _Host] = {}

    @property
    def core(self) -> Any:
        """The broker from inside."""
        return self.simulation.broker.core

    def sleep(self, seconds: float) -> None:
        """Let so much time pass; in a callback, too."""
        if asyncio._get_running_loop() is None:
            self.simulation.run(seconds)
        else:
            _pass_inside(self.simulation, seconds, lambda: False)

    def until(self, done: Callable[[], object], *, what: str = "") -> None:
        """Let time pass until ``done()``, which waits for nothing itself."""
        self.simulation.run_until(_Named(done, what), _PATIENCE_S)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.simulation.scheduler.wall_ms() / 1_000, UTC)

    def create_topic(self, name: str, partitions: int) -> None:
        self.core.create_topic(name, partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        self.core.cluster.add_partitions(self.core.cluster.topics[topic], count)

    def delete_topic(self, topic: str) -> None:
        # As the broker does when it is asked to (DeleteTopics).
        gone: Topic = self.core.cluster.topics[topic]
        self.core.cluster.delete_topic(gone)
        self.core.coordination.topic_deleted(topic)
        self.core.transactions.topic_deleted(topic)
        for partition in gone.partitions:
            partition.wake()

    def produce(self, topic: str, count: int, *, partitions: int = 4, start: int = 0, size: int = 0) -> None:
        async def send() -> None:
            async with AsyncProducer(bootstrap_servers=self.bootstrap_servers, linger_ms=1_000) as producer:
                for i in range(start, start + count):
                    value = b"%d" % i + b"." * max(size - 8, 0)
                    await producer.send(topic, value, b"key", partition=i % partitions)
                await producer.flush()

        self.process("producer").carry(send())

    def producer(self, **settings: Any) -> _Client:
        async def make() -> AsyncProducer:
            return AsyncProducer(bootstrap_servers=self.bootstrap_servers, **settings)

        host = self.process("producer")
        return _Client(host, host.carry(make()))

    def make(self, **settings: Any) -> VirtualConsumer:
        """A consumer in a process of its own, with these settings and no others."""
        host = self.process(f"c{len(self.consumers) + 1}")
        consumer = VirtualConsumer(host, {"bootstrap_servers": self.bootstrap_servers, **settings})
        self.consumers.append(cast("Any", consumer))
        return consumer

    def consumer(self, **settings: Any) -> Any:
        return self.make(**{"auto_offset_reset": "earliest", **settings})

    def group_type(self, group: str) -> str:
        return str(self._group(group).kind)

    def members(self, group: str) -> int:
        return len(self._group(group).members)

    def _group(self, name: str) -> Any:
        return self.core.coordination.coordinator.groups[name]

    def process(self, name: str) -> _Host:
        """A process of the simulation, in which coroutines can be carried to their ends."""
        if name not in self._processes:
            self._processes[name] = _Host(self.simulation, name)
        return self._processes[name]

    def close(self) -> None:
        self.simulation.close()


class VirtualBroker:
    """What an operator does to the broker of a simulation, as to `kadence.Broker`, and its faults."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self.bootstrap_servers = cluster.simulation.bootstrap_servers
        self.faults = _Faults(cluster)

    @property
    def _core(self) -> Any:
        return self._cluster.core

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._core.create_topic(name, partitions)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        self._core.lead(self._core.partition(topic, partition), node_id)

    def move_coordinator(self, group_id: str, node_id: int) -> None:
        self._core.lead(self._core.coordination.topic.coordinator_of(group_id), node_id)

    def elect_uncleanly(
        self, topic: str, partition: int, end_offset: int, node_id: int | None = None
    ) -> None:
        self._core.elect_uncleanly(self._core.partition(topic, partition), end_offset, node_id)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        self._core.partition(topic, partition).delete_before(before_offset)

    def stop_node(self, node_id: int, *, elect: bool = True) -> None:
        self._core.nodes.stop(node_id, elect=elect)

    def start_node(self, node_id: int) -> None:
        self._core.nodes.start(node_id)

    def coordinator_of(self, group_id: str) -> int:
        return int(self._core.coordinator_of(group_id))

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        return list(self._core.offsets(topic))

    def disconnect_clients(self) -> None:
        self._core.server.disconnect()


class _Faults:
    """The broker's faults. To wait for one lets time pass."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        inject = getattr(self._cluster.core.faults, name)

        def call(*arguments: Any, **options: Any) -> Any:
            injected = inject(*arguments, **options)
            return _Injected(injected, self._cluster) if isinstance(injected, Injected) else injected

        return call


class _Injected:
    """A fault, or an observer."""

    def __init__(self, injected: Injected, cluster: VirtualCluster) -> None:
        self._injected = injected
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._injected, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._injected.remove()

    def __len__(self) -> int:
        return len(cast("Observed", self._injected))

    def wait(self, hits: int = 1) -> None:
        """Let time pass until it was applied to so many requests."""
        self._cluster.until(lambda: self._injected.hits >= hits)


class _Client:
    """A client whose awaited calls are carried to their ends. What it has not itself is the client's.

    Attributes:
        program: its process, which can be frozen, killed and cut off.
    """

    def __init__(self, host: _Host, client: Any) -> None:
        self._host = host
        self._client = client

    @property
    def program(self) -> Program:
        return self._host.program

    def __repr__(self) -> str:
        return repr(self._client)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not inspect.ismethod(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            return self._host.call(value, *arguments, **options)

        return call

    def begin(self, name: str, *arguments: Any, **options: Any) -> asyncio.Task[Any]:
        """Begin a call that is awaited; whoever lets time pass lets it go on, as another thread would."""
        return self._host.begin(getattr(self._client, name)(*arguments, **options))


class VirtualConsumer(_Client):
    """A consumer: the calls of `Consumer`."""

    def __init__(self, host: _Host, settings: dict[str, Any]) -> None:
        async def make() -> AsyncConsumer:
            return AsyncConsumer(**settings)

        super().__init__(host, host.carry(make()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield self._host.call(anext, self._client)

    def records(self, **options: Any) -> Iterator[Record]:
        """`AsyncConsumer.records`, each record carried by itself."""
        iterator = self._client.records(**options)
        while True:
            try:
                yield self._host.call(anext, iterator)
            except StopAsyncIteration:
                return

    def close(self, timeout: float | None = None, **options: Any) -> None:
        """As `AsyncConsumer.close`; nothing if its process has been killed."""
        if self.program.is_running:
            self._host.call(self._client.close, timeout, **options)


class _Host:
    """A process of a simulation that does what a test tells it."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation = simulation
        self._context = contextvars.Context()
        self.program = simulation.start(name, self._main)
        simulation.run_until(lambda: bool(self._context), 1)

    async def _main(self, program: Program) -> None:
        self._context = contextvars.copy_context()
        await program.stopping.wait()

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call it as code of the process would, and carry what it returns if that is to be awaited."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self.program.loop)
        try:
            result = self._here().run(function, *arguments, **options)
        finally:
            asyncio._set_running_loop(outer)
        return self.carry(_ended(result)) if inspect.isawaitable(result) else result

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Make a task of the coroutine."""
        task: asyncio.Task[Any] = self._context.run(
            self.program.loop.create_task, coroutine, context=self._here()
        )
        return task

    def _here(self) -> contextvars.Context:
        """That of the process; in a callback of it that of the callback, as a thread would have it."""
        is_inside = asyncio.current_task(self.program.loop) is not None
        return contextvars.copy_context() if is_inside else self._context.copy()

    def carry(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Let time pass until the coroutine has ended. Returns its result, or raises what it raised."""
        task = self.begin(coroutine)
        if asyncio._get_running_loop() is None:
            self._simulation.run_until(task.done, _PATIENCE_S)
        else:
            assert _pass_inside(self._simulation, _PATIENCE_S, task.done), (
                f"not within {_PATIENCE_S:g} s: {task!r}"
            )
        return task.result()


def _pass_inside(simulation: Simulation, seconds: float, done: Callable[[], bool]) -> bool:
    """Let time pass in a callback, inside which a task of some process runs and time passes already."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asyncio._leave_task(loop, task)
    try:
        scheduler = simulation.scheduler
        return scheduler.run_until(scheduler.now_ms() + round(seconds * 1_000), done)
    finally:
        asyncio._enter_task(loop, task)


async def _ended(awaitable: Awaitable[T]) -> T:
    return await awaitable


class _Named:
    """A condition that says what it is."""

    def __init__(self, done: Callable[[], object], what: str) -> None:
        self._done = done
        self._what = what

    def __call__(self) -> bool:
        return bool(self._done())

    def __repr__(self) -> str:
        return self._what or repr(self._done)
