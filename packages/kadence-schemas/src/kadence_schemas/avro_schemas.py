"""Avro's schemas in the form for fastavro, and reading data of one schema as another (Avro 1.12, Schema Resolution).

The specification resolves a writer's schema and a reader's by their underlying types; logical types play no part in
that. The result has the reader's logical types only: a ``long`` that the reader declares as ``timestamp-millis`` is a
time, and a time that the reader declares as ``long`` is a number. fastavro applies the writer's logical types instead.
So it gets a writer's schema with the reader's logical types (`Resolution`), and a reader's schema without any.

A logical type that does not fit its underlying type is ignored, as the specification requires (`parsed`): a ``date``
that is a string, a ``decimal`` without precision. And a default must be a value, not its JSON form: fastavro uses it
unchanged, so each is converted to a value of its type once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError, MissingDependencyError
from kadence_schemas.avro_readers import FLOAT, PLAIN, READERS, own_name, reader_of

if TYPE_CHECKING:
    from io import BytesIO

    from kadence_schemas.schemas import ResolvedSchema

__all__ = [
    "EXACT",
    "NUMBERS",
    "Resolution",
    "definitions",
    "is_raw",
    "name_of",
    "parsed",
    "with_default_values",
]

_BASES: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
    "decimal": "bytes",
}
"""The logical types that fastavro knows, with their underlying types. A decimal may also be based on fixed."""

EXACT: Final[frozenset[str]] = frozenset(_BASES)
"""Logical types become Python's: a time is a datetime."""

NUMBERS: Final[frozenset[str]] = frozenset({"decimal"})
"""Times stay numbers, which Arrow accepts unchanged, even beyond Python's years."""

_PRIMITIVE: Final = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}

_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

_ALIKE: Final = {("int", "long"), ("string", "bytes"), ("bytes", "string")}
"""Types of a writer and a reader whose data is alike, so that it can be read as the reader's at once."""

_WRAPPED: Final = "value"

_UNUSABLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""The exceptions of fastavro, or of this module, for an invalid schema."""


def is_raw(writer: Any) -> bool:
    """Whether values of this schema, parsed, are the bytes themselves where a schema id comes before them.

    So Confluent's serialisers write them: without Avro's length, and whatever schema they are read with.
    """
    return writer in ("bytes", {"type": "bytes"})


def parsed(resolved: ResolvedSchema, known: Collection[str] = EXACT, *, is_writer: bool = False) -> Any:
    """A schema with its references, in the form for fastavro, with the logical types that it knows and that fit.

    Args:
        known: the logical types that are wanted.
        is_writer: whether data was written with it: its defaults play no part then.

    Raises:
        ConfigError: it is not an Avro schema. MissingDependencyError: fastavro is not installed.
    """
    fastavro = library()
    try:
        root = _effective(json.loads(resolved.text), known, keep_defaults=not is_writer)
        if not resolved.references:
            return fastavro.parse_schema(root)
        named: dict[str, Any] = {}
        for name, made in _references(resolved, set()):
            named[name] = _effective(made, known, keep_defaults=not is_writer)
            full = name_of(made)
            if full is not None:
                named[full] = named[name]
        # It puts each definition at the first use of its name.
        return fastavro.schema.load_schema("$root", repo=_repository({**named, "$root": root}))
    except RecursionError:
        raise ConfigError("this Avro schema is nested too deeply") from None
    except (
        *_UNUSABLE,
        fastavro.schema.SchemaParseException,
        fastavro.repository.SchemaRepositoryError,
    ) as problem:
        raise ConfigError(f"this is not an Avro schema: {problem}") from None


def library() -> Any:
    """Module fastavro, with its submodules that are needed."""
    try:
        import fastavro
        import fastavro.repository
        import fastavro.schema
    except ImportError as problem:
        raise MissingDependencyError("Avro needs fastavro: pip install 'kadence[avro]'") from problem
    fastavro.read.LOGICAL_READERS.update(READERS)
    return fastavro


def name_of(schema: Any) -> str | None:
    """The full name of a record, enum or fixed; of a primitive type, that type; None for unions and the like."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):
        return None
    name, space = schema.get("name", schema.get("type")), schema.get("namespace")
    if not isinstance(name, str):
        return None
    return f"{space}.{name}" if space and "." not in name and "name" in schema else name


def _references(resolved: ResolvedSchema, added: set[int]) -> Iterator[tuple[str, Any]]:
    for name, reference in resolved.references:
        if id(reference) not in added:
            added.add(id(reference))
            yield from _references(reference, added)
            yield name, json.loads(reference.text)


def _repository(named: dict[str, Any]) -> Any:
    from fastavro import repository

    class Repository(repository.base.AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            if name not in named:
                raise repository.SchemaRepositoryError(name)
            # The loaded schema is modified.
            return deepcopy(named[name])

    return Repository()


# ---------------------------------------------------------------- logical types


def _effective(schema: Any, known: Collection[str], *, keep_defaults: bool) -> Any:
    """The schema of a file or a registry without invalid logical types."""

    def inner(each: Any) -> Any:
        return _effective(each, known, keep_defaults=keep_defaults)

    if isinstance(schema, list):
        return [inner(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # fastavro marks parsed schemas with this; a registry's schema must not contain the mark.
    made = {name: each for name, each in schema.items() if not name.startswith("__")}
    if "logicalType" in made and not (made["logicalType"] in known and _fits_its_type(made)):
        for name in ("logicalType", "precision", "scale"):
            made.pop(name, None)
    for name in ("type", "items", "values"):
        if isinstance(made.get(name), dict | list):
            made[name] = inner(made[name])
    if "fields" in made:
        if not all(isinstance(field["name"], str) for field in made["fields"]):
            raise TypeError("the name of a field must be a string")
        made["fields"] = [
            {
                name: inner(item) if name == "type" else item
                for name, item in field.items()
                if keep_defaults or name != "default"
            }
            for field in made["fields"]
        ]
    return made


def _fits_its_type(schema: Mapping[str, Any]) -> bool:
    logical, kind = schema["logicalType"], schema.get("type")
    if logical != "decimal":
        return bool(_BASES[logical] == kind)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return False
    return kind == "bytes" or (kind == "fixed" and precision <= _digits(schema["size"]))


def _digits(size: int) -> int:
    """How many decimal digits always fit into this many bytes."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size > 0 else 0


# ---------------------------------------------------------------- reading


class Resolution:
    """Reads data of one schema as another. Created once for each pair.

    Args:
        writer: the schema of the data, parsed. reader: the schema to read it as, parsed; None: the writer's.
        kept: `EXACT`, or `NUMBERS`.
        with_names: records in unions are pairs of name and dict.

    Raises:
        ConfigError: a default is not a value of its type.
    """

    def __init__(
        self, writer: Any, reader: Any, kept: Collection[str] = EXACT, *, with_names: bool = False
    ) -> None:
        fastavro = library()
        self._is_wrapped = not (_is_record(writer) and (reader is None or _is_record(reader)))
        wrapped = _wrapped if self._is_wrapped else lambda schema: schema
        unique = _unique_names(writer if reader is None else reader)
        try:
            laid = _Laying(writer, writer if reader is None else reader, kept, unique).schema()
            self._writer = fastavro.parse_schema(wrapped(laid))
            self._reader = None
            # With the same fields no resolution is needed, which would take twice the time.
            if reader is not None and _shape(reader) != _shape(writer):
                bare = fastavro.parse_schema(wrapped(_narrow_first(_bare(reader, unique))))
                self._reader = with_default_values(bare, wrapped(reader), kept, unique)
        except (*_UNUSABLE, fastavro.schema.SchemaParseException) as problem:
            raise ConfigError(f"this Avro schema cannot be used: {problem}") from None
        self._with_names = with_names
        self._names = {made: name for name, made in unique.items()}
        self._read = fastavro.schemaless_reader

    def one(self, source: BytesIO) -> Any:
        """The next value of the source; raises any error of fastavro for these bytes."""
        found = self._read(source, self._writer, self._reader, self._with_names)
        value = found[_WRAPPED] if self._is_wrapped else found
        return self._with_own_names(value) if self._with_names and self._names else value

    def _with_own_names(self, value: Any) -> Any:
        if isinstance(value, tuple):
            name, inner = value
            return self._names.get(name, name), self._with_own_names(inner)
        if isinstance(value, dict):
            return {name: self._with_own_names(each) for name, each in value.items()}
        return [self._with_own_names(each) for each in value] if isinstance(value, list) else value


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema["type"] == "record"


def _wrapped(schema: Any) -> Any:
    """A record with one field adds no bytes. fastavro parses any other schema again for each value."""
    return {"type": "record", "name": "Wrapped_by_kadence", "fields": [{"name": _WRAPPED, "type": schema}]}


def definitions(schema: Any) -> dict[str, Any]:
    """All named types of a parsed schema."""
    found: dict[str, Any] = {}

    def look(each: Any) -> None:
        if isinstance(each, list):
            for branch in each:
                look(branch)
        elif isinstance(each, dict):
            if "name" in each:
                found[each["name"]] = each
            for child in _children(each):
                look(child)

    if isinstance(schema, dict):
        # fastavro's parser keeps definitions from references here.
        found |= schema.get("__named_schemas", {})
    look(schema)
    return found


def _children(schema: Mapping[str, Any]) -> Iterator[Any]:
    for name in ("type", "items", "values"):
        if isinstance(schema.get(name), dict | list) or name != "type":
            yield schema.get(name)
    for field in schema.get("fields", ()):
        yield field["type"]


class _Laying:
    """Adds the logical types and names of a reader's schema to the matching parts of a writer's.

    Args:
        unique: replacement names of some of the reader's types.
    """

    def __init__(self, writer: Any, reader: Any, kept: Collection[str], unique: Mapping[str, str]) -> None:
        self._writer, self._reader = writer, reader
        self._kept = kept
        self._unique = unique
        self._written, self._read = definitions(writer), definitions(reader)
        self._names: dict[tuple[str, str], str] = {}

    def schema(self) -> Any:
        return self._of(self._writer, self._reader)

    def _of(self, writer: Any, reader: Any) -> Any:
        if isinstance(writer, list):
            return [self._of(branch, reader) for branch in writer]
        writer = self._written.get(writer, writer) if isinstance(writer, str) else writer
        kinds = {str(_kind(self._resolved(each))) for each in reader} if isinstance(reader, list) else set()
        reader = self._counterpart(writer, reader)
        kind = _kind(writer)
        if isinstance(kind, dict | list):
            return self._of(kind, reader)
        if kind in ("array", "map"):
            name = "items" if kind == "array" else "values"
            inner = reader.get(name) if isinstance(reader, dict) and _kind(reader) == kind else None
            return {"type": kind, name: self._of(writer[name], inner)}
        if isinstance(writer, dict) and "name" in writer:
            return self._named(writer, reader)
        if _kind(reader) == "float" and kind in ("int", "long"):
            return {"type": kind, "logicalType": FLOAT}
        if (kind, _kind(reader)) in _ALIKE:
            kind = _kind(reader)
        stays = {"logicalType": PLAIN} if kind in ("string", "bytes") and kinds >= {"string", "bytes"} else {}
        return {"type": kind, **stays, **self._logical(reader)}

    def _named(self, writer: dict[str, Any], reader: Any) -> Any:
        kind = writer["type"]
        reader = reader if isinstance(reader, dict) and "name" in reader else {"name": ""}
        pair = (writer["name"], reader["name"])
        if pair in self._names:
            return self._names[pair]
        # fastavro matches records by name; Java also reads a record of another name.
        wanted = self._unique.get(reader["name"], reader["name"]) or writer["name"]
        taken = set(self._names.values())
        name = wanted if wanted not in taken else f"kadence{len(taken)}.{wanted.rpartition('.')[2]}"
        self._names[pair] = name
        if kind not in ("record", "error"):
            kept = {each: writer[each] for each in ("size", "symbols", "default") if each in writer}
            return {"type": kind, **_full(name), **kept, **self._logical(reader)}
        meant = _matching(writer, reader)
        fields = []
        for field in writer["fields"]:
            found = meant.get(field["name"], {"name": field["name"], "type": None})
            fields.append({"name": found["name"], "type": self._of(field["type"], found["type"])})
        return {"type": kind, **_full(name), "fields": fields}

    def _logical(self, reader: Any) -> dict[str, Any]:
        logical = reader.get("logicalType") if isinstance(reader, dict) else None
        if logical is None or logical not in self._kept:
            return {}
        scale = {"scale": reader.get("scale", 0)} if logical == "decimal" else {}
        return {"logicalType": own_name(logical), **scale}

    def _counterpart(self, writer: Any, reader: Any) -> Any:
        """The part of the reader's schema that matches the writer's; None: none."""
        branches = [self._resolved(each) for each in (reader if isinstance(reader, list) else [reader])]
        kind = _kind(writer)
        same = [each for each in branches if _kind(each) == kind]
        if isinstance(writer, dict) and "name" in writer:
            called = [each for each in same if _is_called(writer["name"], each)]
            # Two types of a union may have the same short name.
            exact = [each for each in called if writer["name"] == each["name"]]
            exact += [each for each in called if writer["name"] in each.get("aliases", ())]
            if kind not in ("record", "error"):
                # Fixed types of different sizes are different types.
                alike = [each for each in called if each.get("size") == writer.get("size")]
                return next(iter(exact or alike or called), None)
            return (
                self._of_union(writer, same, called, exact)
                if isinstance(reader, list)
                else next(iter(same), None)
            )
        promoted = [each for each in branches if _kind(each) in _PROMOTED.get(str(kind), ())]
        return next(iter(same or promoted), None)

    def _of_union(
        self, writer: dict[str, Any], records: list[Any], called: list[Any], exact: list[Any]
    ) -> Any:
        """The record of a union, as Java chooses it.

        It is the one of its full name, else of an alias; else the last of its short name whose fields fit; else the
        first whose fields fit.
        """
        if exact:
            return exact[0]
        fitting = [each for each in records if _Fitting(self._written, self._read).fits(writer, each)]
        return next(iter([each for each in called if each in fitting][-1:] or fitting or called), None)

    def _resolved(self, reader: Any) -> Any:
        return _resolved(reader, self._read)


class _Fitting:
    """Whether a record of a union can be read as one of another name: by its fields, as in Java.

    Args:
        written, read: the definitions of the writer's and of the reader's schema.
    """

    def __init__(self, written: Mapping[str, Any], read: Mapping[str, Any]) -> None:
        self._written, self._read = written, read
        self._known: dict[tuple[str, str], bool] = {}

    def fits(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> bool:
        """Whether each field of the reader's has a matching field or a default."""
        pair = writer["name"], reader["name"]
        if pair not in self._known:
            # A record inside itself fits if the rest of it does.
            self._known[pair] = True
            types = {field["name"]: field["type"] for field in writer["fields"]}
            have = {field["name"]: types[name] for name, field in _matching(writer, reader).items()}
            self._known[pair] = all(self._has(have, field) for field in reader["fields"])
        return self._known[pair]

    def _has(self, have: Mapping[str, Any], field: Mapping[str, Any]) -> bool:
        return (
            self._can_be(have[field["name"]], field["type"]) if field["name"] in have else "default" in field
        )

    def _can_be(self, writer: Any, reader: Any) -> bool:
        if isinstance(writer, list):
            # The data shows which of its types it is.
            return True
        writer = _resolved(writer, self._written)
        if isinstance(reader, list):
            return any(self._can_be(writer, each) for each in reader)
        reader = _resolved(reader, self._read)
        kind, wanted = _kind(writer), _kind(reader)
        if kind != wanted:
            return wanted in _PROMOTED.get(str(kind), ())
        if kind in ("record", "error"):
            return self.fits(writer, reader)
        return kind not in ("enum", "fixed") or (
            _is_called(writer["name"], reader) and writer.get("size") == reader.get("size")
        )


def _matching(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> dict[str, Any]:
    """The reader's fields by the names of the writer's fields that they are read from.

    An alias counts only where the writer has no field of the field's own name, and no other field has it as its name.
    """
    have = {field["name"] for field in writer["fields"]}
    own = {field["name"] for field in reader.get("fields", ())}
    found: dict[str, Any] = {}
    for field in reader.get("fields", ()):
        aliases = [alias for alias in field.get("aliases", ()) if alias not in own]
        name = next((each for each in (field["name"], *aliases) if each in have), None)
        if name is not None:
            found[name] = field
    return found


def _resolved(schema: Any, defined: Mapping[str, Any]) -> Any:
    """The definition of a name, or the type of an object such as {"type": "long"}."""
    while True:
        if isinstance(schema, str) and schema in defined:
            schema = defined[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict):
            schema = schema["type"]
        else:
            return schema


def _full(name: str) -> dict[str, str]:
    """A parsed schema has only full names. One without a namespace would get that of the enclosing type."""
    return {"name": name} | ({} if "." in name else {"namespace": ""})


def _kind(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, dict) else schema


def _is_called(name: str, reader: Mapping[str, Any]) -> bool:
    short = name.rpartition(".")[2]
    aliases = reader.get("aliases", ())
    return reader["name"].rpartition(".")[2] == short or name in aliases or short in aliases


def _unique_names(schema: Any) -> dict[str, str]:
    """Replacement names for types that share their last part with another type: fastavro compares only that part."""
    found: dict[str, str] = {}
    shorts: set[str] = set()
    for name in definitions(schema):
        short = name.rpartition(".")[2]
        if short in shorts:
            found[name] = f"{name}_kadence{len(found)}"
        shorts.add(short)
    return found


def _bare(schema: Any, unique: Mapping[str, str]) -> Any:
    """A parsed schema without logical types, and without the marks of fastavro's parser.

    Its types and fields have no aliases: `_Laying` has given the writer's the names of the reader's.
    """
    if isinstance(schema, list):
        return [_bare(each, unique) for each in schema]
    if not isinstance(schema, dict):
        return unique.get(schema, schema)
    left_out = {"logicalType", "precision", "scale", "aliases", "__fastavro_parsed", "__named_schemas"}
    made = {name: item for name, item in schema.items() if name not in left_out}
    if "name" in made:
        made |= _full(unique.get(made["name"], made["name"]))
    for name in ("type", "items", "values"):
        if name in made:
            made[name] = _bare(made[name], unique)
    for name in ("items", "values"):
        if name in made and not isinstance(made[name], list):
            # In a union, fastavro checks only existing elements; in Java, too, an empty array always fits.
            made[name] = [made[name]]
    if "fields" in made:
        made["fields"] = [
            {name: item for name, item in field.items() if name != "aliases"}
            | {"type": _bare(field["type"], unique)}
            for field in made["fields"]
        ]
    return made


def _shape(schema: Any) -> Any:
    """The structure of the data by a parsed schema: names, types and their order."""
    if isinstance(schema, list):
        return [_shape(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: schema[name] for name in ("name", "size", "symbols") if name in schema}
    made |= {name: _shape(schema[name]) for name in ("type", "items", "values") if name in schema}
    if "fields" in schema:
        made["fields"] = [(field["name"], _shape(field["type"])) for field in schema["fields"]]
    # {"type": "long"} is "long".
    return made["type"] if list(made) == ["type"] else made


def _narrow_first(schema: Any) -> Any:
    """With the narrower numbers of a union first: fastavro takes the first type to which a value can be widened."""
    if isinstance(schema, list):
        order = {"int": 1, "long": 2, "float": 3, "double": 4}
        places = [place for place, each in enumerate(schema) if _kind(each) in order]
        numbers = sorted((schema[place] for place in places), key=lambda each: order[_kind(each)])
        made = [_narrow_first(each) for each in schema]
        for place, number in zip(places, numbers, strict=True):
            made[place] = number
        return made
    if not isinstance(schema, dict):
        return schema
    made_ = {
        name: _narrow_first(item) if name in ("type", "items", "values") else item
        for name, item in schema.items()
    }
    if "fields" in made_:
        made_["fields"] = [{**field, "type": _narrow_first(field["type"])} for field in made_["fields"]]
    return made_


# ---------------------------------------------------------------- defaults


def with_default_values(
    schema: Any, logical: Any, kept: Collection[str], unique: Mapping[str, str] | None = None
) -> Any:
    """A copy of the parsed schema ``schema`` with defaults converted to values of their types.

    Args:
        logical: the same schema with its logical types. unique: replacement names of some of its types in ``schema``.
    """
    own: dict[str, str] = {made: name for name, made in (unique or {}).items()}
    values = _Defaults(logical, kept)
    schema = deepcopy(schema)

    def change(each: Any) -> None:
        if isinstance(each, list):
            for branch in each:
                change(branch)
        elif isinstance(each, dict):
            record: str = each.get("name", "")
            for field in each.get("fields", ()):
                if "default" in field:
                    field["default"] = values.of_field(own.get(record, record), field["name"])
            for child in _children(each):
                change(child)

    # fastavro's parser keeps copies of the definitions in the schema.
    for each in (schema, *schema.get("__named_schemas", {}).values()):
        change(each)
    return schema


class _Defaults:
    def __init__(self, schema: Any, kept: Collection[str]) -> None:
        self._named = definitions(schema)
        self._kept = kept

    def of_field(self, record: str, name: str) -> Any:
        """The value of a field's default."""
        [field] = [each for each in self._named[record]["fields"] if each["name"] == name]
        return self._of(field["default"], field["type"])

    def _of(self, default: Any, schema: Any) -> Any:
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._of(default, next((each for each in schema if self._takes(default, each)), "null"))
        kind = _kind(schema)
        if isinstance(kind, dict | list):
            return self._of(default, kind)
        if kind == "array":
            return [self._of(each, schema["items"]) for each in default]
        if kind == "map":
            return {name: self._of(each, schema["values"]) for name, each in default.items()}
        if kind in ("record", "error"):
            return {
                field["name"]: self._of(default.get(field["name"], field.get("default")), field["type"])
                for field in schema["fields"]
            }
        return self._logical(_plain_value(default, kind), kind, schema)

    def _logical(self, value: Any, kind: str, schema: Any) -> Any:
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if logical is None or logical not in self._kept:
            return value
        return reader_of(kind, logical, library().read.LOGICAL_READERS)(value, schema, None)

    def _takes(self, default: Any, schema: Any) -> bool:
        """Whether a JSON value fits a branch of a union."""
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = _kind(schema)
        kinds: dict[type, tuple[str, ...]] = {
            type(None): ("null",),
            bool: ("boolean",),
            int: ("int", "long", "float", "double"),
            float: ("float", "double"),
            str: ("string", "bytes", "enum", "fixed"),
            list: ("array",),
            dict: ("record", "map", "error"),
        }
        return kind in kinds.get(type(default), ())


def _plain_value(default: Any, kind: str) -> Any:
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    return float(default) if kind in ("float", "double") and type(default) is int else default
