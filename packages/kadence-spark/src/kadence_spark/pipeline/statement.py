"""Keeps the column `_record` through a statement by its text, for spark-pipelines, whose plans are on a server.

Elsewhere `keeping` does it in the plan. This parses only a part of SQL: quotes, comments and parentheses, WITH, UNION
ALL, and FROM clauses. Each SELECT whose rows are rows of one view with the column gets it as its last column. Other
statements are left unchanged; `declare` then asks Spark whether the column is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["with_column"]

_TOKEN: Final = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?\*/)|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:``|[^`])*`|\w+|.""",
    re.DOTALL,
)
_SETS: Final = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
_BEHIND_FROM: Final = frozenset(
    {
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "CLUSTER",
        "DISTRIBUTE",
        "SORT",
        "QUALIFY",
        ";",
    }
)
_BEFORE_A_RELATION: Final = frozenset({",", "JOIN"})
_NO_ALIAS: Final = frozenset(
    {
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "NATURAL",
        "SEMI",
        "ANTI",
        "ON",
        "USING",
        "LATERAL",
        ",",
    }
    | {"TABLESAMPLE", "PIVOT", "UNPIVOT"}
)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word, a quoted text or a sign."""

    text: str
    start: int

    @property
    def upper(self) -> str:
        return self.text.upper()

    @property
    def name(self) -> str:
        """The name in the form in which Spark compares names."""
        return self.text.strip("`").lower()


@dataclass(frozen=True, slots=True)
class _Group:
    """The nodes within parentheses."""

    nodes: tuple[_Node, ...]


_Node = _Word | _Group
"""A part of a statement."""

_Places = list[int] | None
"""The places where the column must be inserted; None: the rows cannot have it."""


def with_column(sql: str, column: str, views: Collection[str]) -> str:
    """The statement with the column added if it lacks it.

    Args:
        views: the names of views with the column.
    """
    places = _Statement(column).query(_parsed(sql), frozenset(name.lower() for name in views))
    for place in sorted(places or (), reverse=True):
        sql = f"{sql[:place]}, {column} {sql[place:]}"
    return sql


def _parsed(sql: str) -> tuple[_Node, ...]:
    groups: list[list[_Node]] = [[]]
    for found in _TOKEN.finditer(sql):
        if found["skipped"]:
            continue
        text = found[0]
        if text == "(":
            groups.append([])
        elif text == ")" and len(groups) > 1:
            group = _Group(tuple(groups.pop()))
            groups[-1].append(group)
        else:
            groups[-1].append(_Word(text, found.start()))
    return tuple(groups[0]) if len(groups) == 1 else ()


def _is(node: _Node | None, *words: str) -> bool:
    return isinstance(node, _Word) and node.upper in words


class _Statement:
    """Finds the places in a statement where the column is missing."""

    def __init__(self, column: str) -> None:
        self._column = column

    def query(self, nodes: Sequence[_Node], having: frozenset[str]) -> _Places:
        """The places in a statement with WITH and UNION ALL.

        Args:
            having: the names that have the column.
        """
        places: list[int] = []
        if nodes and _is(nodes[0], "WITH"):
            read = self._common(nodes[1:], having, places)
            if read is None:
                return None
            nodes, having = read
        for part in _parts(nodes):
            found = None if part is None else self._part(part, having)
            if found is None:
                return None
            places += found
        return places

    def _common(
        self, nodes: Sequence[_Node], having: frozenset[str], places: list[int]
    ) -> tuple[Sequence[_Node], frozenset[str]] | None:
        """Parse the tables of WITH; returns the nodes behind them, and the names with the column there."""
        while True:
            match nodes:
                case [_Word() as name, _Word() as word, _Group(inner), *rest] if word.upper == "AS":
                    found = self.query(inner, having)
                    places += found or ()
                    having = having - {name.name} if found is None else having | {name.name}
                case _:
                    return None
            if not (rest and _is(rest[0], ",")):
                return rest, having
            nodes = rest[1:]

    def _part(self, nodes: Sequence[_Node], having: frozenset[str]) -> _Places:
        """The places in one SELECT, or in one in parentheses."""
        if nodes and isinstance(nodes[0], _Group):
            return self.query(nodes[0].nodes, having)
        if not nodes or not _is(nodes[0], "SELECT") or _is(_at(nodes, 1), "DISTINCT"):
            return None
        start = _from(nodes)
        if start is None:
            return None
        end = next((at for at in range(start, len(nodes)) if _is(nodes[at], *_BEHIND_FROM)), len(nodes))
        if any(_is(each, "GROUP", "HAVING") for each in nodes[end:]):
            return None
        found = [each for each in self._relations(nodes[start + 1 : end], having) if each[1] is not None]
        if len(found) != 1:
            return None
        alias, places = found[0]
        place = nodes[start]
        assert places is not None  # chosen above
        assert isinstance(place, _Word)  # FROM
        return places if self._gives(nodes[1:start], alias) else [*places, place.start]

    def _gives(self, items: Sequence[_Node], alias: str) -> bool:
        """Whether the list of a SELECT has the column already, by its name or by a star."""
        for item in _split(items):
            names = [each.name if isinstance(each, _Word) else "(" for each in item]
            match names:
                case ["*", *_]:
                    return True
                case [table, ".", "*", *_] if table == alias:
                    return True
                case [name] | [_, ".", name] | [*_, "as", name] if name == self._column:
                    return True
        return False

    def _relations(self, nodes: Sequence[_Node], having: frozenset[str]) -> Iterator[tuple[str, _Places]]:
        """The relation of FROM: its alias, and its places."""
        at = 0
        while at < len(nodes):
            if at and not _is(nodes[at - 1], *_BEFORE_A_RELATION):
                at += 1
                continue
            is_seen = at < 2 or not _is(nodes[at - 2], "SEMI", "ANTI")
            while _is(_at(nodes, at), "LATERAL", "STREAM"):
                at += 1
            alias, places, at = self._relation(nodes, at, having)
            if is_seen:
                yield alias, places

    def _relation(self, nodes: Sequence[_Node], at: int, having: frozenset[str]) -> tuple[str, _Places, int]:
        """One relation, and the index of the next node."""
        node = _at(nodes, at)
        at += 1
        places: _Places = None
        name = ""
        if isinstance(node, _Group):
            inner = node.nodes
            if len(inner) == 1 and isinstance(inner[0], _Word):  # STREAM(view)
                name = inner[0].name
                places = [] if name in having else None
            else:
                places = self.query(inner, having)
        elif node is not None:
            name = node.name
            is_plain = not (_is(_at(nodes, at), ".") or isinstance(_at(nodes, at), _Group))
            places = [] if is_plain and name in having else None
        if _is(_at(nodes, at), "AS"):
            at += 1
        following = _at(nodes, at)
        if isinstance(following, _Word) and following.upper not in _NO_ALIAS | {"."}:
            name = following.name
            at += 1
            if isinstance(_at(nodes, at), _Group):  # it renames all columns
                places = None
        return name, places, at


def _at(nodes: Sequence[_Node], place: int) -> _Node | None:
    return nodes[place] if place < len(nodes) else None


def _from(nodes: Sequence[_Node]) -> int | None:
    """The index of FROM, which is also a part of IS DISTINCT FROM."""
    places = range(1, len(nodes))
    return next((at for at in places if _is(nodes[at], "FROM") and not _is(nodes[at - 1], "DISTINCT")), None)


def _split(nodes: Sequence[_Node]) -> Iterator[list[_Node]]:
    """A list by its commas."""
    item: list[_Node] = []
    for each in nodes:
        if _is(each, ","):
            yield item
            item = []
        else:
            item.append(each)
    yield item


def _parts(nodes: Sequence[_Node]) -> Iterator[Sequence[_Node] | None]:
    """The parts of UNION ALL; None for another set operation."""
    begin = 0
    for at, node in enumerate(nodes):
        # A star may have an EXCEPT, too.
        if not _is(node, *_SETS) or (at and _is(nodes[at - 1], "*")):
            continue
        is_all = _is(node, "UNION") and _is(_at(nodes, at + 1), "ALL")
        yield nodes[begin:at] if is_all else None
        begin = at + 2
    yield nodes[begin:]
