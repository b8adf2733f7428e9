"""What an event loop does for clients: things that end elsewhere wake it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence.client.slices import slices_of

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="no such descriptors")


class Thing:
    is_waiting = True


def test_what_has_ended_is_acted_on_once() -> None:
    async def main() -> None:
        slices = slices_of(asyncio.get_running_loop())
        shown = slices.descriptor()
        first, second = Thing(), Thing()
        acted: list[Thing] = []
        has_acted = asyncio.Semaphore(0)

        def act(thing: Thing) -> None:
            acted.append(thing)
            has_acted.release()

        for thing in (first, second):
            slices.when_raised(thing, partial(act, thing))
        for thing in (first, second):
            thing.is_waiting = False
            os.eventfd_write(shown, 1)
            await asyncio.wait_for(has_acted.acquire(), PATIENCE)
        assert acted == [first, second]

    asyncio.run(main())


def refused(*_arguments: Any) -> Any:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize("where", ["eventfd", "add_reader"])
def test_a_loop_without_a_descriptor_is_none_that_watches(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A record that was sent must not seem to have failed because of it."""
    closed: list[int] = []
    close: Callable[[int], None] = os.close

    def noted(fd: int) -> None:
        closed.append(fd)
        close(fd)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            if where == "eventfd":
                patch.setattr(os, "eventfd", refused)
            else:
                patch.setattr(loop, "add_reader", refused)
                patch.setattr(os, "close", noted)
            assert slices_of(loop).descriptor() < 0
        assert slices_of(loop).descriptor() < 0

    asyncio.run(main())
    assert len(closed) == (where == "add_reader")
