"""Frames of strangers at a broker without sockets: each is answered, parked or refused, and none meets a bug.

Some are well-formed and make no sense (NONSENSE). The others are damaged (DISPATCH): the input is a list of frames,
each behind a byte that says which node gets it and how much time passes before, and its length. They meet the same
broker one after the other, so what one leaves there the next may stumble over.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Any, Final

from tests.broker.stage import Nobody, Stage
from tests.fuzz.messages import requests
from tests.fuzz.target import Story, Tally, Target

from kadence.protocol import registry
from kadence.wire import WireError
from kadence_broker.handlers import HANDLERS

__all__ = ["DISPATCH", "NONSENSE", "Bugs"]

_HEAD: Final = struct.Struct(">BH")
_TIMES: Final = (0, 0, 0, 0, 1, 100, 10_000, 1_000_000)
_MOST: Final = 60
"""Frames of one input."""
_REQUESTS: Final = 800


class Bugs(logging.Handler):
    """What the broker logs as its own mistakes."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or "bug" in record.getMessage():
            self.found.append(logging.Formatter().format(record))


def _pack(frame: bytes, way: int = 0) -> bytes:
    return _HEAD.pack(way, len(frame)) + frame


def _unpack(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        way, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        yield way, data[at - size : at]


def _seeds() -> list[bytes]:
    """Every request alone, and a few that belong together; time passes behind them."""
    frames = [frame for _, _, frame in requests()]
    newest = {kind: frame for kind, _, frame in requests()}
    return [_pack(frame) + _pack(b"", 0x70) for frame in frames] + [
        b"".join(_pack(frame) for frame in list(newest.values())[at : at + 8])
        for at in range(0, len(newest), 4)
    ]


def _serve(data: bytes) -> object:
    stage, bugs = Stage(0), Bugs()
    log = logging.getLogger("kadence.broker")
    log.addHandler(bugs)
    served = 0
    try:
        for number, (way, frame) in enumerate(_unpack(data)):
            if number >= _MOST:
                break
            _pass_time(stage, _TIMES[way >> 4 & 7])
            connection: Any = Nobody(1 + (way & 1))
            stage.dispatcher.on_frame(connection, frame)
            served += bool(connection.sent)
            _judge(connection, frame)
            if connection.on_gone is not None and way & 2:
                connection.on_gone()
        _pass_time(stage, 10_000_000)
    finally:
        log.removeHandler(bugs)
        stage.loop.close()
    assert not bugs.found, bugs.found[0]
    return served or None


def _judge(connection: Any, frame: bytes) -> None:
    """Whoever has sent a request hears of it; or waits, or is closed."""
    try:
        header, _ = registry.decode_request(frame)
    except WireError:
        return
    for each in connection.sent:
        kind = registry.REQUESTS[header.request_api_key]
        assert (
            registry.decode_response(kind, header.request_api_version, each[4:])[0] == header.correlation_id
        )
    assert len(connection.sent) <= 1


def _pass_time(stage: Stage, ms: int) -> None:
    if ms:
        stage.clock.advance(ms)
        now = stage.clock.now_ms()
        stage.loop._run_timers(now)
        stage.coordination.poll(now)
        stage.services.transactions.poll(now)


def _make_no_sense(seed: int) -> Tally:
    """Requests that can be read, with values drawn from small pools, so that names and numbers often hit something."""
    stage, bugs, tally = Stage(seed), Bugs(), Tally()
    log = logging.getLogger("kadence.broker")
    log.addHandler(bugs)
    answered = 0
    try:
        for number in range(_REQUESTS):
            handler = HANDLERS[stage.random.choice(sorted(HANDLERS))]
            version = stage.random.randint(handler.request.MIN_VERSION, handler.request.MAX_VERSION)
            frame = stage.frame(handler.request, version)
            if frame is None:
                continue
            connection: Any = Nobody(stage.random.choice([1, 2]))
            stage.dispatcher.on_frame(connection, frame)
            tally.mutations += 1
            answered += len(connection.sent)
            _judge(connection, frame)
            if number % 5 == 0:
                stage.pass_time()
            assert not bugs.found, bugs.found[0]
    finally:
        log.removeHandler(bugs)
        stage.loop.close()
    assert tally.mutations > 0.75 * _REQUESTS
    assert answered > 0.8 * tally.mutations
    return tally


NONSENSE: Final = Story("nonsense", _make_no_sense, share=15_000)
DISPATCH: Final = Target("dispatch", _seeds, _serve, share=15_000)
