"""FindCoordinator in the form that each version has, for one key and for many."""

from __future__ import annotations

import pytest

from kadence.client.coordinators import KeyType, find, first_version, look_up, read
from kadence.connection.request import ANY_NODE
from kadence.errors import (
    BrokerError,
    DisconnectedError,
    GroupAuthorizationError,
    MalformedMessageError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorResponse
from kadence.protocol.registry import decode_request, encode_request
from kadence.types import Node


@pytest.mark.parametrize("kind", KeyType)
@pytest.mark.parametrize("version", range(7))
def test_one_key_is_asked_for_in_every_version(kind: KeyType, version: int) -> None:
    request = look_up(kind, "a", 9)
    assert (request.node_id, request.deadline) == (ANY_NODE, 9)
    assert request.min_version == {KeyType.GROUP: 0, KeyType.TRANSACTION: 1, KeyType.SHARE: 6}[kind]
    if version < request.min_version:
        return
    _, sent = decode_request(encode_request(request.message, version, 1, "c"))
    assert sent.key_type == kind
    assert (sent.key, sent.coordinator_keys) == (("", ["a"]) if version >= 4 else ("a", []))


@pytest.mark.parametrize("kind", [KeyType.GROUP, KeyType.TRANSACTION])
def test_many_keys_need_a_version_that_takes_many(kind: KeyType) -> None:
    message = find(kind, "a", "b")
    assert first_version(message) == 4
    _, sent = decode_request(encode_request(message, 4, 1, "c"))
    assert sent.coordinator_keys == ["a", "b"]


def test_each_key_has_its_own_answer_in_whatever_order_they_come() -> None:
    message = find(KeyType.GROUP, "a", "b", "c")
    answer = FindCoordinatorResponse(
        coordinators=[
            Coordinator("b", -1, "", -1, ec.GROUP_AUTHORIZATION_FAILED, "Not yours."),
            Coordinator("a", 3, "h", 9),
        ]
    )
    found = read(message, answer)
    assert list(found) == ["a", "b", "c"]
    assert found["a"] == Node(3, "h", 9)
    assert isinstance(found["b"], GroupAuthorizationError)
    assert str(found["b"]) == "GROUP_AUTHORIZATION_FAILED (30): group 'b': Not yours."
    assert isinstance(found["c"], MalformedMessageError)
    assert "without the group 'c'" in str(found["c"])


def test_the_old_form_is_about_the_key_that_was_asked_for() -> None:
    message = find(KeyType.TRANSACTION, "x")
    assert read(message, FindCoordinatorResponse(node_id=0, host="h", port=9)) == {"x": Node(0, "h", 9)}
    error = read(message, FindCoordinatorResponse(error_code=ec.COORDINATOR_NOT_AVAILABLE))["x"]
    assert isinstance(error, BrokerError)
    assert error.retriable
    assert str(error).startswith(
        "COORDINATOR_NOT_AVAILABLE (15): transactional id 'x': there is no coordinator yet"
    )


def test_an_answer_in_neither_form_is_no_coordinator() -> None:
    assert isinstance(read(find(KeyType.GROUP, "g"), FindCoordinatorResponse())["g"], MalformedMessageError)


def test_what_was_not_answered_is_the_end_of_each_key() -> None:
    gone = DisconnectedError("gone")
    assert read(find(KeyType.GROUP, "a", "b"), gone) == {"a": gone, "b": gone}
