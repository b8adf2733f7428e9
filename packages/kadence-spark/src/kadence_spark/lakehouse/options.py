"""The options of ``format("kadence-delta")`` and ``format("kadence-iceberg")``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from kadence.errors import ConfigError
from kadence_spark.stamp import Stamp

__all__ = ["DELTA_OPTIONS", "ICEBERG_OPTIONS", "TableOptions", "hidden", "parse"]

_SHARED: Final = {
    "partitionBy": "Columns, separated by commas, by which a new table is partitioned.",
    "mergeSchema": "true: add columns, and fields of structs, that the table lacks. false (default): refuse them.",
    "txnAppId": "For batches: an id of the writer. Its last txnVersion in the table is not written again.",
    "txnVersion": "For batches: the number of this write, higher than the last.",
}

DELTA_OPTIONS: Final = {
    "path": "The table: a directory, or an address such as s3://bucket/table. start() and save() take it, too.",
    **_SHARED,
    "storage.*": "Settings of the store by deltalake's names, such as storage.aws_region.",
}
"""Name and meaning of each option of ``format("kadence-delta")``."""

ICEBERG_OPTIONS: Final = {
    "table": "The table's name in the catalogue, such as shop.orders.",
    "catalog": "The catalogue's name in PyIceberg's own configuration. Default: default.",
    "catalog.*": "Settings of the catalogue by PyIceberg's names, such as catalog.type, catalog.uri and "
    "catalog.warehouse.",
    **_SHARED,
}
"""Name and meaning of each option of ``format("kadence-iceberg")``."""

_LOGIN: Final = re.compile(r"[\w+.-]+://[^/@:]*:([^/@]+)@")
"""The password in an address."""

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself adds to those of a sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """All options of one query, checked.

    Attributes:
        place: Delta's path or Iceberg's table. settings: of the store or the catalogue, without the prefix; not in the
            repr, because there may be passwords. catalog: Iceberg's name of the catalogue.
    """

    place: str
    settings: Mapping[str, str] = field(repr=False)
    catalog: str
    partition_by: tuple[str, ...]
    merge_schema: bool
    stamp: Stamp | None


def parse(given: Mapping[str, str], kind: str, *, streaming: bool) -> TableOptions:
    """Read the options of one query.

    Args:
        kind: delta or iceberg.

    Raises:
        ConfigError: an unknown, missing or invalid option; the message has the given value and advice.
    """
    known = DELTA_OPTIONS if kind == "delta" else ICEBERG_OPTIONS
    prefix, key = ("storage.", "path") if kind == "delta" else ("catalog.", "table")
    values = {name.lower(): value for name, value in given.items()}
    names = {name.lower() for name in known}
    for name in values:
        if name not in names and name not in _OF_SPARK and not name.startswith(prefix):
            raise ConfigError(_unknown(name, known), key=name)
    place = values.get(key, "").strip()
    if not place:
        raise ConfigError(f"option {key} is missing: {known[key][0].lower()}{known[key][1:]}", key=key)
    merge = values.get("mergeschema", "false").strip().lower()
    if merge not in ("true", "false"):
        raise ConfigError(
            f"option mergeSchema: {values['mergeschema']!r} is not true or false", key="mergeSchema"
        )
    partition_by = tuple(part.strip() for part in values.get("partitionby", "").split(",") if part.strip())
    twice = next((name for name in partition_by if partition_by.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"option partitionBy names {twice} twice", key="partitionBy")
    return TableOptions(
        place=place,
        settings={
            name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)
        },
        catalog=values.get("catalog", "").strip() or "default",
        partition_by=partition_by,
        merge_schema=merge == "true",
        stamp=Stamp.of_options(values, streaming=streaming),
    )


def _unknown(name: str, known: Mapping[str, str]) -> str:
    if name == "path":
        return "save() and start() take no path: name the table with the option table"
    candidates = {option.lower(): option for option in known}
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    advice = f"did you mean {candidates[near[0]]!r}?" if near else f"known are {', '.join(known)}"
    return f"unknown option {name!r}: {advice}"


def hidden(text: str, settings: Mapping[str, str]) -> str:
    """A library's message without the values of settings, which may be passwords or hold one."""
    secrets = set(settings.values())
    for value in settings.values():
        if (login := _LOGIN.match(value)) is not None:
            secrets |= {login.group(1), unquote(login.group(1))}
    for value in sorted(secrets, key=len, reverse=True):
        # A value so short would hide parts of words.
        if len(value) >= 4:
            text = text.replace(value, "***")
    return text
