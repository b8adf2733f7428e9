"""The short way of a record: what the program brings along is called once for each."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import Consumer
from kadence._native.append import ShortWay, TopicInfo, murmur2
from kadence.client.gate import Gate
from kadence.clock import wall_ms
from kadence.errors import KafkaError, SerializationError
from kadence.producer import Producer
from kadence.producer.accumulator import Accumulator
from kadence.producer.calls import Outgoing
from kadence.producer.futures import RecordFuture
from kadence.producer.partitioner import StickyPartitioner
from kadence.records import FetchedRecords
from kadence.types import TopicPartition
from kadence_broker import Broker


def shelf(batch_size: int = 100_000, clock: Callable[[], int] = wall_ms) -> Accumulator:
    """One topic of three partitions, each with a batch that was begun."""
    accumulator = Accumulator(
        batch_size=batch_size,
        linger_ms=60_000,
        buffer_memory=1_000_000,
        delivery_timeout_ms=60_000,
        gate=Gate(),
        wall_ms=clock,
    )
    tps = tuple(TopicPartition("t", number) for number in range(3))
    accumulator.places["t"] = TopicInfo((), tps, (0, 1, 2), StickyPartitioner(batch_size))
    for tp in tps:
        accumulator.append(tp, wall_ms(), None, b"first", (), 30, 0)
    accumulator.announce()
    return accumulator


def way(
    accumulator: Accumulator,
    key: Any = None,
    value: Any = None,
    choose: Any = None,
    not_taken: Callable[[KafkaError], None] = lambda error: None,
) -> Any:
    return ShortWay(accumulator, key, value, choose, Outgoing, not_taken)


def written(accumulator: Accumulator, partition: int) -> list[tuple[Any, ...]]:
    """Key, value and headers of what was added to a partition's batches."""
    found: list[tuple[Any, ...]] = []
    for batch in accumulator.waiting[TopicPartition("t", partition)]:
        records = FetchedRecords(batch.builder.build(), "", 0, 0).take(1000)
        found += [(each.key, each.value, list(each.headers)) for each in records]
    return found[1:]


def test_a_record_is_serialised_once_and_goes_where_its_bytes_say() -> None:
    accumulator, seen = shelf(), []

    def text(data: str) -> bytes:
        seen.append(data)
        return data.encode()

    put = way(accumulator, key=text, value=text).put
    assert isinstance(put("t", "value", "key", None, None), RecordFuture)
    assert seen == ["value", "key"]
    partition = (murmur2(b"key") & 0x7FFFFFFF) % 3
    assert written(accumulator, partition) == [(b"key", b"value", [])]
    assert isinstance(put("t", None, None, 1, None), RecordFuture), "None stays None"
    assert len(seen) == 2


def test_a_record_without_a_time_has_that_of_the_clock() -> None:
    put = way(shelf()).put
    before = wall_ms()
    taken = [put("t", b"value", None, 1, None) for _ in range(3)]
    assert all(type(each.timestamp) is int and before <= each.timestamp <= wall_ms() for each in taken)
    assert put("t", b"value", None, 1, 7).timestamp == 7
    put = way(shelf(clock=lambda: 12_345)).put
    assert put("t", b"value", None, 1, None).timestamp == 12_345


def test_all_records_have_the_time_of_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a test has stopped Python's: those that begin a batch, and those that come into it."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)
    accumulator = shelf()
    put = way(accumulator).put
    assert abs(put("t", b"value", None, 1, None).timestamp - accumulator.wall_ms()) < 600_000
    assert abs(put("t", bytearray(b"value"), None, 1, None).timestamp - accumulator.wall_ms()) < 600_000


def test_what_the_appender_does_not_take_is_given_as_it_was_made() -> None:
    accumulator, asked = shelf(batch_size=150), []

    def choose(topic: str, key: bytes | None, place: Any) -> int | None:
        asked.append((topic, key))
        return None if key == b"K" else 2

    put = way(accumulator, key=str.encode, value=bytes.upper, choose=choose).put
    given = put("t", b"x" * 200, "k", None, 7, {"h": b"1"})
    assert given._replace(headers=[*given.headers]) == ("t", b"X" * 200, b"k", 2, 7, [("h", b"1")], True)
    given = put("t", b"x" * 200, "K", None, None)
    assert (given.partition, given.is_anywhere) == (None, True)
    assert given.timestamp <= wall_ms()
    assert asked == [("t", b"k"), ("t", b"K")]


@pytest.mark.parametrize(
    "fields",
    [
        ("u", "v", "k", None, None),
        (5, "v", "k", None, None),
        ("t", "v", "k", 1.0, None),
        ("t", "v", "k", None, -1),
        ("t", "v", "k", None, 2**63),
        ("t", "v", "k", None, "now"),
        ("t", "v", "k", None, None, iter([("a", b"1")])),
        ("t", "v", "k", None, None, [("a", bytearray(b"1"))]),
    ],
)
def test_what_must_be_looked_at_is_left_as_it_is(fields: tuple[Any, ...]) -> None:
    def never(data: Any) -> bytes:
        raise AssertionError("the long way calls it")

    assert way(shelf(), key=never, value=never).put(*fields) is None


def test_bytes_of_other_types_and_mappings_are_taken() -> None:
    accumulator = shelf()
    put = way(accumulator).put
    assert isinstance(put("t", bytearray(b"v"), memoryview(b"k"), 0, None, {"h": b"1"}), RecordFuture)
    assert isinstance(put("t", b"v", None, 0, None, [("h", None)]), RecordFuture)
    assert written(accumulator, 0) == [(b"k", b"v", [("h", b"1")]), (None, b"v", [("h", None)])]
    assert put("t", "text", None, 0, None) is None
    accumulator.is_usable = False
    assert put("t", bytearray(b"v"), None, 0, None) is None


def test_a_serialiser_may_add_headers_and_the_callers_list_stays() -> None:
    class Marking:
        def serialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: Any) -> bytes:
            assert isinstance(headers, list)
            headers.append(("made", topic.encode()))
            return bytes(data)

    accumulator, mine = shelf(), [("mine", b"1")]
    assert isinstance(way(accumulator, value=Marking()).put("t", b"v", None, 0, None, mine), RecordFuture)
    assert written(accumulator, 0) == [(None, b"v", [("mine", b"1"), ("made", b"t")])]
    assert mine == [("mine", b"1")]


@pytest.mark.parametrize("headers", [None, (), [], {}])
def test_no_headers_are_said_in_many_ways(headers: Any) -> None:
    accumulator = shelf()
    put = way(accumulator).put
    assert isinstance(put("t", b"v", None, 0, None, headers), RecordFuture)
    assert isinstance(put("t", bytearray(b"w"), None, 0, None, headers), RecordFuture)
    assert written(accumulator, 0) == [(None, b"v", []), (None, b"w", [])]


def test_errors_are_told() -> None:
    told: list[KafkaError] = []
    fault = KafkaError("the partitioner's own")

    def choose(topic: str, key: bytes | None, place: Any) -> int:
        raise fault

    put = way(shelf(), value=str.encode, choose=choose, not_taken=told.append).put
    with pytest.raises(SerializationError, match="the value of a record for topic 't' cannot be serial") as e:
        put("t", 5, None, None, None)
    assert isinstance(e.value.__cause__, TypeError)
    assert told == []
    with pytest.raises(KafkaError) as raised:
        put("t", "v", None, None, None)
    assert raised.value is fault
    assert told == [fault]
    with pytest.raises(SerializationError, match=r"value\.serializer made str of the value"):
        way(shelf(), value=str).put("t", 5, None, None, None)


def test_another_event_loop_is_found() -> None:
    def refuse() -> None:
        raise RuntimeError("another loop")

    short_way, loop = way(shelf()), object()
    short_way.only_on(loop, lambda: loop, refuse)
    assert short_way.put("t", b"v", None, 0, None) is not None
    short_way.only_on(loop, object, refuse)
    with pytest.raises(RuntimeError, match="another loop"):
        short_way.put("t", b"v", None, 0, None)


def test_where_the_long_way_goes_on_nothing_is_called_twice(broker: Broker) -> None:
    """Batches of one or two records: most records begin one."""
    called: list[str] = []

    def text(data: str) -> bytes:
        called.append(data)
        return data.encode()

    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int | None:
        called.append("partition")
        return None if key is None or key.endswith(b"5") else int(key) % len(partitions)

    settings: dict[str, Any] = {"batch_size": 150, "value_serializer": text, "partitioner": choose}
    broker.create_topic("t", 4)
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.partitions_for("t")
        futures = [producer.send("t", f"value {number}", b"%d" % number) for number in range(50)]
        found = [future.result(PATIENCE) for future in futures]
    assert sorted(called) == sorted(["partition"] * 50 + [f"value {number}" for number in range(50)])
    numbers = [number for number in range(50) if number % 10 != 5]
    assert [found[number].partition for number in numbers] == [number % 4 for number in numbers]


def test_futures_are_none_of_the_cycle_collectors_business() -> None:
    """It would go through each of them that a program keeps; what refers to itself through one goes without it."""

    class Callback:
        future: RecordFuture | None = None

        def __call__(self, future: RecordFuture) -> None:
            assert future.result(0).offset == 7

    accumulator = shelf()
    future = accumulator.put("t", b"value", None, 0, None, ())
    assert future is not None
    assert not gc.is_tracked(future)
    callback = Callback()
    callback.future = future
    future.add_done_callback(callback)
    gone = weakref.ref(callback)
    gc.disable()
    try:
        future.delivery.complete(7 - future.index)
        del callback, future
        assert gone() is None
    finally:
        gc.enable()


class Adding:
    """Adds a header to each record."""

    def __init__(self, header: Any) -> None:
        self._header = header

    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append(self._header)
        return bytes(data)


@pytest.mark.parametrize(
    "header", [("n", 5), ("n", "text"), (5, b""), ("\ud800", b""), ("n",), ("n", b"", b"")], ids=repr
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_header_of_a_serialiser_is_looked_at_too(broker: Broker, header: Any, is_first: bool) -> None:
    """And the records behind a refused one are sent."""
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {"value_serializer": Adding(header)}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        if not is_first:
            producer.send("t", None).result(PATIENCE)
        with pytest.raises(SerializationError, match="header"):
            producer.send("t", b"value", headers=[("mine", b"1")])
        assert producer.send("t", None).result(PATIENCE).offset == (0 if is_first else 1)


def test_names_of_headers_may_be_of_a_type_made_from_str(broker: Broker) -> None:
    class Name(StrEnum):
        TRACE = "trace"

    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(2):
            sent = [producer.send("t", b"v", headers=[(Name.TRACE, b"1")]), producer.send("t", b"after")]
            assert [each.result(PATIENCE).partition for each in sent] == [0, 0]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found = [next(consumer) for _ in range(4)]
    assert [list(each.headers) for each in found] == [[("trace", b"1")], []] * 2
    assert all(type(name) is str for each in found for name, _ in each.headers)


def test_what_a_finalizer_sends_is_taken() -> None:
    """Making a future may begin a collection. It did so under the producer's lock, where calls are refused."""
    found: list[Any] = []

    class Late:
        me: Any = None

        def __del__(self) -> None:
            try:
                found.append(accumulator.put("t", b"late", None, 0, None, ()))
            except KafkaError as error:
                found.append(error)

    accumulator = shelf()
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    late = Late()
    late.me = late
    del late
    gc.set_threshold(1)
    gc.enable()
    try:
        future = accumulator.put("t", b"value", None, 0, None, ())
        gc.collect()
    finally:
        gc.set_threshold(*thresholds)
    assert isinstance(future, RecordFuture)
    assert [type(each) for each in found] == [RecordFuture]
    assert {future.index, found[0].index} == {1, 2}
