"""The mapping of which a changed copy shares what did not change."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.layered import Layered

CHANGES = st.lists(st.dictionaries(st.integers(0, 200), st.integers(), max_size=40), max_size=40)


@given(CHANGES)
def test_it_is_the_dict_that_had_the_same_changes(changes: list[dict[int, int]]) -> None:
    mapping: Layered[int, int] = Layered()
    plain: dict[int, int] = {}
    seen: list[tuple[Layered[int, int], dict[int, int]]] = []
    for change in changes:
        seen.append((mapping, dict(plain)))
        mapping = mapping.changed(change)
        plain.update(change)
    for each, known in [*seen, (mapping, plain)]:
        assert list(each.items()) == list(known.items()), "its order, too; no copy changes another"
        assert len(each) == len(known)
        assert [each.get(key, "nothing") for key in range(201)] == [
            known.get(key, "nothing") for key in range(201)
        ]
        assert [key in each for key in range(201)] == [key in known for key in range(201)]
    assert mapping == plain


def test_what_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Layered({"a": 1}).changed({"b": 2})["c"]
    assert Layered({"a": 1}).get("b") is None


def test_single_changes_copy_the_large_layer_seldom() -> None:
    """A dict that is copied for each of 4,000 topics moves 8 million entries."""
    mapping: Layered[int, int] = Layered()
    copied, largest = 0, 0
    for number in range(4_000):
        before = mapping
        mapping = mapping.changed({number: number})
        copied += len(mapping._top) if mapping._below is before._below else len(mapping)
        largest = max(largest, len(mapping._top))
    assert largest <= isqrt(4_000)
    assert copied < 4_000 * 3 * isqrt(4_000)


def test_its_text_is_that_of_a_mapping() -> None:
    mapping: Mapping[str, int] = Layered({"a": 1}).changed({"b": 2})
    assert repr(mapping) == "Layered({'a': 1, 'b': 2})"
