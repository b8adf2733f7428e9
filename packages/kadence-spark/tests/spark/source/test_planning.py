"""Ranges to tasks: nothing lost, nothing twice, as few tasks as the work needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kadence.types import TopicPartition
from kadence_spark.source.planning import TARGET_BYTES, WORTH_A_TASK, OffsetRange, Task, TaskSize, plan


def size(
    parallelism: int | None = 2,
    target: int = 500_000,
    least: int | None = None,
    most: int | None = None,
    most_bytes: int | None = None,
) -> TaskSize:
    return TaskSize(
        parallelism=parallelism, target=target, min_tasks=least, max_offsets=most, max_bytes=most_bytes
    )


def ranges(*sizes: int, start: int = 100) -> list[OffsetRange]:
    return [OffsetRange("t", number, start, start + count) for number, count in enumerate(sizes)]


def loads(tasks: list[Task]) -> list[int]:
    return sorted(sum(piece.size for piece in task) for task in tasks)


def test_nothing_gives_no_task() -> None:
    assert plan([], size(), {}) == []
    assert plan([OffsetRange("t", 0, 7, 7), OffsetRange("t", 1, 9, 4)], size(), {}) == []


def test_where_nobody_knows_how_many_run_at_once_each_partition_may_have_a_task() -> None:
    assert len(plan(ranges(*[WORTH_A_TASK] * 64), size(None), {})) == 64
    assert len(plan(ranges(*[100] * 64), size(None), {})) == 1
    assert len(plan(ranges(WORTH_A_TASK * 8), size(None), {})) == 1  # no partition is split


def test_many_small_partitions_are_one_task() -> None:
    tasks = plan(ranges(*[100] * 64), size(), {})
    assert len(tasks) == 1
    assert len(tasks[0]) == 64


def test_enough_work_uses_the_cores_and_no_more() -> None:
    assert loads(plan(ranges(*[10_000] * 8), size(), {})) == [40_000, 40_000]
    assert len(plan(ranges(WORTH_A_TASK, 1), size(), {})) == 2


def test_much_work_makes_more_tasks_than_cores() -> None:
    assert loads(plan(ranges(*[500_000] * 8), size(), {})) == [500_000] * 8


def test_a_partition_is_not_split_unless_asked() -> None:
    assert plan(ranges(5_000_000), size(), {}) == [(OffsetRange("t", 0, 100, 5_000_100),)]


def test_max_records_per_partition_splits_evenly() -> None:
    tasks = plan(ranges(1000), size(most=300), {})
    assert [piece for task in tasks for piece in task] == [
        OffsetRange("t", 0, 100, 350),
        OffsetRange("t", 0, 350, 600),
        OffsetRange("t", 0, 600, 850),
        OffsetRange("t", 0, 850, 1100),
    ]
    assert loads(tasks) == [250] * 4


def test_min_partitions_splits_the_big_ones() -> None:
    tasks = plan(ranges(900, 100), size(least=4), {})
    assert len(tasks) == 4
    assert loads(tasks) == [100, 300, 300, 300]


def test_min_partitions_cannot_split_below_one_offset() -> None:
    assert len(plan(ranges(2, 1), size(least=10), {})) == 3


def test_skewed_partitions_are_balanced() -> None:
    tasks = plan(ranges(900_000, 300_000, 300_000, 300_000), size(target=900_000), {})
    assert loads(tasks) == [900_000, 900_000]


def test_partitions_of_one_leader_go_together() -> None:
    leaders = {TopicPartition("t", number): number % 2 for number in range(8)}
    tasks = plan(ranges(*[100_000] * 8), size(), leaders)
    assert [{leaders[piece.topic_partition] for piece in task} for task in tasks] == [{0}, {1}]


@given(
    st.lists(st.integers(0, 500), max_size=20),
    st.none() | st.integers(1, 16),
    st.integers(1, 300),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
def test_every_offset_is_in_exactly_one_task(
    sizes: list[int], parallelism: int | None, target: int, least: int | None, most: int | None
) -> None:
    wanted = ranges(*sizes)
    tasks = plan(wanted, size(parallelism, target, least, most), {})
    pieces = sorted(piece for task in tasks for piece in task)
    for whole in wanted:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        bounds = [whole.start, *(piece.end for piece in own)]
        assert [piece.start for piece in own] == bounds[:-1]
        assert bounds[-1] == whole.end
    assert all(task for task in tasks)
    assert len(tasks) >= min(least or 0, sum(sizes))
    if most is not None:
        assert all(load <= most for load in loads(tasks))
    if least is None and most is None:
        assert len(pieces) == sum(count > 0 for count in sizes)


# ---------------------------------------------------------------- bytes, where they are known


def topics(**sizes: int) -> list[OffsetRange]:
    return [OffsetRange(topic, 0, 0, count) for topic, count in sizes.items()]


def per_offset(pieces: list[OffsetRange], **sizes: float) -> dict[TopicPartition, float]:
    return {piece.topic_partition: sizes[piece.topic] for piece in pieces}


def test_large_records_are_worth_a_second_task_sooner() -> None:
    few = ranges(1_000, 1_000)
    assert len(plan(few, size(), {})) == 1
    assert len(plan(few, size(), {}, per_offset(few, t=100.0))) == 1
    assert len(plan(few, size(), {}, per_offset(few, t=16_384.0))) == 2


def test_many_bytes_make_more_tasks_than_run_at_once() -> None:
    many = ranges(*[1_000] * 8)
    assert loads(plan(many, size(), {}, per_offset(many, t=TARGET_BYTES / 2_000))) == [2_000] * 4


def test_packed_by_bytes() -> None:
    pieces = topics(a=1_000, b=40_000, c=3_000)
    tasks = plan(pieces, size(), {}, per_offset(pieces, a=10_000.0, b=100.0, c=5_000.0))
    assert sorted([piece.topic for piece in task] for task in tasks) == [["a", "b"], ["c"]]


def test_a_bound_in_offsets_is_kept_whatever_the_bytes() -> None:
    pieces = ranges(*[900] * 6)
    assert loads(plan(pieces, size(most=1_000), {}, per_offset(pieces, t=1_000_000.0))) == [900] * 6


def test_big_partitions_are_split_by_bytes_and_small_ones_packed() -> None:
    pieces = topics(large=1_000, small=10_000)
    tasks = plan(pieces, size(most_bytes=250_000), {}, per_offset(pieces, large=1_000.0, small=10.0))
    assert loads(tasks) == [250, 250, 250, 250, 10_000]
    together = ranges(*[100] * 8)
    assert loads(plan(together, size(most_bytes=250_000), {}, per_offset(together, t=1_000.0))) == [200] * 4


def test_a_record_above_the_bound_in_bytes_has_a_task_of_its_own() -> None:
    pieces = ranges(3)
    assert loads(plan(pieces, size(most_bytes=10), {}, per_offset(pieces, t=1_000.0))) == [1, 1, 1]


def test_without_an_estimate_nothing_is_split_by_bytes() -> None:
    assert len(plan(ranges(5_000_000), size(most_bytes=10), {})) == 1


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 2_000)), max_size=20),
    st.none() | st.integers(1, 200),
    st.integers(1, 50_000),
    st.none() | st.integers(1, 30),
)
def test_both_bounds_hold(
    partitions: list[tuple[int, int]], most: int | None, most_bytes: int, least: int | None
) -> None:
    wanted = ranges(*(count for count, _ in partitions))
    sizes = {piece.topic_partition: float(partitions[piece.partition][1]) for piece in wanted}
    tasks = plan(wanted, size(least=least, most=most, most_bytes=most_bytes), {}, sizes)
    assert sum(loads(tasks)) == sum(count for count, _ in partitions)
    for task in tasks:
        held = sum(piece.size * sizes[piece.topic_partition] for piece in task)
        # A part may be one offset more than an equal share, and one offset is never split.
        assert held <= most_bytes or (len(task) == 1 and held - sizes[task[0].topic_partition] < most_bytes)
        assert most is None or sum(piece.size for piece in task) <= most
