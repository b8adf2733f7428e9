"""Any requests in any order to share groups: what is stored is all there is, and all that is initialised is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.worlds.coordinator import id_of
from tests.worlds.share_group import ShareHeartbeats, ShareWorld

from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import delete_share_group_offsets as delete_api
from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence_broker.coordinator import TopicImage
from kadence_broker.coordinator.share.group import ShareGroup

NAMES = ["a", "b", "c"]
TOPICS = ["t", "u", "new"]
STEPS = (
    *("join", "beat", "beat", "beat", "subscribe", "leave", "odd-epoch", "alter", "delete-offsets"),
    *("delete-group", "grow", "delete-topic", "wait", "long-wait", "move", "slow", "fail", "mend"),
)

steps_ = st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.integers(0, 9)), max_size=40)


class Machine:
    """Members that mostly behave, an administrator, and state that may be slow or fail."""

    def __init__(self) -> None:
        self.world = ShareWorld({"t": 4, "u": 3})
        self.members: dict[str, ShareHeartbeats] = {}
        self.created = 0

    def step(self, what: str, name: str, number: int) -> None:
        world = self.world
        member = self.members.setdefault(name, ShareHeartbeats(world, name, TOPICS[: 1 + number % 3]))
        acts: dict[str, Callable[[], Any]] = {
            "join": lambda: member.beat(member_epoch=0, subscribed_topic_names=member.topics),
            "beat": member.beat,
            "subscribe": lambda: member.beat(subscribed_topic_names=TOPICS[number % 3 :]),
            "leave": member.leave,
            "odd-epoch": lambda: member.beat(member_epoch=number),
            "alter": lambda: self.alter(number),
            "delete-offsets": lambda: self.delete_offsets(number),
            "delete-group": lambda: world.send(DeleteGroupsRequest(groups_names=["g"]), 3),
            "grow": lambda: self.grow(TOPICS[number % 3]),
            "delete-topic": lambda: self.delete_topic(TOPICS[number % 3]),
            "wait": lambda: world.advance(1_000 * number),
            "long-wait": lambda: world.advance(50_000),
            "move": lambda: world.move(rewritten=number % 2 == 0),
            "slow": lambda: setattr(world.share_state, "is_slow", True),
            "fail": lambda: setattr(world.share_state, "code", codes.COORDINATOR_NOT_AVAILABLE),
            "mend": self.mend,
        }
        acts[what]()
        world.check_replay()

    def alter(self, number: int) -> None:
        partitions = [alter_api.AlterShareGroupOffsetsRequestPartition(number % 5, number)]
        asked = alter_api.AlterShareGroupOffsetsRequestTopic(TOPICS[number % 3], partitions)
        self.world.send(alter_api.AlterShareGroupOffsetsRequest("g", [asked]), 0)

    def delete_offsets(self, number: int) -> None:
        asked = delete_api.DeleteShareGroupOffsetsRequestTopic(TOPICS[number % 3])
        self.world.send(delete_api.DeleteShareGroupOffsetsRequest("g", [asked]), 0)

    def grow(self, name: str) -> None:
        image = self.world.topics.by_name(name)
        if image is None:
            self.created += 1  # a topic that comes again has another id
            image = TopicImage(name, id_of(f"{name}-{self.created}"), 0)
        self.world.topics.put(replace(image, partitions=image.partitions + 1))

    def delete_topic(self, name: str) -> None:
        world = self.world
        if world.topics.by_name(name) is not None:
            world.topics.remove(name)
            world.deliver(world.coordinator.topic_deleted(world.now, name))

    def mend(self) -> None:
        """State is changed at once again, and what was asked for meanwhile happens."""
        world = self.world
        world.share_state.code, world.share_state.is_slow = codes.NONE, False
        for request in [each for each in world.asked if each not in world.changed]:
            world.change_state(request)

    def check_end(self) -> None:
        """After all is mended, each partition of a subscribed topic is initialised, and read by a subscriber."""
        self.mend()
        group = self.world.coordinator.groups.get("g")
        if not isinstance(group, ShareGroup):
            return
        present = [self.members[name] for name in group.members]
        for member in present:
            member.epoch = group.members[member.member_id].epoch
        for _ in range(40):
            self.world.advance(1_000)
            for member in present:
                assert member.beat().error_code == codes.NONE
        for name in group.subscribed_topics():
            image = self.world.topics.by_name(name)
            if image is None:
                continue
            readers = [each for each in group.members.values() if name in each.topics]
            read = frozenset().union(*(each.assigned.get(image.topic_id, frozenset()) for each in readers))
            assert read == frozenset(range(image.partitions)), (name, group)
            assert all(("g", image.topic_id, each) in self.world.share_state.known for each in read)
        existing = {
            image.topic_id for name in TOPICS if (image := self.world.topics.by_name(name)) is not None
        }
        assert group.initialised.keys() <= existing
        for each in group.members.values():
            assert each.assigned.keys() <= existing
        assert all(sent.answer is not None for sent in self.world.all_sent())
        self.world.check_replay()


@examples(30)
@given(steps=steps_)
def test_any_requests_in_any_order(steps: list[tuple[str, str, int]]) -> None:
    machine = Machine()
    for step in steps:
        machine.step(*step)
    machine.check_end()
