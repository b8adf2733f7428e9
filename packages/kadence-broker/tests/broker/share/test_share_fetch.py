"""ShareFetch and ShareAcknowledge at the leader: waiting, limits, errors, and the fields of the answers (KIP-932)."""

from __future__ import annotations

import pytest
from tests.broker.share.scene import GROUP, Member, Scene, acks, acquired, offsets, partition_of

from kadence.protocol import error_codes as codes
from kadence.records import encode_batch
from kadence_broker.share.partition import SharePartition
from kadence_broker.share.sessions import TopicIdPartition

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK = 30_000


@pytest.mark.parametrize("version", [1, 2])
def test_every_version(scene: Scene, member: Member, version: int) -> None:
    scene.produce(10)
    answer = member.fetch(version=version)
    assert acquired(answer) == [(0, 9, 1)]
    assert offsets(answer) == 10
    assert answer.acquisition_lock_timeout_ms == LOCK
    assert acks(member.fetch(acks={0: [(0, 4, ACCEPT)]}, version=version)) == 0
    assert member.acknowledge([(5, 9, ACCEPT)], version=version) == 0
    scene.produce(1)
    assert acquired(member.fetch(version=version)) == [(10, 10, 1)]


def test_version_1_knows_neither_the_record_limit_nor_renewal(scene: Scene, member: Member) -> None:
    scene.produce(10)
    assert acquired(member.fetch(version=1, max_records=3)) == [(0, 9, 1)]
    assert acks(member.fetch(acks={0: [(0, 0, RENEW)]}, version=1)) == codes.INVALID_REQUEST


def test_the_answer_has_only_batches_that_the_member_got(scene: Scene, member: Member) -> None:
    for _ in range(4):
        scene.produce(5)
    assert acquired(member.fetch(max_records=5)) == [(0, 4, 1)]
    other = scene.member("b")
    answer = other.fetch(max_records=7)
    assert acquired(answer) == [(5, 14, 1)]
    assert offsets(answer) == 10
    member.close()
    answer = other.fetch()
    assert acquired(answer) == [(0, 4, 2), (15, 19, 1)]
    assert offsets(answer) == 20  # what lies between comes along


def test_record_limit(scene: Scene, member: Member) -> None:
    scene.produce(10)
    answer = member.fetch(max_records=4, share_acquire_mode=1)
    assert acquired(answer) == [(0, 3, 1)]
    assert offsets(answer) == 10
    assert acquired(scene.member("b").fetch()) == [(4, 9, 1)]


def test_max_records_is_of_the_request(scene: Scene, member: Member) -> None:
    scene.produce(3)
    scene.produce(3, partition=1)
    answer = member.fetch([0, 1], max_records=2)
    assert acquired(answer, 0) == [(0, 2, 1)]
    assert acquired(answer, 1) == []
    assert acquired(member.fetch(max_records=2), 1) == [(0, 2, 1)]


def test_max_bytes_is_divided_and_a_larger_record_comes_all_the_same(scene: Scene, member: Member) -> None:
    for partition in (0, 1):
        for _ in range(3):
            scene.produce(1, partition)
    size = scene.log().log.size_bytes // 3
    answer = member.fetch([0, 1], max_bytes=2 * size)
    assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 0, 1)], [(0, 0, 1)])
    assert acquired(scene.member("b").fetch(max_bytes=1)) == [(1, 1, 1)]


@pytest.mark.parametrize("limits", [{"max_records": 0}, {"max_bytes": 0}])
def test_limits_of_0_read_and_load_nothing(scene: Scene, member: Member, limits: dict[str, int]) -> None:
    scene.configure(**{"share.auto.offset.reset": "latest"})
    assert member.fetch(max_wait_ms=1_000, **limits).responses == []
    scene.produce(3)
    assert acquired(member.fetch()) == []  # the first that reads: it begins at the end
    scene.produce(1)
    assert acquired(member.fetch()) == [(3, 3, 1)]


# Waiting


def test_a_fetch_waits_for_records(scene: Scene, member: Member) -> None:
    answers = member.send_fetch(max_wait_ms=1_000)
    scene.turn(999)
    assert answers == []
    scene.produce(2)
    scene.turn()
    assert acquired(answers[0]) == [(0, 1, 1)]


def test_a_fetch_waits_no_longer_than_it_said(scene: Scene, member: Member) -> None:
    answers = member.send_fetch(max_wait_ms=1_000)
    scene.turn(1_000)
    assert acquired(answers[0]) == []
    assert answers[0].error_code == 0


def test_a_fetch_waits_for_min_bytes(scene: Scene, member: Member) -> None:
    scene.produce(1)
    answers = member.send_fetch(max_wait_ms=1_000, min_bytes=scene.log().log.size_bytes + 1)
    assert answers == []
    scene.produce(1)
    scene.turn()
    assert acquired(answers[0]) == [(0, 1, 1)]


def test_what_was_released_or_timed_out_wakes_who_waits_the_longest_waiting_first(
    scene: Scene, member: Member
) -> None:
    scene.produce(2)
    member.fetch()
    first, second = scene.member("b"), scene.member("c")
    waiting = [each.send_fetch(max_wait_ms=60_000) for each in (first, second)]
    assert member.acknowledge([(1, 1, RELEASE)]) == 0
    scene.turn()
    assert acquired(waiting[0][0]) == [(1, 1, 2)]
    scene.turn(LOCK)
    assert acquired(waiting[1][0]) == [(0, 0, 2), (1, 1, 3)]


def test_a_release_on_the_way_goes_to_those_who_wait_already(scene: Scene, member: Member) -> None:
    scene.produce(2)
    member.fetch()
    waiting = scene.member("b").send_fetch(max_wait_ms=60_000)
    answers = member.send_fetch(acks={0: [(0, 1, RELEASE)]}, max_wait_ms=100)
    assert acquired(waiting[0]) == [(0, 1, 2)]
    scene.turn(100)
    assert acks(answers[0]) == 0
    assert acquired(answers[0]) == []


def test_a_client_that_went_away_gets_nothing(scene: Scene, member: Member) -> None:
    answers = member.send_fetch(max_wait_ms=1_000)
    member.connection.close()
    scene.produce(2)
    scene.turn(2_000)
    assert answers == []
    assert acquired(scene.member("b").fetch()) == [(0, 1, 1)]


# Acknowledgements on the way


def test_results_stand_beside_records(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch([0, 1])
    scene.produce(2)
    answer = member.fetch(acks={0: [(0, 2, ACCEPT)], 1: [(0, 0, ACCEPT)]})
    assert acquired(answer) == [(3, 4, 1)]
    assert acks(answer) == 0
    assert acks(answer, 1) == codes.INVALID_RECORD_STATE


def test_a_partition_named_for_acknowledgements_only_is_read_from_then_on(
    scene: Scene, member: Member
) -> None:
    scene.produce(3)
    member.fetch([0])
    assert acks(member.fetch(acks={0: [(0, 2, ACCEPT)]}, forget=[0])) == 0
    scene.produce(1)
    assert member.fetch().responses == []
    answer = member.fetch(acks={0: [(0, 0, ACCEPT)]})
    assert acquired(answer) == [(3, 3, 1)]


def test_the_form_of_acknowledgements_is_checked(scene: Scene, member: Member) -> None:
    scene.produce(3)
    scene.produce(3, partition=1)
    member.fetch([0, 1])
    answer = member.fetch(acks={0: [(0, 2, [ACCEPT, ACCEPT])], 1: [(0, 2, ACCEPT)]})
    assert acks(answer, 0) == codes.INVALID_REQUEST
    assert acks(answer, 1) == 0


def test_renewal_brings_no_records_and_keeps_the_lock(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    scene.produce(3)
    for _ in range(4):
        scene.turn(20_000)
        answer = member.renew([(0, 2, RENEW)])
        assert acks(answer) == 0
        assert acquired(answer) == []
    assert member.acknowledge([(0, 2, RENEW)], is_renew_ack=True) == 0
    scene.turn(LOCK - 1)
    assert member.acknowledge([(0, 2, ACCEPT)]) == 0


def test_renewal_is_a_setting_of_the_group(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    scene.configure(**{"share.renew.acknowledge.enable": "false"})
    assert acks(member.renew([(0, 2, RENEW)])) == codes.INVALID_RECORD_STATE
    assert member.acknowledge([(0, 2, ACCEPT)]) == 0


# Errors


def test_partitions_that_are_not_there(scene: Scene, member: Member) -> None:
    answer = member.fetch([0, 7], max_wait_ms=0)
    assert partition_of(answer, 7).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    other = scene.member("b")
    assert partition_of(other.fetch(topic_id=b"?" * 16)).error_code == codes.UNKNOWN_TOPIC_ID
    assert other.acknowledge([(0, 0, ACCEPT)], topic_id=b"?" * 16) == codes.UNKNOWN_TOPIC_ID
    assert other.acknowledge([(0, 0, ACCEPT)], partition=7) == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_that_its_coordinator_does_not_know_yet(scene: Scene) -> None:
    stranger = scene.member(group="another")
    answer = stranger.fetch(max_wait_ms=10_000)  # all partitions are in error: no reason to wait
    assert partition_of(answer).error_code == codes.UNKNOWN_SERVER_ERROR
    scene.initialise("t", "another")
    assert acquired(stranger.fetch()) == []
    scene.produce(2)
    assert acquired(stranger.fetch()) == [(0, 1, 1)]


def test_a_partition_that_nobody_reads_has_nothing_to_acknowledge(scene: Scene, member: Member) -> None:
    member.fetch([0])
    assert member.acknowledge([(0, 0, ACCEPT)], partition=1) == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_a_moved_leader_is_named_and_its_locks_are_void() -> None:
    scene = Scene(nodes=2)
    scene.core.lead(scene.log(), 1)
    scene.produce(3)
    member = scene.member()
    assert acquired(member.fetch([0])) == [(0, 2, 1)]
    waiting = scene.member("b").send_fetch([0], max_wait_ms=60_000)
    scene.core.lead(scene.log(), 2)
    scene.turn()
    for answer in (waiting[0], member.fetch(acks={0: [(0, 2, ACCEPT)]})):
        found = partition_of(answer)
        assert found.error_code == codes.NOT_LEADER_OR_FOLLOWER
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (
            2,
            scene.log().leader_epoch,
        )
        assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 2)]
    assert member.acknowledge([(0, 2, ACCEPT)]) == codes.NOT_LEADER_OR_FOLLOWER
    moved = scene.member("m", node=2)
    assert acquired(moved.fetch([0])) == [(0, 2, 1)]
    scene.close()


def test_counts_move_to_the_new_leader() -> None:
    scene = Scene(nodes=2)
    scene.core.lead(scene.log(), 1)
    scene.produce(4)
    member = scene.member()
    member.fetch([0])
    assert member.acknowledge([(0, 0, ACCEPT), (1, 2, RELEASE)]) == 0
    scene.core.lead(scene.log(), 2)
    assert acquired(scene.member(node=2).fetch([0])) == [(1, 2, 2), (3, 3, 1)]
    scene.close()


# What else happens to a partition


def test_the_answer_after_deleted_records_is_empty_and_comes_at_once(scene: Scene, member: Member) -> None:
    for _ in range(4):
        scene.produce(10)
    scene.configure(**{"share.auto.offset.reset": "earliest"})
    assert acquired(member.fetch(max_records=1)) == [(0, 9, 1)]
    assert member.acknowledge([(0, 9, ACCEPT)]) == 0
    scene.log().delete_before(25)
    assert acquired(member.fetch(max_wait_ms=60_000)) == []
    assert acquired(member.fetch(max_wait_ms=60_000)) == [(25, 39, 1)]


def state_of(scene: Scene, partition: int = 0) -> SharePartition:
    led, _ = scene.shares.led(1, GROUP, TopicIdPartition(scene.topic_id, partition))
    assert led is not None
    return led.state


def test_deleted_records_while_some_are_held(scene: Scene, member: Member) -> None:
    for _ in range(4):
        scene.produce(10)
    assert acquired(member.fetch(max_records=5)) == [(0, 9, 1)]
    scene.log().delete_before(25)
    other = scene.member("b")
    assert acquired(other.fetch(max_wait_ms=60_000)) == []
    assert acquired(other.fetch(max_wait_ms=60_000)) == [(20, 39, 1)]  # its batch is read whole, as in Kafka
    assert member.acknowledge([(0, 9, ACCEPT)]) == 0


def test_a_deleted_topic(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    topic = scene.cluster.topics["t"]
    old = topic.topic_id
    scene.cluster.delete_topic(topic)
    scene.shares.topic_deleted("t", old)
    assert partition_of(member.fetch(topic_id=old)).error_code == codes.UNKNOWN_TOPIC_ID
    assert member.acknowledge([(0, 2, ACCEPT)], topic_id=old) == codes.UNKNOWN_TOPIC_ID
    assert scene.shares.initialised("g") == {}


def test_an_altered_start_fences_who_holds_records(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    assert scene.shares.alter("g", scene.topic_id, 0, 7) == 0
    assert scene.shares.summary("g", scene.topic_id, 0) == (7, 0, 0)
    assert member.acknowledge([(0, 9, ACCEPT)]) == codes.NOT_LEADER_OR_FOLLOWER
    assert acquired(member.fetch()) == [(7, 9, 1)]


def test_a_deleted_share_partition_begins_anew(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    assert member.acknowledge([(0, 9, ACCEPT)]) == 0
    assert scene.shares.delete("g", scene.topic_id, 0) == 0
    assert scene.shares.initialised("g") == {scene.topic_id: [1]}
    assert not scene.shares.is_initialised("g", scene.topic_id, 0)
    assert partition_of(member.fetch()).error_code == codes.UNKNOWN_SERVER_ERROR
    scene.initialise("t")
    assert acquired(member.fetch()) == [(0, 9, 1)]


def test_a_stale_coordinator_is_fenced(scene: Scene) -> None:
    assert scene.shares.initialise("g", scene.topic_id, 0, -1, 5) == 0
    assert scene.shares.initialise("g", scene.topic_id, 0, -1, 4) == codes.FENCED_STATE_EPOCH


def test_the_lag_is_what_is_neither_done_nor_below_the_start(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    assert scene.shares.summary("g", scene.topic_id, 0) == (-1, -1, 0)
    assert member.acknowledge([(0, 2, ACCEPT), (5, 6, REJECT)]) == 0
    summary = scene.shares.summary("g", scene.topic_id, 0)
    assert summary is not None
    assert 10 - summary.start_offset - summary.delivery_complete_count == 5
    assert member.acknowledge([(3, 4, ACCEPT), (7, 9, ACCEPT)]) == 0
    summary = scene.shares.summary("g", scene.topic_id, 0)
    assert summary is not None
    assert 10 - summary.start_offset - summary.delivery_complete_count == 0


# Reset and isolation


def test_by_duration(scene: Scene) -> None:
    now = scene.core.loop.wall_ms()
    for age in (10_000, 5_000, 1_000):
        scene.log().append(now, memoryview(encode_batch([(now - age, None, b"v", ())])))
    scene.configure(**{"share.auto.offset.reset": "by_duration:PT6S"})
    assert acquired(scene.member().fetch()) == [(1, 2, 1)]


def test_a_reset_changes_until_something_is_stored(scene: Scene, member: Member) -> None:
    scene.configure(**{"share.auto.offset.reset": "latest"})
    scene.produce(3)
    assert acquired(member.fetch()) == []
    member.connection.close()
    scene.configure(**{"share.auto.offset.reset": "earliest"})
    again = scene.member()
    assert acquired(again.fetch()) == [(0, 2, 1)]


def test_a_renewal_does_not_move_the_start_over_what_was_aborted(scene: Scene, member: Member) -> None:
    """As in Kafka: only what is stored moves it."""
    scene.configure(**{"share.isolation.level": "read_committed"})
    log, now = scene.log(), scene.core.loop.wall_ms()
    scene.produce(2, transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    log.append_marker(now, 9, 0, 0, committed=False)
    scene.produce(2)
    assert acquired(member.fetch()) == [(2, 4, 1)]  # the marker is a gap
    assert acks(member.renew([(3, 3, RENEW)])) == 0
    assert state_of(scene).start_offset == 0
    assert member.acknowledge([(4, 4, ACCEPT)]) == 0
    assert state_of(scene).start_offset == 2


def test_read_committed_stops_at_an_open_transaction_and_leaves_out_aborted_ones(
    scene: Scene, member: Member
) -> None:
    scene.configure(**{"share.isolation.level": "read_committed"})
    log, now = scene.log(), scene.core.loop.wall_ms()
    scene.produce(2)
    scene.produce(3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    scene.produce(1)
    waiting = member.send_fetch(max_wait_ms=60_000)
    assert acquired(waiting[0]) == [(0, 1, 1)]
    waiting = member.send_fetch(max_wait_ms=60_000)
    assert waiting == []
    log.append_marker(now, 9, 0, 0, committed=False)
    scene.turn()
    assert acquired(waiting[0]) == [(5, 6, 1)]  # the marker is a gap
    assert member.acknowledge([(0, 1, ACCEPT), (5, 5, ACCEPT), (6, 6, 0)]) == 0
    assert state_of(scene).start_offset == 7


def test_read_uncommitted_gets_everything(scene: Scene, member: Member) -> None:
    scene.produce(3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    assert acquired(member.fetch()) == [(0, 2, 1)]


def test_a_member_does_not_get_back_at_once_what_it_releases_on_the_way(scene: Scene, member: Member) -> None:
    scene.produce(2)
    member.fetch()
    scene.produce(2)
    answer = member.fetch(acks={0: [(0, 1, RELEASE)]})
    assert acks(answer) == 0
    assert acquired(answer) == [(2, 3, 1)]
    assert acquired(member.fetch()) == [(0, 1, 2)]


def test_acknowledgements_on_the_way_make_room_in_a_full_window(scene: Scene, member: Member) -> None:
    scene.configure(**{"share.partition.max.record.locks": "100"})
    scene.produce(100)
    scene.produce(1)
    assert acquired(member.fetch()) == [(0, 99, 1)]
    answers = member.send_fetch(acks={0: [(0, 99, ACCEPT)]}, max_wait_ms=1_000)
    assert acquired(answers[0]) == [(100, 100, 1)]
