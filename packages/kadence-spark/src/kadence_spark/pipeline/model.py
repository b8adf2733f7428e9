"""All keys of a pipeline's file, as frozen dataclasses.

The dataclasses below are that table. `reading` checks a file against them, `schema` prints them as JSON Schema, and
`tools/docs.py` as a page, so that the three cannot differ. A value holds the file's own text: where that has
``${NAME}``, it is filled in only when it is handed to Spark (`environment`), so no repr of a pipeline shows a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final

__all__ = [
    "ANY_KEYS",
    "FIRST_VIEW",
    "Aggregate",
    "DecodeStep",
    "Expectation",
    "Kind",
    "Output",
    "Pipeline",
    "SourceStep",
    "Transform",
    "keys",
    "required",
]

AVAILABLE_NOW: Final = "available-now"

TRIGGER: Final = re.compile(r"every\s+(\d+)\s*(ms|s|m|h)")
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
DELAY: Final = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)")
VIEW: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

FIRST_VIEW: Final = "records"
"""The view that the first step reads."""

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

ANY_KEYS: Final = "any_keys"


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a key.

    Attributes:
        doc: a sentence for the reader. shape: text, boolean, texts (a list), table, tables (a list of them), or
            any_keys (dotted or nested, with texts, numbers and booleans).
        choices: the allowed texts, if they are few. pattern, allowed: what a text must match, and that in words.
        of: the dataclass of a table.
    """

    doc: str
    shape: str = "text"
    choices: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    allowed: str = "a text"
    of: type | None = None


def _key(doc: str, *, default: Any = MISSING, **more: Any) -> Any:
    metadata = {"kind": Kind(doc, **more)}
    if default is MISSING:
        return field(metadata=metadata)
    # A mapping may have a secret that is in the file itself.
    is_mapping = isinstance(default, Mapping)
    return (
        field(default_factory=lambda: default, metadata=metadata, repr=not is_mapping)
        if is_mapping
        else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStep:
    """Which records are read. Every other key is an option of ``format("kadence")``."""

    servers: str | None = _key("Bootstrap servers: the option kafka.bootstrap.servers.", default=None)
    topics: tuple[str, ...] = _key("Names of topics: the option subscribe.", shape="texts", default=())
    options: Mapping[str, str] = _key(
        "Options of the source by their own names, such as startingOffsets or kafka.security.protocol.",
        shape=ANY_KEYS,
        default={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """How a value becomes columns."""

    format: str = _key(
        "The format of values. string makes the columns key and value, as strings.",
        choices=("json", "json-strict", "avro", "protobuf", "string"),
    )
    schema: str | None = _key(
        "json, json-strict: the columns as Spark DDL, such as 'id bigint, name string'. avro: the reader's schema or "
        "its file; protobuf: the file of a descriptor set; both not needed with a schema registry.",
        default=None,
    )
    action: str | None = _key(
        "For a record that cannot be decoded. drop: count it, and write it to [dead_letters], if given; "
        "fail: the run fails. Default: drop with [dead_letters], otherwise fail.",
        choices=("drop", "fail"),
        default=None,
    )
    options: Mapping[str, str] = _key(
        "Further options of decoding, such as schema.registry.url and value.message.",
        shape=ANY_KEYS,
        default={},
    )

    @property
    def is_json(self) -> bool:
        """Whether the schema is that of JSON's columns."""
        return self.format in ("json", "json-strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """One step in SQL. It reads the view of the step before, or any earlier one; the first is records."""

    name: str = _key("The name of its view.", pattern=VIEW, allowed="a letter, then letters, digits and _")
    sql: str = _key("A SELECT that makes each of its rows from one row: no GROUP BY, no DISTINCT.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must be true of each row after the transforms. A condition that is null is not true."""

    name: str = _key(
        "The name of its counter.", pattern=NAME, allowed="a letter, then letters, digits, _ and -"
    )
    condition: str = _key("A condition in SQL.")
    action: str = _key(
        "For a row for which it is not true. warn: count it; drop: also leave it out of the sink, and write its record "
        "to [dead_letters], if given; fail: the run fails.",
        choices=("warn", "drop", "fail"),
        default="warn",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Rows that are made of many rows, over all batches."""

    sql: str = _key(
        "A SELECT with GROUP BY over the last transform's view (without transforms: over records). It gets the rows "
        "that no expectation drops."
    )
    watermark: str | None = _key(
        "The timestamp column with each row's time. Once a batch had a row later than a group's end by the delay, the "
        "group is complete: its rows in later batches are left out.",
        default=None,
    )
    delay: str | None = _key(
        "A row is counted if it is older than the newest row by no more than this.",
        pattern=DELAY,
        allowed='a time such as "30s", "10m", "10 minutes" or "2h"',
        default=None,
    )
    mode: str = _key(
        "Which groups a batch writes. append: each group once, when it is complete; update: those that the batch has "
        "changed; complete: all.",
        choices=("append", "update", "complete"),
        default="append",
    )

    @property
    def delay_ms(self) -> int | None:
        """The delay."""
        match = DELAY.fullmatch(self.delay or "")
        if match is None:
            return None
        unit = match.group(2)
        short = "ms" if unit.startswith(("ms", "mil")) else unit[0]
        return int(match.group(1)) * _MS[short]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where rows go: files at a path, a table of the catalog, or a topic."""

    format: str | None = _key(
        "parquet, orc, json, csv, delta (with Delta's jar), kadence-delta, kadence-iceberg, kadence (a topic), or any "
        "other format of Spark's batch writer. Default: kadence with a topic, otherwise parquet.",
        default=None,
    )
    path: str | None = _key("The table's directory.", default=None)
    table: str | None = _key("The table's name in a catalog.", default=None)
    topic: str | None = _key(
        "The topic. A record's value is the row's column value, or without one the row as JSON.", default=None
    )
    servers: str | None = _key(
        "The topic's brokers. Default: those of the source, with its login and TLS.", default=None
    )
    key: str | None = _key(
        "For a topic in [sink]: the SQL expression of the key. Default: the column key, if there is one.",
        default=None,
    )
    partition_by: tuple[str, ...] = _key(
        "Columns by which the table is partitioned.", shape="texts", default=()
    )
    provenance: bool = _key(
        "Whether a table of [sink] gets the columns _topic, _partition and _offset of each row's record (groups have "
        "none). replay needs them.",
        shape="boolean",
        default=True,
    )
    options: Mapping[str, str] = _key(
        "Further options of the writer, such as compression.", shape=ANY_KEYS, default={}
    )

    @property
    def written_as(self) -> str:
        """The format, with the default."""
        return self.format or ("parquet" if self.topic is None else "kadence")

    @property
    def place(self) -> str:
        """Path, table or topic, as the file has it."""
        return self.path or self.table or self.topic or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline, as its file says it."""

    name: str = _key(
        "Shown by status, and written into dead letter records.",
        pattern=NAME,
        allowed="a letter, then letters, digits, _ and -",
    )
    checkpoint: str = _key("The directory of Spark's checkpoint, which has the pipeline's progress.")
    trigger: str = _key(
        "available-now: read the records that exist, and end; every 10s: keep running, with at most one batch in ten "
        "seconds.",
        pattern=re.compile(f"{AVAILABLE_NOW}|{TRIGGER.pattern}"),
        allowed='"available-now", or a time such as "every 10s", "every 500ms" or "every 5m"',
        default=AVAILABLE_NOW,
    )
    source: SourceStep = _key("Which records are read.", shape="table", of=SourceStep)
    decode: DecodeStep | None = _key(
        "How values become columns. Without it a row has the columns key and value.",
        shape="table",
        of=DecodeStep,
        default=None,
    )
    transform: tuple[Transform, ...] = _key(
        "Steps in SQL, in order.", shape="tables", of=Transform, default=()
    )
    expect: tuple[Expectation, ...] = _key(
        "What must be true of each row.", shape="tables", of=Expectation, default=()
    )
    aggregate: Aggregate | None = _key(
        "Groups of rows, such as counts by hour. Their state is in the checkpoint.",
        shape="table",
        of=Aggregate,
        default=None,
    )
    sink: Output = _key("Where the rows go.", shape="table", of=Output)
    dead_letters: Output | None = _key(
        "Where records go that could not be decoded or were dropped, with the reason and all that is known of them.",
        shape="table",
        of=Output,
        default=None,
    )
    spark: Mapping[str, str] = _key(
        "Spark's settings without the prefix 'spark.': master, driver.memory, sql.shuffle.partitions.",
        shape=ANY_KEYS,
        default={},
    )

    @property
    def trigger_ms(self) -> int | None:
        """The time from one batch to the next; None: all there is, then the end."""
        match = TRIGGER.fullmatch(self.trigger)
        if match is None:
            return None
        return int(match.group(1)) * _MS[match.group(2)]

    @property
    def last_view(self) -> str:
        """The view of the rows after the transforms."""
        return self.transform[-1].name if self.transform else FIRST_VIEW

    @property
    def decode_action(self) -> str:
        """The action for a record that cannot be decoded, with the default."""
        given = self.decode.action if self.decode else None
        return given or ("fail" if self.dead_letters is None else "drop")

    def source_options(self) -> dict[str, str]:
        """The options of ``format("kadence")``, still with ``${NAME}`` in them."""
        options = dict(self.source.options)
        if self.decode is not None:
            options |= self.decode.options
            options |= {"value.format": self.decode.format, "mode": "permissive"}
            if self.decode.schema is not None:
                options["value.schema"] = self.decode.schema
        if self.source.servers is not None:
            options["kafka.bootstrap.servers"] = self.source.servers
        if self.source.topics:
            options["subscribe"] = ",".join(self.source.topics)
        if self.dead_letters is not None:
            # Reading headers is a third slower, but dead letter records need them.
            options.setdefault("includeHeaders", "true")
        return options


def required(each: Field[Any]) -> bool:
    """Whether a file must have the key."""
    return each.default is MISSING and each.default_factory is MISSING


def keys(table: type) -> dict[str, tuple[Field[Any], Kind]]:
    """The keys of one of these classes by name; one that takes any keys is among them as ``options``."""
    return {each.name: (each, each.metadata["kind"]) for each in fields(table)}
