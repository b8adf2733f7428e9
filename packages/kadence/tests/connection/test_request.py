"""Requests are values with identity."""

from __future__ import annotations

from kadence.connection.request import ANY_NODE, ConnectionPurpose, Request
from kadence.protocol.heartbeat import HeartbeatRequest


def test_equal_requests_are_still_two() -> None:
    message = HeartbeatRequest(group_id="g", member_id="m")
    first, second = Request(message, 1, 10), Request(message, 1, 10)
    assert first != second
    assert len({first, second}) == 2


def test_repr_is_one_line() -> None:
    message = HeartbeatRequest(group_id="g", member_id="m")
    assert repr(Request(message, 1, 10)) == "<Request Heartbeat to node 1 MAIN>"
    assert (
        repr(Request(message, ANY_NODE, 10, ConnectionPurpose.JOIN)) == "<Request Heartbeat to any node JOIN>"
    )
