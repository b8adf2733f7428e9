"""Requests and answers whose shape is not quite the protocol's."""

from __future__ import annotations

import pytest

from kadence.consumer.group.classic_requests import SyncGroupRequest, SyncGroupResponse
from kadence.protocol import error_codes as ec
from kadence.wire import Reader, WireError

NULL = b"\xff\xff\xff\xff"


def test_an_error_of_sync_group_is_believed_without_an_assignment() -> None:
    assert SyncGroupRequest.RESPONSE is SyncGroupResponse
    answer = SyncGroupResponse.read(Reader(bytes(4) + b"\x00\x1b" + NULL), 3)
    assert answer.error_code == ec.REBALANCE_IN_PROGRESS
    assert SyncGroupResponse.read(Reader(b"\x00\x16" + NULL), 0).error_code == ec.ILLEGAL_GENERATION


def test_a_success_without_an_assignment_is_not() -> None:
    with pytest.raises(WireError):
        SyncGroupResponse.read(Reader(bytes(6) + NULL), 3)


def test_a_sound_answer_is_read_as_it_is() -> None:
    answer = SyncGroupResponse.read(Reader(bytes(6) + b"\x00\x00\x00\x01x"), 3)
    assert answer.assignment == b"x"
