"""The admin client on an event loop: the calls of the threads' one, awaited, and no call that holds the loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, AsyncAdmin, Broker, ConfigResource, NewTopic, TopicPartition
from kadence.errors import ClosedError, ConcurrentAccessError, KafkaTimeoutError, TopicAlreadyExistsError
from kadence.protocol import error_codes as ec
from kadence.protocol.create_topics import CreateTopicsRequest
from kadence.protocol.describe_log_dirs import DescribeLogDirsRequest
from kadence.protocol.metadata import MetadataRequest


def run(program: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    with Broker() as broker:
        asyncio.run(program(broker))


def test_calls_are_those_of_the_threads_client() -> None:
    async def program(broker: Broker) -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            made = await admin.create_topics([NewTopic("t", 2), "u"])
            assert sorted(made) == ["t", "u"]
            assert sorted(await admin.list_topics()) == ["t", "u"]
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topics("t")
            topic = ConfigResource("topic", "t")
            await admin.incremental_alter_configs({topic: {"retention.ms": 60_000}})
            assert (await admin.describe_configs(topic))[topic]["retention.ms"].value == "60000"
            assert await admin.log_ranges(TopicPartition("t", 0)) == {TopicPartition("t", 0): (0, 0)}
        with pytest.raises(ClosedError):
            await admin.list_topics()

    run(program)


def test_every_call_of_one_is_a_call_of_the_other() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    assert public(Admin) == public(AsyncAdmin)


def test_the_loop_runs_while_a_call_waits_and_a_cancelled_one_lets_the_next_begin() -> None:
    complaints: list[dict[str, Any]] = []

    async def program(broker: Broker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        # The request that is dropped holds up its connection for as long as it may take.
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=200) as admin:
            with broker.faults.drop(MetadataRequest) as dropped:
                call = asyncio.create_task(admin.list_topics(timeout=3600))
                await asyncio.to_thread(dropped.wait)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            assert await admin.list_topics() == {}

    run(program)
    gc.collect()
    assert complaints == []


def test_calls_of_many_tasks_do_not_wait_for_each_other() -> None:
    async def program(broker: Broker) -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as admin:
            with broker.faults.error(CreateTopicsRequest, ec.NOT_CONTROLLER) as fault:
                slow = asyncio.create_task(admin.create_topics("t", timeout=3600))
                await asyncio.to_thread(until, lambda: fault.hits >= 2)
                assert await asyncio.wait_for(admin.list_topics(), PATIENCE) == {}
                assert not slow.done()
            assert list(await slow) == ["t"]

    run(program)


def test_thirty_calls_to_a_silent_broker_hold_up_no_other_call() -> None:
    async def program() -> None:
        with Broker(nodes=3) as broker, broker.faults.drop(DescribeLogDirsRequest, node_id=2) as dropped:
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
                silent = [asyncio.create_task(admin.describe_log_dirs(2, timeout=3600)) for _ in range(30)]
                await asyncio.to_thread(dropped.wait)
                assert (await asyncio.wait_for(admin.describe_log_dirs(1), PATIENCE)).keys() == {1}
                for call in silent[:15]:
                    call.cancel()
                assert (await asyncio.wait_for(admin.describe_log_dirs(3), PATIENCE)).keys() == {3}
            ends = await asyncio.gather(*silent, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError] * 15 + [ClosedError] * 15

    asyncio.run(program())


def test_hundreds_of_calls_wait_on_one_thread_and_keep_their_times() -> None:
    async def program(broker: Broker) -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, client_id="many") as admin:
            with broker.faults.drop(MetadataRequest) as dropped:
                slow = [asyncio.create_task(admin.list_topics(timeout=3600)) for _ in range(300)]
                late = [asyncio.create_task(admin.list_topics(timeout=0.1)) for _ in range(300)]
                await asyncio.to_thread(dropped.wait)
                for call in late:
                    with pytest.raises(KafkaTimeoutError):
                        await asyncio.wait_for(call, PATIENCE)
                assert [each.name for each in threading.enumerate() if "many" in each.name] == [
                    "many-network"
                ]
                slow[0].cancel()
                await admin.close()
                ends = await asyncio.gather(*slow, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError] + [ClosedError] * 299
            assert admin._shell.network.waiting == set(), "nothing is kept of calls that are over"

    run(program)


def test_close_ends_calls_of_other_tasks() -> None:
    async def program(broker: Broker) -> None:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers)
        with broker.faults.drop(MetadataRequest) as dropped:
            calls = [asyncio.create_task(admin.list_topics(timeout=3600)) for _ in range(2)]
            await asyncio.to_thread(dropped.wait)
            await admin.close()
            for call in calls:
                with pytest.raises(ClosedError):
                    await call
        await admin.close()

    run(program)


def test_any_number_of_tasks_may_close_it_and_calls_that_come_meanwhile_are_refused() -> None:
    async def program(broker: Broker) -> None:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers)
        with broker.faults.drop(MetadataRequest) as dropped:
            call = asyncio.create_task(admin.list_topics(timeout=3600))
            await asyncio.to_thread(dropped.wait)
            closing = [asyncio.create_task(admin.close()) for _ in range(3)]
            await asyncio.sleep(0)
            closing[0].cancel()
            with pytest.raises(ClosedError, match="this admin client is closed"):
                await admin.list_topics()
            with pytest.raises(ClosedError, match="closed during the call"):
                await call
        cancelled, *others = await asyncio.gather(*closing, return_exceptions=True)
        # The network thread may have ended before the first task could wait for it.
        assert cancelled is None or isinstance(cancelled, asyncio.CancelledError)
        assert others == [None, None]

    run(program)


def test_a_broker_that_is_away_ends_a_call_in_its_time() -> None:
    async def program() -> None:
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:1") as admin:
            with pytest.raises(KafkaTimeoutError):
                await admin.list_topics(timeout=0.2)

    asyncio.run(program())


def test_it_belongs_to_its_loop(broker_address: str) -> None:
    async def make() -> AsyncAdmin:
        return AsyncAdmin(bootstrap_servers=broker_address)

    async def call(admin: AsyncAdmin) -> None:
        with pytest.raises(ConcurrentAccessError):
            await admin.list_topics()
        await admin.close()

    asyncio.run(call(asyncio.run(make())))


def test_without_a_loop_there_is_none(broker_address: str) -> None:
    with pytest.raises(RuntimeError):
        AsyncAdmin(bootstrap_servers=broker_address)


def test_one_that_nobody_closes_is_told_of(broker_address: str) -> None:
    async def make() -> Callable[[], bool]:
        admins = [AsyncAdmin(bootstrap_servers=broker_address)]
        await admins[0].list_topics()
        network = admins[0]._shell.network
        with pytest.warns(ResourceWarning, match="async with AsyncAdmin"):
            admins.clear()
        return lambda: network.has_ended

    until(asyncio.run(make()))


@pytest.fixture
def broker_address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_one_that_outlives_the_interpreter_closes_without_a_traceback(broker_address: str) -> None:
    program = (
        "import asyncio, sys\nfrom kadence import AsyncAdmin\nkept = []\n"
        "async def main():\n    kept.append(AsyncAdmin(bootstrap_servers=sys.argv[1]))\n"
        "    await kept[0].list_topics()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-W", "default", "-c", program, broker_address]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "use `async with AsyncAdmin(...)`" in ended.stderr
    assert "Traceback" not in ended.stderr
