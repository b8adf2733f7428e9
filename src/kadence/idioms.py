"""Advice in errors for calls of other Kafka clients: what they are called here.

`advised` gives a class the names that others have, each with a sentence. Reading one raises AttributeError with it. The
class needs no ``__getattr__`` for that, which would make each of its own attributes slower to read. To type checkers
these names do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    import asyncio

__all__ = ["NotAwaited", "advised", "elsewhere", "own_names", "running_loop", "unmade"]

T = TypeVar("T")

_BY_PARTITION: Final = (
    "poll() returns records in the order read; by_partition() is the mapping of partitions to them"
)
_ONE_BY_ONE: Final = (
    "poll() returns several records, or none: `for record in consumer.poll(1)`, with record.key, record.value, "
    "record.topic, … as attributes; errors are raised by poll()"
)
_NOT_NEEDED: Final = "it is not needed: the first call connects"
_CALLBACK: Final = (
    "call add_done_callback(function); in the function, future.exception() tells what went wrong"
)

_CONSUMER: Final[Mapping[str, str]] = {
    "consume": "call poll(timeout, max_records=n)",
    "store_offsets": (
        "records count as processed when you poll() again; to commit them yourself, call commit_async(records)"
    ),
    "unassign": "call unsubscribe()",
    "get_watermark_offsets": "call beginning_offsets(partitions) and end_offsets(partitions)",
    "consumer_group_metadata": "call group_metadata()",
    "topics": "call list_topics()",
    "partitions_for_topic": "call partitions_for(topic)",
    "highwater": "current_lag(partition) is what is left to read, without a request; end_offsets(partitions) asks",
    "start": _NOT_NEEDED,
    "getone": "call poll(timeout, max_records=1), or iterate the consumer",
    "getmany": "call poll(timeout, max_records=n), with the timeout in seconds",
    "seek_to_committed": "call committed(partitions), then seek(partition, offset)",
    "commit_sync": "call commit()",
}

_RECORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("items", "keys", "values", "get"), _BY_PARTITION),
    **dict.fromkeys(("error", "value", "key", "topic", "partition", "offset"), _ONE_BY_ONE),
}

_PRODUCER: Final[Mapping[str, str]] = {
    "produce": "call send(topic, value, key); the future that it returns tells of the delivery",
    "poll": "it is not needed: records are sent, and callbacks of futures run, by themselves",
    "start": _NOT_NEEDED,
    "list_topics": "call partitions_for(topic), or Admin(...).list_topics()",
    **dict.fromkeys(
        ("produce_batch", "create_batch", "send_batch"),
        "records are batched by themselves; send_arrow(table, topic) sends many at once",
    ),
}

_FUTURE: Final[Mapping[str, str]] = {
    "get": "call result(timeout)",
    "succeeded": "call done() and exception()",
    "failed": "call done() and exception()",
    **dict.fromkeys(("add_callback", "add_errback", "add_both"), _CALLBACK),
}

_ADMIN: Final[Mapping[str, str]] = {
    "start": _NOT_NEEDED,
    "alter_configs": "call incremental_alter_configs({resource: {name: value}})",
    "list_consumer_groups": "call list_groups()",
    "describe_groups": "call describe_consumer_groups(groups)",
    "delete_groups": "call delete_consumer_groups(groups)",
    "list_group_offsets": "call list_consumer_group_offsets(group), or list_offsets_of_groups(groups)",
    "alter_group_offsets": "call alter_consumer_group_offsets(group, {partition: offset})",
    "delete_group_offsets": "call delete_consumer_group_offsets(group, partitions)",
    "list_partition_offsets": 'call list_offsets({partition: "latest"}), or log_ranges(partitions)',
}

_OF_CLASS: Final[Mapping[str, Mapping[str, str]]] = {
    "Consumer": _CONSUMER,
    "AsyncConsumer": _CONSUMER,
    "Records": _RECORDS,
    "Producer": _PRODUCER,
    "AsyncProducer": _PRODUCER,
    "RecordFuture": _FUTURE,
    "Admin": _ADMIN,
    "AsyncAdmin": _ADMIN,
}


def advice(owner: object, kind: str, name: str) -> AttributeError:
    """The error for a name that an object of this class of ours lacks, with the sentence for it if there is one.

    It is for `Records`, which may be compiled: `advised` cannot give such a class anything.
    """
    text = f"{kind!r} object has no attribute {name!r}"
    hint = _OF_CLASS[kind].get(name)
    return AttributeError(text if hint is None else f"{text}: {hint}", name=name, obj=owner)


class _Elsewhere:
    """A name that other clients have."""

    __slots__ = ("_hint", "_name")

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, owner: object, kind: type) -> NoReturn:
        text = f"{kind.__name__!r} object has no attribute {self._name!r}: {self._hint}"
        raise AttributeError(text, name=self._name, obj=kind if owner is None else owner)


def elsewhere(kind: str, name: str) -> Any:
    """What a compiled class gives itself under a name that others have: `advised` cannot."""
    return _Elsewhere(name, _OF_CLASS[kind][name])


def own_names(made: object, kind: str) -> list[str]:
    """Names of an object without those that only raise: a shell offers what dir() lists."""
    return [name for name in object.__dir__(made) if name not in _OF_CLASS[kind]]


def advised(cls: type[T]) -> type[T]:
    """The class, with advice for the names that other clients have and this one does not."""
    kind = cls.__name__
    for name in _OF_CLASS[kind]:
        setattr(cls, name, elsewhere(kind, name))
    cls.__dir__ = lambda self: own_names(self, kind)  # type: ignore[method-assign]
    return cls


class NotAwaited:
    """What stop() of a client for asyncio returns: aiokafka's stop() is a coroutine, and closes.

    Args:
        client: "consumer" or "producer". does: what stop() of it does.
    """

    __slots__ = ("_client", "_does")

    def __init__(self, client: str, does: str) -> None:
        self._client = client
        self._does = does

    def __await__(self) -> NoReturn:
        raise TypeError(
            f"stop() is no coroutine: it {self._does}, from any thread or signal handler. To close the "
            f"{self._client}: await {self._client}.close(), or async with"
        )


def unmade(kind: str) -> str:
    """The repr of a client whose constructor has not ended: reporters of errors show it when that fails."""
    return f"<{kind}, not made yet>"


def running_loop(kind: str) -> asyncio.AbstractEventLoop:
    """The event loop that a client for asyncio belongs to.

    Args:
        kind: the client's class, such as ``AsyncConsumer``.

    Raises:
        RuntimeError: none runs, with what to do.
    """
    # Clients for threads need no asyncio, which takes long to load.
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"no event loop is running: write `async with {kind}(...)` in an `async def` function that "
            f"asyncio.run() runs; without asyncio, use {kind.removeprefix('Async')}"
        ) from None
