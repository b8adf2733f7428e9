"""The commit of a batch against a table in memory, with others who change it and answers that are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kadence.errors import IllegalStateError
from kadence_spark.lakehouse.commit import ATTEMPTS, ConflictError, Table, back_out, commit_once
from kadence_spark.stamp import Stamp


@dataclass
class Store:
    """A table: its version, files and stamps; and what goes wrong with each commit, in order."""

    version: int = 0
    files: list[str] = field(default_factory=list)
    batches: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    meanwhile: list[Callable[[Store], None]] = field(default_factory=list)
    answers_lost: int = 0
    opens: int = 0

    def opened(self) -> Opened:
        self.opens += 1
        return Opened(self, self.version)

    def add(self, files: Sequence[str], stamp: Stamp | None, *, overwrite: bool = False) -> None:
        self.version += 1
        self.files = [*([] if overwrite else self.files), *files]
        if stamp is not None:
            self.batches[stamp.writer] = stamp.batch


@dataclass
class Opened:
    store: Store
    version: int

    def last_batch(self, writer: str) -> int | None:
        return self.store.batches.get(writer)

    def commit(self, files: Sequence[Any], stamp: Stamp | None, *, overwrite: bool) -> None:
        if self.store.meanwhile:
            self.store.meanwhile.pop(0)(self.store)
        if self.version != self.store.version:
            raise ConflictError("changed")
        self.store.add(files, stamp, overwrite=overwrite)
        if self.store.answers_lost:
            self.store.answers_lost -= 1
            raise ConflictError("exists already")

    def remove(self, files: Sequence[Any]) -> None:
        self.store.removed += files

    def has(self, files: Sequence[Any]) -> bool:
        return set(files) <= set(self.store.files)


def commit(store: Store, files: Sequence[str], stamp: Stamp | None, *, overwrite: bool = False) -> bool:
    opened: Callable[[], Table] = store.opened
    return commit_once(opened, files, stamp, overwrite=overwrite, wait=lambda seconds: None)


def other(store: Store) -> None:
    store.add(["other"], None)


def test_a_repeated_batch_is_added_once_and_its_new_files_go() -> None:
    store = Store()
    assert commit(store, ["a"], Stamp("q", 0))
    assert commit(store, ["b"], Stamp("q", 1))
    assert not commit(store, ["b again"], Stamp("q", 1))
    assert store.files == ["a", "b"]
    assert store.removed == ["b again"]


def test_a_checkpoint_that_is_older_than_the_table_loses_no_rows_silently() -> None:
    """As from a backup. Its next batch has all records since then, and a number that the table has."""
    store = Store()
    assert commit(store, ["a"], Stamp("q", 0))
    assert commit(store, ["b"], Stamp("q", 1))
    with pytest.raises(
        IllegalStateError, match=r"has batch 1 of q already, and this one is batch 0: .* rows would be lost"
    ):
        commit(store, ["a and c"], Stamp("q", 0))
    assert (store.files, store.removed) == (["a", "b"], ["a and c"])
    # Another writer, which a new checkpoint or another txnAppId makes, has them written again.
    assert commit(store, ["all"], Stamp("another", 0))
    assert store.files == ["a", "b", "all"]


def test_a_driver_that_was_taken_for_dead_and_is_overtaken_adds_nothing() -> None:
    """The batch is there: another driver went on behind it."""

    def went_on(store: Store) -> None:
        store.add(["theirs"], Stamp("q", 0))
        store.add(["next"], Stamp("q", 1))

    store = Store(meanwhile=[went_on])
    assert not commit(store, ["ours"], Stamp("q", 0))
    assert store.files == ["theirs", "next"]


def test_each_writer_has_numbers_of_its_own() -> None:
    store = Store()
    assert commit(store, ["a"], Stamp("q", 5))
    assert commit(store, ["b"], Stamp("r", 0))
    assert store.files == ["a", "b"]


def test_a_conflict_is_tried_again() -> None:
    store = Store(meanwhile=[other, other])
    assert commit(store, ["a"], Stamp("q", 0))
    assert store.files == ["other", "other", "a"]
    assert store.opens == 3


def test_the_same_batch_of_a_driver_that_was_taken_for_dead_is_seen_in_a_conflict() -> None:
    store = Store(meanwhile=[lambda store: store.add(["theirs"], Stamp("q", 0))])
    assert not commit(store, ["ours"], Stamp("q", 0))
    assert store.files == ["theirs"]


def test_files_stay_where_the_answer_to_their_own_commit_was_lost() -> None:
    for stamp in (Stamp("q", 0), None):
        store = Store(answers_lost=1)
        commit(store, ["a"], stamp)
        assert store.files == ["a"]
        assert store.removed == []


def test_it_gives_up_when_there_is_no_end_of_conflicts() -> None:
    store = Store(meanwhile=[other] * ATTEMPTS)
    with pytest.raises(IllegalStateError, match="others changed the table during each of 20 tries"):
        commit(store, ["a"], Stamp("q", 0))
    assert "a" not in store.files


def test_no_rows_are_no_commit_but_replace_a_table() -> None:
    store = Store(files=["old"])
    assert commit(store, [], Stamp("q", 0))
    assert (store.version, store.files) == (0, ["old"])
    assert commit(store, [], Stamp("q", 1), overwrite=True)
    assert (store.version, store.files) == (1, [])


def test_without_a_stamp_each_write_counts() -> None:
    store = Store()
    assert commit(store, ["a"], None)
    assert commit(store, ["a"], None)
    assert store.files == ["a", "a"]


def test_an_abort_deletes_files_only_if_the_commit_was_never_asked_for() -> None:
    store = Store()
    back_out(store.opened, [["a"], None, ["b", "c"]])
    assert store.removed == ["a", "b", "c"]
    back_out(store.opened, [["d"], ["e"]])
    assert store.removed == ["a", "b", "c"]
    back_out(store.opened, [None, None])
    assert store.opens == 1
