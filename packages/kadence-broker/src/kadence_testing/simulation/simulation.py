"""`Simulation`: a whole group in one process under virtual time, and its programs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import random
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kadence.client.surroundings import simulated
from kadence.clock import FOREVER
from kadence.types import TopicPartition
from kadence_testing.simulation.broker import BROKER, SimulatedBroker
from kadence_testing.simulation.clients import client_surroundings
from kadence_testing.simulation.history import History
from kadence_testing.simulation.listener import Recorder, Told
from kadence_testing.simulation.loop import ProcessLoop, threads_refused
from kadence_testing.simulation.network import Network
from kadence_testing.simulation.producer import SimulatedProducer
from kadence_testing.simulation.scheduler import Process, Scheduler, SimulationError

if TYPE_CHECKING:
    from kadence.consumer.async_consumer import AsyncConsumer
    from kadence.records import Record
    from kadence.share.async_share_consumer import AsyncShareConsumer

__all__ = ["Action", "Main", "Program", "Simulation"]

_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it


class Program:
    """One program of a simulation: a process with an event loop, which can be frozen, killed and started again.

    Attributes:
        name: the name of its process. rng: its own random numbers, from the simulation's seed.
        bootstrap_servers: the address of the simulation's broker. lives: how often it was started.
        was_frozen: whether it ever was.
        stopping: an event that `stop` sets; the program may wait for it, or look at it.
        consumer: the last consumer that was given to `attach`. listener: its listener.
        told: the calls of all its listeners, oldest first, since its first start.
    """

    def __init__(self, simulation: Simulation, name: str, main: Main, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.bootstrap_servers = simulation.bootstrap_servers
        self._simulation = simulation
        self._main = main
        simulation.network.names.add(name)
        self.lives = 0
        self.was_frozen = False
        self.consumer: AsyncConsumer | None = None
        self.told: list[Told] = []
        self.listener: Recorder | None = None
        self.process: Process
        self._start()

    def __repr__(self) -> str:
        return f"<program {self.name}, {'done' if self.is_done else repr(self.process)}>"

    @property
    def is_running(self) -> bool:
        """Whether it was started and has neither ended nor been killed."""
        return self.process.is_alive and not self._task.done()

    @property
    def is_done(self) -> bool:
        """Whether it has returned."""
        return self._task.done()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to its consumer now, reported or not; none while it is not running."""
        return self.consumer._core.assigned if self.is_running and self.consumer is not None else frozenset()

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The partitions by the calls of its listener. They differ from `owned` while a callback waits to run."""
        return frozenset(self.listener.held) if self.is_running and self.listener is not None else frozenset()

    def result(self) -> Any:
        """The program's result, or its exception, which is raised.

        Raises:
            SimulationError: the program is still running, or was killed.
        """
        if not self._task.done():
            raise SimulationError(
                f"{self!r} has no result: it {'still runs' if self.is_running else 'was killed'}"
            )
        return self._task.result()

    def freeze(self, seconds: float | None = None) -> None:
        """Stop the process as SIGSTOP would, for this time, or until `thaw`.

        Another `freeze` can make the time longer, but not shorter.
        """
        self.was_frozen = True
        now = self._simulation.scheduler.now_ms()
        self.process.freeze(FOREVER if seconds is None else now + round(seconds * 1000))

    def thaw(self) -> None:
        """Let the process go on."""
        self.process.thaw()

    def kill(self, *, silently: bool = False) -> None:
        """End it as kill -9 would.

        Args:
            silently: its machine is gone, too: the ends of its connections are not sent to its peers.
        """
        self.process.end()
        self._simulation.network.crash(self.process, silently=silently)

    def stop(self) -> None:
        """Ask the program to stop, as SIGTERM would. It sets `stopping`, which the program must look at."""
        self.stopping.set()

    def attach(self, consumer: AsyncConsumer) -> Recorder:
        """Register a consumer of the program with the simulation.

        Returns:
            A listener for `subscribe`. Its calls are added to `told` and `held`. Callbacks that contradict each
            other end the run.
        """
        self.consumer = consumer
        self.listener = listener = Recorder(self.process, self.told, self._simulation.history.object_to)
        return listener

    def order(self, action: Action) -> None:
        """Let the program await ``action(consumer)`` when it has processed the records of its last poll.

        `member` does this, within a second while it waits for records; a program of your own calls `obey`. Actions
        that have not begun when the program is killed are dropped. The program does not poll while an action
        runs.
        """
        self._orders.append(action)

    async def obey(self) -> None:
        """Carry out the actions of `order`; for a program of your own."""
        while self._orders and self.consumer is not None:
            await self._orders.popleft()(self.consumer)

    async def sleep(self, seconds: float) -> bool:
        """Let time pass, or return at once when `stop` was called. Returns whether it was."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)
        return self.stopping.is_set()

    def has_processed(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Report a record as processed. From then on the history checks the group's commits."""
        if self.process.is_alive:
            self._simulation.history.has_processed(group_id, partition, offset)

    def took(self, consumer: AsyncShareConsumer[Any, Any], record: Record[Any, Any]) -> None:
        """Report a record that a queue's poll returned. The history checks that its lock held then."""
        if self.process.is_alive:
            self._simulation.history.shares.took(consumer, record)

    def has_accepted(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Report that the acceptance of a queue's record was confirmed. The history does not allow another delivery."""
        if self.process.is_alive:
            self._simulation.history.shares.has_accepted(group_id, partition, offset)

    def begins_late(self, group_id: str) -> None:
        """Let the group begin with another record than the first (``auto.offset.reset``)."""
        self._simulation.history.late_groups.add(group_id)

    def reads_committed(self, group_id: str) -> None:
        """Declare that the group reads committed records only (``isolation.level``)."""
        self._simulation.history.committed_readers.add(group_id)

    def makes_outputs(self, group_id: str, topics: Iterable[str], into: str) -> None:
        """Declare that the group writes one output of each record of these topics to another topic."""
        self._simulation.history.outputs.expect(group_id, topics, into)

    def restart(self) -> None:
        """Start it again, from the beginning, in a new process.

        Raises:
            SimulationError: it runs.
        """
        if self.is_running:
            raise SimulationError(f"{self.name} runs; kill it first")
        self._start()

    def producer(self, config: Mapping[str, Any] | None = None) -> SimulatedProducer:
        """An `AsyncProducer` whose records and transactions the history checks; call it within the program."""
        return SimulatedProducer(
            self._simulation.history, {"bootstrap.servers": self.bootstrap_servers, **(config or {})}
        )

    def _start(self) -> None:
        simulation = self._simulation
        self.lives += 1
        self.stopping = asyncio.Event()
        self._orders: deque[Action] = deque()
        self.listener = None
        self.process = Process(simulation.scheduler, self.name)
        # For the abstract rest (sockets, signals, processes) asyncio raises NotImplementedError.
        self.loop = ProcessLoop(self.process)  # type: ignore[abstract]
        context = contextvars.copy_context()
        context.run(
            simulated.set,
            client_surroundings(self.process, simulation.network, simulation.history, self.rng),
        )
        self._task = self.loop.start(self._main(self), context)
        self._task.add_done_callback(self._ended, context=contextvars.Context())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._simulation._failed(self, error)


Main = Callable[[Program], Coroutine[Any, Any, Any]]
"""A program: ``async def main(program)``."""

Action = Callable[["AsyncConsumer"], Awaitable[object]]
"""An action for `Program.order`: ``async def action(consumer)``."""


class Simulation:
    """Programs, a broker and a network in one process, one clock and one seed; time passes in `run` only.

    The programs are yours: coroutines that use `kadence.AsyncConsumer` and `kadence.AsyncProducer` as in production.
    They use their real network code, the real broker with its coordinators and its log on files, and a simulated
    network.
    The same seed gives the same run (with the same PYTHONHASHSEED, which decides the order of sets).

        with Simulation(seed=7, topics={"orders": 6}) as simulation:
            worker = simulation.start("worker", main)
            simulation.run(30)
            worker.kill()
            simulation.run(60)
            simulation.check()

    Args:
        seed: the seed of everything that is random. nodes: the number of logical brokers.
        topics: the number of partitions of each topic. config: Kafka's broker configuration keys.
        disk_delay_ms: the shortest and the longest time that a flush to the disk takes, in ms.
        versions: the highest version of a request (its class of `kadence.protocol`) that the broker offers, as an older
            broker does.

    Raises:
        ConfigError: a topic's name or number of partitions, or a key or value of ``config``, cannot be used.
        SimulationError: ``nodes`` is less than 1.

    Attributes:
        network: delays, cuts and resets connections. broker: crashes and restarts.
        history: the acknowledged, committed and processed offsets. It ends the run at the first violated invariant.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        nodes: int = 1,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, Any] | None = None,
        disk_delay_ms: tuple[int, int] = (0, 3),
        versions: Mapping[type[Any], int] | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.new_rng())
        self.programs: dict[str, Program] = {}
        self.history = History(self.scheduler)
        self._shared_random = random.Random(seed).getstate()
        self._trouble: tuple[str, BaseException] | None = None
        # Files, because the broker's own code writes them; in memory if possible, because they do not outlive the test.
        self._directory = tempfile.TemporaryDirectory(
            prefix="kadence-simulation-",
            dir=_MEMORY if _MEMORY.is_dir() else None,
            ignore_cleanup_errors=True,
        )
        self._is_running = False
        self._is_closed = False
        outer = self._enter_random()
        self.broker: SimulatedBroker
        try:
            self.broker = SimulatedBroker(
                self.scheduler,
                self.network,
                self.new_rng(),
                Path(self._directory.name),
                nodes=nodes,
                config={"group.initial.rebalance.delay.ms": 0, **(config or {})},
                disk_delay_ms=disk_delay_ms,
                versions=versions or {},
                history=self.history,
            )
            for name, partitions in (topics or {}).items():
                self.broker.core.create_topic(name, partitions)
        except BaseException:
            self.close()
            raise
        finally:
            self._leave_random(outer)

    def __repr__(self) -> str:
        return f"<Simulation seed {self.seed} at {self.now:.3f} s, {len(self.programs)} programs, {self.broker!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker, for the programs' configuration."""
        return self.broker.bootstrap_servers

    @property
    def now(self) -> float:
        """Seconds since the simulation began, in its own time."""
        return self.scheduler.elapsed_ms / 1000

    def start(self, name: str, main: Main) -> Program:
        """Start a program. It begins to run with the next `run`.

        Args:
            main: ``async def main(program)``.

        Raises:
            SimulationError: the name is taken, or the simulation is closed.
        """
        self._must_be_open()
        if name in self.programs or name == BROKER:
            raise SimulationError(f"there is a program {name!r} already; its restart() starts it again")
        self.programs[name] = program = Program(self, name, main, self.new_rng())
        return program

    def run(self, seconds: float) -> None:
        """Let so much time pass.

        Raises:
            SimulationError: an invariant does not hold, or a program raised (its cause); ``seconds`` is not a duration,
                a program calls this, or the simulation is closed.
        """
        self._run(seconds, None)

    def run_until(self, condition: Callable[[], bool], seconds: float = 600) -> None:
        """Let time pass until ``condition()``.

        Raises:
            SimulationError: as for `run`; or ``condition()`` was not true within ``seconds``.
        """
        if not self._run(seconds, condition):
            programs = ", ".join(map(repr, self.programs.values()))
            raise SimulationError(f"{self._place}: not within {seconds} s: {condition}; {programs}")

    def check(self) -> None:
        """Check that every acknowledged record is in the log, and that transactions are complete.

        The other invariants are checked during the run.

        Raises:
            SimulationError: it is not.
        """
        self._guarded(lambda: self.history.check_log(self.broker.core))

    def close(self) -> None:
        """Release all resources. Programs that are still running are dropped. A second call does nothing."""
        self._is_closed = True
        for program in self.programs.values():
            program.process.end()
        # A failed constructor may not have set these.
        if hasattr(self, "broker"):
            self.broker.close()
        # Finalizers of consumers reference their process, and so all events: drop these to break the cycle.
        self.scheduler.close()
        self._directory.cleanup()

    # Inside

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise SimulationError(f"{self!r} is closed")

    @property
    def _place(self) -> str:
        return f"seed {self.seed}, at {self.now:.3f} s"

    def is_empty(self, group_id: str) -> bool:
        """Whether every record of a share group's topics is done: accepted, rejected or given up."""
        return self.broker.is_up and self.history.shares.is_empty(self.broker.core, group_id)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` after so much time."""
        self.scheduler.at(self.scheduler.now_ms() + round(seconds * 1000), action)

    def new_rng(self) -> random.Random:
        """A random generator of its own, from the seed."""
        return random.Random(self.rng.getrandbits(64))

    def _run(self, seconds: float, condition: Callable[[], bool] | None) -> bool:
        def done() -> bool:
            return (
                self.history.wrong is not None
                or self._trouble is not None
                or (condition is not None and condition())
            )

        self._must_be_open()
        if not 0 <= seconds < math.inf:
            raise SimulationError(f"time passes for some seconds, from 0 on, and not for {seconds!r}")
        if self._is_running:
            raise SimulationError("time passes already: a program waits with asyncio.sleep, not with run()")
        outer = self._enter_random()
        self._is_running = True
        try:
            deadline = self.scheduler.now_ms() + round(seconds * 1000)
            with threads_refused():
                self._guarded(lambda: self.scheduler.run_until(deadline, done))
        finally:
            self._is_running = False
            self._leave_random(outer)
        if self.history.wrong is not None:
            raise SimulationError(f"{self._place}: {self.history.wrong}")
        if self._trouble is not None:
            (who, error), self._trouble = self._trouble, None
            raise SimulationError(f"{self._place}: {who} raised {error!r}") from error
        return condition is None or condition()

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except SimulationError as error:
            raise SimulationError(f"{self._place}: {error}") from error

    def _enter_random(self) -> object:
        """Seed the Python process's random generator, which parts of the clients use, within this context."""
        outer = random.getstate()
        random.setstate(self._shared_random)
        return outer

    def _leave_random(self, outer: Any) -> None:
        self._shared_random = random.getstate()
        random.setstate(outer)

    def _failed(self, program: Program, error: BaseException) -> None:
        if self._trouble is None:
            self._trouble = program.name, error
