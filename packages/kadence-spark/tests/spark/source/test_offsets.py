"""Offsets as the checkpoint holds them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.errors import IllegalStateError
from kadence.types import TopicPartition
from kadence_spark.source.offsets import Point

topics = st.text("abcXYZ019._-", min_size=1, max_size=8)
offsets = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 1000)), st.integers(0, 2**63 - 1), max_size=12
)


ids = st.dictionaries(topics, st.text("abcXYZ019_-", min_size=22, max_size=22), max_size=5)


@given(offsets, offsets, ids)
def test_what_is_written_is_read(
    following: dict[TopicPartition, int], first: dict[TopicPartition, int], topic_ids: dict[str, str]
) -> None:
    point = Point(following, first, topic_ids)
    assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


def test_equal_points_are_equal_texts_sorted_by_topic_and_number() -> None:
    names = [TopicPartition("b", 10), TopicPartition("a", 0), TopicPartition("b", 9)]
    text = json.dumps(Point(dict.fromkeys(names, 1)).to_json())
    assert text == '{"a": {"0": 1}, "b": {"9": 1, "10": 1}}'
    assert json.dumps(Point(dict.fromkeys(reversed(names), 1)).to_json()) == text


def test_first_offsets_lie_beside_in_the_same_shape() -> None:
    tp = TopicPartition("t", 0)
    assert Point({tp: 12}, {tp: 5}).to_json() == {"#t": {"0": 5}, "t": {"0": 12}}


def test_ids_lie_beside_as_topics_without_partitions() -> None:
    """The connector's shape still: names to numbers of partitions to offsets."""
    shape = Point({TopicPartition("t", 0): 12}, {}, {"t": "Zc3yHpHcQ-SEaDD5bUYm7w"}).to_json()
    assert shape == {"@t=Zc3yHpHcQ-SEaDD5bUYm7w": {}, "t": {"0": 12}}


def test_a_batch_starts_where_its_end_says_first() -> None:
    tp = TopicPartition("t", 0)
    assert Point({tp: 12}, {tp: 5}).starts_after(Point({tp: 3}))[tp] == 5
    assert Point({tp: 12}, {tp: 0}).starts_after(Point({tp: 3}))[tp] == 0
    assert Point({tp: 12}).starts_after(Point({tp: 3}))[tp] == 3
    assert Point({tp: 12}).starts_after(Point({}))[tp] is None
    assert Point({tp: 12}, {tp: 5}).starts_after(Point({tp: 12}, {tp: 5}))[tp] == 12, "a source without news"


@pytest.mark.parametrize(
    "shape", [{"t": 3}, {"t": {"zero": 1}}, {"t": {"0": None}}, {"t": {"0": "x"}}, 7, None]
)
def test_another_sources_checkpoint_is_named_as_that(shape: object) -> None:
    with pytest.raises(IllegalStateError, match="checkpointLocation"):
        Point.from_json(shape)  # type: ignore[arg-type]
