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
