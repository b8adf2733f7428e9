"""A simulation as its user meets it: programs, time, crashes, cuts, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kadence import AsyncConsumer, AsyncProducer, Record, TopicPartition
from kadence.protocol.join_group import JoinGroupRequest
from kadence_testing.simulation import Program, Simulation, SimulationError, member, writer

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


async def quick(program: Program, record: Record) -> None:
    """Process a record in no time."""


async def slow(program: Program, record: Record) -> None:
    await asyncio.sleep(0.2)


def all_processed(simulation: Simulation, count: int, group_id: str = "g") -> bool:
    done = simulation.history.processed
    return sum(len(offsets) for (group, _), offsets in done.items() if group == group_id) >= count


@PROTOCOLS
def test_a_member_is_killed_and_nothing_is_lost(protocol: str) -> None:
    with Simulation(seed=7, topics={"orders": 6}) as simulation:
        reads = member("g", ["orders"], slow, {"group.protocol": protocol})
        first, second = simulation.start("first", reads), simulation.start("second", reads)
        writes = simulation.start("writer", writer(["orders"], count=200, pause_s=0.05))
        simulation.run(5)
        assert first.is_running
        first.kill()
        simulation.run_until(lambda: all_processed(simulation, 200), 120)
        simulation.check()
        assert (writes.result(), second.is_running, first.is_running) == (200, True, False)
        assert simulation.now > 20  # first's session had to end


@PROTOCOLS
def test_a_program_that_stops_hands_over_at_once(protocol: str) -> None:
    with Simulation(seed=1, topics={"orders": 2}) as simulation:
        reads = member("g", ["orders"], quick, {"group.protocol": protocol})
        first = simulation.start("first", reads)
        simulation.start("second", reads)
        simulation.run(10)
        first.stop()
        simulation.run_until(lambda: first.is_done, 5)
        simulation.start("writer", writer(["orders"], count=10, pause_s=0))
        simulation.run_until(lambda: all_processed(simulation, 10), 8)


@PROTOCOLS
def test_a_broker_that_crashes_comes_back_with_all_that_it_acknowledged(protocol: str) -> None:
    with Simulation(seed=3, topics={"orders": 3}) as simulation:
        simulation.start("reader", member("g", ["orders"], quick, {"group.protocol": protocol}))
        writes = simulation.start("writer", writer(["orders"], count=60, pause_s=0.05))
        for _ in range(4):
            simulation.run(1)
            simulation.broker.crash()
            simulation.run(0.5)
            simulation.broker.restart()
        simulation.run_until(lambda: writes.is_done)
        simulation.run_until(lambda: all_processed(simulation, writes.result()), 60)
        simulation.check()
        assert writes.result() == 60


def test_your_own_program_in_virtual_time() -> None:
    async def main(program: Program) -> tuple[float, list[bytes | None]]:
        began = asyncio.get_running_loop().time()
        async with AsyncProducer(bootstrap_servers=program.bootstrap_servers) as producer:
            for number in range(3):
                await producer.send("t", b"%d" % number, partition=0)
                await asyncio.sleep(3600)
        async with AsyncConsumer(bootstrap_servers=program.bootstrap_servers) as consumer:
            await consumer.assign({TopicPartition("t", 0): 0})
            found = [record.value for record in await consumer.poll(1)]
            found += [record.value for record in await consumer.poll(1)]
        return asyncio.get_running_loop().time() - began, found

    with Simulation(topics={"t": 1}) as simulation:
        program = simulation.start("mine", main)
        simulation.run_until(lambda: program.is_done, 4 * 3600)
        took, found = program.result()
        assert found == [b"0", b"1", b"2"]
        assert 3 * 3600 <= took < 3 * 3600 + 10


@PROTOCOLS
def test_a_frozen_member_loses_its_partitions_and_comes_back(protocol: str) -> None:
    with Simulation(seed=5, topics={"t": 4}) as simulation:
        reads = member("g", ["t"], quick, {"group.protocol": protocol})
        sleeper = simulation.start("sleeper", reads)
        simulation.start("other", reads)
        simulation.run(10)
        sleeper.freeze(100)
        simulation.start("writer", writer(["t"], count=40, pause_s=0.1))
        simulation.run_until(lambda: all_processed(simulation, 40), 80)
        simulation.run(100)
        assert ", 2 members" in simulation.broker.core.describe_groups()["g"]


def test_a_shorter_freeze_does_not_end_a_longer_one() -> None:
    async def sleeps(program: Program) -> None:
        await asyncio.sleep(1_000)

    with Simulation(seed=5, topics={}) as simulation:
        program = simulation.start("sleeper", sleeps)

        def is_frozen() -> bool:
            return program.process.is_frozen

        program.freeze(50)
        program.freeze(0.5)
        simulation.run(49)
        assert is_frozen()
        simulation.run(2)
        assert not is_frozen()
        program.freeze(2)
        program.thaw()
        program.freeze()
        simulation.run(100)
        assert is_frozen()
        program.thaw()
        assert not is_frozen()


@PROTOCOLS
def test_a_handler_that_hangs_is_out_of_its_group_after_max_poll_interval(protocol: str) -> None:
    """KIP-62: the heartbeats go on, and it is the processing timeout that ends the membership."""

    async def hangs(program: Program, record: Record) -> None:
        await asyncio.sleep(500 if program.name == "hangs" else 0)

    with Simulation(seed=2, topics={"t": 1}) as simulation:
        config = {"group.protocol": protocol, "max.poll.interval.ms": 30_000}
        simulation.start("hangs", member("g", ["t"], hangs, config))
        simulation.run(5)
        simulation.start("writer", writer(["t"], count=5, pause_s=0))
        simulation.run(5)
        simulation.start("waits", member("g", ["t"], hangs, config))
        simulation.run(15)
        assert not all_processed(simulation, 1)
        simulation.run(20)
        assert all_processed(simulation, 5)


def test_a_cut_holds_everything_and_healing_lets_it_go() -> None:
    with Simulation(seed=2, topics={"t": 1}) as simulation:
        writes = simulation.start("writer", writer(["t"], count=20, pause_s=0.1))
        simulation.run(0.5)
        before = simulation.history.calls
        simulation.network.cut("writer")
        simulation.run(5)
        held = simulation.history.calls
        simulation.network.heal("writer")
        simulation.run_until(lambda: writes.is_done, 30)
        simulation.check()
        assert held <= before + 1  # what had been on its way
        assert writes.result() == 20


def test_the_same_seed_is_the_same_run() -> None:
    def fingerprint(seed: int) -> tuple[int, int]:
        with Simulation(seed, topics={"t": 3}) as simulation:
            simulation.network.delay_ms = (0, 50)
            for name in ("a", "b"):
                simulation.start(name, member("g", ["t"], quick))
            simulation.start("writer", writer(["t"], count=30, pause_s=0.2))
            simulation.run(30)
            return simulation.history.calls, simulation.history.fingerprint

    assert fingerprint(1) == fingerprint(1)
    assert fingerprint(1) != fingerprint(2)


def test_what_a_program_raises_is_told_with_seed_and_time() -> None:
    async def main(program: Program) -> None:
        await asyncio.sleep(2.5)
        raise LookupError("nobody home")

    with Simulation(seed=11) as simulation:
        program = simulation.start("mine", main)
        with pytest.raises(
            SimulationError, match=r"seed 11, at 2\.500 s: mine raised LookupError\('nobody home'\)"
        ) as caught:
            simulation.run(10)
        assert isinstance(caught.value.__cause__, LookupError)
        assert program.is_done


def test_a_condition_that_never_holds_is_told() -> None:
    with (
        Simulation(seed=4) as simulation,
        pytest.raises(SimulationError, match=r"seed 4, at 3\.000 s: not within 3"),
    ):
        simulation.run_until(lambda: False, 3)


def test_a_program_that_never_waits_is_told() -> None:
    async def main(program: Program) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with Simulation() as simulation:
        simulation.start("spins", main)
        with pytest.raises(SimulationError, match="without time passing: does a program poll"):
            simulation.run(1)


def test_threads_are_refused() -> None:
    async def main(program: Program) -> None:
        await asyncio.to_thread(print)

    with Simulation() as simulation:
        simulation.start("threads", main)
        with pytest.raises(SimulationError, match="cannot use threads"):
            simulation.run(1)


def test_finally_of_a_killed_program_reaches_nobody() -> None:
    said: list[str] = []

    async def main(program: Program) -> None:
        async with AsyncConsumer(bootstrap_servers=program.bootstrap_servers, group_id="g") as consumer:
            await consumer.subscribe("t")
            try:
                while True:
                    await consumer.poll(1)
            finally:
                said.append("finally")

    with Simulation(topics={"t": 1}) as simulation:
        program = simulation.start("mine", main)
        simulation.run(10)
        calls = simulation.history.calls
        program.kill()
        simulation.run(1)
        assert said == ["finally"]
        assert simulation.history.calls == calls  # no goodbye
        program.restart()
        simulation.run(30)
        assert program.is_running


def test_names_and_states_that_cannot_be() -> None:
    async def main(program: Program) -> None:
        await asyncio.sleep(10)

    with Simulation() as simulation:
        program = simulation.start("mine", main)
        for name in ("mine", "broker"):
            with pytest.raises(SimulationError, match=f"a program '{name}' already"):
                simulation.start(name, main)
        with pytest.raises(SimulationError, match="mine runs; kill it first"):
            program.restart()
        with pytest.raises(SimulationError, match="the broker runs; crash it first"):
            simulation.broker.restart()
        simulation.broker.crash()
        with pytest.raises(SimulationError, match="the broker is down already"):
            simulation.broker.crash()
        simulation.run(20)
        assert program.is_done


def test_random_numbers_outside_are_left_alone() -> None:
    import random

    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    with Simulation(seed=1, topics={"t": 1}) as simulation:
        simulation.start("writer", writer(["t"], count=5, pause_s=0.1))
        simulation.run(5)
    assert [random.random() for _ in range(3)] == expected


def test_three_nodes_whose_leaders_move() -> None:
    with Simulation(seed=6, topics={"t": 6}, nodes=3) as simulation:
        simulation.start("reader", member("g", ["t"], quick))
        writes = simulation.start("writer", writer(["t"], count=60, pause_s=0.1))
        core: Any = simulation.broker.core
        for turn in range(12):
            simulation.run(0.5)
            core.lead(core.partition("t", turn % 6), 1 + turn % 3)
        simulation.run_until(lambda: writes.is_done)
        simulation.run_until(lambda: all_processed(simulation, 60), 60)
        simulation.check()


def test_what_listeners_are_told_and_what_members_are_ordered() -> None:
    with Simulation(seed=1, topics={"t": 2, "u": 1}, versions={JoinGroupRequest: 3}) as simulation:
        joins = simulation.broker.core.faults.observe(JoinGroupRequest)
        reader = simulation.start("reader", member("g", ["t"], quick, {"group.protocol": "classic"}))
        simulation.run(5)
        t = (TopicPartition("t", 0), TopicPartition("t", 1))
        assert [told[1:] for told in reader.told] == [("assigned", t)]
        assert (reader.owned, reader.held) == (frozenset(t), frozenset(t))

        async def subscribe(consumer: AsyncConsumer) -> None:
            await consumer.subscribe("u", listener=reader.listener)

        reader.order(subscribe)
        simulation.run(10)
        u = (TopicPartition("u", 0),)
        assert [told[1:] for told in reader.told[1:]] == [("revoked", t), ("assigned", u)]
        assert {call.version for call in joins.calls} == {3}
        reader.kill()
        assert (reader.owned, reader.held) == (frozenset(), frozenset())
        simulation.broker.crash()
        simulation.broker.restart()
        joins = simulation.broker.core.faults.observe(JoinGroupRequest)
        reader.restart()
        simulation.run(30)
        assert reader.held == frozenset(t)  # and not what it was ordered in its life before
        assert {call.version for call in joins.calls} == {3}


def test_a_listener_that_is_told_what_cannot_be() -> None:
    async def main(program: Program) -> None:
        async with AsyncConsumer(bootstrap_servers=program.bootstrap_servers) as consumer:
            listener = program.attach(consumer)
            listener.on_partitions_assigned([TopicPartition("t", 0)])
            await asyncio.sleep(1)
            if program.name == "twice":
                listener.on_partitions_assigned([TopicPartition("t", 0)])
            else:
                listener.on_partitions_revoked([TopicPartition("t", 1)])

    for name, words in (
        ("twice", "twice was assigned .* twice"),
        ("never", "never was to give up .*, which it was"),
    ):
        with Simulation() as simulation:
            simulation.start(name, main)
            with pytest.raises(SimulationError, match=words):
                simulation.run(5)


@PROTOCOLS
def test_b7_close_while_the_machine_is_paused_gives_the_network_side_its_time_afterwards(
    protocol: str,
) -> None:
    with Simulation(seed=1, topics={"t": 2}) as simulation:
        simulation.network.delay_ms = (800, 800)
        reads = simulation.start("reads", member("g", ["t"], quick, {"group.protocol": protocol}))
        simulation.run(20)
        reads.stop()
        simulation.run(1.2)  # it is closing: nothing has been answered
        assert not reads.is_done
        reads.freeze(100)
        simulation.run_until(lambda: reads.is_done, 110)
        reads.result()


def test_a_group_that_begins_with_the_latest_records_skips_none_of_them() -> None:
    with Simulation(seed=1, topics={"t": 1}) as simulation:
        simulation.start("early", writer(["t"], count=20, pause_s=0.1))
        simulation.run(10)
        simulation.start("reader", member("g", ["t"], quick, {"auto.offset.reset": "latest"}))
        simulation.run(10)
        simulation.start("late", writer(["t"], count=20, pause_s=0.3))
        simulation.run_until(lambda: all_processed(simulation, 20), 60)
        simulation.run(10)
        key = "g", TopicPartition("t", 0)
        assert (min(simulation.history.processed[key]), simulation.history.committed[key]) == (20, 40)


def test_a_tombstone_is_no_record_that_was_lost() -> None:
    async def deletes(program: Program) -> None:
        async with program.producer() as producer:
            await producer.send_and_wait("orders", None, b"key")

    with Simulation(topics={"orders": 1}) as simulation:
        program = simulation.start("deletes", deletes)
        simulation.run_until(lambda: program.is_done)
        simulation.check()
