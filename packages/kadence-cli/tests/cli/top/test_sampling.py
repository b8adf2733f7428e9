"""What samples of a group say together; time is a number here."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from kadence import TopicPartition
from kadence.admin import ConsumerGroupDescription, MemberDescription
from kadence.lag import seconds_to_catch_up
from kadence_cli.names import ranges
from kadence_cli.top.partition_rows import partition_rows, progress_cells
from kadence_cli.top.sampling import WINDOW_MS, GroupHistory, Sample

A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
WALL = 1_700_000_000.0


def member(name: str, *owned: TopicPartition) -> MemberDescription:
    return MemberDescription(f"{name}-id", None, name, "/127.0.0.1", frozenset(owned))


def group(
    *members: MemberDescription, state: str = "Stable", epoch: int | None = None
) -> ConsumerGroupDescription:
    kind = "classic" if epoch is None else "consumer"
    return ConsumerGroupDescription("g", state, kind, "consumer", "range", 1, members, epoch)


class World:
    """A history, and what it is told each second."""

    def __init__(self) -> None:
        self.history = GroupHistory("g")
        self.now = 0

    def sample(
        self,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        about: ConsumerGroupDescription | None = None,
        after_ms: int = 1000,
        above: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.now += after_ms
        described = about or group(member("a", A, B))
        self.history.add(Sample(described, committed, ends, above or {}), self.now, WALL + self.now / 1000)

    def told(self) -> list[str]:
        return [event.text for event in self.history.events]


@pytest.fixture
def world() -> World:
    return World()


def test_one_sample_has_a_lag_and_no_rates(world: World) -> None:
    world.sample({A: 10}, {A: 25})
    progress = world.history.progress(A)
    assert (progress.lag, progress.consumed, progress.produced, progress.catches_up_in) == (
        15,
        None,
        None,
        None,
    )
    assert progress.trend == (15,)
    assert world.history.progress(B).lag is None
    assert world.history.total.lag == 15


def test_a_group_is_caught_up_when_its_slowest_partition_is(world: World) -> None:
    world.sample({A: 0, B: 0}, {A: 1000, B: 50})
    world.sample({A: 200, B: 0}, {A: 1000, B: 50})
    assert world.history.progress(A).catches_up_in == 4.0
    assert math.isinf(world.history.progress(B).catches_up_in or 0)
    assert math.isinf(world.history.total.catches_up_in or 0), "one that is not read is never caught up"
    world.sample({A: 400, B: 5}, {A: 1000, B: 50})
    assert world.history.total.catches_up_in == pytest.approx(18)
    assert world.history.progress_of([A]).catches_up_in == pytest.approx(3)


def test_a_commit_that_is_some_seconds_old_is_no_lag_that_stays(world: World) -> None:
    for second in range(10):
        world.sample({A: 100 * second}, {A: 100 * second + 300 + second})
    progress = world.history.progress(A)
    assert progress.produced is not None
    assert progress.consumed is not None
    assert progress.produced > progress.consumed
    assert progress.catches_up_in == 10.0
    assert progress.keeps_up


def test_rates_and_when_it_is_caught_up(world: World) -> None:
    world.sample({A: 0}, {A: 1000})
    world.sample({A: 300}, {A: 1100}, after_ms=2000)
    progress = world.history.progress(A)
    assert (progress.consumed, progress.produced, progress.lag) == (150.0, 50.0, 800)
    assert progress.catches_up_in == 8.0
    assert world.history.offsets(A) == (300, 1100)


def test_rates_are_of_the_last_half_minute(world: World) -> None:
    for second in range(100):
        world.sample({A: 10 * second}, {A: 10 * second})
    for _ in range(31):
        world.sample({A: 990}, {A: 990})
    assert world.history.progress(A).consumed == 0.0


def test_commits_now_and_then_make_a_steady_rate(world: World) -> None:
    """Auto-commit moves an offset every 5 s; the rate between two samples would be 0 or fivefold."""
    for second in range(61):
        world.sample({A: second // 5 * 500}, {A: 100 * second})
    assert world.history.progress(A).consumed == pytest.approx(100, rel=0.2)


def test_long_delays_have_rates_too(world: World) -> None:
    world.sample({A: 0}, {A: 0}, after_ms=120_000)
    world.sample({A: 60}, {A: 120}, after_ms=120_000)
    assert world.history.progress(A).produced == 1.0


@pytest.mark.parametrize(
    ("lag", "consumed", "produced", "expected"),
    [
        (0, None, None, 0.0),
        (10, 5.0, 0.0, 2.0),
        (10, 5.0, 5.0, math.inf),
        (10, 0.0, 5.0, math.inf),
        (10, None, 5.0, None),
        (None, 1.0, 0.0, None),
    ],
)
def test_time_to_catch_up(
    lag: int | None, consumed: float | None, produced: float | None, expected: float | None
) -> None:
    assert seconds_to_catch_up(lag, consumed, produced) == expected


def test_an_offset_that_was_moved_back_begins_anew_and_is_told(world: World) -> None:
    world.sample({A: 1000}, {A: 2000})
    world.sample({A: 100}, {A: 2000})
    assert world.history.progress(A).consumed is None
    assert world.told() == ["committed offset of flights:0 moved back from 1,000 to 100"]
    world.sample({A: 110}, {A: 2000})
    assert world.history.progress(A).consumed == 10.0


def test_an_end_that_is_not_known_any_more_is_shown_as_old_and_has_no_lag(world: World) -> None:
    world.sample({A: 10, B: 10}, {A: 12_025, B: 25})
    world.sample({A: 11, B: 11}, {B: 26})
    shown = {row.key: row.cells[2:5] for row in partition_rows(world.history)}
    assert shown == {A: ("11", "12,025 old", "-"), B: ("11", "26", "15")}
    world.sample({A: 12, B: 12}, {A: 12_030, B: 27})
    assert {row.cells[3] for row in partition_rows(world.history)} == {"12,030", "27"}


def test_partitions_that_are_gone_are_forgotten(world: World) -> None:
    world.sample({A: 1, B: 1}, {A: 1, B: 1})
    world.sample({A: 1}, {A: 1}, group(member("a", A)))
    assert list(world.history.partitions) == [A]


def test_the_trend_of_several_is_added_from_its_end(world: World) -> None:
    world.sample({A: 0}, {A: 5}, group(member("a", A)))
    world.sample({A: 0, B: 0}, {A: 6, B: 10})
    assert world.history.progress_of([A, B]).trend == (5, 16)
    assert world.history.progress_of([A, B]).lag == 16


def test_the_trend_and_the_time_to_catch_up_are_of_the_same_half_minute(world: World) -> None:
    """A lag that falls on the screen beside "never" says two things at once."""
    for second in range(90):
        # It shrinks for a minute; then nobody commits for 20 s, and after that it shrinks again.
        committed = 50 * second if second < 60 or second >= 80 else 50 * 60
        world.sample({A: committed}, {A: 4_000 + 20 * second})
        progress = world.history.progress(A)
        trend = progress.trend
        if len(trend) < 2:
            continue
        grows = (trend[-1] or 0) >= (trend[0] or 0)
        assert grows == (progress.catches_up_in == math.inf), second
    assert WINDOW_MS // 1000 <= len(world.history.progress(A).trend) <= WINDOW_MS // 1000 + 1
    assert len(progress_cells(world.history.progress(A))[1]) == 10


def test_rebalances_of_a_classic_group_are_noticed_by_its_state(world: World) -> None:
    world.sample({}, {}, group(member("a", A, B)))
    world.sample({}, {}, group(member("a"), member("b"), state="PreparingRebalance"))
    world.sample({}, {}, group(member("a"), member("b"), state="CompletingRebalance"))
    world.sample({}, {}, group(member("a", A), member("b", B)))
    assert world.history.rebalances == 1
    assert world.told() == [
        "state Stable → PreparingRebalance",
        "b joined",
        "a gave up flights:0-1",
        "state PreparingRebalance → CompletingRebalance",
        "state CompletingRebalance → Stable",
        "a got flights:0",
        "b got flights:1",
    ]
    assert [event.at for event in world.history.events][:3] == [WALL + 2] * 3


def test_a_classic_rebalance_between_two_samples_is_noticed_by_what_it_moved(world: World) -> None:
    world.sample({}, {}, group(member("a", A, B)))
    world.sample({}, {}, group(member("a", A), member("b", B)))
    assert world.history.rebalances == 1
    assert world.told() == ["b joined", "a gave up flights:1", "b got flights:1"]


def test_a_kip_848_group_numbers_its_rebalances(world: World) -> None:
    world.sample({}, {}, group(member("a", A, B), epoch=3))
    world.sample({}, {}, group(member("a", A, B), epoch=3, state="Reconciling"))
    assert world.history.rebalances == 0
    world.sample({}, {}, group(member("a", A), epoch=5))
    assert world.history.rebalances == 2
    assert "epoch 3 → 5" in world.told()


def test_a_crowd_is_told_in_few_lines(world: World) -> None:
    world.sample({}, {}, group())
    world.sample({}, {}, group(*(member(f"m{n:03}") for n in range(500))))
    assert world.told() == [*(f"m{n:03} joined" for n in range(5)), "495 more members joined"]


def test_a_group_that_went_away(world: World) -> None:
    world.sample({A: 1}, {A: 2})
    world.history.gone("the group is gone", WALL)
    world.history.gone("the group is gone", WALL)
    assert world.told() == ["the group is gone"]
    assert (list(world.history.partitions), world.history.total.lag) == ([], None)


def test_ranges() -> None:
    owned = [TopicPartition("flights", n) for n in (0, 1, 2, 5, 7, 8)] + [TopicPartition("hotels", 3)]
    assert ranges(owned) == "flights:0-2,5,7-8 hotels:3"
    assert ranges([]) == ""


def test_a_record_that_holds_up_the_committed_offset_for_a_minute_is_named_once(world: World) -> None:
    for done in range(70):
        world.sample({A: 10, B: 5}, {A: 200, B: 200}, above={A: done + 1})
    assert world.told() == [
        "the record of flights:0 at offset 10 holds up the committed offset: 61 records above it are done"
    ]
    world.sample({A: 90}, {A: 200}, above={A: 3})
    for _ in range(61):
        world.sample({A: 90}, {A: 200}, above={A: 3})
    assert world.told()[1:] == [
        "the record of flights:0 at offset 90 holds up the committed offset: 3 records above it are done"
    ]


def test_an_offset_that_stands_still_with_nothing_done_above_it_is_no_matter_of_one_record(
    world: World,
) -> None:
    for _ in range(70):
        world.sample({A: 10}, {A: 200})
    assert world.told() == []


def test_a_member_that_reads_nothing_keeps_the_group_from_catching_up(world: World) -> None:
    about = group(member("a", A), member("b", B))
    for second in range(11):
        world.sample({A: 10 * second}, {A: 10 * second, B: second}, about)
        assert world.history.silent == (["b"] if second >= 10 else [])
    assert world.history.total.catches_up_in == math.inf
    world.sample({A: 110, B: 0}, {A: 110, B: 11}, about)
    world.sample({A: 120, B: 11}, {A: 120, B: 11}, about)
    assert world.history.silent == []
    assert world.history.total.catches_up_in == 0.0
