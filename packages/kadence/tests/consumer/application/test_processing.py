"""How long an application works between two polls: sizes of polls (A5) under virtual time, and stall reports (B4).

Stall reports are counted here, and nothing of them can hold up the network thread.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.application.test_interrupted import SOURCE, Interruption
from tests.consumer.support import Cluster
from tests.luck import examples
from tests.patience import PATIENCE

from kadence import Broker
from kadence.config import ConsumerConfig
from kadence.consumer.application.processing import HEADROOM, MOST, Pace, Stall, Stalls
from kadence.consumer.events import Stalled
from kadence.errors import ConfigError

NOW = 1_000_003


def rounds(
    pace: Pace, cost_us: Callable[[int], int], count: int, available: Callable[[int], int] = lambda n: MOST
) -> list[tuple[int, float]]:
    """(records, ms) of so many rounds; record number n takes ``cost_us(n)``."""
    found = []
    at_us, number = NOW * 1000, 0
    for turn in range(count):
        cap = min(pace.polls(at_us // 1000), available(turn))
        pace.returns(at_us // 1000, cap)
        took = sum(cost_us(n) for n in range(number, number + cap))
        at_us, number = at_us + took, number + cap
        found.append((cap, took / 1000))
    return found


def test_a5_the_first_poll_is_one_record_and_rounds_grow_as_they_are_known_to_be_cheap() -> None:
    sizes = [count for count, _ in rounds(Pace(120_000), lambda n: 10, 9)]
    assert sizes == [1, 4, 16, 64, 256, 1024, 4096, MOST, MOST]


def test_a5_a_round_is_cut_to_a_hundredth_of_the_bound() -> None:
    found = rounds(Pace(120_000), lambda n: 10_000, 20)
    assert all(ms <= 1_200 for _, ms in found)
    assert found[-1][0] == pytest.approx(120, abs=2), "as many as fit"


def test_a5_a_hundredfold_jump_keeps_every_round_inside_the_bound_and_the_next_ones_small() -> None:
    """The issue's own case: 1 ms for each record, 100 ms from the middle on."""
    found = rounds(Pace(120_000), lambda n: 1_000 if n < 20_000 else 100_000, 60)
    meets = next(turn for turn, (count, ms) in enumerate(found) if ms > 2 * count)
    assert all(ms <= 120_000 for _, ms in found)
    assert all(ms <= 1_300 for _, ms in found[meets + 2 :])
    assert found[-1][0] == pytest.approx(12, abs=1)


@examples(150)
@given(
    bound_ms=st.integers(10_000, 300_000),
    cheap_us=st.integers(1, 100_000),
    factor=st.floats(1, HEADROOM),
    jump_at=st.integers(0, 30_000),
    sparse=st.lists(st.integers(0, MOST), min_size=1, max_size=8),
)
def test_a5_no_round_exceeds_the_share_wherever_the_jump_falls(
    bound_ms: int, cheap_us: int, factor: float, jump_at: int, sparse: list[int]
) -> None:
    """Whatever the records cost, wherever it changes, however many there happen to be for a poll."""
    cheap_us = min(cheap_us, bound_ms * 1000 // HEADROOM)  # a single record must fit in, dear or not
    dear_us = int(cheap_us * factor)
    found = rounds(
        Pace(bound_ms),
        lambda n: cheap_us if n < jump_at else dear_us,
        40,
        lambda turn: sparse[turn % len(sparse)],
    )
    assert all(ms <= bound_ms for _, ms in found)


def test_a5_rounds_grow_again_when_records_become_cheap() -> None:
    found = rounds(Pace(120_000), lambda n: 300_000 if n < 40 else 1_000, 40)
    assert found[-1][0] == pytest.approx(1_200, abs=5)


def test_a5_one_record_is_the_least() -> None:
    assert {count for count, _ in rounds(Pace(1_000), lambda n: 5_000_000, 5)} == {1}


def test_a5_empty_polls_and_waiting_in_poll_say_nothing() -> None:
    pace = Pace(120_000)
    pace.polls(NOW)
    pace.returns(NOW, 100)
    assert pace.polls(NOW + 100) == 400
    pace.returns(NOW + 60_000, 0)
    assert pace.polls(NOW + 120_000) == 400


def test_a5_few_records_do_not_forget_what_was_known() -> None:
    pace = Pace(120_000)
    rounds(pace, lambda n: 10, 9)
    pace.returns(NOW, 1)
    assert pace.polls(NOW) > 1_000


def test_a5_the_setting() -> None:
    config = ConsumerConfig.parse(
        bootstrap_servers="a:1", max_poll_records="auto", max_poll_records_ratio=0.2
    )
    assert config.max_poll_records_ratio == 0.2
    with pytest.raises(ConfigError, match="at least 1, -1 or auto"):
        ConsumerConfig.parse(bootstrap_servers="a:1", max_poll_records="some")
    with pytest.raises(ConfigError, match="at least 1, -1 or auto"):
        ConsumerConfig.parse(bootstrap_servers="a:1", max_poll_records=0)
    with pytest.raises(ConfigError, match=r"max\.poll\.records=auto"):
        ConsumerConfig.parse(bootstrap_servers="a:1", max_poll_records_ratio=0.2)


def test_a5_a_consumer_begins_with_one_record_for_poll_and_poll_arrow(broker: Broker) -> None:
    cluster = Cluster("embedded", broker.bootstrap_servers)
    topic = cluster.topic(1)
    cluster.produce(topic, 6_000, partitions=1)  # more than seven polls can take
    with cluster.consumer(max_poll_records="auto") as consumer:
        consumer.assign([(topic, 0)])
        # The first Arrow table of a process waits for the import of pyarrow, and that counts as processing.
        sizes = [len(consumer.poll(PATIENCE)), *(consumer.poll_arrow(PATIENCE).num_rows for _ in range(6))]
        assert sizes[0] == 1
        assert all(after <= 4 * before for before, after in pairwise(sizes))
        assert max(sizes) > 4, "and grows"
        assert len(consumer.poll(PATIENCE, max_records=20)) == 20, "a cap of one call is that call's"


AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
FACT = Stalled(since=0, at=10, timeout_ms=20, left=False)


def stalls(callback: Callable[[Stall], object] | None = None) -> Stalls:
    made = Stalls("g", lambda: (0, {}), callback, lambda: 1_700_000_000_000)
    made.thread = threading.current_thread()
    return made


def test_times_are_those_of_the_wall_clock_with_the_monotonic_ones_beside() -> None:
    told = threading.Event()
    subject = stalls(lambda stall: told.set())
    subject.noticed(FACT)
    assert told.wait(PATIENCE)
    (stall,) = subject.history()
    assert (stall.since, stall.reported_at) == (AT, AT + timedelta(milliseconds=10))
    assert (stall.since_monotonic_ms, stall.reported_monotonic_ms) == (0, 10)
    assert stall.duration == 0.01
    subject.over(15_000, FACT)
    (stall,) = subject.history()
    assert (stall.ended_at, stall.ended_monotonic_ms) == (AT + timedelta(seconds=15), 15_000)
    assert stall.duration == 15


def test_b4_a_stall_counts_once() -> None:
    told = threading.Event()
    subject = stalls(lambda stall: told.set())
    subject.noticed(FACT)
    assert told.wait(PATIENCE)
    assert subject.count == len(subject.history()) == 1


def test_b4_ctrl_c_in_the_poll_that_ends_a_stall_leaves_the_network_thread_free() -> None:
    for at in itertools.count(1):
        subject = stalls()
        subject.noticed(FACT)
        interruption = Interruption(at, (f"{SOURCE}/consumer/application/processing.py", threading.__file__))
        with contextlib.suppress(KeyboardInterrupt), interruption:
            subject.over(15, FACT)
        network = threading.Thread(target=subject.noticed, args=(FACT,), daemon=True)
        network.start()
        network.join(PATIENCE)
        assert not network.is_alive(), interruption.where
        if not interruption.happened:
            break
