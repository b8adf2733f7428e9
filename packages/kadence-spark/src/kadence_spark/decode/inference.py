"""The columns of ``load()`` without a schema: from the registry's newest schema, or from the option that has it."""

from __future__ import annotations

from collections.abc import Mapping

from kadence.errors import ConfigError
from kadence_spark.decode.layout import ddl_of
from kadence_spark.decode.options import DecodeOptions, Format, SideOptions

__all__ = ["decoded_ddl"]


def decoded_ddl(options: DecodeOptions, given: Mapping[str, str], known: dict[str, str]) -> str:
    """Spark's DDL of all columns.

    Args:
        given: all options, for the topic's name. known: Kafka's columns that can be had, with their types.

    Raises:
        ConfigError: there is no schema to be found.
    """
    value = _ddl(options.value, given, flat=options.flat)
    return ddl_of(options, known, value, _ddl(options.key, given, flat=False))


def _ddl(side: SideOptions, given: Mapping[str, str], *, flat: bool) -> str:
    if side.format is Format.BINARY:
        return "binary"
    if side.format is Format.STRING:
        return "string"
    if side.format.is_json:
        if side.schema is None:
            raise ConfigError(
                f"{side.name}.format={side.format.value} needs to know the fields: give load() a schema, such as "
                f'.schema("id bigint, name string, _error string"), or the option {side.name}.schema with such a text'
            )
        return side.schema if flat else f"struct<{side.schema}>"
    import pyarrow as pa

    from kadence_spark.decode.formats import arrow_of_side
    from kadence_spark.decode.spark_types import ddl_of_fields, ddl_of_type

    kind = arrow_of_side(side, _subject(side, given) if side.schema is None else "")
    if not flat:
        return ddl_of_type(kind)
    if not pa.types.is_struct(kind):
        raise ConfigError("option value.flat: the value has no fields")
    return ddl_of_fields(kind)


def _subject(side: SideOptions, given: Mapping[str, str]) -> str:
    if side.subject is not None:
        return side.subject
    topics = [name.strip() for name in given.get("subscribe", "").split(",") if name.strip()]
    if len(topics) != 1:
        raise ConfigError(
            f"without one topic in subscribe, no subject of the registry is known: name it with the option "
            f"{side.name}.subject, or give load() a schema, or the option {side.name}.schema"
        )
    return f"{topics[0]}-{side.name}"
