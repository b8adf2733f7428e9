"""The common part of all serialisers: the schema id before a key or value, for each topic.

The first record of a topic registers the schema, looks it up, or requests the subject's newest one. After that a dict
has the header, and no lock is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from kadence.errors import ConfigError, SerializationError
from kadence_schemas.client import SchemaRegistryClient
from kadence_schemas.framing import KEY_HEADER, VALUE_HEADER, head_of
from kadence_schemas.schemas import Schema
from kadence_schemas.subjects import SubjectNameStrategy, checked_subject, strategy_of

__all__ = ["SchemaIdIn", "Subjects", "Writing", "schema_of"]

P = TypeVar("P")

SchemaIdIn: TypeAlias = Literal["data", "header"]
"""The place of the schema's id: before the data, or in the header ``__value_schema_id`` or ``__key_schema_id``."""


class Subjects:
    """The subjects of one serialiser, and the header in which its records may name their schema.

    Args:
        is_key: None: as the client uses it, else it is for values.
    """

    __slots__ = ("_record", "_strategy", "header", "is_key")

    def __init__(
        self, strategy: SubjectNameStrategy | str, *, is_key: bool | None, record: str | None
    ) -> None:
        self._strategy = strategy_of(strategy)
        self.is_key = is_key
        self._record = record
        self.header = KEY_HEADER if is_key else VALUE_HEADER

    def of(self, topic: str) -> str:
        """The subject of a topic's keys or values."""
        return checked_subject(self._strategy(topic, bool(self.is_key), self._record))

    def for_keys(self) -> Subjects:
        """The same for keys."""
        return Subjects(self._strategy, is_key=True, record=self._record)


class Writing(Generic[P]):
    """The schema to write with, by topic.

    Args:
        schema: None: only a subject's latest is used. parse: makes the serialiser's form of a registered schema.
            schema_id_in: ``data`` or ``header``: where the schema is named. place: a message's index path, which
            follows the schema's name. complete: the schema as registered under a subject, with its references; called
            with the first record.

    Raises:
        ConfigError: ``schema_id_in`` is neither, or there is no schema.
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: Schema | None,
        subjects: Subjects,
        parse: Callable[[Schema, str], P],
        *,
        auto_register: bool,
        use_latest_version: bool,
        normalize: bool,
        schema_id_in: SchemaIdIn,
        place: bytes = b"",
        complete: Callable[[Schema, str], Schema] = lambda schema, _: schema,
    ) -> None:
        if schema is None and not use_latest_version:
            raise ConfigError("without a schema a serialiser needs use_latest_version=True")
        if schema_id_in not in ("data", "header"):
            raise ConfigError(f"schema_id_in must be 'data' or 'header', not {schema_id_in!r}")
        self._registry = registry
        self._schema = schema
        self._subjects = subjects
        self._parse = parse
        self._auto_register = auto_register
        self._use_latest = use_latest_version
        self._normalize = normalize
        self._in_header = schema_id_in == "header"
        self._place = place
        self._complete = complete
        self._forget()

    def _forget(self) -> None:
        self._known: dict[str, tuple[bytes, P]] = {}
        self._latest: dict[tuple[str, int], tuple[bytes, P]] = {}

    def for_keys(self) -> Writing[P]:
        """The same for keys, unless ``is_key`` was given."""
        if self._subjects.is_key is not None:
            return self
        made = copy(self)
        made._subjects = self._subjects.for_keys()
        made._forget()
        return made

    def of(self, topic: str, headers: Any) -> tuple[bytes, P]:
        """The bytes before the data of a topic's keys or values, and the parsed schema.

        Args:
            headers: those of the record. A list is changed so that it names this schema, or none.

        Raises:
            SchemaNotFoundError: the schema is not a version of the subject, and must not be registered; or the subject
                has no version. SchemaRefusedError: the registry refuses it.
            SchemaRegistryError: it does not answer.
            SerializationError: the schema's name belongs in a header, but the headers are not a list.
        """
        known = self._known.get(topic)
        if known is None:
            known = self._begun(topic)
        if not self._in_header and not headers:
            return known
        return self._announced(headers, *known)

    def _announced(self, headers: Any, head: bytes, made: P) -> tuple[bytes, P]:
        """Set the header that names the schema, replacing that of a forwarded record."""
        name = self._subjects.header
        if isinstance(headers, list):
            if any(each[0] == name for each in headers):
                headers[:] = [each for each in headers if each[0] != name]
            if self._in_header:
                headers.append((name, head))
        elif self._in_header:
            raise SerializationError(
                "schema_id_in='header' adds a header, so serialize() needs a list of headers, not "
                f"{type(headers).__name__}"
            )
        return (b"" if self._in_header else head), made

    def _begun(self, topic: str) -> tuple[bytes, P]:
        subject = self._subjects.of(topic)
        if self._use_latest:
            # Not cached by topic: the client requests a newer one from time to time.
            latest = self._registry.latest_to_write(subject)
            # Each context has its own ids.
            known = subject, latest.schema_id
            made = self._latest.get(known)
            if made is None:
                made = self._head(latest.schema_id, latest.guid), self._parse(latest.schema, subject)
                self._latest[known] = made
            return made
        assert self._schema is not None
        schema = self._complete(self._schema, subject)
        if self._auto_register:
            schema_id, guid = self._registry.registered(subject, schema, normalize=self._normalize)
        else:
            found = self._registry.lookup_schema(subject, schema, normalize=self._normalize)
            schema_id, guid = found.schema_id, found.guid
        made = self._known[topic] = self._head(schema_id, guid), self._parse(schema, subject)
        return made

    def _head(self, schema_id: int, guid: str | None) -> bytes:
        """In a header a GUID, if the registry has one; before the data an id."""
        return head_of(guid if self._in_header and guid is not None else schema_id) + self._place


def schema_of(given: Any, kind: str) -> Schema:
    """A schema given by the user: its text, its parsed form, or a `Schema`.

    Raises:
        ConfigError: it is something else, or of another type.
    """
    if isinstance(given, Schema):
        if given.schema_type != kind:
            raise ConfigError(f"the schema is of type {given.schema_type}, not {kind}")
        return given
    if isinstance(given, str):
        return Schema(given.strip(), kind)
    if isinstance(given, Mapping | list):
        return Schema(json.dumps(given, ensure_ascii=False, separators=(",", ":")), kind)
    raise ConfigError(f"a schema must be a string, a dict or a Schema, not {type(given).__name__}")
