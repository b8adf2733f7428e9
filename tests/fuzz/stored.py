"""What coordinators load from their topics: any records must leave a coordinator that serves, whatever they say.

The input is a list of records, each a key and a value behind their lengths; a value of length -1 is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from tests.fuzz.full import full
from tests.fuzz.target import Target
from tests.protocol.values import cases
from tests.worlds.coordinator import World

from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kadence.wire import WireError, Writer
from kadence_broker.coordinator import Caller, Record
from kadence_broker.coordinator.records import decode, decode_transaction, encode
from kadence_broker.coordinator.transactions import TransactionConfig, TransactionCoordinator

__all__ = ["GROUPS", "TRANSACTIONS"]

_LENGTH: Final = struct.Struct(">h")
_NAMES: Final = ("t", "g", "", "m")
"""Of groups and members; seeds say "t" everywhere."""


def _pack(key: bytes, value: bytes | None) -> bytes:
    size = -1 if value is None else len(value)
    return _LENGTH.pack(len(key)) + key + _LENGTH.pack(size) + (value or b"")


def _unpack(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0

    def take() -> bytes | None:
        nonlocal at
        if at + _LENGTH.size > len(data):
            return None
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    while (key := take()) is not None:
        yield key, take()


def _seeds(transactions: bool) -> list[bytes]:
    """Each kind of record alone, its tombstone, and all one behind the other."""
    keys = {}
    values: dict[str, list[bytes]] = {}
    for case in cases():
        kind = case.python.__name__
        if not hasattr(case.python, "RECORD_TYPE") and not kind.endswith("Value"):
            continue
        writer = Writer()
        writer.put(_LENGTH.pack(case.version if kind.endswith("Value") else case.python.RECORD_TYPE))
        full(case).write(writer, case.version)
        if kind.endswith("Value"):
            values.setdefault(kind.removesuffix("Value"), []).append(writer.getvalue())
        else:
            keys[kind.removesuffix("Key")] = writer.getvalue()
    seeds = []
    for name, key in keys.items():
        if name.startswith("Transaction") == transactions:
            seeds += [_pack(key, value) for value in values[name]]
            seeds.append(_pack(key, values[name][-1]) + _pack(key, None))
    return [*seeds, b"".join(seeds)]


def _records(data: bytes, transactions: bool) -> list[Record]:
    found = []
    for key, value in _unpack(data):
        try:
            record = (decode_transaction if transactions else decode)(key, value)
        except WireError:
            continue
        if record is not None:
            found.append(record)
            assert (decode_transaction if transactions else decode)(*encode(record)) is not None
    return found


def _load_groups(data: bytes) -> object:
    records = _records(data, transactions=False)
    world = World()
    for record in records:
        world.coordinator.replay(record)
    world.coordinator.loaded(0)
    for request in _questions():
        sent = world.send(request, type(request).MAX_VERSION)
        assert sent.response is not None
    world.advance(100_000)
    stored = [encode(record) for record in world.snapshot()]
    world.move(rewritten=True)
    assert [encode(record) for record in world.snapshot()] == stored
    return records or None


def _questions() -> list[Any]:
    return [
        ListGroupsRequest(),
        DescribeGroupsRequest(groups=list(_NAMES)),
        ConsumerGroupDescribeRequest(group_ids=list(_NAMES)),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="t", topics=None)]),
        HeartbeatRequest("t", 1, "t"),
        ConsumerGroupHeartbeatRequest(
            group_id="t",
            member_id="new",
            subscribed_topic_names=["t"],
            topic_partitions=[],
            rebalance_timeout_ms=1_000,
        ),
    ]


def _load_transactions(data: bytes) -> object:
    records = _records(data, transactions=True)
    coordinator = _transactions()
    for record in records:
        coordinator.replay(record)
    _finish(coordinator, 0)
    _finish(coordinator, 10**9)
    stored = [encode(record) for record in coordinator.snapshot(lambda _: True)]
    again = _transactions()
    for key, value in stored:
        known = decode_transaction(key, value)
        assert known is not None
        again.replay(known)
    assert [encode(record) for record in again.snapshot(lambda _: True)] == stored
    return records or None


def _transactions() -> TransactionCoordinator:
    return TransactionCoordinator(
        TransactionConfig(),
        topics=World().topics,
        offsets_partition=lambda _: 0,
        new_producer_id=lambda: 1_000,
    )


def _finish(coordinator: TransactionCoordinator, now: int) -> None:
    """End what was decided, and ask about everything."""
    for step in (coordinator.loaded(now), coordinator.poll(now)):
        for each in step.endings:
            coordinator.marked(now, each.transactional_id)
    for request in (
        ListTransactionsRequest(),
        DescribeTransactionsRequest(["t", "", "nobody"]),
        InitProducerIdRequest("t", 60_000),
    ):
        caller = Caller(0, type(request).MAX_VERSION, "c", "/host")
        step = coordinator.handle(now, caller, request)
        assert step.answers or step.endings


GROUPS: Final = Target("groups", lambda: _seeds(transactions=False), _load_groups, share=4_000)
TRANSACTIONS: Final = Target(
    "transactions", lambda: _seeds(transactions=True), _load_transactions, share=4_000
)
