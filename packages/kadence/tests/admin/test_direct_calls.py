"""Requests that the threads of calls send by themselves, over real sockets, and all that may come in between."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, AsyncAdmin, Broker
from kadence.admin.direct_calls import AskedDirectly, DirectCalls
from kadence.connection.request import Completed
from kadence.errors import ClosedError, MalformedMessageError
from kadence.net import drain
from kadence.net.direct import DirectWay
from kadence.protocol import error_codes as ec
from kadence.protocol.create_topics import CreateTopicsRequest
from kadence.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from kadence.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)


class Ways:
    """Counts the requests that threads of calls sent, and the answers that they took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.taken = self.told = self.read = 0
        ask_for, take, read = DirectWay.ask_for, DirectCalls.take, DirectWay.read

        def sent(way: DirectWay, *arguments: Any) -> Any:
            asked = ask_for(way, *arguments)
            self.sent += asked is not None
            return asked

        def taken(calls: DirectCalls, sent: AskedDirectly) -> Completed | None:
            completed = take(calls, sent)
            self.taken += completed is not None
            self.told += completed is None
            return completed

        def counted(way: DirectWay, *arguments: Any) -> Any:
            self.read += 1
            return read(way, *arguments)

        monkeypatch.setattr(DirectWay, "ask_for", sent)
        monkeypatch.setattr(DirectCalls, "take", taken)
        monkeypatch.setattr(DirectWay, "read", counted)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker, ways: Ways) -> Iterator[Admin]:
    """A client whose latest call was sent and answered on this thread."""
    with Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as admin:
        settle(admin, ways)
        yield admin


def settle(admin: Admin, ways: Ways) -> None:
    """Make calls until one was answered on this thread: it may be kept from running for long."""

    def is_direct() -> bool:
        before = ways.taken
        admin.list_topics()
        return ways.taken > before

    until(is_direct, every=0)


def after(happens: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Act on another thread once that has happened; join it afterwards."""

    def run() -> None:
        happens()
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_calls_one_after_the_other_let_the_network_thread_sleep(admin: Admin) -> None:
    poller: Any = admin._shell.network._client._poller

    def sleeps(call: Callable[[], object]) -> bool:
        before = poller.releases
        call()
        return bool(poller.releases == before)

    for call in (
        admin.list_topics,
        lambda: admin.describe_topics("t"),
        admin.describe_cluster,
        admin.list_groups,
    ):
        until(lambda call=call: sleeps(call), every=0)  # type: ignore[misc]


def test_what_changes_is_seen_and_a_result_is_the_callers_own(
    admin: Admin, broker: Broker, ways: Ways
) -> None:
    first = admin.list_topics()
    assert sorted(first) == ["t"]
    first.clear()
    assert sorted(admin.list_topics()) == ["t"]
    broker.create_topic("u", 1)
    settle(admin, ways)
    assert {name: len(topic.partitions) for name, topic in admin.list_topics().items()} == {"t": 2, "u": 1}
    assert sorted(admin.describe_topics("u")) == ["u"]
    admin.delete_topics("u")
    assert sorted(admin.list_topics()) == ["t"]


def test_an_answer_with_the_same_bytes_is_read_once(admin: Admin, ways: Ways) -> None:
    def is_read_again() -> bool:
        admin.list_topics()
        before, taken = ways.read, ways.taken
        assert sorted(admin.list_topics()) == ["t"]
        return ways.read > before or ways.taken == taken

    until(lambda: not is_read_again(), every=0)


def test_internal_topics_are_told_apart_in_an_answer_that_is_known(admin: Admin, broker: Broker) -> None:
    broker.create_topic("__consumer_offsets", 1)
    for _ in range(3):
        assert sorted(admin.list_topics()) == ["t"]
        assert sorted(admin.list_topics(internal=True)) == ["__consumer_offsets", "t"]


def test_a_late_answer_comes_by_the_network_thread(admin: Admin, broker: Broker, ways: Ways) -> None:
    with broker.faults.delay(MetadataRequest, 0.4, times=1):
        sent, taken = ways.sent, ways.taken
        assert sorted(admin.list_topics()) == ["t"]
        assert (ways.sent, ways.taken) == (sent + 1, taken)
    settle(admin, ways)


def test_a_throttled_answer_is_the_network_threads(admin: Admin, broker: Broker, ways: Ways) -> None:
    def throttling(_: object) -> ListGroupsResponse:
        return ListGroupsResponse(throttle_time_ms=300)

    before = ways.taken
    with broker.faults.respond(ListGroupsRequest, throttling, times=1):
        assert admin.list_groups() == []
    (channel,) = admin._shell.network._client._channels.values()
    assert channel._connection is not None
    assert channel._connection.held_until > 0
    assert ways.taken <= before + 1, "the call asks for the brokers before"
    settle(admin, ways)


def test_an_answer_with_an_error_is_repeated(admin: Admin, broker: Broker) -> None:
    with broker.faults.error(ListGroupsRequest, ec.COORDINATOR_LOAD_IN_PROGRESS, times=2) as fault:
        assert admin.list_groups() == []
    assert fault.hits == 2


def test_a_connection_that_ends_while_a_call_waits(admin: Admin, broker: Broker, ways: Ways) -> None:
    with broker.faults.disconnect(MetadataRequest, times=2) as fault:
        assert sorted(admin.list_topics()) == ["t"]
    assert fault.hits == 2
    settle(admin, ways)


def test_a_change_whose_answer_is_lost_is_done(admin: Admin, broker: Broker) -> None:
    with broker.faults.disconnect(CreateTopicsRequest, served=True, times=1) as fault:
        assert sorted(admin.create_topics({"made": 1})) == ["made"]
    assert fault.hits == 1


def test_an_answer_that_cannot_be_read_ends_the_call_and_the_connection(
    admin: Admin, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> Any:
        raise MalformedMessageError("no such answer")

    def meets_it() -> bool:
        try:
            admin.describe_cluster()
        except MalformedMessageError:
            return True
        return False

    (channel,) = admin._shell.network._client._channels.values()
    connection = channel._connection
    with monkeypatch.context() as patch:
        patch.setattr(DirectWay, "read", unreadable)
        until(meets_it, every=0)
    settle(admin, ways)
    (channel,) = admin._shell.network._client._channels.values()
    assert channel._connection is not connection


def test_other_brokers_are_learnt_before_the_call_goes_on(admin: Admin, broker: Broker, ways: Ways) -> None:
    node = admin.describe_cluster().nodes[0]
    more = [
        MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port),
        MetadataResponseBroker(node_id=77, host="localhost", port=9),
    ]

    def other(_: object) -> MetadataResponse:
        return MetadataResponse(brokers=more, cluster_id=admin_cluster)

    admin_cluster = admin.describe_cluster().cluster_id
    network = admin._shell.network
    told = ways.told
    with broker.faults.respond(MetadataRequest, other):
        assert len(admin.describe_cluster().nodes) == 2
        assert network.broker(77) is not None
    assert len(admin.describe_cluster().nodes) == 1
    assert network.broker(77) is None
    assert ways.told > told or ways.taken


def test_calls_of_other_threads_do_not_wait_for_an_answer_of_this_one(admin: Admin, broker: Broker) -> None:
    done: list[object] = []
    with broker.faults.drop(MetadataRequest) as dropped:
        waiting = threading.Thread(
            target=lambda: done.append(_ended(lambda: admin.list_topics(timeout=3600)))
        )
        waiting.start()
        dropped.wait()
        # Behind the other on the connection: it gets no answer, but has its own time.
        other = threading.Thread(target=lambda: done.append(_ended(lambda: admin.list_topics(timeout=0.2))))
        other.start()
        other.join(PATIENCE)
        assert len(done) == 1
        admin.close()
        waiting.join(PATIENCE)
    assert isinstance(done[1], ClosedError)


def _ended(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


def test_a_signal_handler_makes_a_call_while_this_thread_waits_for_its_answer(
    admin: Admin, broker: Broker
) -> None:
    made: list[object] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: made.append(sorted(admin.list_topics())))
    try:
        with broker.faults.delay(ListGroupsRequest, 0.5) as delayed:
            ringing = after(delayed.wait, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            assert admin.list_groups() == []
            ringing.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert made == [["t"]]


def test_an_exception_of_a_signal_handler_ends_the_wait_for_an_answer(broker: Broker, ways: Ways) -> None:
    def handler(*_: object) -> None:
        raise ZeroDivisionError

    before = signal.signal(signal.SIGUSR1, handler)
    # The request without an answer holds up its connection for so long.
    with Admin(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=400) as admin:
        try:
            settle(admin, ways)
            with broker.faults.drop(MetadataRequest, times=1) as dropped:
                ringing = after(dropped.wait, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                with pytest.raises(ZeroDivisionError):
                    admin.list_topics(timeout=3600)
                ringing.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert sorted(admin.list_topics()) == ["t"]
        settle(admin, ways)


def test_the_network_thread_closes_an_idle_connection_and_the_next_call_opens_another(
    broker: Broker, ways: Ways
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers, connections_max_idle_ms=200) as admin:
        settle(admin, ways)
        until(lambda: not admin._shell.network._client._channels)
        assert sorted(admin.list_topics()) == ["t"]
        settle(admin, ways)


def test_tasks_wait_for_their_own_answers(broker: Broker, ways: Ways) -> None:
    async def program() -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            taken = 0
            while not taken:
                before = ways.taken
                assert sorted(await admin.list_topics()) == ["t"]
                taken = ways.taken - before
            both = await asyncio.gather(admin.list_topics(), admin.describe_topics("t"))
            assert [sorted(each) for each in both] == [["t"], ["t"]]
            with broker.faults.delay(ListGroupsRequest, 0.4):
                task = asyncio.create_task(admin.list_groups())
                ticks = 0
                while not task.done():
                    await asyncio.sleep(0.01)
                    ticks += 1
                assert task.result() == []
                assert ticks > 1, "the loop went on"
            with broker.faults.drop(MetadataRequest, times=1) as dropped:
                dropping = asyncio.create_task(admin.list_topics(timeout=3600))
                await asyncio.to_thread(dropped.wait)
                dropping.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await dropping
        with pytest.raises(ClosedError):
            await admin.list_topics()

    asyncio.run(program())
