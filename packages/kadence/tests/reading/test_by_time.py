"""Times in topics of transactions: by the records' own times, and never less than was asked (truths A).

Brokers find the markers that end transactions by time, too, and their time is the broker's clock.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.consumer.support import Shell

import kadence
from kadence import Admin, Broker, Consumer, Producer, TopicPartition, stop_on_signals
from kadence.consumer.application import by_time
from kadence.consumer.application.core import Core
from kadence.errors import ClosedError
from kadence.reading.by_time import by_own_times
from kadence.reading.places import planned
from kadence.where import Where
from kadence_cli.where import Range, offsets
from kadence_spark.source.clients import driver_client
from kadence_spark.source.options import parse

P = TopicPartition("t", 0)
FIRST, SECOND = 1_700_000_000_000, 1_700_000_001_000

LED_TO = [
    (FIRST - 5, 0),
    (FIRST, 0),
    (FIRST + 2, 2),
    (FIRST + 3, 4),
    (SECOND, 4),
    (SECOND + 1, 5),
    (SECOND + 3, None),
    (SECOND + 60_000, None),
]
"""A time, and the first record at or after it: at offsets 0 to 2 and 4 to 6; 3 and 7 are markers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}, config={"log.retention.ms": -1}) as made:
        with Producer(bootstrap_servers=made.bootstrap_servers, transactional_id="tx") as producer:
            producer.init_transactions()
            for first in (FIRST, SECOND):
                with producer.transaction():
                    for number in range(3):
                        producer.send("t", b"%d" % number, timestamp=first + number)
        yield made


def test_the_broker_finds_markers(broker: Broker) -> None:
    """Else nothing here tests anything."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        at = consumer.offsets_for_times({P: SECOND + 60_000})[P]
    assert at is not None
    assert at.offset == 3


@pytest.mark.parametrize(("time", "offset"), LED_TO)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_time_leads_to_the_first_record_at_or_after_it(
    broker: Broker, time: int, offset: int | None, isolation: str
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": isolation}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.list_offsets({P: time})[P]
        told = {P: None if found is None else found.offset}
        assert by_own_times(settings, {P: time}, told, {P: 8}) == {P: offset}
        by_cli = offsets(admin, Where("time", time), {P: Range(0, 8)}, settings)
    assert by_cli == {P: 8 if offset is None else offset}


@pytest.mark.parametrize(("time", "offset"), LED_TO)
def test_reading_begins_and_ends_there(broker: Broker, time: int, offset: int | None) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    at = 8 if offset is None else offset
    with Consumer(settings) as consumer:
        assert planned(consumer, ["t"], None, Where("time", time), Where("latest"), settings, None) == {
            P: (at, 8)
        }
        assert planned(consumer, ["t"], None, Where("earliest"), Where("time", time), settings, None) == {
            P: (0, at)
        }


@pytest.mark.parametrize(("time", "offset"), LED_TO)
def test_a_query_of_spark_begins_and_ends_there(broker: Broker, time: int, offset: int | None) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
    brokers = driver_client(parse(options, streaming=False))
    try:
        assert brokers.offsets_for_times({P: time}) == {P: offset}
    finally:
        brokers.close()


@pytest.mark.parametrize(("time", "offset"), LED_TO)
def test_a_consumer_begins_there(broker: Broker, time: int, offset: int | None) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign_topics("t", start=time)
        assert consumer.position(P) == (8 if offset is None else offset)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_stop_leaves_no_place_that_was_not_found(broker: Broker, kind: str) -> None:
    """Partitions that were not looked at to the end may have records so late: they do not begin at their end."""
    shell = Shell(kind)
    consumer = shell.make(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    consumer.stop()
    with pytest.raises(ClosedError, match=r"ended early: stop\(\) was called"):
        shell.do(lambda: consumer.assign_topics("t", start=FIRST))
    assert consumer.assignment() == frozenset()
    shell.do(consumer.close)
    if shell.runner is not None:
        shell.runner.close()


def test_a_signal_does_not_make_a_table_empty(broker: Broker) -> None:
    """It comes once brokers have found a place, before the records there were read."""
    looked_up = by_time.first_records

    def stopped(core: Core, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return looked_up(core, *arguments)

    since = datetime.fromtimestamp(FIRST / 1_000, UTC)
    with stop_on_signals(signals=[signal.SIGUSR1]), pytest.MonkeyPatch.context() as patch:
        patch.setattr("kadence.reading.by_time.first_records", stopped)
        with pytest.raises(ClosedError, match="ended early"):
            kadence.read("t", since, bootstrap_servers=broker.bootstrap_servers, progress=False)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_ranges_of_topics_begin_and_end_there(broker: Broker, kind: str) -> None:
    shell = Shell(kind)
    consumer = shell.make(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    moment = datetime.fromtimestamp((FIRST + 500) / 1_000, UTC)
    shell.do(lambda: consumer.assign_topics("t", start=moment, end=SECOND + 1))
    found = []
    while consumer.finished() != consumer.assignment():
        found += shell.do(lambda: consumer.poll(1))
    assert [record.offset for record in found] == [4]
    shell.do(lambda: consumer.assign_topics("t", start="earliest", end=SECOND + 60_000))
    found = []
    while consumer.finished() != consumer.assignment():
        found += shell.do(lambda: consumer.poll(1))
    assert [record.offset for record in found] == [0, 1, 2, 4, 5, 6]
    shell.do(consumer.close)
    if shell.runner is not None:
        shell.runner.close()
