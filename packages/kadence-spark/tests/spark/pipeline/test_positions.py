"""The lines of a TOML file's keys, where they are easy to miss."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kadence_spark.pipeline.positions import Path, line_of, positions

TRICKY = '''\
# a = 1
a = 1 # b = 2
"quoted.name" = "x = 1"
dotted . "in two" = """
fake = 1
[fake]
"""
lit = \'\'\'
fake2 = 2\'\'\'
list = [
  1, # fake3 = 3
  "]",
  { x = 1, y.z = "}" },
]
[table] # fake4 = 4
one = { two = { three = 3 }, four = [ { five = 5 } ] }
[[many]]
k = 1
[many.sub]
k = 2
[[many]]
[[many.inner]]
k = 3
'''


def test_what_looks_like_a_key_and_is_none() -> None:
    found = positions(TRICKY)
    assert not any("fake" in str(step) for path in found for step in path)
    assert found["a",] == 2
    assert found["quoted.name",] == 3
    assert found["dotted", "in two"] == 4
    assert found["lit",] == 8
    assert found["list",] == 10
    assert found["list", 2, "x"] == 13
    assert found["list", 2, "y", "z"] == 13
    assert found["table", "one", "two", "three"] == 16
    assert found["table", "one", "four", 0, "five"] == 16
    assert found["many", 0, "sub", "k"] == 20
    assert found["many", 1] == 21
    assert found["many", 1, "inner", 0, "k"] == 23


def test_a_key_that_is_not_there_stands_where_its_table_begins() -> None:
    found = positions(TRICKY)
    assert line_of(("many", 0, "missing"), found) == 17
    assert line_of(("missing",), found) == 1


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from paths(inner, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from paths(inner, (*path, place))


def test_every_key_that_toml_reads_is_found() -> None:
    assert set(paths(tomllib.loads(TRICKY))) <= set(positions(TRICKY))


words = st.text(alphabet="ab\"'\\#=[]{},. \n", max_size=8)


@given(st.lists(st.tuples(st.sampled_from(["basic", "literal", "multi", "list"]), words), max_size=6))
def test_values_of_any_text_hide_nothing_and_show_nothing(values: list[tuple[str, str]]) -> None:
    lines: list[str] = []
    expected = {}
    for place, (kind, word) in enumerate(values):
        escaped = word.replace("\\", "\\\\").replace('"', '\\"')
        one_line = escaped.replace("\n", "\\n")
        text = {
            "basic": f'"{one_line}"',
            "literal": "'" + word.replace("'", "").replace("\n", "") + "'",
            "multi": f'"""\n{escaped}"""',
            "list": f'[\n"{one_line}", # {one_line}\n]',
        }[kind]
        expected[f"k{place}",] = len("\n".join([*lines, ""]).split("\n"))
        lines += f"k{place} = {text}".split("\n")
    assert positions("\n".join(lines)) == expected
