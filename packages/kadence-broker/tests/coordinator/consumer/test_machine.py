"""Any requests in any order to KIP-848 groups: what is stored is all there is; nothing is in two hands (E0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.consumer.test_migration import Classic
from tests.luck import examples
from tests.worlds.consumer_group import ConsumerHeartbeats, ConsumerWorld, topic

from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.consumer.group import ConsumerGroup

NAMES = ["a", "b", "c"]
TOPICS = ["t", "u"]

steps_ = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(
                    "join",
                    "beat",
                    "beat",
                    "report",
                    "report",
                    "subscribe",
                    "match",
                    "leave",
                    "away",
                    "odd-epoch",
                ),
                *(
                    "classic",
                    "classic-beat",
                    "classic-leave",
                    "commit",
                    "topics",
                    "wait",
                    "wait",
                    "long-wait",
                ),
            ]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 9),
    ),
    max_size=40,
)


class Machine:
    """Members that mostly behave, and a log that is replayed after each step."""

    def __init__(self) -> None:
        self.world = ConsumerWorld({"t": 4, "u": 3}, min_session_timeout_ms=100)
        self.modern: dict[str, ConsumerHeartbeats] = {}
        self.classic: dict[str, Classic] = {}

    def step(self, what: str, name: str, number: int) -> None:
        world = self.world
        member = self.modern.setdefault(
            name, ConsumerHeartbeats(world, name, subscribed_topic_names=TOPICS[: 1 + number % 2])
        )
        if number == 9:
            member.options["instance_id"] = f"i{name}"
        old = self.classic.setdefault(name, Classic(world, f"old-{name}"))
        acts: dict[str, Callable[[], Any]] = {
            "join": lambda: member.beat(
                member_epoch=0, rebalance_timeout_ms=5_000, topic_partitions=[], **member.options
            ),
            "beat": member.beat,
            "report": member.report,
            "subscribe": lambda: member.beat(subscribed_topic_names=TOPICS[number % 2 :]),
            "match": lambda: member.beat(subscribed_topic_regex=["", "t|u", "u", "("][number % 4]),
            "leave": lambda: member.beat(member_epoch=-1),
            "away": lambda: member.beat(member_epoch=-2),
            "odd-epoch": lambda: member.beat(member_epoch=number),
            "classic": lambda: self.join_classic(old),
            "classic-beat": old.beat,
            "classic-leave": lambda: world.leave(old.member_id),
            "commit": lambda: self.commit(member, number),
            "topics": lambda: world.topics.put(topic("u", number)),
            "wait": lambda: world.advance(600 * number),
            "long-wait": lambda: world.advance(20_000 * number),
        }
        acts[what]()
        if member.said.error_code and what not in ("odd-epoch", "match", "subscribe"):
            member.epoch, member.owned = 0, {}
        if member.epoch < 0:
            member.epoch, member.owned = 0, {}

    def join_classic(self, old: Classic) -> None:
        sent = self.world.join(
            old.member_id, protocols={"range": b"\0\1\0\0\0\1\0\1t\0\0\0\0\0\0\0\0"}, session=30_000
        )
        if not sent.is_parked and sent.code == 0:
            old.joined = sent.response
            self.world.sync(old.joined)

    def commit(self, member: ConsumerHeartbeats, number: int) -> None:
        request = OffsetCommitRequest(
            group_id=self.world.group_id,
            generation_id_or_member_epoch=member.epoch - number % 2,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(0, number)])],
        )
        self.world.send(request, 9)

    def check(self) -> None:
        self.world.check_replay()
        group = self.world.coordinator.groups.get(self.world.group_id)
        if isinstance(group, ConsumerGroup):
            held = [
                (topic_id, partition)
                for member in group.members.values()
                for partitions in (member.assigned, member.revoking)
                for topic_id, epochs in partitions.items()
                for partition in epochs
            ]
            assert len(held) == len(set(held)), "a partition in two hands"
            assert all(group.is_taken(*each) for each in held)
            assert group.target.keys() <= group.members.keys()
            assert group.epoch >= group.target_epoch
            assert set(group.static_members.values()) <= group.members.keys()
        else:
            assert group is None or isinstance(group, ClassicGroup)


@examples(75)
@given(steps_)
def test_replaying_the_records_makes_the_same_group(steps: list[tuple[str, str, int]]) -> None:
    machine = Machine()
    for step in steps:
        machine.step(*step)
        machine.check()
