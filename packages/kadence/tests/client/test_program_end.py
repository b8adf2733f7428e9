"""Clients at the end of a program: its own handlers still use them, later calls are refused.

Those of a simulation have no thread that the end could wait for.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from tests.patience import PATIENCE

from kadence_broker import Broker


@pytest.fixture
def served() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as broker:
        yield broker


CLIENTS = {
    "Consumer": ("list_topics()", "c.poll(60)", 'c.assign([("t", 0)])'),
    "Admin": ("list_topics()", "c.describe_cluster()", ""),
}


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(program)],
        timeout=PATIENCE,
        check=True,
        text=True,
        capture_output=True,
    )


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "unclosed"])
@pytest.mark.parametrize("kind", CLIENTS)
def test_on_a_thread(served: Broker, kind: str, closes: bool) -> None:
    call, late, begin = CLIENTS[kind]
    program = f"""
        import atexit

        @atexit.register
        def bye():
            print("bye", "t" in c.{call})
            {"c.close()" if closes else ""}

        from kadence import {kind}
        from kadence.errors import ClosedError

        class Late:
            def __del__(self):
                for call in (lambda: c.{call}, lambda: {late}):
                    try:
                        call()
                    except ClosedError:
                        print("refused")
                c.close()

        c = {kind}(bootstrap_servers={served.bootstrap_servers!r})
        c.{call}
        {begin}
        late = Late()
    """
    ended = run(program)
    assert ended.stdout == "bye True\nrefused\nrefused\n", ended.stderr
    assert (f"{kind} was not closed" in ended.stderr) is not closes


@pytest.mark.parametrize("kind", CLIENTS)
def test_under_asyncio(served: Broker, kind: str) -> None:
    call, _, _ = CLIENTS[kind]
    program = f"""
        import asyncio, atexit

        @atexit.register
        def bye():
            print("bye", "t" in loop.run_until_complete(c.{call}))

        from kadence import Async{kind}

        async def make():
            global c
            c = Async{kind}(bootstrap_servers={served.bootstrap_servers!r})
            await c.{call}

        loop = asyncio.new_event_loop()
        loop.run_until_complete(make())
    """
    ended = run(program)
    assert ended.stdout == "bye True\n", ended.stderr
    assert f"Async{kind} was not closed" in ended.stderr


def test_what_a_simulation_has_left_is_not_waited_for() -> None:
    program = """
        from kadence_testing.simulation import Simulation, writer

        simulation = Simulation(seed=1, topics={"t": 1})
        simulation.start("writer", writer(["t"], count=1_000, pause_s=0.1))
        simulation.run(1)
        assert simulation.programs["writer"].is_running
    """
    said = run(program).stderr
    assert "close()" not in said, said
