"""Offsets still count after the consumer itself has fetched again the records that it put back (C19).

A `poll_arrow` that raises puts its rows back, and has them fetched again under another fetch epoch. The commit that
follows at once stands behind that request in the queue of the network thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.patience import until

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.records import arrow

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def servers(broker: Broker) -> str:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send("t", b"%d" % number)
    return broker.bootstrap_servers


def fails(*args: Any, **settings: Any) -> Any:
    raise MemoryError("no room for columns")


def some(consumer: Consumer) -> list[Any]:
    found: list[Any] = []

    def has_some() -> bool:
        found.extend(consumer.poll(0.2, max_records=2))
        return bool(found)

    until(has_some, every=0)
    return found


def put_back(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(arrow, "to_table", fails)

        def raises() -> bool:
            try:
                return not consumer.poll_arrow(0.2).num_rows
            except MemoryError:
                return True

        until(raises, every=0)


WAYS: dict[str, Callable[[Consumer, list[Any]], object]] = {
    "commit()": lambda consumer, records: consumer.commit(),
    "commit(records)": lambda consumer, records: consumer.commit(records[-1]),
    "commit_async()": lambda consumer, records: consumer.commit_async(),
    "close()": lambda consumer, records: None,
}


@pytest.mark.parametrize("way", WAYS)
def test_c19_a_commit_right_after_rows_were_put_back_counts(
    servers: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
    }
    with Consumer(**settings, enable_auto_commit=way == "close()") as consumer:
        consumer.subscribe("t")
        records = some(consumer)
        put_back(consumer, monkeypatch)
        WAYS[way](consumer, records)
    with Consumer(**settings) as consumer:
        committed = consumer.committed([PARTITION])[PARTITION]
        assert committed is not None
        assert committed.offset == records[-1].offset + 1


def test_c19_track_keeps_open_records_when_rows_are_put_back(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(
        bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe("t")
        consumer.track(first := some(consumer))
        put_back(consumer, monkeypatch)
        work = consumer.track(second := some(consumer))
        for record in second:
            work.done(record)
        consumer.commit(work)
        committed = consumer.committed([PARTITION])[PARTITION]
        assert committed is None or committed.offset <= first[0].offset
