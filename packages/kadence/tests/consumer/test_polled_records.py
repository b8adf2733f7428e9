"""What a poll returns, as a value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from kadence import Records, TopicPartition
from kadence.types import OffsetAndMetadata


def test_it_can_be_copied_and_sent_to_another_process() -> None:
    moved = {TopicPartition("t", 1): OffsetAndMetadata(7)}
    # What the records are does not matter here.
    chunks: Any = ((TopicPartition("t", 0), ["a", "b"]), (TopicPartition("t", 2), ["c"]))
    given: Records[Any, Any] = Records(chunks, moved)
    for made in (copy.copy(given), pickle.loads(pickle.dumps(given))):
        assert list(made) == ["a", "b", "c"]
        assert made.by_partition() == given.by_partition()
    assert pickle.loads(pickle.dumps(Records((), moved))).next_offsets() == moved


def test_a_partition_without_records_is_left_out() -> None:
    """As an interceptor may leave one that filters. Compiled, its last record was looked for in memory of others."""
    moved = {TopicPartition("t", 1): OffsetAndMetadata(7)}
    one: Any = [(TopicPartition("t", 0), [])]
    for chunks in (one, [*one, (TopicPartition("t", 2), ())]):
        empty: Records[Any, Any] = Records(chunks, moved)
        assert not empty
        assert empty.by_partition() == {}
        assert empty.partitions() == frozenset()
        assert empty.next_offsets() == moved
    rows: Any = ["a"]
    emptied: Records[Any, Any] = Records([(TopicPartition("t", 0), rows)])
    rows.clear()
    assert emptied.next_offsets() == {}
    assert emptied.by_partition() == {}
    assert emptied.partitions() == frozenset()
    some: Any = ((TopicPartition("t", 0), []), (TopicPartition("t", 2), ("a",)))
    made: Records[Any, Any] = Records(some)
    assert made
    assert made.by_partition() == {TopicPartition("t", 2): ["a"]}
