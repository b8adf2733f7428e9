"""KIP-848 members against a real broker: stuck, static, thrown out, refused (C4, C5)."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, numbers, partitions, poll_until, read
from tests.patience import PATIENCE

from kadence import Consumer, RebalanceListener, TopicPartition
from kadence.admin import Admin
from kadence.admin.calls import Ask
from kadence.errors import UnreleasedInstanceIdError, UnsupportedAssignorError, WakeupError
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.needs("kip-848")


class Recorder(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", set(partitions)))

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", set(partitions)))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", set(partitions)))


def member(cluster: Cluster, group: str, topic: str | None = None, **settings: Any) -> Consumer:
    listener = settings.pop("listener", None)
    consumer = cluster.consumer(group_id=group, group_protocol="consumer", **settings)
    if topic is not None:
        consumer.subscribe(topic, listener=listener)
    return consumer


def share(*members: Consumer, count: int) -> list[Any]:
    """Poll all of them until everybody has some and together they have all; what came."""
    found: list[Any] = []

    def shared() -> bool:
        for each in members[1:]:
            found.extend(each.poll(0.02))
        held = [len(each.assignment()) for each in members]
        return all(held) and sum(held) == count and all(map(has_settled, members))

    found.extend(poll_until(members[0], shared))
    return found


# ---------------------------------------------------------------- a member that is stuck


@pytest.mark.needs("reconciliation")
def test_c5_a_stuck_member_delays_no_join_that_moves_nothing_of_its_own(cluster: Cluster) -> None:
    """It is stuck until the newcomer has its partition: nothing that waited for it could ever end."""
    topic, group = cluster.topic(3), cluster.name("g")
    one, two = (member(cluster, group, topic, max_poll_records=5) for _ in range(2))
    share(one, two, count=3)
    cluster.produce(topic, 30_000, partitions=3)  # more than can be read meanwhile
    stuck, other = (one, two) if len(one.assignment()) == 1 else (two, one)
    mine = stuck.assignment()
    newcomer = member(cluster, group, topic)

    def has_come() -> bool:
        newcomer.poll(0.02)
        return bool(newcomer.assignment())

    end = time.monotonic() + PATIENCE
    while not has_come():
        assert time.monotonic() < end
        assert other.poll(PATIENCE), "records of the partitions that stayed come with every poll"
    assert stuck.assignment() == mine
    assert stuck.poll(PATIENCE)
    assert stuck.assignment() == mine
    stuck.commit()


@pytest.mark.needs("reconciliation")
def test_c5_a_partition_that_has_to_move_waits_for_its_owner_and_no_other_does(cluster: Cluster) -> None:
    topic, group = cluster.topic(4), cluster.name("g")
    cluster.produce(topic, 40)
    stuck = member(cluster, group, topic)
    read(stuck, 40)
    newcomer = member(cluster, group, topic)
    poll_until(newcomer, lambda: newcomer.group_metadata().generation_id > 0)
    for _ in range(10):
        assert not newcomer.poll(0.1)
    assert newcomer.assignment() == frozenset()
    assert len(stuck.assignment()) == 4, "nothing is taken from under its hands"
    share(stuck, newcomer, count=4)
    assert len(newcomer.assignment()) == 2


@pytest.mark.brokers("embedded")
def test_c5_a_revocation_runs_at_once_in_a_poll_that_waits(cluster: Cluster) -> None:
    topic, group = cluster.topic(2), cluster.name("g")
    listener = Recorder()
    waits = member(cluster, group, topic, listener=listener)
    poll_until(waits, lambda: len(waits.assignment()) == 2)

    def wait() -> None:
        with suppress(WakeupError):
            waits.poll(10 * PATIENCE)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    newcomer = member(cluster, group, topic)
    poll_until(newcomer, lambda: len(newcomer.assignment()) == 1)
    assert [kind for kind, given in listener.events if given] == ["assigned", "revoked"]
    waits.wakeup()
    thread.join(PATIENCE)


@pytest.mark.brokers("virtual")
def test_a_wakeup_inside_a_callback_does_not_hold_the_group(cluster: Cluster) -> None:
    topic, group = cluster.topic(2), cluster.name("g")

    class Woken(Recorder):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            super().on_partitions_revoked(partitions)
            if len([kind for kind, _ in self.events if kind == "revoked"]) == 1:
                raise WakeupError("in the middle of it")

    listener = Woken()
    one = member(cluster, group, topic, listener=listener)
    poll_until(one, lambda: len(one.assignment()) == 2)
    two = member(cluster, group, topic)

    def woken() -> bool:
        two.poll(0.02)
        return any(kind == "revoked" for kind, _ in listener.events)

    with pytest.raises(WakeupError):
        poll_until(one, lambda: woken() and False)
    share(one, two, count=2)


# ---------------------------------------------------------------- thrown out, and history


@pytest.mark.brokers("kafka")
@pytest.mark.needs("admin")
def test_c4_a_member_that_the_group_forgot_loses_all_and_comes_back_as_itself(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    listener = Recorder()
    consumer = member(cluster, group, topic, listener=listener, enable_auto_commit=False)
    read(consumer, 40)
    before = consumer.group_metadata()
    assert (before.group_id, before.group_instance_id) == (group, None)
    assert before.generation_id > 0
    assert len(before.member_id) == 22
    throw_out(cluster, group, before.member_id)
    poll_until(consumer, lambda: ("lost", set(partitions(topic))) in listener.events)
    assert sorted(numbers(read(consumer, 40))) == list(range(40)), "nothing was committed, so all comes again"
    after = consumer.group_metadata()
    assert after.member_id == before.member_id
    causes = [each.cause for each in consumer.rebalances()]
    assert "session lost: UNKNOWN_MEMBER_ID" in causes
    last = consumer.rebalances()[-1]
    assert set(last.assigned) == set(partitions(topic))
    assert last.ended_monotonic_ms >= last.started_monotonic_ms > 0


def throw_out(cluster: Cluster, group: str, member_id: str) -> None:
    """Somebody else says goodbye in the member's name."""
    goodbye = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        # No public call says it.
        answer = admin._shell.run(10, lambda calls, deadline: calls.ask(Ask(goodbye), deadline))
    assert answer.error_code == 0


@pytest.mark.brokers("virtual")
def test_history_says_why_and_what_moved(cluster: Cluster) -> None:
    topic, other, group = cluster.topic(), cluster.topic(2), cluster.name("g")
    one = member(cluster, group, topic)
    poll_until(one, lambda: len(one.assignment()) == 4)
    two = member(cluster, group, topic)
    share(one, two, count=4)
    # The application has the new assignment before the network thread says that the rebalance is over.
    poll_until(one, lambda: [len(each.removed) for each in one.rebalances()[-1:]] == [2])
    first, *_, last = one.rebalances()
    assert first.cause == "first join"
    assert (last.cause, last.added, len(last.removed)) == ("the coordinator made a new assignment", (), 2)
    assert set(last.removed) == two.assignment()
    # While it gives up it keeps its epoch; the broker moves it on when it has said so.
    assert first.generation <= last.generation <= one.group_metadata().generation_id
    assert first.ended_at >= first.started_at
    two.close()
    poll_until(one, lambda: len(one.assignment()) == 4 and one.rebalances()[-1] is not last)
    assert set(one.rebalances()[-1].added) == set(last.removed)
    before = one.rebalances()[-1]
    one.subscribe([topic, other])
    poll_until(one, lambda: len(one.assignment()) == 6 and one.rebalances()[-1] is not before)
    assert one.rebalances()[-1].cause == "subscription changed"


@pytest.mark.needs("topic deletion")
def test_a_topic_made_anew_is_another_topic_read_from_its_start(cluster: Cluster) -> None:
    topic, stays, group = cluster.topic(2), cluster.topic(1), cluster.name("g")
    cluster.produce(topic, 40, partitions=2)
    cluster.produce(stays, 1, partitions=1)
    listener = Recorder()
    consumer = member(cluster, group)
    consumer.subscribe([topic, stays], listener=listener)
    read(consumer, 41)
    consumer.commit()
    cluster.delete_topic(topic)
    poll_until(consumer, lambda: {p.topic for p in consumer.assignment()} == {stays})
    cluster.create_topic(topic, 3)
    cluster.produce(topic, 30, partitions=3, start=100)
    assert sorted(numbers(read(consumer, 30))) == list(range(100, 130))
    assert consumer.assignment() == {*partitions(topic, 3), *partitions(stays, 1)}
    gone = [given for kind, given in listener.events if kind in ("revoked", "lost") and given]
    assert gone == [set(partitions(topic, 2))], "told once that it went"


@pytest.mark.needs("topic deletion")
def test_positions_of_a_deleted_topic_are_not_committed_to_the_one_made_anew(cluster: Cluster) -> None:
    topic, group = cluster.topic(1), cluster.name("g")
    cluster.produce(topic, 40, partitions=1)
    consumer = member(cluster, group, topic, auto_commit_interval_ms=3_600_000)
    read(consumer, 40)
    consumer.poll(0)  # proves them: a revocation would commit them
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    cluster.produce(topic, 100, partitions=1, start=100)
    assert sorted(numbers(read(consumer, 100))) == list(range(100, 200))


@pytest.mark.brokers("virtual")
@pytest.mark.needs("admin")
def test_partitions_that_are_added_come_without_a_rejoin(cluster: Cluster) -> None:
    topic, group = cluster.topic(1), cluster.name("g")
    consumer = member(cluster, group, topic)
    poll_until(consumer, lambda: len(consumer.assignment()) == 1)
    cluster.add_partitions(topic, 3)
    poll_until(consumer, lambda: len(consumer.assignment()) == 3)
    cluster.produce(topic, 6, partitions=3)
    assert len(read(consumer, 6)) == 6


# ---------------------------------------------------------------- static members


@pytest.mark.needs("static members")
def test_kip_848_the_second_process_of_an_instance_is_refused_while_the_first_lives(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    first = member(cluster, group, topic, group_instance_id="i")
    read(first, 40)
    second = member(cluster, group, topic, group_instance_id="i")
    for _ in range(2):
        with pytest.raises(UnreleasedInstanceIdError, match=r"group\.instance\.id = 'i' is in use"):
            poll_until(second, lambda: False)
    first.poll(0)
    first.commit()
    first.close()
    # Its next poll tries again, and takes over what the first one left.
    poll_until(second, lambda: len(second.assignment()) == 4)
    cluster.produce(topic, 4, start=40)
    assert sorted(numbers(read(second, 4))) == [40, 41, 42, 43]
    assert second.group_metadata().group_instance_id == "i"


# ---------------------------------------------------------------- the broker's assignors


@pytest.mark.brokers("kafka")
@pytest.mark.needs("admin")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_c4_the_brokers_assignor_is_the_one_asked_for(cluster: Cluster, assignor: str) -> None:
    first, second, group = cluster.topic(4), cluster.topic(4), cluster.name("g")
    members = [member(cluster, group, group_remote_assignor=assignor) for _ in range(2)]
    for each in members:
        each.subscribe([first, second])
    share(*members, count=8)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (described,) = admin.describe_consumer_groups([group]).values()
    assert described.assignor == assignor
    if assignor == "range":
        for each in members:
            held = {(p.topic, p.partition) for p in each.assignment()}
            assert {n for t, n in held if t == first} == {n for t, n in held if t == second}


@pytest.mark.needs("reconciliation")
def test_an_assignor_that_the_broker_has_not_is_said(cluster: Cluster) -> None:
    consumer = member(cluster, cluster.name("g"), cluster.topic(), group_remote_assignor="sticky")
    with pytest.raises(UnsupportedAssignorError, match="uniform and range"):
        poll_until(consumer, lambda: False)


@pytest.mark.brokers("kafka")
@pytest.mark.needs("admin", "reconciliation")
def test_the_broker_knows_what_the_member_says(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    consumer = member(cluster, group, topic, client_rack="r1", client_id="me", max_poll_interval_ms=60_000)
    poll_until(consumer, lambda: len(consumer.assignment()) == 4)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        question = Ask(ConsumerGroupDescribeRequest(group_ids=[group]))
        answer = admin._shell.run(10, lambda calls, deadline: calls.ask(question, deadline))
    (described,) = answer.groups
    (known,) = described.members
    identity = consumer.group_metadata()
    assert (known.member_id, known.member_epoch) == (identity.member_id, identity.generation_id)
    assert (known.rack_id, known.client_id, known.subscribed_topic_names) == ("r1", "me", [topic])
    assert sorted(n for each in known.assignment.topic_partitions for n in each.partitions) == [0, 1, 2, 3]
