"""``kadence top`` on a terminal of 80x24, with textual's pilot and the embedded broker."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests import patience
from tests.cli.conftest import Run
from tests.patience import until
from textual.pilot import Pilot
from textual.timer import Timer

from kadence import Admin, Consumer, Producer, TopicPartition, publish_state
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence_broker import Broker
from kadence_cli.top import gathering
from kadence_cli.top.app import Top
from kadence_cli.top.gathering import Gatherer, Wish
from kadence_cli.top.keys import HELP
from kadence_cli.top.memory import memory_file
from kadence_cli.top.table import Table
from kadence_cli.why import watching

WIDTH, HEIGHT = 80, 24


class Screen:
    """What is seen, and keys."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def shows(self, *texts: str) -> None:
        """Wait until all of these are seen."""
        end = time.monotonic() + patience.PATIENCE
        while not all(text in self for text in texts):
            assert time.monotonic() < end, f"not seen: {texts}\n" + "\n".join(self.lines)
            await self._pilot.pause(0.05)


@asynccontextmanager
async def top(servers: str, **settings: Any) -> AsyncIterator[Screen]:
    app = Top({"bootstrap.servers": servers}, **{"delay": 0.1} | settings)
    async with app.run_test(size=(WIDTH, HEIGHT), notifications=True) as pilot:
        await pilot.pause()
        yield Screen(app, pilot)


def watched(servers: str, look: Callable[[Screen], Awaitable[None]], **settings: Any) -> None:
    """Run ``look`` at the screen."""

    async def run() -> None:
        async with top(servers, **settings) as screen:
            await look(screen)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KADENCE_STATE_DIR", str(tmp_path_factory.mktemp("s")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("m")))


def fill(broker: Broker, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % 2)


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    """It has read 40 of 100 records of two partitions, and committed that."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"flights": 2})
    fill(broker, "flights", 100)
    with reader(broker, "reader-1") as consumer:
        until(lambda: consumer.poll(0.1, max_records=1), every=0)
        consumer.commit({TopicPartition("flights", 0): 15, TopicPartition("flights", 1): 25})
        yield consumer


def reader(broker: Broker, name: str) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="report",
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe("flights")
    return consumer


def test_from_the_groups_to_a_partition_and_back(broker: Broker, consumer: Consumer) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("another", {TopicPartition("flights", 0): 50})

    async def look(screen: Screen) -> None:
        await screen.shows("▸ 1 group without members; e shows them", "report", "Stable", "2 groups", "60")
        assert "another" not in screen
        await screen.press("end", "enter")
        await screen.shows("another")
        assert screen.lines[3].split() == ["GROUP", "STATE↑", "MEM", "LAG", "TREND", "IN/S", "OUT/S", "ETA"]
        # It has lag and does not move, so it stands before one that nobody uses.
        await screen.press("home", "enter")
        await screen.shows("[members]", "1 member, 2 partitions", "reader-1", "flights:0-1", "lag 60")
        await screen.press("tab")
        await screen.shows("[partitions]", "flights:0", "flights:1", "35", "25")
        await screen.press("tab", "tab", "tab", "enter")
        await screen.shows("[partitions]", "member reader-1, id ")
        await screen.press("escape")
        await screen.shows("[members]")
        await screen.press("escape")
        await screen.shows("another")
        assert screen.app.query_one(Table).key == "report", "the cursor is where it was"

    watched(broker.bootstrap_servers, look)


def test_from_a_partition_to_its_records_and_the_stack_of_its_owner(
    broker: Broker, consumer: Consumer
) -> None:
    async def look(screen: Screen) -> None:
        await screen.shows("reader-1")
        await screen.press("tab")
        await screen.shows("[partitions]", "flights:0")
        await screen.press("enter")
        await screen.shows("flights:0  [records]", "$ kadence consume flights:0 --from 15 -n 20")
        await screen.shows('"offset":15,', '"value":"30"')
        shown = screen.lines[4:22]
        await screen.press("s", "S")
        assert screen.lines[4:22] == shown, "a text is in its own order"
        await screen.press("tab")
        await screen.shows("[stacks]", "it has not stalled")
        await screen.press("escape")
        await screen.shows("[partitions]")

    with publish_state(consumer):
        watched(broker.bootstrap_servers, look, group="report")

    async def look_away(screen: Screen) -> None:
        await screen.shows("flights:0")
        await screen.press("enter")
        await screen.shows("records are not shown here")
        assert '"offset"' not in screen
        await screen.press("tab")
        await screen.shows("publishes no state")

    watched(broker.bootstrap_servers, look_away, group="report", records=False)


def test_sort_view_and_what_is_unfolded_are_remembered(broker: Broker, consumer: Consumer) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("another", {TopicPartition("flights", 0): 50})

    async def change(screen: Screen) -> None:
        await screen.shows("report", "e shows them")
        await screen.press("e", "s", "S", "g", *"report", "enter", "tab")
        await screen.shows("[partitions]")

    async def look(screen: Screen) -> None:
        await screen.shows("report", "another", "MEM↑")
        await screen.press("e")
        await screen.shows("e shows them")
        assert "another" not in screen
        await screen.press("g", *"report", "enter")
        await screen.shows("[partitions]")

    watched(broker.bootstrap_servers, change)
    watched(broker.bootstrap_servers, look)
    memory_file().write_text('{"sort": {"groups": 5}, "tab": ["x"], "unfolds": 7')

    async def begin_anew(screen: Screen) -> None:
        await screen.shows("STATE↑", "e shows them")

    watched(broker.bootstrap_servers, begin_anew)


def test_why_a_group_lags(broker: Broker, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE_MS", 300)

    async def look(screen: Screen) -> None:
        await screen.shows("report")
        await screen.press("w")
        await screen.shows("[why]", "report: 1 reason (Stable, 1 member, 2 partitions, lag 60;")
        await screen.shows("1. STOPS: reader-1 (127.0.0.1) is in the group and commits nothing")
        await screen.shows("$ kadence consume flights:0 --from 15 -n 1")
        await screen.press("tab")
        await screen.shows("[members]")
        await screen.press("w")
        await screen.shows("[why]", "STOPS")
        # It is on the screen already.
        assert "$ kadence consume" in screen
        assert "$ kadence top" not in screen
        await screen.press("escape")
        await screen.shows("1 group")

    watched(broker.bootstrap_servers, look)


def test_a_rebalance_is_seen_as_it_happens(broker: Broker, consumer: Consumer) -> None:
    async def look(screen: Screen) -> None:
        await screen.shows("reader-1", "flights:0-1")
        with reader(broker, "reader-2") as second:

            def is_shared() -> bool:
                consumer.poll(0.05)
                second.poll(0.05)
                return bool(second.assignment())

            await asyncio.to_thread(until, is_shared, every=0)
            await screen.shows("2 members", "1 rebalance seen", "flights:0")
            await screen.press("tab", "tab")
            await screen.shows(
                "[events]", "reader-2 joined", "reader-2 got flights:", "reader-1 gave up flights:"
            )
            # Not the time of this line: it may be an hour later by its clock.
            assert any(re.match(r"\d\d:\d\d:\d\d ", line) and "joined" in line for line in screen.lines)

    watched(broker.bootstrap_servers, look, group="report")


def test_a_round_asks_for_so_many_partitions_off_the_screen(broker: Broker) -> None:
    """Partitions are what takes time: many small groups are asked at once, and a large one alone."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"t": 90})
        for name, partitions in {"a-large": 90, "b": 1, "c": 40, "d": 40, "e": 1}.items():
            offsets = {TopicPartition("t", n): 0 for n in range(partitions)}
            admin.alter_consumer_group_offsets(name, offsets)
    gatherer = Gatherer({"bootstrap.servers": broker.bootstrap_servers}, print, delay=2)
    asked = [sorted(gatherer.round(Wish(("e",), others=60)).samples) for _ in range(4)]
    gatherer.close()
    # Nothing is known of their sizes at first.
    assert asked[0] == ["a-large", "b", "c", "e"]
    assert asked[1] == ["a-large", "d", "e"]
    assert asked[2] == ["b", "c", "e"]
    assert asked[3] == ["a-large", "e"]


def test_filter_sort_and_a_group_by_its_name(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"t": 1})
        for n in range(60):
            admin.alter_consumer_group_offsets(f"group-{n:02}", {TopicPartition("t", 0): 0})
    gatherer = Gatherer({"bootstrap.servers": broker.bootstrap_servers}, print, delay=2)
    with broker.faults.observe(OffsetFetchRequest) as asked:
        assert len(gatherer.round(Wish()).samples) == 60
    assert len(asked) == 1, "one request has all groups of a coordinator"
    gatherer.close()

    async def look(screen: Screen) -> None:
        await screen.shows("60 groups", "group-00", "group-13")
        assert "group-59" not in screen
        await screen.press("end")
        await screen.shows("group-59")
        await screen.press("home", *"/-5")
        await screen.shows("group-50", "group-59")
        assert "group-00" not in screen
        await screen.press("enter", "S")
        await screen.shows("STATE↓", "filter '-5'")
        await screen.press("escape")
        await screen.shows("group-49")
        await screen.press("s")
        await screen.shows("MEM↓")
        await screen.press("g", *"group-33", "enter")
        await screen.shows("group-33  [members]", "Empty")
        await screen.press("colon", *"nowhere", "enter")
        await screen.shows("nowhere  [members]", "GROUP_ID_NOT_FOUND")
        await screen.press("escape", "escape", "slash", "x", "escape")
        await screen.shows("group-00")

    watched(broker.bootstrap_servers, look)


def test_help_pause_delay_and_quit(broker: Broker) -> None:
    async def look(screen: Screen) -> None:
        await screen.shows("0 groups")
        await screen.press("question_mark")
        await screen.shows("IN/S   records produced", "quit")
        await screen.press("escape", "space")
        await screen.shows("PAUSED")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_consumer_group_offsets("later", {TopicPartition("t", 0): 0}, raise_errors=False)
            admin.create_topics({"t": 1})
            admin.alter_consumer_group_offsets("later", {TopicPartition("t", 0): 0})
        assert "later" not in screen
        await screen.press("space")
        await screen.shows("later")
        await screen.press("d", *"0.5", "enter")
        await screen.shows("every 0.5 s")
        await screen.press("d", *"0", "enter")
        await screen.shows("every 0.5 s", "a delay is 0.1")
        await screen.press("q")
        assert screen.app._exit

    watched(broker.bootstrap_servers, look)


class _SlowToGo(Top):
    """Between the end of its screen and of its timer the timer ticks, a round arrives, and keys are pressed."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"}, delay=0.1)
        self._is_gone = False
        self.ticked, self.drawn = asyncio.Event(), asyncio.Event()

    def set_interval(self, interval: float, callback: Any = None, **more: Any) -> Timer:
        return super().set_interval(min(interval, 0.01), callback, **more)

    def _draw_title(self) -> None:
        try:
            super()._draw_title()
        finally:
            if self._is_gone:
                self.ticked.set()

    def _draw(self, key: Any = None) -> None:
        try:
            super()._draw(key)
        finally:
            if self._is_gone:
                self.drawn.set()

    async def _close_all(self) -> None:
        await super()._close_all()
        self._is_gone = True
        async with asyncio.timeout(patience.PATIENCE):
            await self.ticked.wait()
            await self.drawn.wait()
        for action in ("sort", "reverse", "pause", "leave", "local", "why", "empty"):
            getattr(self, f"action_{action}")()
        self.action_ask("filter")
        self._answered()
        self._wish()


def test_nothing_fails_while_the_screen_is_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "PATIENCE_S", 0.2)

    async def run() -> None:
        app = _SlowToGo()
        async with app.run_test(size=(WIDTH, HEIGHT)):
            pass
        assert app._is_gone

    asyncio.run(run())


def test_brokers_that_are_silent_are_told_until_they_are_back(
    broker: Broker, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(screen: Screen) -> None:
        await screen.shows("report", "60")
        # Before and after it a busy machine has as much time as ever.
        with monkeypatch.context() as patched, broker.faults.freeze():
            patched.setattr(gathering, "PATIENCE_S", 0.5)
            await screen.shows("trying again every 0.1 s")
            assert "report" in screen, "what was known stays"
            assert "not answered in time" in screen.lines[2]
        await until_gone(screen, "trying again")

    watched(broker.bootstrap_servers, look)


def test_a_broker_that_wants_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "PATIENCE_S", 0.5)

    async def look(screen: Screen) -> None:
        # Where the sentence is cut into lines depends on the number of the port.
        await screen.shows("(does this listener", "SASL_PLAINTEXT);")

    with Broker(users={"ann": "secret"}) as locked:
        watched(locked.bootstrap_servers, look)


async def until_gone(screen: Screen, text: str) -> None:
    end = time.monotonic() + patience.PATIENCE
    while text in screen:
        assert time.monotonic() < end, f"still seen: {text}"
        await asyncio.sleep(0.05)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "PATIENCE_S", 0.2)

    async def look(screen: Screen) -> None:
        await screen.shows("127.0.0.1:1: ", "Connection refused; trying again every 0.1 s")
        assert "cluster 'dead' 127.0.0.1:1" in screen.lines[0]

    asyncio.run(_wide(look))


async def _wide(look: Callable[[Screen], Awaitable[None]]) -> None:
    app = Top({"bootstrap.servers": "127.0.0.1:1"}, delay=0.1, name="cluster 'dead'")
    async with app.run_test(size=(160, HEIGHT)) as pilot:
        await look(Screen(app, pilot))


def test_why_a_partition_of_this_process_is_not_read(broker: Broker, consumer: Consumer) -> None:
    consumer.pause([TopicPartition("flights", 1)])

    async def look(screen: Screen) -> None:
        await screen.shows("● reader-1")
        await screen.press("enter")
        await screen.shows("[reading]", "paused by the application", "network thread late by")
        await screen.press("tab")
        await screen.shows("[events]", "rebalance to")
        publisher.close()
        await screen.shows("no longer publishes its state")
        await screen.press("l")
        await screen.shows("on this machine")
        with publish_state(consumer):
            await screen.shows("reader-1", "report")

    with publish_state(consumer) as publisher:
        watched(broker.bootstrap_servers, look, group="report")


def test_records_of_a_partition_of_this_process_begin_where_its_group_committed(
    broker: Broker, consumer: Consumer
) -> None:
    async def look(screen: Screen) -> None:
        await screen.press("l")
        await screen.shows("on this machine", "reader-1")
        await screen.press("enter")
        await screen.shows("[reading]", "flights:0")
        end = time.monotonic() + patience.PATIENCE
        while not screen.app.model.history("report").partitions:
            assert time.monotonic() < end, "the group was not asked about"
            await asyncio.sleep(0.05)
        await screen.press("enter")
        await screen.shows("[records]", "--from 15 -n 20")

    with publish_state(consumer):
        watched(broker.bootstrap_servers, look)


@pytest.mark.parametrize("width", [80, 100, 132])
def test_nothing_is_cut(broker: Broker, consumer: Consumer, width: int) -> None:
    async def run() -> None:
        app = Top({"bootstrap.servers": broker.bootstrap_servers}, group="report", delay=0.1)
        async with app.run_test(size=(width, HEIGHT)) as pilot:
            screen = Screen(app, pilot)
            await screen.shows("reader-1", "ETA", "q quit")
            for _ in range(4):
                assert {len(line) for line in screen.lines} == {width}
                await screen.press("tab")

    asyncio.run(run())
    assert max(map(len, HELP.splitlines())) <= 58


def test_it_needs_a_terminal(kadence: Run) -> None:
    ran = kadence("top")
    assert (ran.status, ran.out) == (1, "")
    assert "needs a terminal" in ran.err
    assert kadence("top", "--delay", "0").status == 2
    assert kadence("top", "-X", "client.ids=me").status == 2


def test_without_textual_it_says_how_to_get_it(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kadence_cli.top.app")
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    ran = kadence("top")
    assert ran.status == 1
    assert ran.err == "kadence top: kadence top needs textual: pip install 'kadence[cli]'\n"


def test_without_textual_serve_it_says_how_to_get_it(kadence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kadence_cli.top.serve", raising=False)
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    ran = kadence("top", "--serve")
    assert ran.status == 1
    assert "pip install 'kadence[serve]'" in ran.err


@pytest.mark.parametrize("port", ["in use", "70000"])
def test_a_port_that_cannot_be_served_on(kadence: Run, port: str) -> None:
    pytest.importorskip("textual_serve")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1]) if port == "in use" else port
        ran = kadence("top", "--serve", "--port", number)
    if port == "in use":
        said = (
            f"cannot listen on 127.0.0.1:{number}: the port is in use by another process; choose another port, or 0 "
            "for any free one"
        )
    else:
        said = "a port is 0 to 65535 (0: any free one), not 70000"
    assert (ran.status, ran.err) == (1 if port == "in use" else 2, f"kadence top: {said}\n")
