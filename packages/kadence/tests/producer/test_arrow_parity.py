"""The batches of ``send_arrow`` are those of ``send``, byte for byte."""

from __future__ import annotations

import array
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kadence._native.append import TopicInfo
from kadence._native.rows import Rows
from kadence.client.gate import Gate
from kadence.clock import FOREVER, wall_ms
from kadence.config import ProducerConfig
from kadence.errors import SerializationError
from kadence.producer import Producer, arrow_sending
from kadence.producer.accumulator import Accumulator
from kadence.producer.calls import Calls
from kadence.producer.columns import Strings
from kadence.producer.partitioner import StickyPartitioner, murmur2
from kadence.producer.send_checks import SendChecks
from kadence.producer.shell import Shell
from kadence.producer.topics import Topics
from kadence.records import MOST_HEADERS, FetchedRecords
from kadence.types import TopicPartition
from kadence_testing.clock import FakeClock

COUNTS = {"t": 3, "u": 1}
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


class Stub:
    """A network thread that does nothing."""

    fatal = None
    is_shut = False
    trouble = None

    def wakeup(self) -> None:
        pass


def make(**settings: Any) -> Producer:
    """A producer that knows its topics, and whose batches stay where they are."""
    config = ProducerConfig.parse(None, bootstrap_servers="b:1", linger_ms=60_000, **settings)
    producer = object.__new__(Producer)
    gate = Gate()
    accumulator = Accumulator(
        batch_size=config.batch_size,
        linger_ms=config.linger_ms,
        buffer_memory=config.buffer_memory,
        delivery_timeout_ms=config.delivery_timeout_ms,
        gate=gate,
        largest=config.max_request_size,
    )
    topics = Topics(config, gate, accumulator.places)
    stub: Any = Stub()
    clock = FakeClock()
    send_checks = SendChecks(config, clock, accumulator, topics, stub)
    for name, count in COUNTS.items():
        sticky = StickyPartitioner(config.batch_size, random.Random(7))
        topics.stickies[name] = sticky
        tps = tuple(TopicPartition(name, number) for number in range(count))
        accumulator.places[name] = TopicInfo((), tps, tuple(range(count)), sticky)
    for name, value in {
        "_config": config,
        "_clock": clock,
        "_gate": gate,
        "_accumulator": accumulator,
        "_network": stub,
        "_send_checks": send_checks,
        "_topics": topics,
        "_calls": Calls(config, clock, accumulator, topics, send_checks, stub.wakeup),
        "_shell": Shell(gate, clock),
    }.items():
        object.__setattr__(producer, name, value)
    producer._put = producer._calls.short_way.put
    return producer


def batches_of(producer: Producer) -> dict[TopicPartition, list[bytes]]:
    waiting = producer._accumulator.waiting
    return {tp: [batch.builder.build() for batch in batches] for tp, batches in waiting.items()}


texts = st.text(st.characters(codec="utf-8"), max_size=12)
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=3)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=150),
            "key": st.none() | st.binary(max_size=20),
            "topic": st.sampled_from(sorted(COUNTS)),
            "partition": st.none() | st.just(0),
            "headers": st.none() | headers,
            "timestamp": st.integers(0, 2**60),
        }
    ),
    max_size=40,
)


def table_of(rows: list[dict[str, Any]], chunk: int, before: int, wide: bool) -> pa.Table:
    """The rows as a table: in chunks, each cut out of a longer array."""
    lists = pa.large_list(PAIR) if wide else pa.list_(PAIR)
    kind = pa.large_binary() if wide else pa.binary()
    schema = pa.schema(
        {
            "value": kind,
            "key": kind,
            "topic": pa.large_string() if wide else pa.string(),
            "partition": pa.int64() if wide else pa.int16(),
            "headers": lists,
            "timestamp": pa.int64(),
        }
    )
    other = {
        "value": b"other",
        "key": b"k",
        "topic": "t",
        "partition": 1,
        "headers": [("other", b"o")],
        "timestamp": 0,
    }
    batches = []
    for begin in range(0, len(rows), chunk):
        part = rows[begin : begin + chunk]
        longer = [other] * before + part + [other]
        batches.append(pa.RecordBatch.from_pylist(longer, schema=schema).slice(before, len(part)))
    return pa.Table.from_batches(batches, schema=schema)


@settings(max_examples=60)
@given(rows, st.integers(1, 12), st.integers(0, 9), st.booleans(), st.sampled_from([1, 200, 1_000, 100_000]))
def test_rows_are_the_records_that_send_makes(
    rows: list[dict[str, Any]], chunk: int, before: int, wide: bool, batch_size: int
) -> None:
    one, other = make(batch_size=batch_size), make(batch_size=batch_size)
    for row in rows:
        fields = {name: row[name] for name in ("value", "key", "partition", "timestamp")}
        one.send(row["topic"], **fields, headers=row["headers"] or ())
    delivery = other.send_arrow(table_of(rows, chunk, before, wide))
    assert delivery.rows == len(rows)
    assert batches_of(other) == batches_of(one)
    assert other._accumulator.used_bytes == one._accumulator.used_bytes
    # Each row is named as one of its partition's.
    named = sorted(row for share in delivery._shares for row in share.rows())
    assert named == list(range(len(rows)))
    for share in delivery._shares:
        found = [
            record
            for batch in other._accumulator.waiting[
                TopicPartition(share.delivery.topic, share.delivery.partition)
            ]
            if batch.delivery is share.delivery
            for record in FetchedRecords(batch.builder.build(), "", 0, 0).take(10_000)
        ]
        for record, number in zip(found[share.first : share.first + share.length], share.rows(), strict=True):
            assert (record.key, record.value) == (rows[number]["key"], rows[number]["value"])


@pytest.mark.parametrize(
    "headers",
    [
        {"a": b"1"},
        iter([("a", b"1")]),
        [["a", b"1"]],
        [("a", b"1", b"2")],
        [("a", bytearray(b"1"))],
        [("a", "1")],
        [(b"a", b"1")],
        [("\ud800", b"1")],
        [("a", None)] * (MOST_HEADERS + 1),
    ],
)
def test_headers_that_must_be_looked_at_go_the_long_way(headers: Any) -> None:
    producer = make()
    topic = next(iter(COUNTS))
    producer.send(topic, b"begins the batch", partition=0)
    assert producer._accumulator.put(topic, b"v", None, 0, 1, [("a", b"1")]) is not None
    assert producer._accumulator.put(topic, b"v", None, 0, 1, headers) is None


@pytest.mark.parametrize("settings", [{}, {"value_serializer": bytes.upper, "key_serializer": bytes.lower}])
def test_records_with_headers_and_serialisers_are_added_by_put(settings: dict[str, Any]) -> None:
    producer = make(**settings)
    topic = next(iter(COUNTS))
    producer.send(topic, b"begins the batch", partition=0)

    def append(*arguments: Any) -> None:
        raise AssertionError("the batch is there")

    object.__setattr__(producer._accumulator, "append", append)
    ways: list[Any] = [{"a": b"1"}, [("a", b"1"), ("b", None)], [("a", bytearray(b"1"))], ()]
    for headers in ways:
        assert producer.send(topic, b"value", b"key", partition=0, headers=headers).index > 0


@given(st.binary(max_size=70))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    theirs = pytest.importorskip("kafka.partitioner.default").murmur2
    assert murmur2(key) & 0x7FFFFFFF == theirs(key) & 0x7FFFFFFF


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_any_kind_of_bytes(kind: pa.DataType) -> None:
    producer = make()
    words = pa.array([b"one", None, b"two", b"six"], pa.binary())
    if pa.types.is_dictionary(kind):
        array = words.cast(kind.value_type).dictionary_encode().cast(kind)
    elif pa.types.is_fixed_size_binary(kind):
        array = pa.array(words.to_pylist(), kind)
    else:
        array = words.cast(kind)
    producer.send_arrow(pa.table({"value": array, "key": array}).slice(1), "u")
    (batch,) = batches_of(producer)[TopicPartition("u", 0)]
    found = [(record.key, record.value) for record in FetchedRecords(batch, "u", 0, 0).take(10)]
    assert found == [(None, None), (b"two", b"two"), (b"six", b"six")]


def test_timestamps_of_any_unit_are_milliseconds() -> None:
    producer = make()
    for unit, number in (("s", 2), ("ms", 2_000), ("us", 2_000_999), ("ns", 2_000_999_999)):
        times = pa.array([number], pa.int64()).cast(pa.timestamp(unit, "Europe/Berlin"))
        producer.send_arrow(pa.table({"value": ["x"], "timestamp": times}), "u")
    (batch,) = batches_of(producer)[TopicPartition("u", 0)]
    assert [record.timestamp for record in FetchedRecords(batch, "u", 0, 0).take(10)] == [2_000] * 4


def damaged(ends: list[int], rows: int) -> pa.Table:
    buffers = [None, pa.array(ends, pa.int64()).buffers()[1], pa.py_buffer(b"0123456789")]
    return pa.table({"value": pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, buffers)})


@pytest.mark.parametrize("ends", [[0, 99, 10], [0, 4, 2], [0, -4, 4], [0, 2**62, 10]], ids=str)
def test_offsets_that_lead_outside_are_refused(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make()
    with pytest.raises(SerializationError, match=r"row \d: the columns are damaged"):
        producer.send_arrow(damaged(ends, 2), "t")
    assert not batches_of(producer)


def test_buffers_that_are_too_short_are_refused() -> None:
    ends = pa.array([0, 4, 8], pa.int64()).buffers()[1]
    with pytest.raises(ValueError, match="buffer has 24 bytes, and must have 56"):
        Rows(6, Strings(None, ends, b"01234567", 0, 6))
    with pytest.raises(ValueError, match="buffer has 1 bytes, and must have 2"):
        Rows(9, Strings(b"1", bytes(80), b"", 0, 9))


@pytest.mark.parametrize("column", ["value", "lists", "names", "values"])
def test_columns_that_somebody_changes_while_they_are_sent(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column may lie in memory that others write to, such as a numpy array's."""
    memory = {
        name: bytearray(array.array("q", [0, 1, 2, 3]).tobytes())
        for name in ("value", "lists", "names", "values")
    }
    names, values = (
        pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), 3, [None, pa.py_buffer(memory[name]), pa.py_buffer(b"abc")]
        )
        for name in ("names", "values")
    )
    pairs = pa.StructArray.from_arrays([names.cast(pa.large_string()), values], ["key", "value"])
    lists = pa.large_list(pairs.type)
    table = pa.table(
        {
            "value": pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), 3, [None, pa.py_buffer(memory["value"]), pa.py_buffer(b"xyz")]
            ),
            "headers": pa.LargeListArray.from_buffers(
                lists, 3, [None, pa.py_buffer(memory["lists"])], children=[pairs]
            ),
        }
    )
    usual = arrow_sending.ArrowSending._queue

    def hand_over(self: Any, *arguments: Any) -> Any:
        memory[column][16:24] = (-5).to_bytes(8, "little", signed=True)
        return usual(self, *arguments)

    monkeypatch.setattr(arrow_sending.ArrowSending, "_queue", hand_over)
    producer = make()
    with pytest.raises(SerializationError, match=r"row 1: the columns were changed .*; 1 of 3 rows were"):
        producer.send_arrow(table, "u")
    (batch,) = batches_of(producer)[TopicPartition("u", 0)]
    found = FetchedRecords(batch, "u", 0, 0).take(10)
    assert [(each.value, each.headers) for each in found] == [(b"x", (("a", b"a"),))]


def test_more_headers_than_readers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make(batch_size=1_000_000)
    most = [("h", b"")] * MOST_HEADERS
    kinds = {"value": pa.binary(), "headers": pa.list_(PAIR)}
    producer.send_arrow(pa.table({"value": [b"x"], "headers": [most]}, schema=pa.schema(kinds)), "u")
    producer.send("u", b"x", headers=most)
    more = [*most, ("h", b"")]
    with pytest.raises(SerializationError, match="row 1 has more than 5,000 headers"):
        producer.send_arrow(
            pa.table({"value": [b"x"] * 2, "headers": [[], more]}, schema=pa.schema(kinds)), "u"
        )
    with pytest.raises(SerializationError, match="with 5,001 headers: consumers refuse more than 5,000"):
        producer.send("u", b"x", headers=more)
    (batch,) = batches_of(producer)[TopicPartition("u", 0)]
    assert [len(each.headers) for each in FetchedRecords(batch, "u", 0, 0).take(10)] == [MOST_HEADERS] * 2


class _Astray(StickyPartitioner):
    """Chooses a partition that there is not."""

    def choose(self, size: int, partition_count: int, available: Any) -> int:
        return partition_count


def test_a_partition_that_there_is_not_is_no_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make()
    places = producer._accumulator.places
    places["u"] = TopicInfo(places["u"].infos, places["u"].partitions, (0,), _Astray(1))
    with pytest.raises(IndexError, match="partition 1 was chosen, and there are 1"):
        producer.send_arrow(pa.table({"value": [b"x"]}), "u")
    assert not batches_of(producer)


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_a_row_that_there_is_not(row: int) -> None:
    rows = Rows(2, Strings(None, bytes(24), b"", 0, 2))
    for call in (rows.estimate, rows.partition, rows.topic):
        with pytest.raises(IndexError, match=f"row {row} of 2"):
            call(row)


def test_an_open_batch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables share batches, as single records do; in steps of any length."""
    monkeypatch.setattr(arrow_sending, "_STEP", 3)
    producer = make()
    deliveries = [producer.send_arrow(pa.table({"value": [b"x%d" % n] * 5}), "u") for n in range(3)]
    producer.send("u", b"last")
    (batch,) = producer._accumulator.waiting[TopicPartition("u", 0)]
    assert batch.count == 16
    assert [[(share.first, share.length) for share in each._shares] for each in deliveries] == [
        [(0, 5)],
        [(5, 5)],
        [(10, 5)],
    ]
    assert batch.deadline < FOREVER


def test_columns_of_nothing_but_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    for nulls in (pa.nulls(3), None):
        columns = {
            "value": pa.nulls(3) if nulls is not None else pa.nulls(3, pa.string()),
            "key": pa.nulls(3) if nulls is not None else pa.nulls(3, pa.binary_view()),
            "partition": pa.nulls(3) if nulls is not None else pa.nulls(3, pa.int8()),
            "timestamp": pa.nulls(3) if nulls is not None else pa.nulls(3, pa.timestamp("us")),
            "headers": pa.nulls(3) if nulls is not None else pa.nulls(3, pa.list_(PAIR)),
        }
        producer = make()
        before = wall_ms()
        producer.send_arrow(pa.table(columns), "u")
        (batch,) = batches_of(producer)[TopicPartition("u", 0)]
        found = FetchedRecords(batch, "u", 0, 0).take(10)
        assert [(each.key, each.value, tuple(each.headers)) for each in found] == [(None, None, ())] * 3
        assert all(before <= each.timestamp <= wall_ms() for each in found), "no timestamp means now"
