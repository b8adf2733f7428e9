"""``CREATE TABLE … USING kadence``: stores a table's options where Spark returns them.

When a table is created Spark asks a source in Python for its schema, and passes the table's properties, with the
options under ``option.``. Later it reads the table without options, but with the stored schema. So the options are
stored in the metadata of the schema's first column. Spark shows schemas in many places, so passwords are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FOR_READING", "METADATA", "NO_OPTIONS", "kept_in", "options_of_new_table"]

METADATA: Final = "kadence.options"
"""The name of the entry in a column's metadata."""

NO_OPTIONS: Final = (
    "there are no options. A table of CREATE TABLE ... USING kadence has its own only if the statement names no "
    "columns; give them with the query, behind the table's name: WITH ('kafka.bootstrap.servers'='...', ...)"
)

FOR_READING: Final = (
    "there are no options to write with: a table of CREATE TABLE ... USING kadence is for reading. Write to a topic by "
    'df.write.format("kadence") with the options kafka.bootstrap.servers and topic'
)

_OF_TABLE: Final = "option."
_SECRETS_OF_REGISTRY: Final = (
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.key.password",
)


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options in a CREATE TABLE; None: no table is being created.

    Args:
        given: the options with which Spark makes a source.

    Raises:
        ConfigError: options that a table cannot keep.
    """
    if "provider" not in given:
        return None
    options = {name[len(_OF_TABLE) :]: text for name, text in given.items() if name.startswith(_OF_TABLE)}
    for name in options:
        if name in _secrets():
            raise ConfigError(
                f"option {name}: Spark shows a table's options, and this one is a secret. Make it a CREATE TEMPORARY "
                "VIEW ... USING kadence; or leave out of the table all options that belong to this one, such as "
                "kafka.security.protocol and kafka.sasl.*, and give them with each query, "
                f"WITH ('{name}'='...', ...) behind the table's name"
            )
    if {"key.format", "value.format"} & options.keys():
        raise ConfigError(
            "a table cannot decode (value.format, key.format): make it a CREATE TEMPORARY VIEW ... USING kadence, or "
            "use from_json on the table"
        )
    return options


def kept_in(schema: StructType) -> dict[str, str]:
    """The options in a table's schema; none in other schemas."""
    kept: dict[str, str] = {}
    for column in schema.fields:
        kept |= column.metadata.get(METADATA, {})
    return kept


def _secrets() -> set[str]:
    from kadence.config import ConsumerConfig, keys
    from kadence_spark.client_settings import PREFIX

    return {PREFIX + row.name for row in keys(ConsumerConfig) if row.kind == "password"} | {
        *_SECRETS_OF_REGISTRY
    }
