"""Two brokers are asked the same; their answers are compared field by field.

A scenario asks through `Talk`, which keeps every answer as plain values. What differs from run to run has a name
instead: topics and their ids, groups, ids of members and producers, addresses, the time. Of the words of an error it
is compared whether there are any, because the words of our broker are its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final
from uuid import uuid4

import pytest
from tests.broker.wire import Wire
from tests.interop.known_topics import coordinator_knows
from tests.patience import PATIENCE
from tests.protocol.real_requests import IS_4_3, MADE_UP_IDS, versions

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.records import iter_batches
from kadence.wire import ZERO_UUID, Structure
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

__all__ = ["MADE_UP_IDS", "UNKNOWN_ID", "Scenario", "Talk", "assert_same", "differences"]

UNKNOWN_ID: Final = b"?" * 16
"""A topic id that no topic has."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MESSAGES: Final = {"error_message", "batch_index_error_message"}
_NAMES: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "transactional_id")
_ORDERED: Final = {"synonyms"}
_APART: Final = {
    # A new Kafka has it set for all brokers at once (KIP-966), which means something only with replicas.
    "min.insync.replicas",
    # Kafka 4.3 does not have these.
    *(("max.decompressed.message.bytes", "remote.copy.lag.bytes", "remote.copy.lag.ms") if IS_4_3 else ()),
}
"""Names of settings that are not compared."""
_RECENT: Final = 1_600_000_000_000
"""Numbers above it are times that the broker took from its clock."""


class Talk:
    """One broker, what was asked of it, and what it said."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._port = int(address.rpartition(":")[2])
        self._names: dict[str, str] = {}
        self._ids: dict[bytes, str] = {ZERO_UUID: "no id", UNKNOWN_ID: "unknown id"}
        self._producers: list[int] = []
        self._wires: list[Wire] = []
        self.told: list[tuple[str, Any]] = []
        self.wire = self.connect()

    def connect(self) -> Wire:
        wire = Wire(self._address)
        self._wires.append(wire)
        return wire

    def close(self) -> None:
        for wire in self._wires:
            wire.sock.close()

    # What a scenario is about

    def named(self, kind: str) -> str:
        """A name that nobody else uses; answers tell it as its kind."""
        name = f"{kind}-{uuid4()}"
        self._names[name] = f"<{kind}>"
        return name

    def topic(self, partitions: int = 1, kind: str = "topic", **config: str) -> str:
        """A topic whose partitions are led; "_" in the names of its settings stands for "."."""
        name = self.named(kind)
        configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
        asked = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=configs)], 5_000)
        (made,) = self.wire.call(asked).topics
        assert made.error_code == codes.NONE, made
        self._ids[made.topic_id] = f"id of <{kind}>"
        self.wait_for_leaders(name, partitions)
        return name

    def topic_id(self, name: str) -> bytes:
        return next(each for each, told in self._ids.items() if told == f"id of {self._names[name]}")

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Real Kafka answers a creation before the partitions are led."""
        asked = [ListOffsetsPartition(index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(name, asked)], timeout_ms=1_000)
        self.until(
            lambda: not any(each.error_code for each in self.wire.call(request).topics[0].partitions),
            "no leaders",
        )

    def topic_of_groups(self, partitions: int = 1) -> str:
        """A topic that members of KIP-848 are assigned as soon as they join."""
        name = self.topic(partitions)
        self.until(lambda: coordinator_knows(self.wire, [name]), "the coordinator does not know the topic")
        return name

    def group(self, kind: str = "group") -> str:
        """A group with a coordinator, which real Kafka has once its topic is made."""
        name = self.named(kind)
        look_up = FindCoordinatorRequest(coordinator_keys=[name])
        beat = HeartbeatRequest(name, 0, "m")
        self.until(
            lambda: (
                self.wire.call(look_up).coordinators[0].error_code == codes.NONE
                and self.wire.call(beat).error_code == codes.UNKNOWN_MEMBER_ID
            ),
            "no coordinator",
        )
        return name

    def transactional_id(self, kind: str = "transactional id") -> str:
        """An id with a coordinator."""
        name = self.named(kind)
        look_up = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        end = EndTxnRequest(name, 1, 0, committed=True)
        ids = InitProducerIdRequest(None, 60_000)
        self.until(
            lambda: (
                self.wire.call(look_up).coordinators[0].error_code == codes.NONE
                and self.wire.call(end).error_code == codes.INVALID_PRODUCER_ID_MAPPING
                and self.wire.call(ids).error_code == codes.NONE
            ),
            "no transaction coordinator",
        )
        return name

    def until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Ask again while real Kafka settles."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, otherwise

    # Asking

    def ask(
        self, request: Any, version: int | None = None, *, without: tuple[str, ...] = (), mine: bool = False
    ) -> Any:
        """Ask, and keep the answer; None if the broker ended the connection instead.

        Args:
            without: fields that are not compared. mine: of lists only what this talk has named.
        """
        version = versions(type(request))[-1] if version is None else version
        try:
            answer = self.wire.call(request, version)
        except ConnectionError:
            answer = None
            self.wire = self.connect()
        asked = f"{self._known(repr(request))} v{version}"
        self.note(asked, "the connection ended" if answer is None else self._plain(answer, "", without, mine))
        return answer

    def keep(self, what: str, answer: Any, *, without: tuple[str, ...] = ()) -> None:
        """Keep an answer that came on another connection."""
        self.note(what, self._plain(answer, "", without, mine=False))

    def note(self, what: str, told: Any) -> None:
        """Keep something for comparison."""
        self.told.append((what, told))

    def _known(self, text: str) -> str:
        for name, told in self._names.items():
            text = text.replace(name, told)
        return _UUID.sub("<uuid>", text)

    def _is_mine(self, value: Any) -> bool:
        names = [getattr(value, each) for each in _NAMES if isinstance(getattr(value, each, None), str)]
        return not names or any(each in self._names for each in names)

    def _plain(self, value: Any, field: str, without: tuple[str, ...], mine: bool) -> Any:
        if isinstance(value, Structure):
            return {
                name: self._plain(getattr(value, name), name, without, mine)
                for name in value.__slots__
                if name not in without and (name != "unknown_tags" or value.unknown_tags)  # type: ignore[attr-defined]
            }
        if isinstance(value, list):
            kept = [
                each
                for each in value
                if (not mine or self._is_mine(each)) and getattr(each, "name", None) not in _APART
            ]
            plain = [self._plain(each, field, without, mine) for each in kept]
            # Kafka collects most answers in hash tables.
            return plain if field in _ORDERED else sorted(plain, key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value)
            if field == "records":
                return _whole_batches(value)
            if field == "topic_id":
                return self._ids.get(value, "an id")
            for name, told in self._names.items():
                value = value.replace(name.encode(), told.encode())
            return value
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return self._number(value, field)
        if isinstance(value, str):
            if field in _MESSAGES:
                return "some words" if value else value
            if field in ("log_dir", "cluster_id", "host"):
                return f"<{field}>" if value else value
            return self._known(value)
        return value

    def _number(self, value: int, field: str) -> Any:
        if field.endswith("error_code"):
            return codes.name(value)
        if field == "port":
            return "<port>" if value == self._port else value
        if field == "session_id":
            return "<session>" if value else 0
        if field == "producer_id" and 0 <= value < MADE_UP_IDS:
            if value not in self._producers:
                self._producers.append(value)
            return f"<producer {self._producers.index(value)}>"
        if field in ("total_bytes", "usable_bytes"):
            return "<bytes>" if value >= 0 else value
        return "<now>" if _RECENT < value < 2 * _RECENT else value


def _whole_batches(records: bytes) -> list[bytes]:
    """Kafka cuts off in the middle of a batch where its limit of bytes is, and clients leave that piece out."""
    return [bytes(data) for _, data in iter_batches(records)]


Scenario = Callable[[Talk], None]
"""Asks one broker; what it asks does not hang on who answers."""


def assert_same(kafka: Kafka, scenario: Scenario, **config: Any) -> None:
    """Let both brokers answer a scenario; say all that differs.

    Args:
        config: settings of our broker; "_" in their names stands for ".".
    """
    found = differences(kafka, scenario, **config)
    if found:
        pytest.fail("\n".join([f"{len(found)} fields differ", *found]), pytrace=False)


def differences(kafka: Kafka, scenario: Scenario, **config: Any) -> list[str]:
    """Where the answers of our broker differ from Kafka's, each as a line.

    Args:
        config: settings of our broker; "_" in their names stands for ".".
    """
    settings = {
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 200,
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    told = []
    with Broker(config=settings) as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            talk = Talk(address)
            try:
                scenario(talk)
            finally:
                talk.close()
            told.append(talk.told)
    ours, kafkas = told
    found = []
    for number, (mine, theirs) in enumerate(zip_longest(ours, kafkas)):
        if mine is None or theirs is None:
            found.append(f"answer {number}: ours {mine}, Kafka's {theirs}")
            continue
        found += [f"answer {number} to {mine[0]}: {each}" for each in _unlike(mine[1], theirs[1], "")]
    return found


def _unlike(ours: Any, kafkas: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(kafkas, dict) and ours.keys() == kafkas.keys():
        for name in ours:
            yield from _unlike(ours[name], kafkas[name], f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for index, pair in enumerate(zip(ours, kafkas, strict=True)):
            yield from _unlike(*pair, f"{path}[{index}]")
    elif ours != kafkas:
        yield f"{path}: ours {ours!r}, Kafka's {kafkas!r}"
