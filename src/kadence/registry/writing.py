"""Which schema id comes before a key or value, for each topic; what all serialisers have in common.

The first record of a topic registers the schema, looks it up, or asks for the subject's newest one. After that a dict
has the header, and no lock is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from kadence.errors import ConfigError
from kadence.registry.client import SchemaRegistryClient
from kadence.registry.framing import header_of
from kadence.registry.schemas import Schema
from kadence.registry.subjects import SubjectNameStrategy, strategy_of

__all__ = ["Subjects", "Writing", "schema_of"]

P = TypeVar("P")


class Subjects:
    """The subjects of one serialiser."""

    __slots__ = ("_is_key", "_record", "_strategy")

    def __init__(self, strategy: SubjectNameStrategy | str, *, is_key: bool, record: str | None) -> None:
        self._strategy = strategy_of(strategy)
        self._is_key = is_key
        self._record = record

    def of(self, topic: str) -> str:
        """The subject of a topic's keys or values."""
        return self._strategy(topic, self._is_key, self._record)


class Writing(Generic[P]):
    """What to write with, by topic.

    Args:
        schema: None: only a subject's latest is written with.
        parse: makes of a schema what the serialiser needs of it.
        references: the references of the schema, registered where that is wanted; asked for with the first record.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: Schema | None,
        subjects: Subjects,
        parse: Callable[[Schema], P],
        *,
        auto_register: bool,
        use_latest_version: bool,
        normalize: bool,
        complete: Callable[[Schema], Schema] = lambda schema: schema,
    ) -> None:
        if schema is None and not use_latest_version:
            raise ConfigError("without a schema a serialiser needs use_latest_version=True")
        self._registry = registry
        self._schema = schema
        self._subjects = subjects
        self._parse = parse
        self._auto_register = auto_register
        self._use_latest = use_latest_version
        self._normalize = normalize
        self._complete = complete
        self._known: dict[str, tuple[bytes, P]] = {}
        self._latest: dict[int, tuple[bytes, P]] = {}

    def of(self, topic: str) -> tuple[bytes, P]:
        """The header of a topic's keys or values, and what was made of the schema.

        Raises:
            SchemaNotFoundError: the schema is no version of the subject, and is not to be registered; or the subject
                has no version.
            SchemaRefusedError: the registry does not take it.
            SchemaRegistryError: it does not answer.
        """
        known = self._known.get(topic)
        return known if known is not None else self._begun(topic)

    def _begun(self, topic: str) -> tuple[bytes, P]:
        subject = self._subjects.of(topic)
        if self._use_latest:
            # Not kept by topic: the client asks for a newer one from time to time.
            latest = self._registry.latest_to_write(subject)
            made = self._latest.get(latest.schema_id)
            if made is None:
                made = header_of(latest.schema_id), self._parse(latest.schema)
                self._latest[latest.schema_id] = made
            return made
        assert self._schema is not None
        schema = self._complete(self._schema)
        if self._auto_register:
            schema_id = self._registry.register_schema(subject, schema, normalize=self._normalize)
        else:
            schema_id = self._registry.lookup_schema(subject, schema, normalize=self._normalize).schema_id
        made = self._known[topic] = header_of(schema_id), self._parse(schema)
        return made


def schema_of(given: Any, kind: str) -> Schema:
    """A schema that a user gave: its text, what the text would be parsed to, or a `Schema`.

    Raises:
        ConfigError: something else, or of another type.
    """
    if isinstance(given, Schema):
        if given.schema_type != kind:
            raise ConfigError(f"the schema is of type {given.schema_type}, not {kind}")
        return given
    if isinstance(given, str):
        return Schema(given.strip(), kind)
    if isinstance(given, Mapping | list):
        return Schema(json.dumps(given, ensure_ascii=False, separators=(",", ":")), kind)
    raise ConfigError(f"a schema is a text, a dict or a Schema, not {type(given).__name__}")
