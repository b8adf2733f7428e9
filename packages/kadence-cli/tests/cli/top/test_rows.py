"""Numbers and names in the letters that there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from kadence.admin import ConsumerGroupDescription, GroupListing, MemberDescription
from kadence.types import TopicPartition
from kadence_cli.figures import count, duration, rate, shortened, sparkline
from kadence_cli.top import rows as r
from kadence_cli.top.gathering import Model
from kadence_cli.top.partition_rows import partition_rows, progress_mark
from kadence_cli.top.sampling import GroupHistory, Progress, Sample


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (0, "0"), (12_345, "12,345"), (99_999, "99,999"), (1_234_567, "1.23M"), (5e18, "5E")],
)
def test_counts(value: float | None, expected: str) -> None:
    assert count(value) == expected


@pytest.mark.parametrize("exponent", range(16))
def test_numbers_fit_their_columns(exponent: int) -> None:
    for digits in (1, 9.4, 9.95, 9.996, 9.9999):
        value = digits * 10**exponent
        assert len(count(value)) <= 8
        assert len(duration(value)) <= 6
        if exponent < 12:
            assert len(rate(value)) <= 6


def test_durations() -> None:
    assert [duration(each) for each in (None, 0, 59, 99.6, 3600, 90_000, 864_000, math.inf)] == [
        "-",
        "0s",
        "59s",
        "2m",
        "60m",
        "25h",
        "10d",
        "never",
    ]


def test_a_sparkline_has_the_first_and_the_last_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 9, 1, 9, 2, 9, 3], 4) == "▁▃▅█"
    assert len(sparkline(range(300), 10)) == 10
    assert sparkline([5, 5, 5], 8) == "▁▁▁"
    assert sparkline([None, 3, None, 4], 8) == " ▁ █"
    assert sparkline([None], 8) == ""
    assert sparkline([10**15, 2 * 10**15], 2) == "▁█"


def test_long_names_keep_both_ends() -> None:
    assert shortened("short", 8) == "short"
    assert shortened("payments.orders.v2", 9) == "paym…s.v2"
    assert [len(shortened("payments.orders.v2", width)) for width in range(1, 20)] == [*range(1, 19), 18]


@pytest.mark.parametrize("columns", [r.GROUPS, r.MEMBERS, r.PARTITIONS, r.PROCESSES, r.READING, r.EVENTS])
@pytest.mark.parametrize("width", [80, 100, 132, 200])
def test_columns_take_the_whole_width_and_no_more(columns: tuple[r.Column, ...], width: int) -> None:
    shown = r.widths(columns, width)
    assert sum(letters for _, letters in shown) + len(shown) - 1 == width
    assert all(letters > len(columns[index].name) for index, letters in shown), "no room for the arrow"


@pytest.mark.parametrize(
    ("mark", "members", "lag", "wait", "care"),
    [
        ("bad", None, None, None, 0),
        ("ok", 2, 100, math.inf, 1),
        ("busy", 2, 0, 0.0, 1),
        ("", 0, 100, math.inf, 2),
        ("ok", 2, 100, 9.0, 3),
        ("ok", 2, 0, 0.0, 3),
        ("", 0, 0, 0.0, 4),
        ("", None, None, None, 4),
    ],
)
def test_groups_that_are_sick_come_first(
    mark: str, members: int | None, lag: int | None, wait: float | None, care: int
) -> None:
    assert r._care(mark, members, Progress(lag, (), None, None, wait)) == care


@pytest.mark.parametrize(
    ("lag", "wait", "mark"),
    [
        (None, None, ""),
        (5, None, ""),
        (0, 0.0, "ok"),
        (9, 60.0, "ok"),
        (9, 61.0, "busy"),
        (9, math.inf, "bad"),
    ],
)
def test_lines_are_coloured_by_the_time_to_catch_up(lag: int | None, wait: float | None, mark: str) -> None:
    assert progress_mark(Progress(lag, (), None, None, wait)) == mark


def listed(state: str, lags: Sequence[int], *, has_members: bool = True, committed: int = 0) -> r.Row:
    """The line of a group, of which one partition has had these lags."""
    tp = TopicPartition("t", 0)
    member = MemberDescription("m-1", None, "me", "/127.0.0.1", frozenset([tp]))
    about = ConsumerGroupDescription(
        "g", state, "classic", "consumer", "range", 1, (member,) if has_members else ()
    )
    model = Model()
    model.groups = {"g": GroupListing("g", "consumer", state, "classic")}
    for second, lag in enumerate(lags):
        at = committed * second
        model.history("g").add(Sample(about, {tp: at}, {tp: at + lag}), second * 2_000, second)
    (row,) = r.group_rows(model)
    return row


def test_a_group_that_never_catches_up_is_red_whatever_its_state() -> None:
    assert listed("Stable", [500, 500]).mark == "bad"
    assert listed("Stable", [500, 600], committed=1).mark == "bad"
    assert listed("Stable", [90_000, 89_000], committed=1_000).mark == "busy"
    assert listed("Stable", [500, 100], committed=500).mark == "ok"
    assert listed("Stable", [0, 0]).mark == "ok"
    assert listed("PreparingRebalance", [0, 0]).mark == "busy"
    assert listed("PreparingRebalance", [500, 500]).mark == "bad"
    assert listed("Empty", [0, 0], has_members=False).mark == ""
    assert listed("Empty", [500, 500], has_members=False).mark == "bad"


def test_a_group_whose_members_live_shorter_than_a_round_is_not_folded() -> None:
    assert listed("Empty", [500, 500], has_members=False).folds
    assert not listed("Empty", [500, 400], has_members=False, committed=10).folds


def test_no_name_is_cut_beside_free_columns() -> None:
    names = [column.name for column in r.MEMBERS]
    longest = [8] * len(names)
    owns, member = names.index("OWNS"), names.index("MEMBER")
    longest[owns] = 24
    for width in (80, 100, 130):
        letters = dict(r.widths(r.MEMBERS, width, longest))
        assert sum(letters.values()) + len(letters) - 1 == width
        assert letters[owns] == min(24, 16 + dict(r.widths(r.MEMBERS, width))[member] - 8)
        assert letters[member] >= 8
    # The other way round: a long name of a member takes what a column of partitions does not need.
    longest[owns], longest[member] = 9, 60
    letters = dict(r.widths(r.MEMBERS, 100, longest))
    assert (letters[owns], sum(letters.values()) + len(letters) - 1) == (9, 100)


def test_unknown_values_sort_last_both_ways() -> None:
    rows = [r.Row(n, (str(n),), (value,)) for n, value in enumerate([2, None, 1])]
    assert [row.key for row in r.arranged(rows, 0, backwards=False)] == [2, 0, 1]
    assert [row.key for row in r.arranged(rows, 0, backwards=True)] == [0, 2, 1]


def test_a_filter_looks_at_all_cells() -> None:
    rows = [r.Row(1, ("orders", "Anna"), (1, 1)), r.Row(2, ("flights", "Ben"), (1, 1))]
    assert [row.key for row in r.arranged(rows, 0, backwards=False, containing="ANNA")] == [1]


def test_only_the_partitions_that_are_looked_at_are_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their values are sorted without: 10,000 partitions of one group have to be drawn each two seconds."""
    made: list[int | None] = []

    def seen(values: Sequence[int | None], width: int) -> str:
        made.append(values[-1])
        return "▁"

    monkeypatch.setattr("kadence_cli.top.partition_rows.sparkline", seen)
    everything = [TopicPartition("t", n) for n in range(1000)]
    member = MemberDescription("m-1", None, "me", "/127.0.0.1", frozenset(everything[:500]))
    group = ConsumerGroupDescription("g", "Stable", "classic", "consumer", "range", 1, (member,))
    history = GroupHistory("g")
    history.add(
        Sample(group, dict.fromkeys(everything, 5), {tp: 5 + tp.partition for tp in everything}), 0, 0
    )
    rows = partition_rows(history)
    for column, _ in enumerate(r.PARTITIONS):
        r.arranged(rows, column, backwards=True)
    assert not made
    lag = [column.name for column in r.PARTITIONS].index("LAG")
    shown = r.arranged(rows, lag, backwards=True)[:20]
    cells = [row.cells for row in [*shown, *shown]]
    assert cells[0] == ("t:999", "-", "5", "1,004", "999", "▁", "-", "-", "-", "0")
    assert made == [*range(999, 979, -1)]
    assert len(partition_rows(history, "m-1")) == 500
    assert [row.cells[1] for row in r.arranged(rows, 1, backwards=False)[499:501]] == ["me", "-"]


def test_a_stack_is_told_by_the_applications_own_line() -> None:
    frames = [
        '  File "/home/me/worker.py", line 7, in main',
        "    charge(card)",
        '  File "/home/me/billing.py", line 27, in charge',
        "    answered.wait()",
        '  File "/usr/lib/python3.12/threading.py", line 655, in wait',
        "    signaled = self._cond.wait(timeout)",
    ]
    assert r.where("\n".join(frames)) == "in charge (billing.py:27)"
    assert r.where("\n".join(frames[-2:])) == "in wait (threading.py:655)"
    assert r.where("") == "no stack"
