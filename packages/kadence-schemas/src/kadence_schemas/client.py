"""A client of a schema registry: schemas by id and by subject, and new ones.

Sources: Confluent's documentation "Schema Registry API reference"; Karapace, Redpanda and Apicurio have the same calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard
from urllib.parse import quote
from uuid import UUID

from kadence.clock import Clock, SystemClock, add_ms
from kadence.errors import ConfigError, SchemaNotFoundError, SchemaRegistryError
from kadence_schemas.answers import REFUSED_MS, Answers, RefusedUntilError
from kadence_schemas.framing import MOST_ID, said_of
from kadence_schemas.http import Http, NoPathError
from kadence_schemas.schemas import AVRO, PROTOBUF, RegisteredSchema, ResolvedSchema, Schema, SchemaReference
from kadence_schemas.settings import RegistryOptions, read_options
from kadence_schemas.subjects import context_of, qualified

__all__ = ["SchemaRegistryClient", "Wanted"]

AT_ONCE: Final = 8
"""How many ids are requested in parallel."""

MOST_REFERENCES: Final = 1000
"""How many other schemas one schema may need."""

LATEST_MS: Final = 60_000
"""How long (ms) serialisers use the version that was a subject's latest."""

_MOST_VERSION: Final = 2**31 - 1
"""Versions are Java's ints."""

NO_SUBJECT: Final = 40401
NO_VERSION: Final = 40402
NO_SCHEMA: Final = 40403
"""Error codes of Confluent's API; Karapace, Redpanda and Apicurio have the same.

Apicurio also returns 40401 for an unknown id if it is set to legacy ids (its class CCompatExceptionMapperService).
"""


class Wanted(NamedTuple):
    """A schema named by records.

    Attributes:
        schema: its id, or its GUID as text. subject: the subject, or the context as ``:.CONTEXT:``, that the id is
            looked up in; None: the client's context.
    """

    schema: int | str
    subject: str | None = None


_Resolved: TypeAlias = "tuple[Wanted, str]"


class SchemaRegistryClient:
    """A client of a schema registry, for any number of threads, and for all serialisers and deserialisers.

    It remembers schemas, and threads that need the same one wait for one request. It remembers for a minute that an id
    has no schema. A failed request is repeated, at the next address if there are several.

    Args:
        config: an address, a list of addresses, or a mapping of the keys below, with or without ``schema.registry.``
            before them.
        keywords: the same keys with underscores: ``url``, ``basic_auth_user_info`` (NAME:PASSWORD),
            ``bearer_auth_token`` (a string, or a callable that returns one before each request), ``ssl_ca_location``,
            ``ssl_certificate_location``, ``ssl_key_location``, ``ssl_key_password``, ``context`` (that ids and subjects
            are in, such as ``.staging``; the default one), ``timeout`` (seconds of a request; 10) and ``max_retries``
            (3).

    Raises:
        ConfigError: a key is unknown, or has an invalid value. Each call also raises it if the registry refuses the
            login. SchemaRegistryError: in each call, if the registry does not answer.
    """

    def __init__(
        self, config: str | Sequence[str] | Mapping[str, Any] | None = None, /, **keywords: Any
    ) -> None:
        given = config if isinstance(config, Mapping) else {} if config is None else {"url": config}
        self._set_up(read_options(given, keywords), time.sleep, SystemClock())

    @classmethod
    def _of(
        cls, options: RegistryOptions, sleep: Callable[[float], None] = time.sleep, clock: Clock | None = None
    ) -> SchemaRegistryClient:
        """Create it from parsed options; for Spark and for tests."""
        made = cls.__new__(cls)
        made._set_up(options, sleep, clock or SystemClock())
        return made

    def _set_up(self, options: RegistryOptions, sleep: Callable[[float], None], clock: Clock) -> None:
        self._urls = options.urls
        self._context = options.context
        self._http = Http(options, sleep, clock)
        self._clock = clock
        self._no_guids_until = -1
        self._schemas: Answers[int | str, Schema] = Answers(clock, sleep, lags=True)
        self._resolved: Answers[_Resolved, ResolvedSchema] = Answers(clock, sleep, lags=True)
        self._versions: Answers[tuple[str, str, str], Mapping[str, Any]] = Answers(clock, sleep)
        self._registered: Answers[tuple[str, Schema, bool], tuple[int, str | None]] = Answers(clock, sleep)
        self._looked_up: Answers[tuple[str, Schema, bool], RegisteredSchema] = Answers(clock, sleep)
        self._latest: Answers[str, RegisteredSchema] = Answers(clock, sleep, keep_ms=LATEST_MS)

    def __repr__(self) -> str:
        return f"SchemaRegistryClient({','.join(self._urls)!r})"

    # ------------------------------------------------------------ look-ups

    def get_schema(self, schema_id: int) -> Schema:
        """The schema with an id, as records carry it.

        Raises:
            SchemaNotFoundError: there is none; remembered for a minute.
        """
        return self._schemas.one(schema_id, self._schema)

    def get_schema_by_guid(self, guid: str) -> Schema:
        """The schema with a GUID, as headers of records carry it.

        Raises:
            SchemaNotFoundError: there is none; remembered for a minute.
        """
        return self._schemas.one(guid, self._schema)

    def get_latest_version(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject, as the registry has it now.

        Raises:
            SchemaNotFoundError: there is no such subject.
        """
        return self._subject_version(subject, "latest")

    def get_version(self, subject: str, version: int) -> RegisteredSchema:
        """A version of a subject.

        Raises:
            SchemaNotFoundError: there is no such subject or version.
        """
        return self._subject_version(subject, str(version))

    def get_subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        query = (
            "" if self._context is None else "?subjectPrefix=" + quote(qualified("", self._context), safe="")
        )
        return sorted(self._texts(self._http.ask(f"/subjects{query}")))

    def get_versions(self, subject: str) -> list[int]:
        """The versions of a subject.

        Raises:
            SchemaNotFoundError: there is no such subject.
        """
        found = self._http.ask(f"{self._at(subject)}/versions", (NO_SUBJECT,))
        if found is None:
            raise _no_subject(subject)
        return self._numbers(found)

    # ------------------------------------------------------------ changes

    def register_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema as a version of a subject, unless it is one already. The client remembers the result.

        Args:
            normalize: whether the registry normalises schemas, so that equivalent ones are the same.

        Returns:
            its id.

        Raises:
            SchemaRefusedError: the registry cannot read it, or it is not compatible with the subject's other versions.
                ConfigError: it is not a `Schema`.
        """
        return self.registered(subject, schema, normalize=normalize)[0]

    def registered(self, subject: str, schema: Schema, *, normalize: bool = False) -> tuple[int, str | None]:
        """As `register_schema`: the schema's id, and its GUID if the registry gives one."""
        return self._registered.one((subject, _checked(schema), normalize), self._register)

    def lookup_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of a subject that has this schema. The client remembers the result.

        Raises:
            SchemaNotFoundError: no version of the subject has it. ConfigError: it is not a `Schema`.
        """
        return self._looked_up.one((subject, _checked(schema), normalize), self._look_up)

    def delete_subject(self, subject: str) -> list[int]:
        """Delete a subject; its schemas remain available by their ids.

        Returns:
            the versions that it had.

        Raises:
            SchemaNotFoundError: there is no such subject.
        """
        found = self._http.ask(self._at(subject), (NO_SUBJECT,), method="DELETE")
        if found is None:
            raise _no_subject(subject)
        self._latest.forget(lambda key: key == subject)
        for kept in (self._registered, self._looked_up):
            kept.forget(lambda key: key[0] == subject)
        self._versions.forget(lambda key: key[0] == subject)
        return self._numbers(found)

    def get_compatibility(self, subject: str | None = None) -> str:
        """The compatibility level of a subject, such as ``BACKWARD`` or ``NONE``.

        The default, without a subject or if the subject has no level of its own.
        """
        path = "/config" if subject is None else f"/config/{self._quoted(subject)}?defaultToGlobal=true"
        return str(self._object(self._http.ask(path)).get("compatibilityLevel"))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level of a subject; None: of all subjects without a level of their own.

        Raises:
            SchemaRefusedError: there is no such level.
        """
        path = "/config" if subject is None else f"/config/{self._quoted(subject)}"
        self._http.ask(path, method="PUT", body={"compatibility": level})

    # ------------------------------------------------------------ for serialisers and decoders

    def latest_to_write(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject, as it was within the last minute."""
        return self._latest.one(subject, self.get_latest_version)

    def resolve(
        self, wanted: Iterable[Wanted], kind: str
    ) -> dict[Wanted, ResolvedSchema | SchemaNotFoundError]:
        """The schemas that records name, with their references, requested in parallel.

        Args:
            kind: the type that they must have. For Protobuf the compiled form.
        """
        found = self._resolved.get([(each, kind) for each in wanted], self._resolve_all)
        return {each: made for (each, _), made in found.items()}

    def resolve_one(self, schema: int | str, kind: str, subject: str | None = None) -> ResolvedSchema:
        """The schema that a record names; see `Wanted`.

        Raises:
            SchemaNotFoundError: there is none of this type.
        """
        return self._resolved.one((Wanted(schema, subject), kind), lambda key: self._resolve_all([key])[key])

    def resolve_latest(self, subject: str, kind: str) -> ResolvedSchema:
        """The newest schema of a subject, with its references.

        Raises:
            SchemaNotFoundError: there is no such subject, or it is of another type.
        """
        found = self._http.ask(self._version(subject, "latest") + _query(kind), (NO_SUBJECT, NO_VERSION))
        if found is None:
            raise _no_subject(subject)
        made = self._with_references(found, kind, context_of(subject))
        if made.kind != kind:
            raise SchemaNotFoundError(
                f"subject {subject!r} of the schema registry is of type {made.kind}, not {kind}"
            )
        return made

    def resolve_schema(
        self, schema: Schema, subject: str | None = None, *, is_new: bool = False
    ) -> ResolvedSchema:
        """A given schema with its references, which the registry must have.

        Args:
            subject: the subject of its registration: subjects without a context are in its context. is_new: it will be
                registered, so it must not refer to deleted versions.
        """
        references = [_wire_reference(each) for each in schema.references]
        return self._with_references(
            {"schema": schema.schema_str, "schemaType": schema.schema_type, "references": references},
            schema.schema_type,
            context_of(subject),
            is_new=is_new,
        )

    # ------------------------------------------------------------ requests

    def _schema(self, schema: int | str) -> Schema | SchemaNotFoundError:
        found = self._asked(Wanted(schema), "")
        return found if isinstance(found, SchemaNotFoundError) else self._plain(found)

    def _asked(self, wanted: Wanted, query: str) -> Any:
        """The registry's answer for an id or a GUID, or that there is none."""
        if isinstance(wanted.schema, str) and self._clock.now_ms() < self._no_guids_until:
            return _no_guids(wanted.schema, self._no_guids_until)
        try:
            found = self._http.ask(self._place_of(wanted, query), (NO_SCHEMA, NO_SUBJECT))
        except NoPathError:
            # Any producer can put GUIDs into records, even if the registry does not support them.
            if isinstance(wanted.schema, int) or not self._is_registry():
                raise
            self._no_guids_until = add_ms(self._clock.now_ms(), REFUSED_MS)
            return _no_guids(wanted.schema, self._no_guids_until)
        return _no_schema(wanted.schema) if found is None else found

    def _is_registry(self) -> bool:
        """Whether it knows the paths that every registry has."""
        try:
            return isinstance(self._http.ask("/schemas/types"), list)
        except SchemaRegistryError:
            return False

    def _subject_version(self, subject: str, version: str) -> RegisteredSchema:
        found = self._http.ask(self._version(subject, version), (NO_SUBJECT, NO_VERSION))
        if found is None:
            if version == "latest":
                raise _no_subject(subject)
            raise SchemaNotFoundError(f"the schema registry has no version {version} of subject {subject!r}")
        return self._registered_of(subject, found, self._plain(found))

    def _register(self, key: tuple[str, Schema, bool]) -> tuple[int, str | None]:
        subject, schema, normalize = key
        query = "?normalize=true" if normalize else ""
        found = self._object(
            self._http.ask(f"{self._at(subject)}/versions{query}", method="POST", body=_wire_schema(schema))
        )
        schema_id = found.get("id")
        if not _is_number(schema_id, 0, MOST_ID):
            raise self._strange("no id")
        return schema_id, _guid_of(found)

    def _look_up(self, key: tuple[str, Schema, bool]) -> RegisteredSchema | SchemaNotFoundError:
        subject, schema, normalize = key
        query = "?normalize=true" if normalize else ""
        found = self._http.ask(
            f"{self._at(subject)}{query}", (NO_SUBJECT, NO_SCHEMA), method="POST", body=_wire_schema(schema)
        )
        if found is None:
            return SchemaNotFoundError(
                f"the schema is not a version of subject {subject!r} of the schema registry: register it, or let the "
                "serialiser do so (auto_register)"
            )
        return self._registered_of(subject, found, schema)

    def _resolve_all(self, keys: list[_Resolved]) -> dict[_Resolved, ResolvedSchema | SchemaNotFoundError]:
        if len(keys) < 2:
            return {key: self._resolve(key) for key in keys}
        pool = ThreadPoolExecutor(min(AT_ONCE, len(keys)), "kadence-registry")
        try:
            return dict(zip(keys, pool.map(self._resolve, keys), strict=True))
        finally:
            pool.shutdown(cancel_futures=True)

    def _resolve(self, key: _Resolved) -> ResolvedSchema | SchemaNotFoundError:
        wanted, kind = key
        found = self._asked(wanted, _query(kind))
        if isinstance(found, SchemaNotFoundError):
            return found
        made = self._with_references(found, kind, context_of(wanted.subject))
        if made.kind != kind:
            return SchemaNotFoundError(f"{said_of(wanted.schema)} is of type {made.kind}, not {kind}")
        return made

    def _with_references(
        self, answer: Any, kind: str, context: str | None, *, is_new: bool = False
    ) -> ResolvedSchema:
        """With its references, each requested once.

        Args:
            context: its own context, which also applies to references by a subject without one.
        """
        known: dict[tuple[str, str], ResolvedSchema | None] = {}
        query = _query(kind, *(() if is_new else ("deleted=true",)))

        def made(found: Mapping[str, Any], context: str | None) -> ResolvedSchema:
            references = []
            for item in found.get("references") or ():
                place = qualified(item["subject"], context), str(item["version"])
                if place not in known:
                    if len(known) >= MOST_REFERENCES:
                        raise SchemaRegistryError(
                            f"a schema of the registry needs more than {MOST_REFERENCES} others"
                        )
                    known[place] = None
                    other = self._versions.one((*place, query), self._reference)
                    known[place] = made(other, context_of(place[0]))
                reference = known[place]
                if reference is None:
                    raise SchemaRegistryError(
                        f"subject {place[0]!r} with version {place[1]} of the schema registry refers to itself"
                    )
                references.append((item["name"], reference))
            return ResolvedSchema(*self._kind_and_text(found), tuple(references))

        try:
            return made(self._object(answer), context)
        except (KeyError, TypeError, AttributeError):
            raise self._strange("no schema") from None
        except RecursionError:
            raise SchemaRegistryError("references of the registry's schemas are nested too deep") from None

    def _reference(self, key: tuple[str, str, str]) -> Mapping[str, Any]:
        subject, version, query = key
        found = self._http.ask(self._version(subject, version) + query, (NO_SUBJECT, NO_VERSION))
        if found is None:
            raise SchemaRegistryError(
                f"a schema refers to subject {subject!r} with version {version}, which the registry does not have"
            )
        return self._object(found)

    # ------------------------------------------------------------ places

    def _quoted(self, subject: str) -> str:
        return quote(qualified(subject, self._context), safe="")

    def _at(self, subject: str) -> str:
        return f"/subjects/{self._quoted(subject)}"

    def _version(self, subject: str, version: str) -> str:
        return f"{self._at(subject)}/versions/{quote(version, safe='')}"

    def _place_of(self, wanted: Wanted, query: str) -> str:
        """The place of a schema; a GUID is the same in all contexts."""
        if isinstance(wanted.schema, str):
            return f"/schemas/guids/{quote(wanted.schema, safe='')}{query}"
        subject = qualified(wanted.subject or "", self._context)
        if subject:
            query += f"{'&' if query else '?'}subject={quote(subject, safe='')}"
        return f"/schemas/ids/{wanted.schema}{query}"

    # ------------------------------------------------------------ reading answers

    def _plain(self, answer: Any) -> Schema:
        found = self._object(answer)
        kind, text = self._kind_and_text(found)
        try:
            references = tuple(
                SchemaReference(str(item["name"]), str(item["subject"]), int(item["version"]))
                for item in found.get("references") or ()
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._strange("no schema") from None
        return Schema(text, kind, references)

    def _kind_and_text(self, found: Mapping[str, Any]) -> tuple[str, str]:
        kind, text = found.get("schemaType") or AVRO, found.get("schema")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._strange("no schema")
        return kind, text

    def _registered_of(self, subject: str, answer: Any, schema: Schema) -> RegisteredSchema:
        found = self._object(answer)
        version, schema_id = found.get("version"), found.get("id")
        if not _is_number(version, 1, _MOST_VERSION) or not _is_number(schema_id, 0, MOST_ID):
            raise self._strange("no version")
        return RegisteredSchema(subject, version, schema_id, schema, _guid_of(found))

    def _object(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, dict):
            raise self._strange("not a JSON object")
        return answer

    def _texts(self, answer: Any) -> list[str]:
        if not isinstance(answer, list) or not all(isinstance(each, str) for each in answer):
            raise self._strange("no names")
        return answer

    def _numbers(self, answer: Any) -> list[int]:
        if not isinstance(answer, list) or not all(_is_number(each, 1, _MOST_VERSION) for each in answer):
            raise self._strange("no versions")
        return answer

    def _strange(self, what: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"what answers at {self._http.where} is not a schema registry: its answer is JSON, but {what} "
            "(option schema.registry.url)"
        )


def _is_number(value: object, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most


def _guid_of(found: Mapping[str, Any]) -> str | None:
    """The GUID in an answer; Confluent's registry has them from version 8 on."""
    try:
        return str(UUID(found["guid"]))
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _query(kind: str, *more: str) -> str:
    """For a Protobuf schema the compiled form is requested: compiling its text would need protoc."""
    asked = [*(("format=serialized",) if kind == PROTOBUF else ()), *more]
    return "?" + "&".join(asked) if asked else ""


def _checked(schema: Schema) -> Schema:
    """A schema that only the registry interprets: its type must be given."""
    if not isinstance(schema, Schema):
        raise ConfigError(
            f"pass Schema(text), or Schema(text, type) if the type is not AVRO, not {type(schema).__name__}"
        )
    return schema


def _wire_schema(schema: Schema) -> dict[str, Any]:
    made: dict[str, Any] = {"schema": schema.schema_str}
    if schema.schema_type != AVRO:
        made["schemaType"] = schema.schema_type
    if schema.references:
        made["references"] = [_wire_reference(each) for each in schema.references]
    return made


def _wire_reference(reference: SchemaReference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _no_schema(schema: int | str) -> SchemaNotFoundError:
    return SchemaNotFoundError(f"{said_of(schema)} is not in the registry")


def _no_guids(guid: str, until_ms: int) -> SchemaNotFoundError:
    return RefusedUntilError(
        f"{said_of(guid)} cannot be looked up: the registry does not know GUIDs (Confluent's does from version 8 on)",
        until_ms,
    )


def _no_subject(subject: str) -> SchemaNotFoundError:
    return SchemaNotFoundError(f"the schema registry has no subject {subject!r} with a version")
