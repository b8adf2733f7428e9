"""What a share consumer tells of itself: metrics under Kafka's names, health, its locks, and others' words."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest
from tests.worlds.queue import HandNetwork

from kadence import ClosedError, ConcurrentAccessError, Consumer, MetricName, ShareConsumer, Stall
from kadence.consumer import events as m
from kadence.types import GroupMetadata

Made = tuple[ShareConsumer[Any, Any], HandNetwork]

OF_KAFKAS_OWN = {
    "consumer-share-metrics": {
        "last-poll-seconds-ago",
        "time-between-poll-avg",
        "time-between-poll-max",
        "poll-idle-ratio-avg",
    },
    "consumer-share-fetch-manager-metrics": {
        *("fetch-size-avg", "fetch-size-max", "bytes-consumed-rate", "bytes-consumed-total"),
        *(
            "records-per-request-avg",
            "records-per-request-max",
            "records-consumed-rate",
            "records-consumed-total",
        ),
        *("acknowledgements-send-rate", "acknowledgements-send-total", "acknowledgements-error-rate"),
        *(
            "acknowledgements-error-total",
            "fetch-latency-avg",
            "fetch-latency-max",
            "fetch-rate",
            "fetch-total",
        ),
        *("fetch-throttle-time-avg", "fetch-throttle-time-max"),
    },
    "consumer-share-coordinator-metrics": {
        *("heartbeat-rate", "heartbeat-total", "heartbeat-response-time-max", "last-heartbeat-seconds-ago"),
        *("rebalance-total", "rebalance-rate-per-hour"),
    },
}
"""The names that kafka-clients 4.4.0 has in its registries of share consumers."""


def test_metrics_have_the_names_of_kafkas_own(made: Made) -> None:
    consumer, _ = made
    names = {(name.group, name.name) for name in consumer.metrics()}
    assert {(group, name) for group, own in OF_KAFKAS_OWN.items() for name in own} <= names
    catalogue = {(name.group, name.name) for name in ShareConsumer.metric_names()}
    assert names <= catalogue


def value(consumer: ShareConsumer[Any, Any], name: str, **tags: str) -> float:
    [found] = [
        value
        for metric, value in consumer.metrics().items()
        if metric.name == name
        and tags.items() <= metric.tags.items()
        and ("topic" in metric.tags) == bool(tags)
    ]
    return found


def test_metrics_count_what_polls_return_and_what_was_dropped(made: Made) -> None:
    consumer, network = made
    network.put(3)
    consumer.poll(max_records=2)
    assert value(consumer, "records-consumed-total") == 2
    assert value(consumer, "records-consumed-total", topic="jobs") == 2
    network.clock.advance(30_000)
    consumer.poll()
    assert value(consumer, "records-dropped-total") == 1
    assert isinstance(next(iter(consumer.metrics())), MetricName)


def test_health_tells_what_keeps_it_from_working(made: Made) -> None:
    consumer, network = made
    consumer.poll()
    assert consumer.health() == (True, True, ())
    network.state.tell(m.IdentityChanged(GroupMetadata("q", -1, "m")))
    consumer.poll()
    assert consumer.health() == (True, False, ("it is not a member of group 'q'",))
    consumer.close()
    assert not consumer.health().alive


def test_health_tells_of_a_subscription_that_is_missing(made: Made) -> None:
    consumer, _ = made
    consumer.unsubscribe()
    assert consumer.health() == (True, False, ("it has no subscription",))


def test_the_lock_timeout_is_known_after_the_first_answer(made: Made) -> None:
    consumer, network = made
    assert consumer.lock_timeout is None
    network.state.lock_timeout_ms = 15_000
    assert consumer.lock_timeout == 15.0


def test_its_text_is_one_line_and_it_cannot_be_pickled(made: Made) -> None:
    consumer, _ = made
    consumer.poll()
    assert repr(consumer).endswith("group=q open member=m generation=1 assigned=1>")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(consumer)


def test_a_second_thread_is_refused(made: Made) -> None:
    consumer, network = made
    refused: list[Exception] = []

    def polls() -> None:
        try:
            consumer.poll()
        except ConcurrentAccessError as error:
            refused.append(error)

    def meanwhile() -> None:
        thread = threading.Thread(target=polls)
        thread.start()
        thread.join()

    network.meanwhile.append(meanwhile)
    consumer.poll(1)
    (error,) = refused
    assert str(error) == (
        "another thread is using this consumer; until it is done, only stop, wakeup, close and calls that read its "
        "state (metrics, health, …) are allowed"
    )


@pytest.mark.parametrize(
    ("settings", "fate"),
    [
        ({}, "Their locks are renewed until then; after that other members get them"),
        (
            {"share.lock.renewal": False},
            "Their locks are not renewed (share.lock.renewal=false): other members get them once these have ended",
        ),
    ],
)
def test_a_stall_tells_which_records_are_held_and_what_becomes_of_them(
    make: Callable[..., Made], settings: dict[str, Any], fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: Queue[Stall] = Queue()
    consumer, network = make({"stall.report.callback": told.put, **settings})
    network.put(3)
    assert len(consumer.poll()) == 3
    network.state.on_stall(m.Stalled(since=0, at=150_000, timeout_ms=300_000, left=False))
    assert told.get(timeout=60).records == 3
    [line] = [each.getMessage() for each in caplog.records if "has not polled" in each.getMessage()]
    assert f"leaves the group. Records that it holds: 3 (jobs-0 0 to 2). {fate}. Thread " in line


def test_a_stall_without_held_records_tells_of_none(
    make: Callable[..., Made], caplog: pytest.LogCaptureFixture
) -> None:
    told: Queue[Stall] = Queue()
    consumer, network = make({"stall.report.callback": told.put})
    consumer.poll()
    network.state.on_stall(m.Stalled(since=0, at=150_000, timeout_ms=300_000, left=False))
    assert told.get(timeout=60).records == 0
    assert "leaves the group. It holds no records. Thread " in caplog.text


def test_a_close_beside_a_callback_that_hangs_tells_what_becomes_of_held_records(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, network = made

    def meanwhile() -> None:
        thread = threading.Thread(target=lambda: consumer.close(timeout=0))
        thread.start()
        thread.join()

    network.meanwhile.append(meanwhile)
    with pytest.raises(ClosedError):
        consumer.poll(1)
    assert "another thread's call: the records that it holds are released" in caplog.text


def test_names_of_other_clients_say_what_to_write(made: Made) -> None:
    consumer: Any = made[0]
    with pytest.raises(AttributeError, match="read lock_timeout, in seconds"):
        consumer.acquisition_lock_timeout_ms()
    with pytest.raises(AttributeError, match=r"a queue has no positions"):
        consumer.seek(("jobs", 0), 5)
    with pytest.raises(TypeError, match="write timeout=, in seconds"):
        consumer.poll(timeout_ms=5)
    assert "seek" not in dir(consumer)
    assert {"assign", "seek", "pause", "committed"} <= set(dir(Consumer))
