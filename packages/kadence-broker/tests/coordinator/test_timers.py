"""Keyed timers against the obvious implementation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kadence.clock import FOREVER
from kadence_broker.coordinator.timers import TimerKey, TimerKind, Timers

KEYS = [TimerKey(TimerKind.SESSION, "g", str(number)) for number in range(4)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("pop"), st.sampled_from(KEYS), st.integers(0, 50)),
    ),
    max_size=300,
)


@given(STEPS)
def test_timers_are_a_dictionary_of_deadlines_taken_in_order(steps: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for step, key, at in steps:
        if step == "schedule":
            timers.schedule(key, at)
            model[key] = at
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(at)
            due = min(model.values(), default=FOREVER)
            assert (popped is None) == (due > at)
            if popped is not None:
                assert model.pop(popped) == due
        assert timers.next_deadline() == min(model.values(), default=FOREVER)
        assert len(timers) == len(model)
        assert all(
            timers.deadline(each) == model.get(each) and (each in timers) == (each in model) for each in KEYS
        )


def test_a_key_that_is_armed_again_and_again_keeps_the_heap_small() -> None:
    timers = Timers()
    for now in range(10_000):
        timers.schedule(KEYS[0], now + 100)
    assert len(timers._heap) < 200
