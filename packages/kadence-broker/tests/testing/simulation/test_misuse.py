"""What a simulation says to who uses it wrongly, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import kadence
from kadence.errors import ConfigError, IllegalStateError
from kadence_broker.storage import DataDirectory
from kadence_testing.simulation import Main, Program, Simulation, SimulationError, member, simulation, writer


async def waits(program: Program) -> str:
    await asyncio.sleep(10)
    return "done"


async def quick(program: Program, record: kadence.Record) -> None:
    """Process a record in no time."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory in which simulations have theirs."""
    monkeypatch.setattr(simulation, "_MEMORY", tmp_path)
    yield tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({"config": {"nonsense": 1}}, ConfigError, "no configuration key 'nonsense'"),
        ({"topics": {"t": 0}}, ConfigError, "at least 1 partition"),
        ({"nodes": 0}, SimulationError, "at least 1 node, not 0"),
    ],
)
def test_a_simulation_that_cannot_be_leaves_no_files(
    files: Path, settings: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        Simulation(**settings)
    assert not list(files.iterdir())


def test_a_simulation_that_was_forgotten_leaves_no_files(files: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        Simulation()
        gc.collect()


def test_a_simulation_that_is_over_leaves_nothing_in_memory() -> None:
    def run() -> weakref.ref[Simulation]:
        with Simulation(topics={"t": 1}) as simulation:
            first = simulation.start("first", member("g", ["t"], quick))
            simulation.start("second", member("g", ["t"], quick))
            simulation.run(3)
            first.kill()
            simulation.run(1)
            return weakref.ref(simulation)

    over = run()
    gc.collect()
    gc.collect()
    assert over() is None


def test_a_crash_frees_what_waited_for_the_disk() -> None:
    """Each flush that waits has a descriptor of its own."""
    closed: list[int] = []

    with Simulation(seed=1, topics={"t": 1}, disk_delay_ms=(500, 500)) as simulation:
        simulation.start("w", writer(["t"], 100, 0.01))
        simulation.run(1)
        disk = simulation.broker.core._disk
        assert isinstance(disk, DataDirectory)
        assert disk._flusher is not None
        disk._flusher.run(lambda: closed.append(1))
        simulation.broker.crash()
        assert closed == [1]


def test_a_closed_simulation_is_over() -> None:
    with Simulation() as simulation:
        pass
    for use in (
        lambda: simulation.run(1),
        lambda: simulation.start("late", waits),
        simulation.broker.restart,
    ):
        with pytest.raises(SimulationError, match="is closed"):
            use()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_time_that_cannot_pass(seconds: float) -> None:
    with Simulation() as simulation, pytest.raises(SimulationError, match="time passes for some seconds"):
        simulation.run(seconds)


def test_a_program_does_not_let_time_pass() -> None:
    with Simulation() as simulation:

        async def main(program: Program) -> None:
            simulation.run(1)

        simulation.start("hasty", main)
        with pytest.raises(
            SimulationError, match=r"time passes already: a program waits with asyncio\.sleep"
        ):
            simulation.run(1)
        simulation.run(1)


def test_names_of_no_process_are_refused() -> None:
    with Simulation() as simulation:
        simulation.start("first", waits)
        network = simulation.network
        for act in (network.cut, network.heal, network.reset):
            with pytest.raises(SimulationError, match="there is no process 'frist', only broker, first"):
                act("frist")
        with pytest.raises(SimulationError, match="no process 'brocker'"):
            network.cut("first", "brocker")


@pytest.mark.parametrize("delay", [5, (5, 1), (-1, 0), (0, 1.5), None])
def test_delays_that_cannot_be(delay: Any) -> None:
    with Simulation() as simulation:
        with pytest.raises(SimulationError, match=r"delay_ms is \(least, most\) in whole milliseconds"):
            simulation.network.delay_ms = delay
        assert simulation.network.delay_ms == (0, 2)


def test_a_result_that_is_not_there() -> None:
    with Simulation() as simulation:
        program = simulation.start("first", waits)
        with pytest.raises(SimulationError, match="has no result: it still runs"):
            program.result()
        program.freeze()
        program.kill()
        with pytest.raises(
            SimulationError, match="<program first, <process first, dead>> has no result: it was killed"
        ):
            program.result()
        program.restart()
        simulation.run(11)
        assert program.result() == "done"


def test_a_condition_that_never_holds_tells_of_the_programs() -> None:
    with Simulation() as simulation:
        simulation.start("first", waits).freeze()
        with pytest.raises(SimulationError, match=r"not within 5 s: .*<process first, frozen>"):
            simulation.run_until(lambda: False, 5)


def _raised_by(main: Main) -> BaseException | None:
    with Simulation(topics={"t": 1}) as simulation:
        simulation.start("wrong", main)
        with pytest.raises(SimulationError) as caught:
            simulation.run(1)
        return caught.value.__cause__


def test_what_would_block_or_leave_the_simulation_is_refused() -> None:
    async def consumer(program: Program) -> None:
        kadence.Consumer(bootstrap_servers=program.bootstrap_servers)

    async def producer(program: Program) -> None:
        kadence.Producer(bootstrap_servers=program.bootstrap_servers)

    async def admin(program: Program) -> None:
        await asyncio.sleep(0)
        threading.Thread(target=print, name="admin").start()

    async def signals(program: Program) -> None:
        asyncio.get_running_loop().add_signal_handler(15, print)

    async def transactions(program: Program) -> None:
        async with program.producer() as producer:
            await producer.begin_transaction()

    async def serialisers(program: Program) -> None:
        program.producer({"value.serializer": "string"})

    for main, kind, says in (
        (consumer, IllegalStateError, "use AsyncConsumer"),
        (producer, IllegalStateError, "use AsyncProducer"),
        (admin, SimulationError, "cannot start a thread"),
        (serialisers, SimulationError, "has no serialisers"),
        (signals, SimulationError, r"Program\.stop sets program\.stopping"),
        (transactions, IllegalStateError, "create it with transactional.id"),
    ):
        with pytest.raises(kind, match=says):
            raise _raised_by(main) or AssertionError


def test_what_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(program: Program) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: int("missing"))
        await asyncio.sleep(1)

    with Simulation() as simulation, caplog.at_level(logging.ERROR):
        program = simulation.start("careless", main)
        simulation.run(2)
        assert program.is_done
    (record,) = caplog.records
    assert record.getMessage().startswith("careless: Exception in callback")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_a_generator_that_is_left_may_await_in_its_finally() -> None:
    said: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            said.append("closed")

    async def main(program: Program) -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(5)

    with Simulation() as simulation:
        simulation.start("first", main)
        simulation.run(3)
        assert said == ["closed"]
