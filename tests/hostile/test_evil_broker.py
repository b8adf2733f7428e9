"""A broker lies on purpose: each client raises Kadence's errors, asks no more than it should, and closes in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.hostile.clients import CLIENTS, filled_broker
from tests.hostile.proxy import Answer, Lie, lying_proxy

from kadence import KafkaError, Producer
from kadence.protocol.api_versions import ApiVersion, ApiVersionsResponse
from kadence.protocol.metadata import MetadataResponse, MetadataResponsePartition

_ROUNDS: Final = 5
_MOST_REQUESTS: Final = 1_000
"""Far more than honest answers need, and far less than a client sends that repeats itself without a pause."""


_VERSIONS: Final[dict[tuple[int, int], bytes]] = {}
"""Frames by the number of their entries and the version; making one anew for each answer takes half a second."""


def _versions(count: int) -> Lie:
    """So many supported versions: 300,000 are 2 MiB before anybody has logged in, 50,000 become as many objects."""

    def lie(answer: Answer) -> bytes:
        if not isinstance(answer.response, ApiVersionsResponse):
            return answer.encoded()
        key = count, answer.version
        if key not in _VERSIONS:
            answer.response.api_keys = [ApiVersion(api_key=number % 100) for number in range(count)]
            _VERSIONS[key] = answer.encoded()
        return answer.correlation_id.to_bytes(4) + _VERSIONS[key][4:]

    return lie


def _partitions(*indexes: int) -> Lie:
    """Topics have these partitions."""

    def lie(answer: Answer) -> bytes:
        if isinstance(answer.response, MetadataResponse):
            for topic in answer.response.topics:
                topic.partitions = [
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=answer.response.brokers[0].node_id,
                        leader_epoch=0,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                    for index in indexes
                ]
        return answer.encoded()

    return lie


def _every_error(code: int) -> Lie:
    """All answers but those about versions say this."""

    def lie(answer: Answer) -> bytes:
        if not isinstance(answer.response, ApiVersionsResponse):
            _set_codes(answer.response, code)
        return answer.encoded()

    return lie


def _set_codes(message: Any, code: int) -> None:
    for name in type(message).__slots__:
        value = getattr(message, name, None)
        if name == "error_code" and not getattr(message, "coordinators", None):
            message.error_code = code
        for each in value if isinstance(value, list) else ():
            if hasattr(type(each), "__slots__"):
                _set_codes(each, code)


def _throttled(answer: Answer) -> bytes:
    if hasattr(answer.response, "throttle_time_ms"):
        answer.response.throttle_time_ms = 2**31 - 1
    return answer.encoded()


def _nowhere(answer: Answer) -> bytes:
    """Brokers have names that nobody can connect to."""
    if isinstance(answer.response, MetadataResponse):
        for place, broker in enumerate(answer.response.brokers):
            broker.host, broker.port = ("", "\0", "x" * 300, "127.0.0.1")[place % 4], 0
    return answer.encoded()


def _another_id(answer: Answer) -> bytes:
    return (answer.correlation_id + 1).to_bytes(4) + answer.encoded()[4:]


def _trailing(answer: Answer) -> bytes:
    return answer.encoded() + b"x" * 100


LIES: Final[dict[str, Lie]] = {
    "lengthy versions": _versions(300_000),
    "many versions": _versions(50_000),
    "no partitions": _partitions(),
    "partition -1": _partitions(-1),
    "a gap": _partitions(5),
    "a partition twice": _partitions(0, 0, 1),
    "unknown code": _every_error(234),
    "unknown server error": _every_error(-1),
    "not leader": _every_error(6),
    "throttled for weeks": _throttled,
    "brokers nowhere": _nowhere,
    "another correlation id": _another_id,
    "more bytes than it has": _trailing,
    "hangs up": lambda _: None,
}


@pytest.mark.parametrize("kind", [kind for kind in CLIENTS if kind not in ("asyncio", "operator")])
@pytest.mark.parametrize("name", LIES)
def test_lies(name: str, kind: str) -> None:
    asked = _Counter(LIES[name])
    with filled_broker() as broker, lying_proxy(broker, asked) as servers:
        CLIENTS[kind](servers, _ROUNDS, None)
    assert asked.count < _MOST_REQUESTS


@pytest.mark.parametrize("indexes", [(-1,), (5,), (0, 0, 1), ()])
def test_a_table_is_not_written_to_partitions_that_cannot_be(indexes: tuple[int, ...]) -> None:
    pa = pytest.importorskip("pyarrow")
    with filled_broker() as broker, lying_proxy(broker, _partitions(*indexes)) as servers:
        producer = Producer(bootstrap_servers=servers, max_block_ms=100, retry_backoff_ms=10)
        with pytest.raises(KafkaError):
            producer.send_arrow("t", pa.table({"value": [b"1", b"2"]}))
        producer.close(1)


class _Counter:
    """A lie that counts what was asked."""

    def __init__(self, lie: Callable[[Answer], bytes | None]) -> None:
        self._lie = lie
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, answer: Answer) -> bytes | None:
        with self._lock:
            self.count += 1
            return self._lie(answer)
