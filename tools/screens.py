"""Makes the pictures of docs/top.md: a group on the embedded broker that is behind, rebalances and stalls.

python tools/screens.py    writes top-group.svg, top-process.svg and top-browser.png into docs/pictures
The last one needs a headless Chromium (Debian: chromium-headless-shell).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from textual.pilot import Pilot

import browser
from kadence import Admin, Consumer, Producer, TopicPartition, publish_state
from kadence_broker import Broker
from kadence_cli.top.app import Top
from kadence_testing.kafka import free_ports

PICTURES: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"


class Scene:
    """A cluster at work: a producer, three readers of a group, and one that stalls."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def produce(self) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for n in itertools.count():
                if self._over.wait(0.01):
                    return
                for _ in range(4):
                    producer.send("flights", b"%d" % n, partition=(n * n) % 6)
                producer.send("hotels", b"%d" % n)

    def read(self, name: str, group: str, pause: float, topics: list[str]) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
        with Consumer(settings) as consumer, publish_state(consumer):
            consumer.subscribe(topics)
            while not self._over.is_set():
                for _ in consumer.poll(0.1, max_records=50):
                    time.sleep(pause)

    def stall(self, name: str) -> None:
        """Reads once, then its code waits for a service that does not answer."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": "billing",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "stall.report.ratio": 0.01,
        }
        with Consumer(settings) as consumer, publish_state(consumer):
            consumer.subscribe("flights")
            while not consumer.poll(0.1, max_records=1):
                pass
            consumer.pause(TopicPartition("flights", 2))
            ask_the_bank(self._over)


def ask_the_bank(answered: threading.Event) -> None:
    """The line that a stall report names."""
    answered.wait()


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as sockets, Broker() as broker:
        # Nothing of whoever makes the pictures: neither consumers nor a remembered view.
        os.environ["KADENCE_STATE_DIR"] = os.environ["XDG_STATE_HOME"] = sockets
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({"flights": 6, "hotels": 2})
        at_work = Scene(broker.bootstrap_servers)
        at_work.start(at_work.produce)
        at_work.start(at_work.read, "report-1", "report", 0.004, ["flights", "hotels"])
        at_work.start(at_work.read, "audit-1", "audit", 0.0, ["hotels"])
        at_work.start(at_work.stall, "billing-1")
        try:
            yield at_work
        finally:
            at_work.end()


async def terminal(at_work: Scene) -> None:
    """The two pictures of the terminal, 80 x 24 each."""
    app = Top({"bootstrap.servers": at_work.servers}, delay=0.5)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(3)
        await opened(app, pilot, "report")
        await pilot.press("tab")
        await pilot.pause(3)
        at_work.start(at_work.read, "report-2", "report", 0.002, ["flights", "hotels"])
        await pilot.pause(6)
        shoot(app, "top-group.svg")
        await pilot.press("escape")
        await opened(app, pilot, "billing")
        # It opens with the partitions, as the group before; its members come after the two other views.
        await pilot.press("tab", "tab", "tab", "enter")
        await pilot.pause(1)
        shoot(app, "top-process.svg")


async def opened(app: Top, pilot: Pilot[None], group: str) -> None:
    await pilot.press("g", *group, "enter")
    await pilot.pause(2)


def shoot(app: Top, name: str) -> None:
    # Without the fonts, which the reader's browser would fetch from another machine.
    drawing = re.sub(
        r"\s*@font-face \{.*?\}", "", app.export_screenshot(title="kadence top"), flags=re.DOTALL
    )
    (PICTURES / name).write_text("\n".join(line.rstrip() for line in drawing.splitlines()) + "\n")
    print(f"docs/pictures/{name}: {(PICTURES / name).stat().st_size:,} bytes")


async def page(at_work: Scene) -> None:
    """The picture of the page in a browser."""
    program = browser.find()
    if program is None:
        print(
            f"docs/pictures/top-browser.png is not made: none of {', '.join(browser.NAMES)} is here",
            file=sys.stderr,
        )
        return
    (port,) = free_ports(1)
    command = ["-m", "kadence", "top", "--serve", "--port", str(port), "--delay", "0.5"]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *command, "-b", at_work.servers, stderr=asyncio.subprocess.PIPE
    )
    assert server.stderr is not None
    try:
        await server.stderr.readline()
        async with browser.page(program, width=960, height=460) as opened:
            await opened.open(f"http://127.0.0.1:{port}/")
            await opened.wait_for("audit", "billing", "report")
            await asyncio.sleep(6)
            (PICTURES / "top-browser.png").write_bytes(await opened.picture())
    finally:
        server.terminate()
        await server.communicate()
    print(f"docs/pictures/top-browser.png: {(PICTURES / 'top-browser.png').stat().st_size:,} bytes")


def main() -> None:
    with scene() as at_work:
        asyncio.run(terminal(at_work))
        asyncio.run(page(at_work))


if __name__ == "__main__":
    main()
