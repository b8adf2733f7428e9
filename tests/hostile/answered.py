"""Clients in virtual time whose broker's answers are damaged on the way, or lie: as many as wanted, in one process."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest import mock

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Story, Tally
from tests.hostile.clients import PARTITIONS, RECORDS, TOPIC, value
from tests.hostile.lying import lie_about
from tests.hostile.programs import PROGRAMS

from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.records import encode_batch
from kadence_broker.dispatch import Dispatcher
from kadence_broker.server.connection import Connection
from kadence_testing.simulation import Program, Simulation

__all__ = ["STORIES"]

_KEY: Final = struct.Struct(">hh")
_PREFIX: Final = 8
"""Bytes of the length and of the correlation id."""
_SHARE: Final = 0.4
"""How many answers are changed."""
_CLIENTS: Final = 6
"""So many of a kind come one after the other: one that was answered badly may get no further."""
_LONGEST_S: Final = 3_600.0
"""Virtual seconds after which what has not ended hangs."""

_Change = Callable[[bytes, int, int, random.Random], bytes]
"""Gets an answer's frame, and the key and version of its request."""


def _damage(frame: bytes, key: int, version: int, chance: random.Random) -> bytes:
    # The length is true and the correlation id stays, mostly: what follows is to be read.
    kept = _PREFIX if chance.random() < 0.9 else 4
    rest = frame[4:kept] + Mutator([frame[kept:]], chance.randrange(1 << 30))()
    length = len(rest) if chance.random() < 0.95 else chance.choice((0, 3, len(rest) + 1, 2**31 - 1, -1))
    return struct.pack(">i", length) + rest


def _lie(frame: bytes, key: int, version: int, chance: random.Random) -> bytes:
    kind = registry.REQUESTS[key]
    try:
        correlation_id, response = registry.decode_response(kind, version, frame[4:])
        lie_about(response, chance)
        made = registry.encode_response(response, version, correlation_id)
    except Exception:  # noqa: BLE001 - nobody could write it
        return frame
    return struct.pack(">i", len(made)) + made


class _Line:
    """Between the broker of a simulation and its clients.

    Attributes:
        is_honest: nothing is changed.
    """

    def __init__(self, change: _Change, seed: int, tally: Tally) -> None:
        self._change = change
        self._chance = random.Random(seed)
        self._tally = tally
        self._asked: dict[Connection, tuple[int, int]] = {}
        self.is_honest = True

    @contextmanager
    def between(self) -> Iterator[None]:
        """While it is entered, answers pass through it."""
        ask, send, line = Dispatcher.on_frame, Connection.send, self

        def asked(dispatcher: Dispatcher, connection: Connection, frame: Any) -> None:
            line._asked[connection] = _KEY.unpack_from(frame)
            ask(dispatcher, connection, frame)

        def answered(connection: Connection, buffers: Sequence[Any]) -> None:
            frame = b"".join(map(bytes, buffers))
            send(connection, [line._passed(frame, *line._asked[connection])])

        with (
            mock.patch.object(Dispatcher, "on_frame", asked),
            mock.patch.object(Connection, "send", answered),
        ):
            yield

    def _passed(self, frame: bytes, key: int, version: int) -> bytes:
        # Without versions nothing else would be asked.
        share = _SHARE / 8 if key == ApiVersionsRequest.API_KEY else _SHARE
        if self.is_honest or self._chance.random() >= share:
            return frame
        changed = self._change(frame, key, version, self._chance)
        self._tally.mutations += changed != frame
        return changed


def _tell(change: _Change, seed: int) -> Tally:
    """One program of each kind, one after the other by the seed."""
    names = list(PROGRAMS)
    run = PROGRAMS[names[seed % len(names)]]
    tally = Tally()

    async def main(program: Program) -> None:
        for _ in range(_CLIENTS):
            await run(program, tally)

    random.seed(seed)
    line = _Line(change, seed, tally)
    with ExitStack() as stack:
        # The broker keeps the methods that it has when it begins.
        stack.enter_context(line.between())
        config = {"group.consumer.assignment.interval.ms": 0, "group.min.session.timeout.ms": 1}
        simulation = stack.enter_context(Simulation(seed, topics={TOPIC: PARTITIONS, "u": 1}, config=config))
        # What its broker sees is not what its clients see, and so they do what no client should.
        simulation.history.object_to = lambda what: None  # type: ignore[method-assign]
        _fill(simulation)
        line.is_honest = False
        program = simulation.start("client", main)
        simulation.run_until(lambda: program.is_done, _LONGEST_S)
        program.result()
    return tally


def _fill(simulation: Simulation) -> None:
    for partition in range(PARTITIONS):
        log = simulation.broker.core.partition(TOPIC, partition)
        for first in range(0, RECORDS, 5):
            rows = [(0, None, value(partition, offset), ()) for offset in range(first, first + 5)]
            log.append(simulation.scheduler.wall_ms(), memoryview(encode_batch(rows)))


STORIES: Final = (
    Story("answers-damaged", partial(_tell, _damage), share=1_500, memory=96),
    Story("answers-that-lie", partial(_tell, _lie), share=1_500, memory=96),
)
