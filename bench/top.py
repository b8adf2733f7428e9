"""`kadence top` beside many groups: what a round of questions takes, and what it takes to draw what came.

    python bench/top.py [--groups 500] [--live 100] [--partitions 10000] [--rounds 10]

The embedded broker serves in a process of its own. The live groups have a member each, which owns all partitions of a
topic, all live groups together so many; the others have committed offsets and no member. One more group has committed
offsets of all partitions. Two screens of 80 x 24 are measured: the list of groups, and the partitions of that one
group. A line has the median of the rounds after the first: by the clock, and in brackets this process's processor
time, of a round (what is asked, until it is answered), and of drawing it (until the screen waits again); and how many
requests a round sent on average.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from textual.pilot import Pilot

from harness.crowd import Crowd, Group
from harness.members import ConsumerMember
from kadence import Admin, TopicPartition
from kadence.admin.direct_calls import AskedDirectly
from kadence.admin.manager import OpenRequests
from kadence.admin.network import Network
from kadence_cli.top import gathering
from kadence_cli.top.app import Top
from kadence_cli.top.gathering import Gatherer, Round
from members import HEARTBEATS_S, ours, settings_of

IN_TOPIC = 100
WIDE = "wide"


def fill(servers: str, groups: int, live: int, partitions: int) -> list[str]:
    """Make topics, and groups with committed offsets; the topics."""
    topics = [f"topic-{n:03}" for n in range(max(partitions // IN_TOPIC, 1))]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(dict.fromkeys(topics, IN_TOPIC), timeout=120)
        for n in range(groups):
            offsets = {TopicPartition(topics[n % len(topics)], p): 0 for p in range(IN_TOPIC)}
            if n >= live:
                offsets = dict(list(offsets.items())[:20])
            admin.alter_consumer_group_offsets(name_of(n), offsets)
        everything = {TopicPartition(topic, p): 0 for topic in topics for p in range(IN_TOPIC)}
        admin.alter_consumer_group_offsets(WIDE, everything, timeout=120)
    return topics


def name_of(number: int) -> str:
    """Of a group."""
    return f"group-{number:04}"


@contextlib.contextmanager
def members(servers: str, live: int, topics: list[str]) -> Iterator[None]:
    """A member in each of the first groups, on a thread."""
    crowd = Crowd(servers, HEARTBEATS_S)
    for n in range(live):
        ConsumerMember(crowd, Group(name_of(n), 1), topics[n % len(topics)]).start()
    is_over = threading.Event()
    thread = threading.Thread(target=crowd.run, args=(is_over.is_set, 86_400))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for member in crowd.members:
            member.sock.close()


class Stopwatch:
    """Seconds of some doings, by the clock and of the processor."""

    def __init__(self) -> None:
        self._took: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self._took.append((time.perf_counter() - began, time.process_time() - cpu))

    def __str__(self) -> str:
        clock, cpu = (statistics.median(each) * 1000 for each in zip(*self._took[1:], strict=True))
        return f"{clock:8,.0f} ms ({cpu:6,.0f})"


async def measure(servers: str, rounds: int, what: str, go: Callable[[Pilot[None]], Any]) -> None:
    """Measure one screen."""
    asking, drawing = Stopwatch(), Stopwatch()
    gathering.Gatherer.start = lambda self: None  # type: ignore[method-assign]
    requests: list[int] = []
    ask = Network.ask

    def counting(self: Network, asked: OpenRequests, *, directly: bool) -> AskedDirectly | None:
        requests.append(len(asked.requests))
        return ask(self, asked, directly=directly)

    Network.ask = counting  # type: ignore[method-assign]
    app = Top({"bootstrap.servers": servers})
    async with app.run_test(size=(80, 24)) as pilot:
        gatherer = app._gatherer
        assert gatherer is not None
        await step(app, gatherer, pilot, Stopwatch(), Stopwatch())
        await go(pilot)
        requests.clear()
        for _ in range(rounds + 1):
            await step(app, gatherer, pilot, asking, drawing)
    Network.ask = ask  # type: ignore[method-assign]
    each = sum(requests) / (rounds + 1)
    print(f"{what:<20} a round {asking}, {each:.0f} requests   drawing {drawing}", flush=True)


async def step(
    app: Top, gatherer: Gatherer, pilot: Pilot[None], asking: Stopwatch, drawing: Stopwatch
) -> Round:
    """A round as the gatherer's thread makes it, and what the screen does with it."""
    with asking.running():
        round_ = await asyncio.to_thread(gatherer.round, gatherer._wish)
    if round_.trouble:
        raise SystemExit(round_.trouble)
    with drawing.running():
        app._arrived(round_)
        await pilot.pause()
    return round_


async def stay(pilot: Pilot[None]) -> None:
    """The list of groups."""


async def open_wide(pilot: Pilot[None]) -> None:
    """The partitions of the group that has all."""
    await pilot.press("g", *WIDE, "enter", "tab")
    await pilot.pause()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--live", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, ours(settings_of(HEARTBEATS_S)) as server:
        # A remembered view would be measured instead.
        os.environ["XDG_STATE_HOME"] = state
        topics = fill(server.address, arguments.groups, arguments.live, arguments.partitions)
        with members(server.address, arguments.live, topics):
            time.sleep(3)
            screens = {"the list of groups": stay, f"{len(topics) * IN_TOPIC:,} partitions": open_wide}
            for what, go in screens.items():
                asyncio.run(measure(server.address, arguments.rounds, what, go))


if __name__ == "__main__":
    main()
