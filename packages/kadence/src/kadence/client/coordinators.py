"""The coordinators of groups, transactional ids and share partitions: FindCoordinator, written and read. Sans-IO.

A request is one for any number of keys (KIP-699). A broker before 3.0 takes one key at a time; a request with one key
is written in its form if a connection finds such a broker, and the caller for many must then ask for each.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kadence.connection.request import ANY_NODE, Request
from kadence.errors import KafkaError, MalformedMessageError, for_code
from kadence.printable import printable
from kadence.protocol import error_codes as ec
from kadence.protocol import find_coordinator
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorResponse
from kadence.types import Node
from kadence.wire import Writer

__all__ = ["FindCoordinatorRequest", "KeyType", "find", "first_version", "look_up", "read"]

_MANY_KEYS: Final = 4
"""The first version that takes many keys at once."""


class KeyType(IntEnum):
    """The kind of key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_NAMES: Final = {
    KeyType.GROUP: "group",
    KeyType.TRANSACTION: "transactional id",
    KeyType.SHARE: "share partition",
}
_FIRST_VERSION: Final = {KeyType.GROUP: 0, KeyType.TRANSACTION: 1, KeyType.SHARE: 6}


class FindCoordinatorRequest(find_coordinator.FindCoordinatorRequest):
    """Holds ``coordinator_keys``; writes ``key`` where the broker takes only one."""

    def write(self, w: Writer, version: int) -> None:
        if version >= _MANY_KEYS:
            super().write(w, version)
        else:
            (key,) = self.coordinator_keys
            find_coordinator.FindCoordinatorRequest(key=key, key_type=self.key_type).write(w, version)


def find(key_type: KeyType, *keys: str) -> FindCoordinatorRequest:
    """Ask who coordinates each of these."""
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[*keys])


def first_version(message: FindCoordinatorRequest) -> int:
    """The first version that can ask this."""
    many = _MANY_KEYS if len(message.coordinator_keys) > 1 else 0
    return max(_FIRST_VERSION[KeyType(message.key_type)], many)


def look_up(key_type: KeyType, key: str, deadline: int) -> Request:
    """Ask any broker who coordinates one."""
    message = find(key_type, key)
    return Request(message, ANY_NODE, deadline, min_version=first_version(message))


def read(
    message: FindCoordinatorRequest, answer: FindCoordinatorResponse | KafkaError
) -> dict[str, Node | KafkaError]:
    """The coordinator of each key that was asked for, or why it has none."""
    if isinstance(answer, KafkaError):
        return dict.fromkeys(message.coordinator_keys, answer)
    by_key = {each.key: each for each in answer.coordinators}
    if not by_key and (answer.host or answer.error_code):
        by_key = {key: _only(key, answer) for key in message.coordinator_keys}
    return {
        key: _found(_NAMES[KeyType(message.key_type)], key, by_key.get(key))
        for key in message.coordinator_keys
    }


def _only(key: str, answer: FindCoordinatorResponse) -> Coordinator:
    """The answer of a broker that takes one key at a time."""
    return Coordinator(key, answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)


def _found(kind: str, key: str, found: Coordinator | None) -> Node | KafkaError:
    if found is None:
        return MalformedMessageError(f"FindCoordinator was answered without the {kind} {printable(key)!r}")
    if found.error_code:
        why = found.error_message or ec.MESSAGES.get(found.error_code, "no coordinator")
        return for_code(found.error_code, f"{kind} {key!r}: {why}")
    return Node(found.node_id, found.host, found.port)
