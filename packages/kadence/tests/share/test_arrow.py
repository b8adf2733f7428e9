"""Queues as Arrow tables: the column of delivery counts, and acknowledging by a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, REJECT, HandNetwork

from kadence import AcknowledgeType, ShareConsumer
from kadence.errors import IllegalStateError

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
