"""Live groups that change the protocol, both ways, and classic members inside a KIP-848 group (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from tests.worlds.consumer_group import ConsumerWorld
from tests.worlds.coordinator import Sent

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_assignment import TopicPartition as Given
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupResponse
from kadence.protocol.leave_group import MemberIdentity
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.registry import decode_versioned, encode_versioned
from kadence.protocol.sync_group import SyncGroupRequest


@pytest.fixture
def world() -> Iterator[ConsumerWorld]:
    world = ConsumerWorld()
    yield world
    world.check_replay()


def subscription(held: Mapping[str, frozenset[int]] = {}, topics: tuple[str, ...] = ("t",)) -> bytes:
    said = ConsumerProtocolSubscription(
        topics=list(topics), owned_partitions=[TopicPartition(name, sorted(held[name])) for name in held]
    )
    return encode_versioned(said, 1)


def assignment(*partitions: int) -> bytes:
    given = [Given("t", list(partitions))] if partitions else []
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=given), 1)


def given_to(sync: Sent) -> dict[str, frozenset[int]]:
    assert sync.code == 0
    _, said = decode_versioned(ConsumerProtocolAssignment, sync.response.assignment)
    return {each.topic: frozenset(each.partitions) for each in said.assigned_partitions}


class Classic:
    """A cooperative member of the classic protocol."""

    def __init__(self, world: ConsumerWorld, member_id: str, *, instance: str | None = None) -> None:
        self.world, self.member_id, self.instance = world, member_id, instance
        self.held: dict[str, frozenset[int]] = {}
        self.joined = JoinGroupResponse()

    def join(self) -> int:
        sent = self.world.join(
            self.member_id, protocols={"cooperative-sticky": subscription(self.held)}, instance=self.instance
        )
        assert not sent.is_parked
        if sent.code == 0:
            self.joined = sent.response
            self.member_id = self.joined.member_id
        return sent.code

    def sync(self) -> None:
        self.held = given_to(self.world.sync(self.joined, group_instance_id=self.instance))

    def beat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.world.group_id,
            generation_id=self.joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return self.world.send(request, 4).code

    def live(self) -> None:
        """One heartbeat, and what it leads to."""
        if self.beat() == codes.REBALANCE_IN_PROGRESS:
            assert self.join() == 0
            self.sync()


def classic_pair(world: ConsumerWorld, second: bytes = assignment(2, 3)) -> tuple[Classic, Classic]:
    """A stable classic group of two members."""
    ids = [world.new_id(protocols={"cooperative-sticky": subscription()}) for _ in range(2)]
    world.join(ids[0], protocols={"cooperative-sticky": subscription()})
    world.join(ids[1], protocols={"cooperative-sticky": subscription()})
    joins = [world.join(each, protocols={"cooperative-sticky": subscription()}) for each in ids]
    responses: list[JoinGroupResponse] = [each.response for each in joins]
    leader = next(each for each in responses if each.member_id == each.leader)
    shares = {ids[0]: assignment(0, 1), ids[1]: second}
    members = []
    for member_id, response in sorted(
        zip(ids, responses, strict=True), key=lambda each: each[1] is not leader
    ):
        member = Classic(world, member_id)
        member.joined = response
        sent = world.sync(response, shares if response is leader else None)
        member.held = given_to(sent) if member_id == ids[0] or second == assignment(2, 3) else {}
        members.append(member)
    assert world.state == "Stable"
    first, other = sorted(members, key=lambda each: ids.index(each.member_id))
    return first, other


# ------------------------------------------------------------ up


def test_an_id_that_was_given_out_and_not_used_yet_holds_up_no_modern_member(world: ConsumerWorld) -> None:
    """A classic group without members is empty for Kafka, whoever is about to join it."""
    waiting = world.new_id(protocols={"cooperative-sticky": subscription()})
    modern = world.member("new")
    assert modern.said.error_code == 0
    late = Classic(world, waiting)
    assert late.join() == 0
    assert world.consumer_group.classic_members == 1


def test_a_live_classic_group_is_turned_over_by_the_first_modern_member(world: ConsumerWorld) -> None:
    first, second = classic_pair(world)
    generation = first.joined.generation_id
    modern = world.member("new")

    group = world.consumer_group
    assert (group.epoch, group.classic_members, len(group.members)) == (generation + 1, 2, 3)
    assert {member.epoch for name, member in group.members.items() if name != "new"} == {generation}
    for _ in range(10):
        world.advance(1_000)
        first.live()
        second.live()
        modern.report()
    assert group.state_name == "Stable"
    everything = [number for each in (first.held, second.held, modern.owned) for number in each["t"]]
    assert sorted(everything) == [0, 1, 2, 3]
    assert min(len(each["t"]) for each in (first.held, second.held, modern.owned)) == 1


def test_whoever_waits_for_the_old_rebalance_hears_of_another(world: ConsumerWorld) -> None:
    first, _ = classic_pair(world)
    parked = world.join(first.member_id, protocols={"cooperative-sticky": subscription(topics=("u",))})
    assert parked.is_parked
    world.member("new")

    assert parked.code == codes.REBALANCE_IN_PROGRESS


def test_a_static_member_that_comes_back_as_a_modern_one_with_the_same_topics_keeps_the_epoch(
    world: ConsumerWorld,
) -> None:
    classic = Classic(world, "", instance="i")
    assert classic.join() == 0
    generation = classic.joined.generation_id
    modern = world.member("new", instance_id="i")
    assert (modern.said.member_epoch, world.consumer_group.epoch) == (generation, generation)


def test_an_empty_classic_group_just_changes_and_keeps_its_offsets(world: ConsumerWorld) -> None:
    first, second = classic_pair(world)
    world.leave(first.member_id, second.member_id)
    world.member("new")

    assert world.consumer_group.kind == "consumer"


def test_a_custom_assignor_cannot_be_turned_over(world: ConsumerWorld) -> None:
    odd = encode_versioned(
        ConsumerProtocolAssignment(assigned_partitions=[Given("t", [2, 3])], user_data=b"mine"), 1
    )
    classic_pair(world, second=odd)
    answer = world.raw(
        member_id="new",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    ).response

    assert answer.error_code == codes.GROUP_ID_NOT_FOUND
    assert "custom assignor" in answer.error_message
    assert world.state == "Stable"


def test_groups_of_other_protocols_and_forbidden_upgrades_stay(world: ConsumerWorld) -> None:
    for options, config in (({"protocol_type": "connect"}, {}), ({}, {"consumer_upgrades": False})):
        world = ConsumerWorld(**config)  # type: ignore[arg-type]
        world.join(world.new_id(**options), **options)  # type: ignore[arg-type]
        answer = world.raw(
            member_id="new",
            member_epoch=0,
            rebalance_timeout_ms=1,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ).response
        assert (answer.error_code, answer.error_message) == (
            codes.GROUP_ID_NOT_FOUND,
            "Group g is not a consumer group.",
        )


# ------------------------------------------------------------ classic members inside


def test_a_classic_member_joins_a_modern_group(world: ConsumerWorld) -> None:
    modern = world.member("new")
    sent = world.join(protocols={"range": subscription()})
    assert sent.code == codes.MEMBER_ID_REQUIRED
    classic = Classic(world, sent.response.member_id)
    assert classic.join() == 0
    nameless = SyncGroupRequest(world.group_id, sent.response.generation_id, classic.member_id)
    assert world.send(nameless, 5).code == codes.INCONSISTENT_GROUP_PROTOCOL
    classic.sync()
    assert classic.held == {}

    for _ in range(6):
        world.advance(1_000)
        modern.report()
        classic.live()
    assert classic.held.keys() == {"t"}
    assert classic.held["t"] | modern.owned["t"] == frozenset(range(4))
    assert world.consumer_group.state_name == "Stable"


def test_a_new_classic_member_gets_its_id_before_its_subscription_is_read(world: ConsumerWorld) -> None:
    world.settle(world.member("a"))
    unreadable = {"cooperative-sticky": b""}
    sent = world.join("", protocols=unreadable)
    assert sent.code == codes.MEMBER_ID_REQUIRED
    assert world.join(sent.response.member_id, protocols=unreadable).code == codes.UNKNOWN_SERVER_ERROR


def test_a_classic_member_hears_of_a_rebalance_when_there_is_a_new_target(world: ConsumerWorld) -> None:
    """Not before: it would join again and get nothing new."""
    staying, leaving, classic = world.member("a"), world.member("b"), Classic(world, "c")
    classic.join()
    world.advance(1_000)
    staying.beat()
    classic.join()
    leaving.beat(member_epoch=-1)
    assert classic.beat() == codes.NONE
    world.advance(1_000)
    staying.beat()
    assert classic.beat() == codes.REBALANCE_IN_PROGRESS


def test_a_classic_member_must_answer_to_its_generation_and_protocol(world: ConsumerWorld) -> None:
    world.member("new")
    classic = Classic(world, "c")
    classic.join()

    assert world.sync(classic.joined, generation_id=9).code == codes.ILLEGAL_GENERATION
    assert world.sync(classic.joined, protocol_name="range").code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(classic.joined, member_id="x").code == codes.UNKNOWN_MEMBER_ID
    assert world.sync(classic.joined, member_id="new").code == codes.UNKNOWN_MEMBER_ID
    assert world.join(protocol_type="connect").code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols={"range": subscription()}).code == codes.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_sync_or_rejoin_in_time_is_out(world: ConsumerWorld) -> None:
    modern, classic = world.member("new"), Classic(world, "c")
    classic.join()
    for _ in range(59):
        world.advance(1_000)
        modern.report()
        classic.beat()
    assert "c" in world.consumer_group.members
    world.advance(1_000)
    assert "c" not in world.consumer_group.members
    world.settle(modern)

    classic = Classic(world, "d")
    classic.join()
    classic.sync()
    for _ in range(70):
        world.advance(1_000)
        modern.report()
        code = classic.beat()
    assert code == codes.UNKNOWN_MEMBER_ID


def test_a_modern_member_may_become_classic(world: ConsumerWorld) -> None:
    member, _ = world.member("a"), world.member("b")
    classic = Classic(world, "a")
    classic.held = dict(member.owned)
    assert classic.join() == 0

    assert world.consumer_group.members["a"].classic is not None
    assert member.beat().error_code == 0, "and back"
    assert world.consumer_group.members["a"].classic is None


def test_leaving_takes_members_of_both_protocols(world: ConsumerWorld) -> None:
    world.member("a")
    world.member("s", instance_id="i")
    left = world.leave("a", "x", MemberIdentity(group_instance_id="i")).response

    assert [each.error_code for each in left.members] == [0, codes.UNKNOWN_MEMBER_ID, 0]
    assert not world.consumer_group.members


def test_an_empty_modern_group_becomes_classic_by_a_join(world: ConsumerWorld) -> None:
    world.member("a").beat(member_epoch=-1)
    assert world.join(world.new_id()).code == codes.NONE

    assert world.state == "CompletingRebalance"


# ------------------------------------------------------------ down


def test_the_last_modern_member_that_leaves_makes_the_group_classic(world: ConsumerWorld) -> None:
    modern, classic = world.member("new"), Classic(world, "c")
    classic.join()
    classic.sync()
    for _ in range(6):
        world.advance(1_000)
        modern.report()
        classic.live()
    epoch = world.consumer_group.epoch
    modern.beat(member_epoch=-1)

    assert (world.group.state_name, world.group.generation_id) == ("PreparingRebalance", epoch)
    assert classic.beat() == codes.REBALANCE_IN_PROGRESS
    rejoined = world.join(classic.member_id, protocols={"cooperative-sticky": subscription(classic.held)})
    assert (rejoined.code, rejoined.response.leader) == (0, "c")


def test_the_classic_group_has_the_protocol_that_most_members_name_first(world: ConsumerWorld) -> None:
    modern = world.member("new")
    for member_id, names in (("a", "xy"), ("b", "yx"), ("c", "yx")):
        assert world.join(member_id, protocols={name: subscription() for name in names}).code == 0
    modern.beat(member_epoch=-1)
    assert world.group.protocol_name == "y"


def test_a_static_member_that_comes_back_as_a_classic_one_makes_the_group_classic(
    world: ConsumerWorld,
) -> None:
    modern = world.member("new", instance_id="i")
    had = modern.owned
    classic = Classic(world, "", instance="i")
    assert classic.join() == 0

    assert (world.group.kind, world.group.state_name) == ("classic", "Stable")
    classic.sync()
    assert classic.held == had


def test_a_static_member_may_come_back_as_a_classic_one_under_its_own_id(world: ConsumerWorld) -> None:
    world.member("new", instance_id="i")
    assert Classic(world, "new", instance="i").join() == 0
    assert (world.group.kind, world.group.state_name) == ("classic", "Stable")


def test_one_that_brings_another_subscription_gets_no_epoch_before_the_classic_group_shares_anew(
    world: ConsumerWorld,
) -> None:
    world.member("new", instance_id="i")
    epoch = world.consumer_group.epoch
    sent = world.join("", protocols={"cooperative-sticky": subscription(topics=("t", "u"))}, instance="i")
    assert (sent.code, sent.response.generation_id) == (0, 0)
    assert (world.group.state_name, world.group.generation_id) == ("PreparingRebalance", epoch)


def test_a_group_whose_members_have_all_become_classic_is_classic_when_one_leaves(
    world: ConsumerWorld,
) -> None:
    world.settle(world.member("a"), world.member("b"))
    assert [Classic(world, each).join() for each in "ab"] == [0, 0]
    assert world.consumer_group.classic_members == 2
    world.leave("a")
    assert world.group.kind == "classic"


def test_forbidden_downgrades_keep_the_group() -> None:
    world = ConsumerWorld(consumer_downgrades=False)
    modern, classic = world.member("new"), Classic(world, "c")
    classic.join()
    modern.beat(member_epoch=-1)

    assert world.consumer_group.classic_members == 1


# ------------------------------------------------------------ empty groups


def test_a_classic_join_that_is_refused_leaves_an_empty_group_and_its_offsets_alone(
    world: ConsumerWorld,
) -> None:
    member = world.member("A")
    member.beat(member_epoch=-1)
    commit = OffsetCommitRequest(
        group_id=world.group_id,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(0, committed_offset=5)]
            )
        ],
    )
    world.send(commit, 9)
    before = list(world.coordinator.snapshot(lambda _: True))
    assert world.join("gone", protocols={"range": subscription()}).code == codes.UNKNOWN_MEMBER_ID
    assert list(world.coordinator.snapshot(lambda _: True)) == before


def test_members_elsewhere_gain_no_time_by_what_is_loaded(world: ConsumerWorld) -> None:
    world.member("A")
    due = world.coordinator.next_deadline()
    world.coordinator.loaded(world.now + 10_000, lambda group_id: group_id != world.group_id)
    assert world.coordinator.next_deadline() == due
