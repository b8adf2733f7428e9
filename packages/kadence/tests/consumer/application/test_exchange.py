"""What ends the wait of a call, and what does not: wakeups, errors of an answer, the end of the network thread (C7)."""

from __future__ import annotations

from typing import Any

import pytest

from kadence import GroupMetadata, TopicPartition
from kadence.client.waits import Waits
from kadence.consumer import events as m
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import FatalNetworkError, IllegalStateError, WakeupError
from kadence_testing import FakeClock

PARTITION = TopicPartition("t", 0)


class World:
    """An exchange, and the network side played by hand."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.deadline = clock.now_ms() + 60_000
        self.shared_state = SharedState(lambda: None, clock=clock)
        self.exchange = Exchange(self.shared_state, clock, GroupMetadata(""))

    def seek(self) -> Waits[None]:
        return self.exchange.hand_over(
            m.Seek,
            self.deadline,
            shared_partition=SharedPartition(PARTITION, 1),
            offset=5,
            leader_epoch=None,
        )

    def answer(self, error: Exception | None = None) -> None:
        self.shared_state.tell(m.Answer(self.shared_state.application_events.popleft().id, None, error))


def end(call: Waits[Any]) -> None:
    with pytest.raises(StopIteration):
        call.send(None)


def test_c7_a_wakeup_does_not_end_a_call_that_has_already_taken_effect() -> None:
    world = World()
    call = world.seek()
    next(call)
    world.exchange.wakeup()
    call.send(None)
    world.answer()
    end(call)
    with pytest.raises(WakeupError):
        world.exchange.raise_wakeup()


def test_a_call_that_is_handed_over_raises_what_its_answer_says() -> None:
    world = World()
    call = world.seek()
    next(call)
    world.answer(IllegalStateError("t-0 is no longer assigned"))
    with pytest.raises(IllegalStateError, match="no longer assigned"):
        call.send(None)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_b6_a_call_that_is_handed_over_to_a_network_thread_that_has_ended_raises_its_bug(when: str) -> None:
    world = World()
    call = world.seek()
    if when == "meanwhile":
        next(call)
    world.shared_state.dead, world.shared_state.ended = ZeroDivisionError("a bug"), True
    with pytest.raises(FatalNetworkError, match="a bug"):
        call.send(None)


def test_what_a_group_refused_is_over_once_the_member_is_let_in() -> None:
    """A share consumer keeps such an error for all its polls, each of which tries to join again (KIP-932)."""
    world = World()
    refused = IllegalStateError("the group is full")
    world.shared_state.tell(m.Failed(refused, fatal=True, gave_up=True))
    for _ in range(2):
        world.exchange.take_background_events()
        with pytest.raises(IllegalStateError, match="full"):
            world.exchange.raise_failure()
    world.shared_state.tell(m.IdentityChanged(GroupMetadata("q", 1, "m")))
    world.exchange.take_background_events()
    world.exchange.raise_failure()
