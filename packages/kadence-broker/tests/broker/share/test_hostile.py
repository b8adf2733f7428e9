"""Stories in which records were lost, a group stood still, or one request held up the others."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.broker.share.pure import ACCEPT, REJECT, RELEASE, Queue
from tests.broker.share.scene import Connection, Member, Scene, acquired

from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import describe_share_group_offsets as describe_api
from kadence.protocol.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kadence_broker.share import dead_letters
from kadence_broker.share.acknowledging import Acknowledgement
from kadence_broker.share.acquiring import Wish
from kadence_broker.share.delivery import RecordState
from kadence_broker.storage import Partition

ACKNOWLEDGED, AVAILABLE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


@pytest.mark.parametrize(
    ("state", "log_start", "expected"), [(ACKNOWLEDGED, 5, [(10, 19, 1)]), (AVAILABLE, 7, [(7, 9, 2)])]
)
def test_records_of_a_gap_are_deleted(
    state: RecordState, log_start: int, expected: list[tuple[int, int, int]]
) -> None:
    """0 to 4 were out when the leader stopped, and were deleted after that: the group goes on behind them."""
    queue = Queue((0, 4), (5, 9), (10, 19), stored=[(5, 9, state, 1)])
    assert queue.state.next_offset == 0
    queue.delete_before(log_start)
    assert queue.state.next_offset >= log_start
    assert queue.take(max_records=3)[:1] == expected


def test_records_of_a_gap_are_compacted_away() -> None:
    """Nothing is read from the gap, so the next read begins behind it, and the start offset leaves it."""
    queue = Queue((7, 9), (10, 19), stored=[(5, 9, ACKNOWLEDGED, 1)])
    assert queue.take(upto=9) == []
    assert queue.state.next_offset == 10
    assert queue.take() == [(10, 19, 1)]
    assert queue.say((10, 19, ACCEPT)) == 0
    assert (queue.state.start_offset, queue.state.window) == (20, 0)


def test_a_gap_in_the_middle_is_compacted_away() -> None:
    queue = Queue((0, 4), (10, 14), stored=[(0, 4, AVAILABLE, 1), (10, 14, AVAILABLE, 1)])
    assert queue.take(upto=4) == [(0, 4, 2)]
    assert queue.say((0, 4, ACCEPT)) == 0
    assert queue.state.start_offset == 5
    assert queue.take() == [(10, 14, 2)]
    assert queue.say((10, 14, ACCEPT)) == 0
    assert (queue.state.start_offset, queue.state.window) == (15, 0)


def test_records_done_behind_a_gap_do_not_fill_the_window() -> None:
    log = [(0, 39), (40, 79), (80, 119), (120, 159)]
    queue = Queue(*log, stored=[(11, 119, ACKNOWLEDGED, 1)], max_record_locks=100)
    assert queue.take() == [(0, 10, 1)]
    assert queue.say((0, 10, ACCEPT)) == 0
    assert queue.take() == [(120, 159, 1)]


def test_the_start_moves_up_to_the_next_gap() -> None:
    stored = [(11, 59, ACKNOWLEDGED, 1), (70, 119, ACKNOWLEDGED, 1)]
    queue = Queue((0, 39), (40, 79), (80, 119), (120, 159), stored=stored)
    assert queue.take(max_records=1) == [(0, 10, 1)]
    assert queue.say((0, 10, ACCEPT)) == 0
    assert queue.state.start_offset == 60
    assert queue.take(max_records=1) == [(60, 69, 1)]
    assert queue.say((60, 69, ACCEPT)) == 0
    assert queue.take() == [(120, 159, 1)]


def test_the_start_moves_into_a_batch_behind_a_gap() -> None:
    stored = [(11, 59, ACKNOWLEDGED, 1), (60, 69, AVAILABLE, 1)]
    queue = Queue((0, 39), (40, 79), stored=stored)
    assert queue.take(upto=39) == [(0, 10, 1)]
    assert queue.take() == [(60, 69, 2), (70, 79, 1)]
    queue = Queue((0, 39), (40, 69), stored=stored)
    assert queue.take() == [(0, 10, 1), (60, 69, 2)]
    assert queue.say((60, 64, ACCEPT), (65, 69, RELEASE)) == 0
    assert queue.say((0, 10, ACCEPT)) == 0
    assert queue.state.start_offset == queue.state.next_offset == 65
    assert queue.take() == [(65, 69, 3)]


def test_a_record_released_below_the_gaps_does_not_hold_up_the_start() -> None:
    """Kafka 4.4.0 stands still then (findings/kafka_share_group_stands_still.sh)."""
    stored = [(100, 119, ACKNOWLEDGED, 1)]
    queue = Queue((0, 39), (40, 79), (80, 119), (120, 159), stored=stored, max_record_locks=100)
    assert queue.take() == [(0, 99, 1)]
    assert (
        queue.say((0, 4, ACCEPT), (5, 5, RELEASE), (6, 97, ACCEPT), (98, 98, RELEASE), (99, 99, ACCEPT)) == 0
    )
    assert queue.take() == [(5, 5, 2), (98, 98, 2)]
    assert queue.say((5, 5, ACCEPT), (98, 98, ACCEPT)) == 0
    assert queue.take() == [(120, 159, 1)]
    assert queue.state.start_offset == 120


def test_a_long_aborted_transaction_does_not_fill_the_window() -> None:
    """Nobody acknowledges what is archived unseen, and yet the group comes to what is behind it."""
    batches = [(first, first + 49) for first in range(0, 500, 50)]
    queue = Queue(*batches, (500, 500), max_record_locks=100)
    for _ in batches:
        assert queue.take(max_records=50, aborted=batches) == []
    assert queue.take(aborted=batches) == [(500, 500, 1)]


def test_a_full_window_is_compacted_away() -> None:
    queue = Queue((0, 99), (100, 109), max_record_locks=100)
    assert queue.take(max_records=100) == [(0, 99, 1)]
    queue.wait(30_000)
    del queue.log[0]
    assert queue.take() == []
    assert queue.take() == [(100, 109, 1)]


def test_locks_of_a_state_that_is_void_change_nothing(scene: Scene, member: Member) -> None:
    """A fetch in pieces comes to a share-partition that was altered since its first piece."""
    scene.produce(10)
    assert acquired(member.fetch()) == [(0, 9, 1)]
    (led,) = scene.shares._led.values()
    assert scene.shares.alter("g", scene.topic_id, 0, 3) == 0
    assert led.acquire(scene.clock.now_ms(), Wish("m", 5, 10, 5), [], []) == ([], 0)
    scene.turn(31_000)
    stored = scene.shares.store.get(led.key)
    assert stored is not None
    assert (stored.start_offset, stored.batches) == (3, [])


def test_a_waiting_fetch_that_cannot_read_ends_with_its_connection(
    scene: Scene, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert member.send_fetch(max_wait_ms=10_000) == []
    real, tries = Partition.read, 0

    def fails_once(self: Partition, *args: Any, **options: Any) -> list[memoryview]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(24, "too many open files")
        return real(self, *args, **options)

    other = scene.member("o")
    answers = other.send_fetch([0], max_wait_ms=10_000)
    monkeypatch.setattr(Partition, "read", fails_once)
    scene.produce(3)
    scene.turn()
    assert member.connection.is_closed
    assert acquired(answers[0]) == [(0, 2, 1)]


def test_a_batch_that_is_split_while_it_settles(scene: Scene, member: Member) -> None:
    """What came with a fetch counts after it, also where records of the batch were deleted meanwhile."""
    scene.produce(10)
    member.fetch()
    (led,) = scene.shares._led.values()
    assert led.acknowledge(scene.clock.now_ms(), "m", [Acknowledgement(0, 9, [2])], is_on_the_way=True) == 0
    led.log_started_at(4)
    assert led.state.next_offset == 10, "nobody gets it yet"
    scene.turn()
    assert led.state.next_offset == 4


def test_many_topics_in_one_answer(scene: Scene, member: Member) -> None:
    """The work for an answer grows with its topics, and not with their square."""
    compared = 0

    class Id(bytes):
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return bytes.__eq__(self, other)

    count = 200
    topics = [FetchTopic(Id(each.to_bytes(16, "big")), [FetchPartition(0, [])]) for each in range(1, count)]
    request = ShareFetchRequest("g", "m", 0, 0, 1, 1_000, 10, 10, topics=topics)
    (answer,) = scene.call(member.connection, request)
    assert len(answer.responses) == count - 1
    assert compared < 20 * count


def test_thousands_of_letters_leave_turns_to_others(scene: Scene, member: Member) -> None:
    scene.cluster.create_topic("dlq.t", 1, {dead_letters.ENABLED: "true"})
    scene.configure(**{"errors.deadletterqueue.topic.name": "dlq.t"})
    scene.produce(200)
    member.fetch()
    assert member.acknowledge([(0, 199, [REJECT, ACCEPT] * 100)]) == 0
    written = [0]
    while written[-1] < 100:
        scene.core.loop.soon(lambda: None)
        scene.core.loop.turn()
        written.append(scene.log(0, "dlq.t").end_offset)
    assert max(after - before for before, after in pairwise(written)) <= 40
    scene.turn()
    assert member.acknowledge() == 0
    assert scene.shares.summary("g", scene.topic_id, 0) is not None
    assert [len(each.state.in_flight) for each in scene.shares._led.values()] == [0]


def test_a_letter_waits_for_a_disk_that_does_not_take_it(
    scene: Scene, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.cluster.create_topic("dlq.t", 1, {dead_letters.ENABLED: "true"})
    scene.configure(
        **{"errors.deadletterqueue.topic.name": "dlq.t", "errors.deadletterqueue.copy.record.enable": "true"}
    )
    scene.produce(1)
    member.fetch()

    def fails(*_args: Any, **_options: Any) -> list[memoryview]:
        raise OSError(24, "too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(Partition, "read", fails)
        assert member.acknowledge([(0, 0, REJECT)]) == 0
        scene.turn()
    assert scene.log(0, "dlq.t").end_offset == 0
    scene.turn(1_000)
    assert scene.log(0, "dlq.t").end_offset == 1


def test_a_start_offset_far_below_zero(scene: Scene) -> None:
    """It is stored as it is; the group can be described, and is read from the first record."""
    scene.produce(3)
    partition = alter_api.AlterShareGroupOffsetsRequestPartition(0, -(2**63))
    topic = alter_api.AlterShareGroupOffsetsRequestTopic("t", [partition])
    connection = Connection(1)
    scene.call(connection, alter_api.AlterShareGroupOffsetsRequest("g", [topic]))
    group = describe_api.DescribeShareGroupOffsetsRequestGroup("g", None)
    (answer,) = scene.call(connection, describe_api.DescribeShareGroupOffsetsRequest([group]))
    (told,) = answer.groups[0].topics[0].partitions
    assert (told.start_offset, told.lag) == (-(2**63), 2**63 - 1)
    member = scene.member()
    assert acquired(member.fetch()) == []  # it finds out that records are missing
    assert acquired(member.fetch()) == [(0, 2, 1)]
