"""Memory of dead records' keys and values that the decoder uses again: nobody can see that it does."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence.records import FetchedRecords, Record, encode_batch

Rows = list[tuple[bytes | None, bytes | None]]

contents = st.none() | st.binary(max_size=40) | st.integers(0, 5_000).map(lambda size: b"\xa5" * size)
polls = st.lists(st.lists(st.tuples(contents, contents), min_size=1, max_size=12), min_size=1, max_size=6)


def taken(rows: Rows) -> list[object]:
    data = encode_batch((0, key, value, ()) for key, value in rows)
    return list(FetchedRecords(data, "t", 0, 0).take())


@examples(50)
@given(polls, st.integers(0, 7))
def test_contents_are_right_whatever_was_there_before(polls: list[Rows], kept: int) -> None:
    """Some values outlive their records, and some records outlive the poll that follows."""
    held: list[tuple[object, object]] = []
    for number, rows in enumerate(polls):
        records = taken(rows)
        for at, (record, (key, value)) in enumerate(zip(records, rows, strict=True)):
            assert (record.key, record.value) == (key, value)  # type: ignore[attr-defined]
            assert hash(record.value) == hash(value)  # type: ignore[attr-defined]
            if (number + at) & kept:
                held.append((record.value, value and bytes(bytearray(value))))  # type: ignore[attr-defined]
            elif at % 3 == 0:
                held.append((record, record))
        del records
    for found, expected in held:
        assert found == expected


def test_a_copy_of_a_record_keeps_what_both_hold() -> None:
    (record,) = taken([(b"key-of-16-bytes!", b"v" * 1024)])
    copy = record.replace(topic="other")  # type: ignore[attr-defined]
    value = memoryview(copy.value)
    del record, copy
    others = taken([(b"another-of-16-by", b"w" * 1024)] * 5)
    assert bytes(value) == b"v" * 1024
    assert len(others) == 5


def test_a_record_made_by_hand_gives_nothing_away() -> None:
    """Its value may have less room than others of about its size."""
    value = bytes(bytearray(b"x" * 1_001))
    record = Record("t", 0, 0, value=value)
    holders = sys.getrefcount(value)
    del record
    assert sys.getrefcount(value) == holders - 1


def test_only_so_much_is_kept() -> None:
    records = taken([(None, b"v" * 3_000)] * 2_000)
    del records
    assert [record.value for record in taken([(None, b"w" * 3_000)] * 600)] == [b"w" * 3_000] * 600  # type: ignore[attr-defined]
