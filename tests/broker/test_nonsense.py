"""Well-formed requests that make no sense: every one is answered, parked or refused, and none meets a bug.

The dispatcher runs without sockets or threads, under a clock that the test moves, on a broker that has a
topic, a group and offsets, so that names and numbers drawn from small pools often hit something.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.broker.stage import Nobody, Stage
from tests.luck import seeds

from kadence.broker.handlers import HANDLERS
from kadence.protocol.registry import decode_response


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(request.param)
    yield made
    made.loop.close()


@pytest.mark.parametrize("stage", seeds(2), indirect=True)
def test_no_request_meets_a_bug(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "kadence.broker")
    served = answered = 0
    for number in range(800):
        handler = HANDLERS[stage.random.choice(sorted(HANDLERS))]
        version = stage.random.randint(handler.request.MIN_VERSION, handler.request.MAX_VERSION)
        frame = stage.frame(handler.request, version)
        if frame is None:
            continue
        connection = Nobody(stage.random.choice([1, 2]))
        stage.dispatcher.on_frame(connection, frame)  # type: ignore[arg-type]
        served += 1
        for each in connection.sent:
            assert decode_response(handler.request, version, each[4:])[0] == 1
            answered += 1
        if number % 5 == 0:
            stage.pass_time()
        assert caplog.text == "", (handler.request, version)
    assert served > 600
    assert answered > served * 0.8
