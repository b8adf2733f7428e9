"""Why a partition is not being fetched: one reason at a time, its age, and the log line when a bad one lasts."""

from __future__ import annotations

import logging

import pytest
from tests.worlds.cluster import answer, config, knowing, lost, told
from tests.worlds.fetching import P0, P1, P2, World, batch
from tests.worlds.hand import BackgroundEvents

from kadence.clock import FOREVER
from kadence.connection.request import ConnectionPurpose
from kadence.consumer.fetch.manager.fetchable import TELL_AFTER_MS
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.shared_partition import NotFetchedReason as Reason
from kadence.consumer.shared_partition import Origin, Unfetched
from kadence.consumer.subscription import Status
from kadence.protocol import error_codes as ec
from kadence.types import TopicPartition


def why(world: World, partition: TopicPartition = P0) -> tuple[Reason, int] | None:
    """Reason and the moment since when."""
    unfetched = world.state(partition).shared_partition.unfetched
    return None if unfetched is None else (unfetched.reason, unfetched.since)


def learn(
    metadata: MetadataManager,
    now: int,
    leaders: dict[TopicPartition, int],
    errors: dict[str, int] | None = None,
) -> None:
    metadata.request_update(now)
    (request,) = metadata.poll(now).requests
    metadata.on_response(now, answer(request, told(leaders, errors=errors), now))


def test_a_partition_with_a_fetch_on_its_way_has_no_reason() -> None:
    world = World(P0)
    world.poll(5)
    assert why(world) is None


def test_paused() -> None:
    world = World(P0)
    world.pause(P0)
    world.poll(5)
    world.poll(9)
    assert why(world) == (Reason.PAUSED, 5), "its age is that of the reason, not of the last look"


def test_revoking() -> None:
    world = World(P0)
    world.subscription.mark_revoking([P0])
    world.poll(5)
    assert why(world) == (Reason.REVOKING, 5)


def test_awaiting_the_assigned_callback() -> None:
    world = World()
    world.subscription.assign([P0], held=True)
    world.poll(5)
    assert why(world) == (Reason.AWAITING_ASSIGNED_CALLBACK, 5)


def test_awaiting_the_committed_offset() -> None:
    world = World()
    world.subscription.assign([P0])
    assert why(world) == (Reason.AWAITING_COMMITTED_OFFSET, -1), "true before anybody looked"
    world.poll(5)
    assert why(world) == (Reason.AWAITING_COMMITTED_OFFSET, 5)


def test_awaiting_a_reset() -> None:
    world = World(P0)
    world.subscription.await_reset(P0, -2)
    world.poll(5)
    assert why(world) == (Reason.AWAITING_RESET, 5)
    world.subscription.position(P0, 7, None)
    world.poll(6)
    assert why(world) is None


def test_awaiting_validation() -> None:
    world = World(P0)
    world.state(P0).status = Status.AWAIT_VALIDATION
    world.poll(5)
    assert why(world) == (Reason.AWAITING_VALIDATION, 5)


def test_no_position_and_no_policy_waits_for_a_seek() -> None:
    world = World(P0, auto_offset_reset="none")
    world.state(P0).status = Status.AWAIT_RESET
    world.poll(5)
    assert why(world) == (Reason.NO_POSITION, 5)


def test_no_leader() -> None:
    world = World(P0)
    learn(world.metadata, 1_000, {P0: -1})
    world.poll(1_000)
    assert why(world) == (Reason.NO_LEADER, 1_000)
    learn(world.metadata, 9_000, {P0: 2})
    world.poll(9_000)
    assert why(world) is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ec.UNKNOWN_TOPIC_OR_PARTITION, Reason.UNKNOWN_TOPIC),
        (ec.TOPIC_AUTHORIZATION_FAILED, Reason.TOPIC_AUTHORIZATION_FAILED),
        (ec.LEADER_NOT_AVAILABLE, Reason.NO_LEADER),
    ],
)
def test_what_metadata_says_of_a_topic(code: int, reason: Reason) -> None:
    metadata = MetadataManager(config(), BackgroundEvents())
    metadata.need("test", frozenset(["t"]))
    learn(metadata, 0, {}, {"t": code})
    world = World(P0, metadata=metadata)
    world.poll(5)
    assert why(world) == (reason, 5)
    assert ec.name(code) in str(world.state(P0).shared_partition.unfetched)


def test_an_unknown_topic_is_the_reason_and_not_the_offset_that_nobody_can_be_asked_for() -> None:
    metadata = MetadataManager(config(), BackgroundEvents())
    metadata.need("test", frozenset(["t"]))
    learn(metadata, 0, {}, {"t": ec.UNKNOWN_TOPIC_OR_PARTITION})
    world = World(P0, metadata=metadata)
    world.subscription.await_reset(P0, -2)
    world.poll(5)
    assert why(world) == (Reason.UNKNOWN_TOPIC, 5)


def test_a_partition_beyond_the_last_is_unknown() -> None:
    beyond = TopicPartition("t", 99)
    world = World(beyond)
    world.poll(5)
    assert why(world, beyond) == (Reason.UNKNOWN_TOPIC, 5)


def test_buffered_until_it_is_drained() -> None:
    world = World(P0, max_partition_fetch_bytes=100)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(2, size=100)})
    world.poll(5)
    assert why(world) == (Reason.BUFFERED, 5)
    world.drain(world.shared_state.completed_fetches.popleft())
    world.poll(6)
    assert why(world) is None


def test_buffered_is_also_said_of_a_broker_whose_partitions_hold_enough_on_average() -> None:
    world = World(P0, P1, max_partition_fetch_bytes=200)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(4, size=100), P1: batch(1)})
    world.poll(5)
    assert why(world, P1) == (Reason.BUFFERED, 5)


def test_memory() -> None:
    world = World(P0, P2, buffer_memory=1_500_000)
    world.poll(0)
    assert (why(world, P0), why(world, P2)) == (None, (Reason.MEMORY, 0))


def test_awaiting_its_turn_behind_two_fetches_of_its_broker() -> None:
    world = World(P0, P1, P2)
    world.pause(P0)
    world.pause(P2)
    (parked,) = world.poll(0)
    world.pause(P0, False)
    (side,) = world.poll(10)
    world.subscription.position(P0, 50, None)
    assert world.poll(20) == []
    assert (parked.purpose, side.purpose) == (ConnectionPurpose.FETCH, ConnectionPurpose.SIDE)
    assert why(world) == (Reason.AWAITING_TURN, 20)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ec.NOT_LEADER_OR_FOLLOWER, Reason.BACKOFF),
        (ec.KAFKA_STORAGE_ERROR, Reason.BACKOFF),
        (ec.UNKNOWN_TOPIC_ID, Reason.UNKNOWN_TOPIC),
        (ec.TOPIC_AUTHORIZATION_FAILED, Reason.TOPIC_AUTHORIZATION_FAILED),
        (ec.CORRUPT_MESSAGE, Reason.BACKOFF),
        (31_999, Reason.BACKOFF),
    ],
)
def test_after_an_error_the_reason_stands_until_a_fetch_is_answered(code: int, reason: Reason) -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 5, codes={P0: code})
    assert world.poll(6) == []
    assert why(world) == (reason, 6)
    assert ec.name(code) in str(world.state(P0).shared_partition.unfetched)
    (request,) = world.poll(5_000)
    assert why(world) == (reason, 6), "a retry on its way is no success"
    world.reply(request, 5_010)
    world.poll(5_011)
    assert why(world) is None


def test_a_broker_that_is_away_is_unreachable_through_all_retries() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.manager.on_response(10, lost(request, 10))
    world.poll(11)
    assert why(world) == (Reason.BROKER_UNREACHABLE, 11)
    for now in range(200, 2_000, 200):
        (request,) = world.poll(now)
        world.manager.on_response(now + 10, lost(request, now + 10))
    assert why(world) == (Reason.BROKER_UNREACHABLE, 11)
    assert "gone" in str(world.state(P0).shared_partition.unfetched)


def test_a_seek_forgets_the_trouble_of_the_old_position() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 5, codes={P0: ec.CORRUPT_MESSAGE})
    world.poll(6)
    world.subscription.position(P0, 50, None)
    world.poll(5_000)
    assert why(world) is None


# ---------------------------------------------------------------- the log line


def test_a_bad_reason_that_lasts_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kadence.consumer.fetch")
    world = World(P0)
    world.state(P0).status = Status.AWAIT_VALIDATION
    assert world.manager.poll(1_000).wake_at == 1_000 + TELL_AFTER_MS, "nothing else may wake the thread"
    world.poll(1_000 + TELL_AFTER_MS - 1)
    assert not caplog.records
    for later in (0, 1, 60_000):
        world.poll(1_000 + TELL_AFTER_MS + later)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"{P0} has not been fetched for 30 s: {Reason.AWAITING_VALIDATION.value}"
    world.state(P0).status = Status.FETCHING
    world.poll(100_000)
    assert caplog.messages[1:] == [f"{P0} is fetched again, after 99 s"]


def test_another_bad_reason_is_told_again_after_its_own_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World(P0)
    world.state(P0).status = Status.AWAIT_VALIDATION
    world.poll(0)
    world.poll(TELL_AFTER_MS)
    world.subscription.await_reset(P0, -2)
    world.poll(TELL_AFTER_MS + 1)
    assert len(caplog.records) == 1
    world.poll(2 * TELL_AFTER_MS + 1)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        Reason.AWAITING_VALIDATION.value,
        Reason.AWAITING_RESET.value,
    ]


def test_what_a_healthy_consumer_looks_like_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kadence.consumer.fetch")
    world = World(P0)
    world.pause(P0)
    assert world.manager.poll(0).wake_at == FOREVER
    world.poll(10 * TELL_AFTER_MS)
    assert not caplog.records


def test_what_waits_for_the_application_is_told_but_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kadence.consumer.fetch")
    world = World(P0)
    world.subscription.mark_revoking([P0])
    world.poll(0)
    world.poll(TELL_AFTER_MS)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_a_thousand_partitions_of_a_broker_that_is_away_are_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kadence.consumer.fetch")
    many = [TopicPartition("t", number) for number in range(1_000)]
    world = World(*many, metadata=knowing(dict.fromkeys(many, 1), BackgroundEvents()))
    (request,) = world.poll(0)
    world.manager.on_response(10, lost(request, 10))
    world.poll(10)
    (request,) = world.poll(10 + TELL_AFTER_MS)
    (line,) = caplog.messages
    assert line.startswith("1000 partitions (t-0, t-1, t-2, …) have not been fetched for 30 s: no connection")
    assert line.endswith("(broker 1: gone)")
    world.reply(request, 40_000)
    world.poll(40_000)
    assert caplog.messages[1:] == ["1000 partitions (t-0, t-1, t-2, …) are fetched again, after 39 s"]


def test_a_transaction_that_stays_open_is_a_reason_and_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(P0, isolation_level="read_committed")
    shared_partition = world.state(P0).shared_partition
    (request,) = world.poll(0)
    world.reply(request, 100, {P0: batch(2)}, stable=2, end=5)
    assert shared_partition.why(10_000) is None, "the application has not come so far"
    shared_partition.position = Origin(shared_partition.fetch_epoch, 2, None)
    assert shared_partition.why(5_000) is None, "transactions come and go"
    assert shared_partition.why(5_100) == Unfetched(
        Reason.OPEN_TRANSACTION, 100, "last stable offset 2, high watermark 5"
    )
    (request,) = world.poll(200)
    world.reply(request, 700, {P0: b""}, stable=2, end=5_002)
    assert shared_partition.why(60_000) == Unfetched(
        Reason.OPEN_TRANSACTION, 100, "last stable offset 2, high watermark 5002"
    ), "it is as old as the last stable offset"
    world.poll(60_099)
    assert not caplog.messages
    world.poll(60_100)
    (line,) = caplog.messages
    assert line == (
        "t-0: a transaction has been open for 60 s; isolation.level=read_committed returns nothing from offset 2 on "
        "before it ends (high watermark 5002). `kadence groups why GROUP` names its producer"
    )
    world.pause(P0)
    assert shared_partition.why(60_100).reason is Reason.PAUSED


def test_an_open_transaction_that_ends_or_gives_way_to_another_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(P0, isolation_level="read_committed")
    shared_partition = world.state(P0).shared_partition
    now = 0
    for stable in (0, 3, 6):
        (request,) = world.poll(now)
        world.reply(request, now + 100, {P0: b""}, stable=stable, end=stable + 3)
        shared_partition.position = Origin(shared_partition.fetch_epoch, stable, None)
        assert shared_partition.why(now + 5_000) is None
        now += 40_000
    (request,) = world.poll(now)
    world.reply(request, now, {P0: b""}, stable=9, end=9)
    assert shared_partition.why(now + 100_000) is None
    world.poll(now + 100_000)
    assert not caplog.messages


def test_who_reads_uncommitted_is_not_held_up() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 0, {P0: b""}, stable=0, end=5)
    assert world.state(P0).shared_partition.why(100_000) is None
