"""Whatever a public call takes, returns or raises can be imported from `kadence`.

The calls are those of the classes in ``kadence.__all__``. What they take and return is read from their annotations,
what they raise from the ``Raises:`` of their docstrings. The embedded broker's own values are imported from
`kadence_broker`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kadence
import kadence_broker

CLASSES = [
    each for each in (getattr(kadence, name) for name in sorted(kadence.__all__)) if isinstance(each, type)
]
BROKER = frozenset(kadence_broker.__all__)


@cache
def imported(module: str) -> dict[str, str]:
    """What a module imports, also for type checkers alone: the home of each name."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text())
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def named(annotation: object, module: str) -> Iterator[type]:
    """The classes of Kadence that an annotation names, itself or by an alias."""
    if isinstance(annotation, str):
        for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", annotation)):
            found = getattr(sys.modules[module], name, None)
            home = imported(module).get(name, "")
            if found is None and home.startswith("kadence"):
                found = getattr(importlib.import_module(home), name)
            if found is not None and not isinstance(found, str):
                yield from named(found, module)
    elif arguments := typing.get_args(annotation):
        for each in (typing.get_origin(annotation), *arguments):
            if not isinstance(each, str):
                yield from named(each, module)
    elif isinstance(annotation, typing.ForwardRef):
        yield from named(annotation.__forward_arg__, module)
    elif isinstance(annotation, type) and annotation.__module__.startswith("kadence"):
        yield annotation


def members(cls: type) -> Iterator[tuple[str, object]]:
    """The public calls of a class, its own and those of its bases here."""
    for base in cls.__mro__:
        if not base.__module__.startswith("kadence"):
            continue
        for name, member in vars(base).items():
            call = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(call, property):
                call = call.fget
            if inspect.isfunction(call) and not name.startswith("_"):
                yield name, call


def needed(cls: type) -> Iterator[tuple[str, type]]:
    """The classes that users of this one meet, and where."""
    for base in cls.__mro__:
        if base.__module__.startswith("kadence"):
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield from ((name, each) for each in named(annotation, base.__module__))
    for name, call in members(cls):
        for annotation in getattr(call, "__annotations__", {}).values():
            yield from ((name, each) for each in named(annotation, call.__module__))


def raised(text: str) -> set[str]:
    """The errors that a docstring names."""
    return set(re.findall(r"\b[A-Z]\w*Error\b", text)) - {"TimeoutError"}


def is_public(cls: type) -> bool:
    """Whether it can be imported, is the base of what can, or is a protocol: a shape that no caller has to name."""
    if getattr(kadence, cls.__name__, None) is cls or any(cls in each.__mro__ for each in CLASSES):
        return True
    return getattr(cls, "_is_protocol", False)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_calls_take_and_return_can_be_imported(cls: type) -> None:
    known = BROKER if cls is kadence.Broker else frozenset()
    hidden = sorted(
        f"{where}: {each.__name__}"
        for where, each in needed(cls)
        if not is_public(each) and each.__name__ not in known
    )
    assert hidden == []


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_calls_raise_can_be_imported(cls: type) -> None:
    texts = [cls.__doc__ or "", *(inspect.getdoc(call) or "" for _, call in members(cls))]
    assert set().union(*map(raised, texts)) - set(dir(builtins)) - set(kadence.__all__) == set()


def test_the_walk_sees_what_it_is_for() -> None:
    assert ("send", kadence.RecordFuture) in set(needed(kadence.Producer))
    assert ("rebalances", kadence.Rebalance) in set(needed(kadence.AsyncConsumer))
    assert ("list_offsets", kadence.Outcomes) in set(needed(kadence.Admin))
    assert ("commit", kadence.OffsetAndMetadata) in set(needed(kadence.Consumer)), "by the alias Offsets"
    assert "CommitFailedError" in raised(inspect.getdoc(kadence.Consumer.commit) or "")


def test_every_error_can_be_imported() -> None:
    assert set(kadence.errors.__all__) - {"for_code"} <= set(kadence.__all__)
