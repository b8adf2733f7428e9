"""The log of a session: one line for each change of state, none for each request, and nobody's data."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from tests.consumer.support import Cluster, poll_until, read
from tests.patience import is_of_pause

from kadence import Broker, Consumer, Producer
from kadence.protocol import error_codes
from kadence.protocol.fetch import FetchRequest

KEY, VALUE, HEADER = b"a-very-secret-key", b"a-very-secret-value", b"a-very-secret-header"


def session(cluster: Cluster, caplog: pytest.LogCaptureFixture, work: int, **settings: Any) -> list[str]:
    """All lines of a member that joins, reads, commits and seeks ``work`` times, and leaves."""
    topic = cluster.topic(2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(200):
            producer.send(topic, VALUE, KEY, partition=number % 2, headers=[("h", HEADER)])
    caplog.clear()
    with cluster.consumer(group_id=cluster.name("g"), max_poll_records=10, **settings) as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        partition = min(consumer.assignment())
        for _ in range(work):
            consumer.seek(partition, 0)
            records = read(consumer, 10)
            consumer.commit(records)
            consumer.committed([partition])
            consumer.end_offsets([partition])
    ours = [
        record
        for record in caplog.records
        if record.name.startswith("kadence") and not is_of_pause(record.getMessage())
    ]
    assert {record.name.split(".")[1] for record in ours} <= {"consumer", "net"}
    return [f"{record.levelname} {record.getMessage()}" for record in ours]


@pytest.mark.needs("groups")
@pytest.mark.brokers("embedded")
def test_more_work_makes_no_longer_log(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kadence")
    short, long = session(cluster, caplog, 2), session(cluster, caplog, 40)
    text = "\n".join(long)
    assert len(long) <= len(short) + 6, text
    assert len(long) <= 60, text
    for secret in (KEY, VALUE, HEADER):
        assert secret.decode() not in text
    for change in ("subscribed to", "coordinator is", "rebalanced in", "revoking", " left ("):
        assert sum(change in line for line in long) == 1, f"{change}\n{text}"
    assert not [line for line in long if line.startswith(("WARNING", "ERROR"))], text


def test_info_alone_tells_the_story_in_a_dozen_lines(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    caplog.set_level(logging.INFO, "kadence")
    lines = session(cluster, caplog, 1)
    assert 4 <= len(lines) <= 16, "\n".join(lines)


def test_an_error_that_repeats_itself_is_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    caplog.set_level(logging.DEBUG, "kadence")
    topic = cluster.topic(1)
    cluster.produce(topic, 1, partitions=1)
    with cluster.consumer(retry_backoff_ms=5, retry_backoff_max_ms=5) as consumer:
        with broker.faults.error(FetchRequest, error_codes.UNKNOWN_SERVER_ERROR) as refused:
            consumer.assign([(topic, 0)])
            consumer.poll(0)
            refused.wait(20)  # of them
        read(consumer, 1)
    told = [record.getMessage() for record in caplog.records if record.name.startswith("kadence.consumer")]
    assert sum("UNKNOWN_SERVER_ERROR" in line for line in told) == 1
    assert max(Counter(told).values()) == 1, told


def test_a_dead_cluster_is_not_a_flood(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kadence")
    with Consumer(
        bootstrap_servers="127.0.0.1:1", reconnect_backoff_ms=5, reconnect_backoff_max_ms=10
    ) as consumer:
        consumer.assign([("t", 0)])
        consumer.poll(1)
    assert len([record for record in caplog.records if record.name.startswith("kadence")]) <= 4


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_poll_interval_ms": 5_000}, 1),
        ({"max_poll_interval_ms": 5_000, "group_protocol": "consumer"}, 0),
        ({"max_poll_interval_ms": 5_000, "session_timeout_ms": 4_000}, 0),
    ],
)
def test_a_poll_interval_that_counts_as_the_session_is_told(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any], told: int
) -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", **settings):
        pass
    found = [message for message in caplog.messages if "max.poll.interval.ms" in message]
    assert len(found) == told
    assert all("(5000) is below session.timeout.ms (10000) and counts as 10000" in text for text in found)
