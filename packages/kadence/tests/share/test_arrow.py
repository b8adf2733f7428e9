"""Queues as Arrow tables: the column of delivery counts, and acknowledging by a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, REJECT, RENEW, HandNetwork

from kadence import AcknowledgeType, Record, ShareConsumer, TopicPartition
from kadence.errors import IllegalStateError
from kadence.records import encode_batch

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


@pytest.fixture
def explicit(make: Callable[..., Made]) -> Made:
    return make({"share.acknowledgement.mode": "explicit"})


def test_a_table_has_a_consumers_columns_and_the_delivery_count(explicit: Made) -> None:
    consumer, network = explicit
    assert consumer.poll_arrow().num_rows == 0
    network.put(3, acquired=[(0, 1, 1), (2, 2, 4)])
    table = consumer.poll_arrow(headers=True)
    assert table.column_names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        "deliveryCount",
    ]
    assert table.column("deliveryCount").to_pylist() == [1, 1, 4]
    assert table.schema.field("deliveryCount").type == pa.int16()
    assert table.column("value").to_pylist() == [b"v0", b"v1", b"v2"]
    assert table.column("headers").to_pylist()[0] == [{"key": "h", "value": b"x"}]


def test_columns_are_chosen_in_their_order(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1)
    table = consumer.poll_arrow(columns=["deliveryCount", "offset"])
    assert table.column_names == ["deliveryCount", "offset"]
    for wrong in (["deliveryCount", "deliveryCount"], ["colour"], []):
        with pytest.raises(ValueError, match="column"):
            consumer.poll_arrow(columns=wrong)


def test_a_table_or_a_part_of_it_is_acknowledged(explicit: Made) -> None:
    consumer, network = explicit
    network.put(4)
    table = consumer.poll_arrow()
    is_bad = pc.equal(table.column("value"), b"v2")
    consumer.acknowledge(table.filter(is_bad), AcknowledgeType.REJECT)
    consumer.acknowledge(table.filter(pc.invert(is_bad)))
    consumer.commit()
    assert network.taken() == [("jobs", 0, 1, ACCEPT), ("jobs", 2, 2, REJECT), ("jobs", 3, 3, ACCEPT)]
    with pytest.raises(ValueError, match="this one lacks offset"):
        consumer.acknowledge(table.drop_columns(["offset"]))
    for name in ("topic", "partition", "offset"):
        nothing = pa.nulls(table.num_rows, table.column(name).type)
        with pytest.raises(ValueError, match=f"has no {name}"):
            consumer.acknowledge(table.set_column(table.column_names.index(name), name, nothing))


def test_a_frame_is_no_table(explicit: Made) -> None:
    pytest.importorskip("pandas")
    consumer, network = explicit
    network.put(1)
    with pytest.raises(TypeError, match=r"a table of poll_arrow\(\), or a topic's name, not DataFrame"):
        consumer.acknowledge(consumer.poll_arrow().to_pandas())


def test_deserialisers_see_no_table(make: Callable[..., Made]) -> None:
    consumer, network = make({}, value_deserializer=lambda data: 1 / 0)
    network.put(2)
    assert consumer.poll_arrow(max_records=1).column("value").to_pylist() == [b"v0"]
    assert consumer.poll_arrow().column("offset").to_pylist() == [1]


def test_a_table_is_acknowledged_whole_or_not_at_all(make: Callable[..., Made]) -> None:
    consumer, network = make({"share.acknowledgement.mode": "explicit"})
    network.put(3)
    table = consumer.poll_arrow()
    consumer.acknowledge(table.slice(2))
    consumer.commit()
    with pytest.raises(IllegalStateError, match="offset 2 is not held"):
        consumer.acknowledge(table)
    assert network.taken() == [("jobs", 2, 2, ACCEPT)]
    assert consumer.commit() == {}


def test_a_table_is_made_of_bytes_and_a_renewed_row_comes_back_as_a_record(explicit: Made) -> None:
    consumer, network = explicit
    rows: list[tuple[int, Any, Any, list[tuple[str, bytes | None]]]] = [
        (5, b"k", b"v0", [("a", None), ("b", b"y")]),
        (6, None, None, []),
        (7, b"", b"v2", [("c", b"")]),
    ]
    network.put([], data=encode_batch(rows, base_offset=0), acquired=[(0, 2, 3)])
    table = consumer.poll_arrow(columns=["topic", "partition", "offset"])
    [chunk] = consumer._core.holding._of(TopicPartition("jobs", 0)).chunks
    assert chunk.rows is not None
    consumer.acknowledge(table, AcknowledgeType.RENEW)
    records = list(consumer.poll())
    assert records == [
        Record("jobs", 0, at, timestamp, 0, key, value, tuple(headers), None, 3)
        for at, (timestamp, key, value, headers) in enumerate(rows)
    ]
    consumer.acknowledge(records[0], AcknowledgeType.RENEW)
    consumer.acknowledge(records[1:])
    table = consumer.poll_arrow(headers=True)
    assert table.column("headers").to_pylist() == [[{"key": "a", "value": None}, {"key": "b", "value": b"y"}]]
    consumer.acknowledge(table, AcknowledgeType.REJECT)
    consumer.commit()
    assert network.taken() == [
        *(("jobs", 0, 2, RENEW), ("jobs", 0, 0, RENEW), ("jobs", 1, 2, ACCEPT)),
        ("jobs", 0, 0, REJECT),
    ]


@pytest.mark.parametrize("tables", [False, True])
def test_a_renewed_record_comes_back_by_the_kind_of_poll_that_returned_it(
    make: Callable[..., Made], tables: bool
) -> None:
    consumer, network = make(
        {"share.acknowledgement.mode": "explicit"}, value_deserializer=lambda data: data.decode()
    )
    network.put(2)

    def values_of(as_table: bool) -> list[Any]:
        if as_table:
            return list(consumer.poll_arrow().column("value").to_pylist())
        return [record.value for record in consumer.poll()]

    values = values_of(tables)
    assert values == ([b"v0", b"v1"] if tables else ["v0", "v1"])
    consumer.acknowledge("jobs", 0, 0, AcknowledgeType.RENEW)
    consumer.acknowledge("jobs", 0, 1)
    names = ("poll()", "poll_arrow()") if tables else ("poll_arrow()", "poll()")
    expected = f"{names[0]} cannot return the record of jobs-0 at offset 0, which {names[1]} has returned"
    for _ in range(2):
        with pytest.raises(IllegalStateError, match=re.escape(expected)):
            values_of(not tables)
    assert values_of(tables) == values[:1]
    # Another word than a renewal frees both kinds.
    consumer.acknowledge("jobs", 0, 0, AcknowledgeType.RENEW)
    with pytest.raises(IllegalStateError, match=re.escape(expected)):
        values_of(not tables)
    consumer.acknowledge("jobs", 0, 0)
    network.put(1, first=2)
    assert values_of(not tables) == (["v2"] if tables else [b"v2"])


def test_rows_of_several_fetches_in_any_order_and_chunking(explicit: Made) -> None:
    consumer, network = explicit
    network.put(4)
    network.put(3, partition=1)
    network.put(2, first=4)
    network.put(4, first=8)
    table = consumer.poll_arrow()
    assert table.num_rows == 13
    consumer.acknowledge(table.take([12, 0, 1, 5, 3]), AcknowledgeType.REJECT)
    # One chunk of several partitions, another type, and no rows.
    others = table.take([2, 4, 6, 7, 8, 9, 10, 11]).combine_chunks()
    place = others.column_names.index("offset")
    consumer.acknowledge(others.set_column(place, "offset", others["offset"].cast("int32")))
    consumer.acknowledge(table.slice(0, 0))
    consumer.commit()
    said = [
        (fetch.partition.partition, *each)
        for event in network.said
        for fetch, ranges in event.fetches.items()
        for each in ranges
    ]
    assert sorted(said) == [
        *((0, 0, 1, REJECT), (0, 2, 2, ACCEPT), (0, 3, 3, REJECT), (0, 4, 5, ACCEPT), (0, 8, 10, ACCEPT)),
        *((0, 11, 11, REJECT), (1, 0, 0, ACCEPT), (1, 1, 1, REJECT), (1, 2, 2, ACCEPT)),
    ]


def test_rows_that_are_delivered_anew_replace_those_of_the_table_before(explicit: Made) -> None:
    consumer, network = explicit
    network.put(4)
    consumer.poll_arrow()
    consumer.acknowledge("jobs", 0, 0)
    consumer.commit()
    network.taken()
    consumer._core.holding.marks.close()
    with pytest.raises(IllegalStateError, match="for 3 of the records"):
        consumer.poll_arrow()
    consumer.acknowledge("jobs", 0, 1, AcknowledgeType.RENEW)
    consumer.acknowledge("jobs", 0, 2)
    consumer.acknowledge("jobs", 0, 3)
    consumer.commit()
    again = network.put(4, acquired=[(1, 1, 2)])
    [record] = consumer.poll()
    consumer.acknowledge(record)
    assert consumer.poll_arrow().column("deliveryCount").to_pylist() == [2]
    network.said.clear()
    consumer.acknowledge("jobs", 0, 1)
    consumer.commit()
    assert [fetch for event in network.said for fetch in event.fetches] == [again]
