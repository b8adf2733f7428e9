"""Share sessions: epochs, errors, the connection that they belong to, and what their end releases (KIP-932)."""

from __future__ import annotations

import pytest
from tests.broker.share.scene import GROUP, Member, Scene, acks, acquired, partition_of

from kadence.protocol import error_codes as codes
from kadence_broker.share.sessions import (
    SessionKey,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
    next_epoch,
)

ACCEPT, RELEASE = 1, 2


def test_a_session_goes_on_and_names_only_news(scene: Scene, member: Member) -> None:
    scene.produce(3)
    assert acquired(member.fetch([0, 1])) == [(0, 2, 1)]
    assert member.fetch().responses == []
    scene.produce(2, partition=1)
    answer = member.fetch()
    assert acquired(answer, 1) == [(0, 1, 1)]
    assert partition_of(answer, 0) is None


def test_partitions_are_added_named_once_and_forgotten(scene: Scene, member: Member) -> None:
    member.fetch([0])
    assert partition_of(member.fetch([1]), 1).error_code == 0
    assert member.fetch().responses == []
    member.fetch(forget=[0, 1])
    scene.produce(3)
    assert member.fetch().responses == []
    assert acquired(member.fetch([0])) == [(0, 2, 1)]


@pytest.mark.parametrize("epoch", [0, 2, 5, 2**31 - 1])
def test_another_epoch_is_refused_and_the_session_stays(scene: Scene, member: Member, epoch: int) -> None:
    scene.produce(3)
    member.fetch()
    if epoch:
        assert member.fetch(epoch=epoch).error_code == codes.INVALID_SHARE_SESSION_EPOCH
        assert member.acknowledge([(0, 2, ACCEPT)], epoch=epoch) == codes.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge([(0, 2, ACCEPT)]) == 0


def test_both_requests_count_together(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=1) == 0
    assert member.acknowledge([(1, 1, ACCEPT)], epoch=1) == codes.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(epoch=2).error_code == 0
    assert member.acknowledge([(1, 1, ACCEPT)], epoch=3) == 0


def test_without_a_session(scene: Scene, member: Member) -> None:
    assert member.fetch(epoch=1).error_code == codes.SHARE_SESSION_NOT_FOUND
    assert member.fetch(epoch=-1).error_code == codes.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(epoch=1) == codes.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(epoch=-1) == codes.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(epoch=0) == codes.INVALID_SHARE_SESSION_EPOCH
    member.fetch(epoch=0)
    assert member.acknowledge(epoch=0) == codes.INVALID_SHARE_SESSION_EPOCH


def test_epoch_0_carries_no_acknowledgements(scene: Scene, member: Member) -> None:
    scene.produce(3)
    assert member.fetch(acks={0: [(0, 2, ACCEPT)]}, epoch=0).error_code == codes.INVALID_REQUEST
    assert member.fetch(epoch=1).error_code == codes.SHARE_SESSION_NOT_FOUND


def test_a_session_opened_again_on_its_connection_releases_nothing(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    assert member.fetch(epoch=7).error_code == codes.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 0
    assert acquired(member.fetch(max_records=0, max_bytes=0)) == []
    assert member.acknowledge([(0, 2, ACCEPT)]) == 0
    assert acquired(scene.member("b").fetch()) == []


def test_the_end_works_acknowledgements_first_and_releases_the_rest(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    assert member.acknowledge([(0, 4, ACCEPT)], epoch=-1) == 0
    assert acquired(scene.member("b").fetch()) == [(5, 9, 2)]
    assert member.close() == codes.SHARE_SESSION_NOT_FOUND


def test_the_end_at_a_node_releases_nothing_of_another_nodes_partitions() -> None:
    scene = Scene(nodes=2)
    scene.produce(10)
    member = scene.member()
    member.fetch()
    elsewhere = scene.member(node=2)
    assert partition_of(elsewhere.fetch([0])).error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert elsewhere.close() == 0
    assert member.acknowledge([(0, 9, ACCEPT)]) == 0
    scene.close()


def test_a_fetch_may_end_a_session_too(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    answer = member.fetch(acks={0: [(0, 4, ACCEPT)]}, epoch=-1)
    assert acks(answer) == 0
    assert acquired(answer) == []
    assert acquired(scene.member("b").fetch()) == [(5, 9, 2)]


def test_a_closed_connection_releases_what_its_member_has(scene: Scene, member: Member) -> None:
    scene.produce(10)
    member.fetch()
    other = scene.member("b")
    waiting = other.send_fetch(max_wait_ms=5_000)
    assert waiting == []
    member.connection.close()
    scene.turn()
    assert acquired(waiting[0]) == [(0, 9, 2)]


def test_with_a_connection_the_sessions_of_all_its_members_end(scene: Scene, member: Member) -> None:
    """In Kafka 4.4.0 only the last ends; the other holds its place among the node's sessions for good."""
    for partition in (0, 1):
        scene.produce(10, partition=partition)
    second = Member(scene, "second", member.connection, GROUP)
    assert acquired(member.fetch([0])) == [(0, 9, 1)]
    assert acquired(second.fetch([1]), 1) == [(0, 9, 1)]
    assert second.close() == 0
    second.epoch = 0
    assert acquired(second.fetch([1]), 1) == [(0, 9, 2)]
    member.connection.close()
    assert len(scene.shares.sessions) == 0
    other = scene.member("other")
    answer = other.fetch([0, 1])
    assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 9, 2)], [(0, 9, 3)])


def test_what_a_session_has_forgotten_is_released_by_the_end_of_its_locks(
    scene: Scene, member: Member
) -> None:
    """As in Kafka 4.4.0, also at the end of the session: until then the member may acknowledge it."""
    scene.produce(10)
    member.fetch()
    other = scene.member("other")
    assert acquired(other.fetch()) == []
    member.fetch(forget=[0])
    assert member.acknowledge([(0, 0, ACCEPT)]) == 0
    member.connection.close()
    assert acquired(other.fetch()) == []
    scene.turn(30_000)
    assert acquired(other.fetch()) == [(1, 9, 2)]


def test_a_session_opened_on_another_connection_survives_the_end_of_the_first(
    scene: Scene, member: Member
) -> None:
    scene.produce(10)
    member.fetch()
    again = scene.member("m")
    assert acquired(again.fetch()) == []
    member.connection.close()
    assert again.acknowledge([(0, 9, ACCEPT)]) == 0


def test_the_last_session_of_a_group_takes_what_was_not_stored_with_it(scene: Scene, member: Member) -> None:
    scene.configure(**{"share.auto.offset.reset": "latest"})
    member.fetch()
    member.connection.close()
    scene.produce(10)
    late = scene.member()
    assert acquired(late.fetch()) == []
    scene.produce(2)
    assert acquired(late.fetch()) == [(10, 11, 1)]
    assert scene.shares.summary("g", scene.topic_id, 0) == (-1, -1, 0)
    assert late.acknowledge([(10, 10, RELEASE)]) == 0
    late.connection.close()
    scene.produce(3)
    assert acquired(scene.member().fetch()) == [(10, 11, 2), (12, 14, 1)]


def test_too_many_sessions_are_refused_after_the_wait() -> None:
    scene = Scene(group__share__max__size=1, group__share__max__share__sessions=1)
    first = scene.member("a")
    first.fetch()
    late = scene.member("b")
    answers = late.send_fetch(max_wait_ms=1_500)
    scene.turn(1_499)
    assert answers == []
    scene.turn(1)
    assert answers[0].error_code == codes.SHARE_SESSION_LIMIT_REACHED
    assert first.fetch(epoch=0).error_code == 0  # its own place
    first.close()
    assert late.fetch(epoch=0).error_code == 0
    scene.close()


def test_a_refused_client_that_goes_away_is_forgotten() -> None:
    scene = Scene(group__share__max__size=1, group__share__max__share__sessions=1)
    scene.member("a").fetch()
    late = scene.member("b")
    answers = late.send_fetch(max_wait_ms=1_500)
    late.connection.close()
    scene.turn(2_000)
    assert answers == []
    scene.close()


def test_a_request_refused_before_its_session_does_not_count(scene: Scene, member: Member) -> None:
    scene.produce(3)
    member.fetch()
    refused = member.renew([(0, 2, 4)], epoch=1, max_wait_ms=5, min_bytes=1)
    assert refused.error_code == codes.INVALID_REQUEST
    assert (
        refused.error_message
        == "minBytes must be set to 0, maxWaitMs must be set to 0, if isRenewAck is true."
    )
    assert acks(member.renew([(0, 2, 4)], epoch=1)) == 0


@pytest.mark.parametrize(("group", "name"), [(None, "m"), ("g", ""), ("g", None), ("g", "x" * 37)])
def test_names(scene: Scene, group: str | None, name: str | None) -> None:
    member = Member(scene, name, scene.member().connection, group)  # type: ignore[arg-type]
    assert member.fetch().error_code == codes.INVALID_REQUEST
    assert member.acknowledge(epoch=1) == codes.INVALID_REQUEST


def test_share_groups_switched_off() -> None:
    scene = Scene(share__version=0)
    assert scene.member().fetch().error_code == codes.UNSUPPORTED_VERSION
    assert scene.member().acknowledge(epoch=1) == codes.UNSUPPORTED_VERSION
    scene.close()


# Without a broker


def test_epochs_wrap_to_1() -> None:
    assert [next_epoch(each) for each in (0, 1, 2**31 - 1)] == [1, 2, 1]


def test_partitions_that_gave_records_go_to_the_end() -> None:
    one, two, three = (TopicIdPartition(b"t", each) for each in range(3))
    session = ShareSession(SessionKey(1, "g", "m"), "connection", dict.fromkeys([one, two], False))
    session.update([three], [])
    assert session.must_answer(one, has_records=True, has_error=False)
    assert list(session.partitions) == [two, three, one]
    assert not session.must_answer(two, has_records=False, has_error=False)
    assert session.must_answer(three, has_records=False, has_error=False)
    assert not session.must_answer(three, has_records=False, has_error=False)
    assert session.must_answer(two, has_records=False, has_error=True)
    assert session.must_answer(two, has_records=False, has_error=False)  # the error is over
    assert not session.must_answer(two, has_records=False, has_error=False)


def test_the_limit_is_of_each_node() -> None:
    sessions = ShareSessions(1)
    assert sessions.open(SessionKey(1, "g", "a"), [], "connection") is not None
    assert sessions.open(SessionKey(1, "g", "b"), [], "connection") is None
    assert sessions.open(SessionKey(2, "g", "b"), [], "connection") is not None
    assert len(sessions) == 2
