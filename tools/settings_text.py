"""The settings of each client as a TypedDict, made from its table: what editors complete and type checkers check.

A key's type is what its reader takes (kadence.config.table), by the kind of its row: a number may also be given as the
string of a properties file, a list as one comma separated string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from kadence.config import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    Key,
    ProducerConfig,
    ShareConsumerConfig,
    keys,
)
from python_text import Lines

__all__ = ["FILES", "UnknownKindError", "annotation", "settings_source"]


class UnknownKindError(Exception):
    """A row is of a kind that has no type here."""


_KINDS = {
    "int": "int | str",
    "number": "float | str",
    "float": "float | str",
    "count": "Literal['auto'] | int | str",
    "bool": "bool | str",
    "string": "str",
    "password": "str",
    "list": "str | Iterable[str]",
    "assignors": "str | Assignor | Iterable[str | Assignor]",
    "deserializer": "DeserializerLike[Any]",
    "serializer": "SerializerLike",
    "partitioner": "Callable[[bytes | None, Sequence[int], Sequence[int]], int | None]",
    "objects": "Iterable[InterceptorLike]",
}
"""What the reader of each kind takes."""

_OWN = {"stall.report.callback": "Callable[[Stall], object]"}
"""Keys whose type the configuration cannot name, since their values belong to rooms above it."""

_HOMES = {
    "Any": "typing",
    "Assignor": "kadence.consumer.assignors",
    "Callable": "collections.abc",
    "ClientSettings": "kadence.config.settings",
    "DeserializerLike": "kadence.deserializers",
    "InterceptorLike": "kadence.consumer.application.callbacks",
    "Iterable": "collections.abc",
    "Literal": "typing",
    "Sequence": "collections.abc",
    "SerializerLike": "kadence.serializers",
    "Stall": "kadence.consumer.application.processing",
    "Token": "kadence.security",
}


def annotation(row: Key, config: type[ClientConfig]) -> str:
    """The type of one key.

    Raises:
        UnknownKindError: its kind has none here.
    """
    kind = _OWN.get(row.name) or _KINDS.get(row.kind)
    if kind is None and row.kind in ("callable", "function"):
        [declared] = [str(item.type) for item in fields(config) if item.name == row.name.replace(".", "_")]
        kind = declared.removesuffix(" | None") + " | str" * (row.kind == "function")
    words = [choice for choice in row.choices if "<" not in choice]
    if words:
        # The words are what editors offer. Case does not matter, and a value may come from a file: so any str.
        numbers = " | int" if any(word.lstrip("-").isdigit() for word in words) else ""
        others = f" | {kind}" if row.kind == "partitioner" else ""
        kind = f"Literal[{', '.join(map(repr, words))}]{numbers} | str{others}"
    if kind is None:
        raise UnknownKindError(
            f"{row.name} is of kind {row.kind!r}, which has no type in tools/settings_text.py"
        )
    return f"{kind} | None" if row.default is None else kind


@dataclass(frozen=True)
class _Class:
    """One TypedDict: its name, its base, the table it has its keys from, and which of them."""

    name: str
    base: str
    doc: str
    config: type[ClientConfig]
    without: type[ClientConfig] | None
    split: tuple[str, ...] = ()
    """Keys that are left out; or, with a base of the same table, the only ones."""

    def rows(self) -> Iterable[Key]:
        skipped = set() if self.without is None else {row.name for row in keys(self.without)}
        for row in keys(self.config):
            if row.name not in skipped and (row.name in self.split) == self.base.endswith("Deserializers"):
                yield row


_TYPED = ("key.deserializer", "value.deserializer")

FILES = {
    "config/settings.py": (
        "The settings that every client has, as types.",
        [_Class("ClientSettings", "TypedDict", "The settings that every client has.", ClientConfig, None)],
    ),
    "consumer/settings.py": (
        "The consumer's settings, as types.",
        [
            _Class(
                "SettingsWithoutDeserializers",
                "ClientSettings",
                "`ConsumerSettings` without the deserialisers, which the signature of `Consumer` names itself.",
                ConsumerConfig,
                ClientConfig,
                _TYPED,
            ),
            _Class(
                "ConsumerSettings",
                "SettingsWithoutDeserializers",
                "The settings of a consumer as its keywords: ``Consumer(**settings)``.",
                ConsumerConfig,
                ClientConfig,
                _TYPED,
            ),
        ],
    ),
    "share/settings.py": (
        "The share consumer's settings, as types.",
        [
            _Class(
                "SettingsWithoutDeserializers",
                "ClientSettings",
                "`ShareConsumerSettings` without the deserialisers, which the signature of `ShareConsumer` names.",
                ShareConsumerConfig,
                ClientConfig,
                _TYPED,
            ),
            _Class(
                "ShareConsumerSettings",
                "SettingsWithoutDeserializers",
                "The settings of a share consumer as its keywords: ``ShareConsumer(**settings)``.",
                ShareConsumerConfig,
                ClientConfig,
                _TYPED,
            ),
        ],
    ),
    "producer/settings.py": (
        "The producer's settings, as types.",
        [
            _Class(
                "ProducerSettings",
                "ClientSettings",
                "The settings of a producer as its keywords: ``Producer(**settings)``.",
                ProducerConfig,
                ClientConfig,
            )
        ],
    ),
    "admin/settings.py": (
        "The admin client's settings, as types.",
        [
            _Class(
                "AdminSettings",
                "ClientSettings",
                "The settings of an admin client as its keywords: ``Admin(**settings)``.",
                AdminConfig,
                ClientConfig,
            )
        ],
    ),
}
"""Each file by its path within packages/kadence/src/kadence: what it is, and its classes."""


def settings_source(path: str) -> str:
    """One file. Not yet formatted, and its imports not yet sorted."""
    title, classes = FILES[path]
    body = Lines()
    for each in classes:
        body.add_all(["", ""])
        with body.block(f"class {each.name}({each.base}, total=False):"):
            body.add_doc(each.doc)
            body.add()
            for row in each.rows():
                body.add(f"{row.name.replace('.', '_')}: {annotation(row, each.config)}")
                body.add_doc(_told(row))
    text = body.text()
    words = set(text.replace("[", " ").replace("]", " ").replace("(", " ").replace(",", " ").split())
    own = {each.name for each in classes}
    imports = [f"from {home} import {name}" for name, home in _HOMES.items() if name in words - own]
    if any(each.base == "TypedDict" for each in classes):
        imports.append("from typing import TypedDict")
    return "\n".join(
        [
            "# Generated by tools/generate.py from the tables in kadence.config. Do not edit: change the table.",
            f'"""{title}"""',
            "",
            "from __future__ import annotations",
            "",
            *imports,
            "",
            f"__all__ = {[each.name for each in classes]}",
            text,
        ]
    )


def _told(row: Key) -> str:
    """The sentences of a key, and its default, which editors show beside it."""
    if row.default in (None, "", ()):
        return row.doc
    value = row.default
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"{row.doc} Default: {value}."
