"""One member on its way to its target: what it gives up, what it waits for, which epoch it has (KIP-848)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence_broker.coordinator.consumer.member import Member, MemberState
from kadence_broker.coordinator.consumer.reconciliation import Target, reconcile
from kadence_broker.coordinator.partitions import Epochs, Partitions

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def parts(*numbers: int, topic: bytes = A) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


def since(epoch: int, *numbers: int, topic: bytes = A) -> Epochs:
    return {topic: dict.fromkeys(numbers, epoch)} if numbers else {}


def target(epoch: int, *numbers: int, subscribed: frozenset[bytes] = frozenset({A, B})) -> Target:
    return Target(epoch, parts(*numbers), subscribed)


def nobody(topic: bytes, partition: int) -> bool:
    return False


def member(epoch: int, *numbers: int, **also: object) -> Member:
    return Member("m", epoch=epoch, previous_epoch=epoch, assigned=since(epoch, *numbers)).evolved(**also)


def test_a_new_member_gets_what_is_free_at_the_epoch_of_the_target() -> None:
    after = reconcile(Member("m"), target(2, 0, 1), {}, nobody)

    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 2, 0)
    assert after.assigned == since(2, 0, 1)


def test_a_member_at_its_target_is_left_alone() -> None:
    before = member(3, 0)

    assert reconcile(before, target(3, 0), None, nobody) is before


def test_a_member_gives_up_first_and_keeps_its_epoch_until_it_has() -> None:
    asked = reconcile(member(3, 0, 1), target(4, 1, 2), None, nobody)
    assert (asked.state, asked.epoch) == (UNREVOKED, 3)
    assert (asked.assigned, asked.revoking) == (since(3, 1), since(3, 0))

    for owned in (None, parts(0, 1)):
        assert reconcile(asked, target(4, 1, 2), owned, nobody) is asked

    done = reconcile(asked, target(4, 1, 2), parts(1), lambda topic, partition: partition == 0)
    assert (done.state, done.epoch, done.previous_epoch) == (STABLE, 4, 3)
    assert (done.assigned, done.revoking) == ({A: {1: 3, 2: 4}}, {})


def test_a_member_that_says_it_has_nothing_need_not_give_up() -> None:
    """It joins again with epoch 0 (KAFKA-19233)."""
    after = reconcile(member(3, 0, 1), target(4, 1), {}, nobody)

    assert (after.state, after.epoch, after.assigned) == (STABLE, 4, since(3, 1))


def test_what_another_still_has_is_waited_for_at_the_new_epoch() -> None:
    taken = {0}
    waiting = reconcile(Member("m"), target(2, 0, 1), {}, lambda topic, partition: partition in taken)
    assert (waiting.state, waiting.epoch, waiting.assigned) == (UNRELEASED, 2, since(2, 1))

    still = reconcile(waiting, target(2, 0, 1), None, lambda topic, partition: partition in {0, 1})
    assert still == waiting

    got = reconcile(waiting, target(2, 0, 1), None, lambda topic, partition: partition == 1)
    assert (got.state, got.epoch, got.assigned) == (STABLE, 2, since(2, 0, 1))


def test_a_waiting_member_moves_to_a_newer_target_that_gives_it_the_same() -> None:
    waiting = reconcile(Member("m"), target(2, 0), {}, lambda topic, partition: True)
    after = reconcile(waiting, target(3, 0), None, lambda topic, partition: True)

    assert (after.state, after.epoch, after.previous_epoch) == (UNRELEASED, 3, 2)


def test_what_it_gives_up_it_may_have_again() -> None:
    """The target came back to it before it had said that it gave up: nobody else can have it."""
    asked = reconcile(member(3, 0, 1), target(4, 1), None, nobody)
    after = reconcile(asked, target(5, 0, 1), parts(1), lambda topic, partition: True)

    assert (after.state, after.epoch, after.assigned) == (STABLE, 5, {A: {1: 3, 0: 5}})


@pytest.mark.parametrize("owned", [None, parts(0)])
def test_a_topic_that_is_no_longer_subscribed_goes_before_the_next_target(owned: Partitions | None) -> None:
    after = reconcile(member(3, 0), target(3, 0, subscribed=frozenset({B})), owned, nobody)

    assert (after.state, after.epoch, after.assigned, after.revoking) == (UNREVOKED, 3, {}, since(3, 0))


def test_a_topic_that_is_no_longer_subscribed_and_was_given_up_just_goes() -> None:
    after = reconcile(member(3, 0), target(3, 0, subscribed=frozenset()), {}, nobody)

    assert (after.state, after.epoch, after.assigned, after.revoking) == (STABLE, 3, {}, {})


def test_more_may_have_to_go_while_something_goes() -> None:
    asked = reconcile(member(3, 0, 1), target(4, 1), None, nobody)
    after = reconcile(asked, target(4, 1, subscribed=frozenset()), parts(0, 1), nobody)

    assert (after.state, after.assigned, after.revoking) == (UNREVOKED, {}, since(3, 0, 1))


numbers_ = st.frozensets(st.integers(0, 5))


@examples(100)
@given(st.lists(st.tuples(numbers_, numbers_, st.booleans()), min_size=1, max_size=12))
def test_two_members_never_have_one_partition(
    steps: list[tuple[frozenset[int], frozenset[int], bool]],
) -> None:
    """Targets come and go; the members answer honestly, or not at all."""
    everything = frozenset(range(6))
    members = {"a": Member("a"), "b": Member("b")}
    owned: dict[str, frozenset[int]] = {"a": frozenset(), "b": frozenset()}

    def taken(topic: bytes, partition: int) -> bool:
        return any(
            partition in member.assigned.get(A, {}) or partition in member.revoking.get(A, {})
            for member in members.values()
        )

    def beat(name: str, epoch: int, mine: frozenset[int], honest: bool) -> None:
        said = parts(*owned[name]) if honest else None
        members[name] = reconcile(members[name], Target(epoch, parts(*mine), frozenset({A})), said, taken)
        if honest:
            owned[name] = frozenset(members[name].assigned.get(A, {}))
        assert not owned["a"] & owned["b"]
        assert not members["a"].assigned.get(A, {}).keys() & members["b"].assigned.get(A, {}).keys()

    for epoch, (mine, order, honest) in enumerate(steps, start=1):
        names = ["a", "b"] if len(order) % 2 else ["b", "a"]
        for name in names:
            beat(name, epoch, mine if name == "a" else everything - mine, honest)
    final = len(steps)
    for _ in range(6):
        for name in ("a", "b"):
            beat(name, final, steps[-1][0] if name == "a" else everything - steps[-1][0], True)
    assert all(member.is_reconciled_to(final) for member in members.values())
