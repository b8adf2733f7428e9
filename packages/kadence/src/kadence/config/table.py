"""A row of the configuration's table, and how its values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from kadence.errors import ConfigError
from kadence.lazy_dataclasses import dataclass, field, fields, replace
from kadence.security import Secret

__all__ = [
    "AUTO",
    "INT32_MAX",
    "Key",
    "client_of",
    "is_coroutine_function",
    "key",
    "keys",
    "read",
    "same_key",
    "unknown",
]

INT32_MAX: Final = 2**31 - 1

AUTO: Final = 0
"""The number that the word auto stands for, in a key of kind "count"."""


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table.

    Attributes:
        name: Kafka's dotted name. kind: how values are read. default: None = not set.
        low, high: inclusive bounds of numbers. choices: allowed words. doc: its meaning.
        since: the KIP or release that it comes from, "" for Kafka's oldest.
    """

    name: str
    kind: str
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    doc: str
    since: str


def key(
    kind: str,
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    since: str = "",
) -> Any:
    """A field of a client's class that is its row; see `Key`. The row's name is the field's."""
    row = Key("", kind, default, low, high, choices, doc, since)
    return field(default=default, metadata={"row": row})


def same_key(config: type, name: str) -> Any:
    """The row of another client's key, for a client to which it means the same."""
    [item] = [item for item in fields(config) if item.name == name]
    return field(default=item.default, metadata=item.metadata)


def keys(config: type) -> tuple[Key, ...]:
    """The table of one client, in the order of its page."""
    table = _TABLES.get(config)
    if table is None:
        table = _TABLES[config] = tuple(
            replace(cast(Key, item.metadata["row"]), name=item.name.replace("_", "."))
            for item in fields(config)
        )
    return table


_TABLES: Final[dict[type, tuple[Key, ...]]] = {}
"""What `keys` has made: each client that is made asks for its table."""


def unknown(name: str, cls: type, rows: Mapping[str, Key]) -> str:
    """The error for a key that is not in the table: another client's key, another table's, or the nearest.

    Args:
        name: as the caller wrote it, with dots or underscores; the advice is written in the same way.
    """
    written, name = name, name.replace("_", ".")
    client = client_of(cls)
    # Loaded for the first key that is not known, and so are the keys of all clients.
    import difflib

    from kadence.config import consumer, producer, share_consumer  # noqa: F401
    from kadence.idioms import advice as advice_on

    hint = advice_on("setting", name)
    called = hint or name
    if called in rows:
        return f"{written!r} is another client's name: here it is {_as(written, called)!r}"
    others: list[type] = cls.__mro__[1].__subclasses__()
    for other in others:
        if any(row.name == called for row in keys(other)):
            here = "" if called == name else f" (here it is {_as(written, called)!r})"
            return f"{written!r} is a key of the {client_of(other)}, not of the {client}{here}"
    if hint is not None:
        return f"{written!r} is another client's key: {hint}"
    near = difflib.get_close_matches(name, rows, n=1, cutoff=0.6)
    advice = f"did you mean {_as(written, near[0])!r}?" if near else "docs/configuration.md lists all keys"
    return f"unknown {client} configuration key {written!r}: {advice}"


def client_of(config: type) -> str:
    """Its name in errors, such as "share consumer" of `ShareConsumerConfig`."""
    words = re.findall(r"[A-Z][a-z]*", config.__name__.removesuffix("Config"))
    return " ".join(words).lower()


def _as(written: str, name: str) -> str:
    """A key in the way in which the caller writes keys."""
    return name.replace(".", "_") if "_" in written and "." not in written else name


def _read_int(row: Key, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError  # noqa: TRY004 - as below
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError
    if not (row.low if row.low is not None else -math.inf) <= number <= (row.high or math.inf):
        raise ValueError
    return number


def _read_count(row: Key, value: Any) -> int:
    """A whole number, or auto; no count is 0, so that stands for auto."""
    if isinstance(value, str) and value.lower() == "auto":
        return AUTO
    if (number := _read_int(row, value)) == 0:
        raise ValueError
    return number


def _read_float(row: Key, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError  # noqa: TRY004 - as below
    number = float(value)
    if (
        not (-math.inf if row.low is None else row.low)
        <= number
        <= (math.inf if row.high is None else row.high)
    ):
        raise ValueError
    return number


def _read_number(row: Key, value: Any) -> int:
    """A fraction of a ms, too, as librdkafka takes it; clocks here count whole ones, so it is rounded up."""
    return math.ceil(_read_float(row, value))


def _read_bool(_: Key, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _read_list(_: Key, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _read_choice(row: Key, value: Any) -> str:
    for choice in row.choices:
        if str(value).lower() == choice.lower():
            return choice
    raise ValueError


def is_coroutine_function(given: object) -> bool:
    """True if it is one, or an object that is called as one."""
    # Loaded for the first callable among the settings.
    import inspect

    call = getattr(given, "__call__", None)  # noqa: B004 - not whether it can be called, but how
    return inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(call)


def _read_callable(row: Key, value: Any) -> Any:
    if not callable(value):
        raise ValueError  # noqa: TRY004 - as below
    return _not_awaited(row, value, value)


def _read_function(row: Key, value: Any) -> Any:
    if isinstance(value, str):
        from kadence.config.values import imported

        value = imported(row.name, value)
    return _read_callable(row, value)


def _not_awaited(row: Key, value: Any, method: object) -> Any:
    if is_coroutine_function(method):
        raise ConfigError(
            f"{row.name}: {value!r} is, or has, a coroutine function, which nothing would await", key=row.name
        )
    return value


def _of_side(row: Key, value: Any) -> Any:
    """The serialiser or deserialiser for keys, if it has a method for that, as those of a registry have."""
    for_keys = getattr(value, "for_keys", None)
    return for_keys() if row.name.startswith("key.") and callable(for_keys) else value


def _read_deserializer(row: Key, value: Any) -> Any:
    if isinstance(value, str):
        from kadence import deserializers

        try:
            return deserializers.named(value)
        except ValueError as error:
            raise ConfigError(f"{row.name}: {value!r}: {error}", key=row.name) from None
    if callable(getattr(value, "deserialize", None)):
        made = value() if isinstance(value, type) else value
        return _of_side(row, _not_awaited(row, made, value.deserialize))
    return _read_callable(row, value)


def _read_serializer(row: Key, value: Any) -> Any:
    if isinstance(value, str):
        from kadence import serializers

        try:
            return serializers.named(value)
        except ValueError as error:
            raise ConfigError(f"{row.name}: {value!r}: {error}", key=row.name) from None
    if callable(getattr(value, "serialize", None)):
        made = value() if isinstance(value, type) else value
        return _of_side(row, _not_awaited(row, made, value.serialize))
    return _read_callable(row, value)


def _read_partitioner(row: Key, value: Any) -> Any:
    if isinstance(value, str):
        return _read_choice(row, _JAVA_PARTITIONERS.get(value, value))
    return _read_callable(row, value)


_JAVA_PARTITIONERS: Final = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2_random",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "random",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}


def _read_interceptors(row: Key, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or any(isinstance(each, str) for each in value):
        raise ValueError
    chain = tuple(each() if isinstance(each, type) else each for each in value)
    for each in chain:
        methods = [
            getattr(each, name) for name in ("on_consume", "on_commit", "close") if hasattr(each, name)
        ]
        if not (methods and all(map(callable, methods))):
            raise ConfigError(
                f"{row.name}: {each!r} is no interceptor: it needs on_consume(), on_commit() or close(), "
                "see kadence.Interceptor",
                key=row.name,
            )
        for method in methods:
            _not_awaited(row, each, method)
    return chain


def _read_string(_: Key, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - the caller turns it into a ConfigError with the key's name
    return value


def _read_assignors(_: Key, value: Any) -> tuple[Any, ...]:
    from kadence.config.values import read_assignors

    return read_assignors(value)


_READERS: dict[str, Callable[[Key, Any], Any]] = {
    "assignors": _read_assignors,
    "int": _read_int,
    "float": _read_float,
    "number": _read_number,
    "count": _read_count,
    "bool": _read_bool,
    "list": _read_list,
    "choice": _read_choice,
    "string": _read_string,
    "callable": _read_callable,
    "function": _read_function,
    "deserializer": _read_deserializer,
    "serializer": _read_serializer,
    "partitioner": _read_partitioner,
    "objects": _read_interceptors,
    "password": lambda row, value: value if isinstance(value, Secret) else Secret(_read_string(row, value)),
}


def _allowed(row: Key) -> str:
    if row.kind == "partitioner":
        return f"a callable, or one of {', '.join(row.choices)}"
    if row.choices:
        return "one of " + ", ".join(choice or "''" for choice in row.choices)
    if row.kind == "int":
        low = "" if row.low is None else f" >= {int(row.low)}"
        high = "" if row.high is None else f" and <= {int(row.high)}"
        return f"a whole number{low}{high}"
    if row.kind == "number":
        return f"a number >= {row.low}"
    if row.kind == "count":
        return "at least 1, -1 or auto"
    if row.kind == "float":
        return f"a number from {row.low} to {row.high}"
    words = {
        "bool": "true or false",
        "list": "a list, or a comma separated string",
        "callable": "a callable",
        "function": "a callable, or the text module:function",
        "deserializer": "a callable, an object with deserialize(topic, headers, data), or a name",
        "serializer": "a callable, an object with serialize(topic, headers, data), or a name",
        "objects": "a list of objects, or of classes that are made without arguments",
    }
    return words.get(row.kind, "a string")


def read(row: Key, value: Any, spelled: str = "") -> Any:
    """The value as its row has it.

    Args:
        spelled: the key as the caller wrote it, for the error.

    Raises:
        ConfigError: it is of another type or out of bounds; a password is not shown.
    """
    if value is None and row.default is None:
        return None
    try:
        return _READERS[row.kind](row, value)
    except ConfigError:
        raise
    except (ValueError, TypeError, OverflowError):
        shown = "the given value" if row.kind == "password" else repr(value)
        raise ConfigError(f"{spelled or row.name}: {shown} is not {_allowed(row)}", key=row.name) from None
