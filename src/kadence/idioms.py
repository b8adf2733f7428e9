"""Advice in errors for names and arguments of other Kafka clients: what they are called here.

Only calls that fail come here: a name that a class does not have (`missing`), an argument that a call does not take
(`refused`, `understood`, `explain`), a client for asyncio where no event loop runs (`running_loop`). Types are
untouched: to a type checker these names and arguments do not exist.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

if TYPE_CHECKING:
    import asyncio

__all__ = ["NotAwaited", "explain", "missing", "refused", "running_loop", "understood", "unmade"]

F = TypeVar("F", bound=Callable[..., Any])

_BY_PARTITION: Final = (
    "poll() returns records in the order read; by_partition() is the mapping of partitions to them"
)
_ONE_BY_ONE: Final = (
    "poll() returns several records, or none: `for record in consumer.poll(1)`, with record.key, record.value, "
    "record.topic, … as attributes; errors are raised by poll()"
)
_NOT_NEEDED: Final = "it is not needed: the first call connects"
_LAG: Final = (
    "current_lag(partition) is what is left to read, without a request; end_offsets(partitions) asks"
)
_STORE: Final = (
    "records count as processed when you poll() again; to commit them yourself, call commit_async(records)"
)

_CONSUMER: Final[Mapping[str, str]] = {
    # confluent-kafka
    "consume": "call poll(timeout, max_records=n)",
    "store_offsets": _STORE,
    "unassign": "call unsubscribe()",
    "get_watermark_offsets": "call beginning_offsets(partitions) and end_offsets(partitions)",
    "consumer_group_metadata": "call group_metadata()",
    "memberid": "use group_metadata().member_id",
    "cluster_id": "use Admin(...).describe_cluster()",
    "set_sasl_credentials": "make a new consumer; tokens are renewed by sasl.oauthbearer.token.provider",
    # kafka-python, aiokafka
    "topics": "call list_topics()",
    "partitions_for_topic": "call partitions_for(topic)",
    "highwater": _LAG,
    "last_stable_offset": _LAG,
    "bootstrap": _NOT_NEEDED,
    "bootstrap_connected": _NOT_NEEDED,
    "start": _NOT_NEEDED,
    "getone": "call poll(timeout, max_records=1), or iterate the consumer",
    "getmany": "call poll(timeout, max_records=n), with the timeout in seconds",
    "seek_to_committed": "call committed(partitions), then seek(partition, offset)",
    "last_poll_timestamp": "metrics() has last-poll-seconds-ago",
    "force_metadata_update": "metadata is refreshed by itself; metadata.max.age.ms says how often",
    # Java
    "commit_sync": "call commit()",
    "seek_to": "call seek(partition, offset)",
}

_RECORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("items", "keys", "values", "get"), _BY_PARTITION),
    **dict.fromkeys(
        ("error", "value", "key", "topic", "partition", "offset", "timestamp", "headers"), _ONE_BY_ONE
    ),
    "is_empty": "it is false when empty: `if not records`",
    "count": "use len(records)",
}

_PRODUCER: Final[Mapping[str, str]] = {
    # confluent-kafka
    "produce": "call send(topic, value, key); the future that it returns tells of the delivery",
    "poll": "it is not needed: records are sent, and callbacks of futures run, by themselves",
    "list_topics": "call partitions_for(topic), or Admin(...).list_topics()",
    "produce_batch": "call send() for each record, or send_arrow(table, topic) for many at once",
    "purge": "call close(0)",
    "cluster_id": "use Admin(...).describe_cluster().cluster_id",
    "set_sasl_credentials": "make a new producer; tokens are renewed by sasl.oauthbearer.token.provider",
    # kafka-python, aiokafka
    "bootstrap_connected": _NOT_NEEDED,
    "start": _NOT_NEEDED,
    "create_batch": "records are batched by themselves; send_arrow(table, topic) sends many at once",
    "send_batch": "records are batched by themselves; send_arrow(table, topic) sends many at once",
}

_FUTURE: Final[Mapping[str, str]] = {
    "get": "call result(timeout)",
    "succeeded": "call done() and exception()",
    "failed": "call done() and exception()",
    "is_done": "call done()",
    **dict.fromkeys(
        ("add_callback", "add_errback", "add_both"),
        "call add_done_callback(function); in the function, future.exception() tells what went wrong",
    ),
}

_ADMIN: Final[Mapping[str, str]] = {
    "start": _NOT_NEEDED,
    "poll": "it is not needed: each call waits until it is done",
    "cluster_id": "use describe_cluster().cluster_id",
    "alter_configs": "call incremental_alter_configs({resource: {name: value}})",
    "reset_configs": "call incremental_alter_configs({resource: {name: None}})",
    "describe_topic_partitions": "call describe_topics(names)",
    "list_partition_offsets": 'call list_offsets({partition: "latest"}), or log_ranges(partitions)',
    "reset_group_offsets": "call alter_consumer_group_offsets(group, {partition: offset})",
    "list_group_offsets": "call list_consumer_group_offsets(group)",
    "alter_group_offsets": "call alter_consumer_group_offsets(group, {partition: offset})",
    "delete_group_offsets": "call delete_consumer_group_offsets(group, partitions)",
    "list_consumer_groups": "call list_groups()",
    "describe_groups": "call describe_consumer_groups(groups)",
    "delete_groups": "call delete_consumer_groups(groups)",
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

_SECONDS: Final = "timeouts are seconds here, such as {call}(timeout=1.5)"
_FUNCTION: Final = (
    "give the function to the future that send() returns: add_done_callback(function); in the function, "
    "future.exception() tells what went wrong"
)
_LISTENER: Final = "give an object: subscribe(topics, listener=...); see kadence.RebalanceListener"
_ONE_LIST: Final = "several partitions are given as one list: {call}([one, other])"

_ARGUMENTS: Final[Mapping[tuple[str, str], str]] = {
    ("subscribe", "pattern"): "give it in place of the topics: subscribe(re.compile('orders-.*'))",
    ("subscribe", "on_assign"): _LISTENER,
    ("subscribe", "on_revoke"): _LISTENER,
    ("subscribe", "on_lost"): _LISTENER,
    ("commit", "message"): "give it in place of the offsets: commit(record)",
    (
        "commit",
        "asynchronous",
    ): "commit() waits until it is done; commit_async(offsets, callback) does not wait",
    ("poll", "update_offsets"): "each record that is returned moves the position",
    ("close", "autocommit"): "enable.auto.commit decides whether close() commits",
    ("list_topics", "topic"): "call partitions_for(topic)",
    **{
        (call, name): hint
        for call in ("send", "send_and_wait")
        for name, hint in {
            "timestamp_ms": "call it timestamp; it is in milliseconds, too",
            "on_delivery": _FUNCTION,
            "callback": _FUNCTION,
        }.items()
    },
}

_UNEXPECTED: Final = re.compile(r"\b(?:Async)?Producer\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")


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


def missing(owner: object, name: str) -> AttributeError:
    """The error for an attribute that an object of ours does not have."""
    kind = type(owner).__name__
    plain = f"{kind!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(plain, name=name, obj=owner)
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    hint = _OF_CLASS.get(kind, {}).get(snake)
    if hint is None and snake != name and hasattr(type(owner), snake):
        hint = f"call {snake}()"
    return AttributeError(f"{plain}: {hint}" if hint else plain, name=name, obj=owner)


def unmade(kind: str) -> str:
    """The repr of a client whose constructor has not ended: reporters of errors show it when that fails."""
    return f"<{kind}, not made yet>"


def refused(call: str, names: Iterable[str]) -> TypeError:
    """The error for keyword arguments that a call does not take."""
    name = next(iter(names))
    hint = _ARGUMENTS.get((call, name)) or (_SECONDS if name.endswith("_ms") else None)
    text = f"{call}() got an unexpected keyword argument {name!r}"
    return TypeError(f"{text}: {hint.format(call=call)}" if hint else text)


def explain(error: BaseException | None) -> None:
    """Add the sentence to Python's own error for an argument that ``send()`` of a producer does not take.

    To look for such arguments would cost each record a twentieth of its ``send()``, so ``with`` looks at the error.
    """
    if isinstance(error, TypeError) and (found := _UNEXPECTED.search(str(error))):
        call, name = found.groups()
        if (hint := _ARGUMENTS.get((call, name))) and hint not in getattr(error, "__notes__", ()):
            error.add_note(f"{name}: {hint}")


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


def understood(method: F) -> F:
    """The method, with a sentence for what other clients' methods of that name take beyond its own arguments.

    For calls that are not made for each record: it costs a tenth of a microsecond.
    """
    parameters = inspect.signature(method).parameters
    most = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters.values())
    takes_partitions = "partitions" in parameters

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if unknown := [name for name in kwargs if name not in parameters]:
            raise refused(method.__name__, unknown)
        if len(args) > most and takes_partitions:
            raise TypeError(_ONE_LIST.format(call=method.__name__))

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return await method(*args, **kwargs)

        return cast(F, awaited)

    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return method(*args, **kwargs)

    return cast(F, called)
