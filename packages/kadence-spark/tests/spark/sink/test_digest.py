"""Equal rows have equal sums, however Spark has batched them; other rows have others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kadence_spark.sink.digest import RowsDigest

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)

ROWS: list[dict[str, Any]] = [
    {"value": b"a", "key": "k", "topic": "t", "partition": 1, "headers": None},
    {"value": None, "key": "", "topic": "t", "partition": None, "headers": []},
    {"value": b"", "key": None, "topic": "u", "partition": 0, "headers": [{"key": "h", "value": None}]},
    {"value": b"bc", "key": "k2", "topic": "u", "partition": 3, "headers": [{"key": "h", "value": b"x"}] * 2},
]


def summed(*batches: pa.RecordBatch) -> str:
    digest = RowsDigest()
    for batch in batches:
        digest.add(batch, None)
    return digest.text()


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def test_batches_do_not_matter() -> None:
    whole = batch(ROWS)
    expected = summed(whole)
    assert len(expected) == 16
    assert summed(whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)) == expected
    assert summed(batch(ROWS[:2]), batch(ROWS[2:])) == expected
    more = batch([*ROWS, *ROWS])
    assert summed(more.slice(2, 4)) == summed(batch([*ROWS[2:], *ROWS[:2]]))


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:3],
        [*ROWS, ROWS[0]],
        [ROWS[1], ROWS[0], *ROWS[2:]],
        [{**ROWS[0], "value": b"b"}, *ROWS[1:]],
        [{**ROWS[0], "key": None}, *ROWS[1:]],
        [ROWS[0], {**ROWS[1], "value": b""}, *ROWS[2:]],
        [ROWS[0], {**ROWS[1], "headers": None}, *ROWS[2:]],
        [{**ROWS[0], "partition": 2}, *ROWS[1:]],
        [*ROWS[:3], {**ROWS[3], "headers": [{"key": "hx", "value": b""}, {"key": "h", "value": b"x"}]}],
    ],
)
def test_any_difference_does(other: list[dict[str, Any]]) -> None:
    assert summed(batch(other)) != summed(batch(ROWS))


def test_rows_and_the_first_topic_are_known() -> None:
    digest = RowsDigest()
    assert (digest.rows, digest.topic) == (0, "")
    digest.add(batch(ROWS), None)
    digest.add(batch(ROWS), None)
    assert (digest.rows, digest.topic) == (8, "t")
    named = RowsDigest()
    named.add(batch(ROWS).select(["value"]), "given")
    assert named.topic == "given"


def test_large_columns_are_read_by_their_own_offsets() -> None:
    large = pa.RecordBatch.from_arrays([pa.array([b"a", None, b"bc"], pa.large_binary())], ["value"])
    small = pa.RecordBatch.from_arrays([pa.array([b"a", None, b"bc"], pa.binary())], ["value"])
    sums = []
    for each in (large, large.slice(1), small):
        digest = RowsDigest()
        digest.add(each, "t")
        sums.append(digest.text())
    assert len(set(sums)) == 3
