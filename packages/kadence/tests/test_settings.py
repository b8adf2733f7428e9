"""The types of settings (tools/settings_text.py) have the keys of the tables; what they allow, the readers take."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kadence import AdminSettings, ConsumerSettings, ProducerSettings
from kadence.config import AdminConfig, ClientConfig, ConsumerConfig, Key, ProducerConfig, keys
from kadence.config.table import read
from settings_text import UnknownKindError, annotation

TYPES: dict[type, type[ClientConfig]] = {
    ConsumerSettings: ConsumerConfig,
    ProducerSettings: ProducerConfig,
    AdminSettings: AdminConfig,
}
ROWS = [(settings, row) for settings, config in TYPES.items() for row in keys(config)]


def members(hint: Any) -> Iterator[Any]:
    """What a union is made of."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for each in typing.get_args(hint):
            yield from members(each)
    else:
        yield hint


def examples(hint: Any, row: Key) -> list[Any]:
    """Values of one simple type, in the bounds of a row; none for functions and objects, whose own tests try them."""
    words = [choice for choice in row.choices if "<" not in choice]
    number = row.default if isinstance(row.default, int | float) else 1
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    if hint is type(None):
        return [None]
    if hint is bool:
        return [True, False]
    if hint in (int, float):
        return [int(words[-1])] if words else [max(number, row.low or 0) or 1]
    if hint is str:
        text = {"assignors": "range", "bool": "false", "serializer": "string", "function": "json:loads"}.get(
            row.kind, str(number)
        )
        return [words[0].upper() if words else text]
    if typing.get_origin(hint) is Iterable and row.kind == "list":
        return [["a:1", "b:2"], ("a:1",)]
    return []


@pytest.mark.parametrize("settings", TYPES)
def test_the_types_have_the_keys_of_the_table(settings: type) -> None:
    names = {row.name.replace(".", "_") for row in keys(TYPES[settings])}
    assert typing.get_type_hints(settings).keys() == names
    assert settings.__required_keys__ == frozenset()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("settings", "row"), ROWS, ids=lambda each: getattr(each, "name", None))
def test_what_the_type_of_a_key_allows_its_reader_takes(settings: type, row: Key) -> None:
    hint = typing.get_type_hints(settings)[row.name.replace(".", "_")]
    tried = [value for member in members(hint) for value in examples(member, row)]
    for value in tried:
        read(row, value)
    assert tried or row.kind not in ("int", "float", "bool", "string", "choice", "list", "password", "count")


def test_a_kind_without_a_type_is_told() -> None:
    row = dataclasses.replace(keys(AdminConfig)[0], kind="colour", default=None)
    with pytest.raises(UnknownKindError, match=r"bootstrap\.servers is of kind 'colour'"):
        annotation(row, AdminConfig)


def test_what_may_be_left_unset_may_be_none() -> None:
    rows: dict[str, Key] = {row.name: row for row in keys(ConsumerConfig)}
    told: Callable[[str], str] = lambda name: annotation(rows[name], ConsumerConfig)  # noqa: E731
    assert told("group.id") == "str | None"
    assert told("fetch.min.bytes") == "int | str"
    assert told("isolation.level") == "Literal['read_uncommitted', 'read_committed'] | str"
    assert told("sasl.oauthbearer.token.provider") == "Callable[[], Token] | str | None"
