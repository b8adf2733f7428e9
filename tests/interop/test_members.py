"""What `members.py` finds wrong in what members said; the tests with real members find nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.interop.members import Commit, Group, Member, Owned, Read


def group(**members: list[Any]) -> Group:
    made = Group("", "t", Path())
    for name, things in members.items():
        member = Member(name, cast("Any", None))
        for thing in things:
            kinds: dict[type, list[Any]] = {Read: member.reads, Commit: member.commits, Owned: member.owned}
            kinds[type(thing)].append(thing)
        made.all.append(member)
    return made


def test_records_that_nobody_processed() -> None:
    found = group(a=[Read(1, 0, 0, 1)], b=[Read(2, 0, 3, 3), Read(2, 1, 0, 0)]).unread({0: 5, 1: 1})
    assert found == {(0, 2), (0, 4)}


def test_a_commit_behind_a_record_that_came_later() -> None:
    assert group(a=[Read(1, 0, 0, 4), Commit(2, 0, 5)]).skipped() == []
    assert group(a=[Read(1, 0, 0, 4), Commit(2, 0, 6), Read(3, 0, 5, 5)]).skipped() != []
    assert group(a=[Read(1, 0, 0, 4)], b=[Commit(0, 0, 5)]).skipped() != []


def test_reading_that_goes_on_behind_records_of_nobody() -> None:
    assert group(a=[Read(1, 0, 0, 4)], b=[Read(2, 0, 3, 9)]).skipped() == []
    assert group(a=[Read(1, 0, 0, 4)], b=[Read(2, 0, 6, 9)]).skipped() != []
    assert group(a=[Read(3, 0, 0, 4)], b=[Read(2, 0, 5, 9)]).skipped() != []


def test_a_partition_of_two_members() -> None:
    assert group(a=[Owned(0, 1, 5)], b=[Owned(0, 5, None), Owned(1, 1, None)]).shared_partitions() == []
    assert group(a=[Owned(0, 1, 6)], b=[Owned(0, 5, None)]).shared_partitions() != []
    assert group(a=[Owned(0, 1, None)], b=[Owned(0, 5, 6)]).shared_partitions() != []


def test_a_commit_of_a_member_that_was_expelled() -> None:
    told_late = group(a=[Read(4, 0, 0, 4), Commit(11, 0, 5)])
    taken = group(a=[Read(4, 0, 0, 4), Read(10, 0, 5, 5), Commit(11, 0, 6)])
    back_again = group(a=[Read(4, 0, 0, 4), Owned(0, 10), Read(10, 0, 5, 5), Commit(11, 0, 6)])
    for each in (told_late, taken, back_again):
        each.all[0].absences.append((5, 9))
    assert told_late.commits_of_strangers() == []
    assert taken.commits_of_strangers() != []
    assert back_again.commits_of_strangers() == []
