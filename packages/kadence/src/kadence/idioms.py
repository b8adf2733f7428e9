"""Advice in errors for what people write who come from another Kafka client: what it is called here.

One table has what they write most. A setting that only another client has is refused in any case
(`config.table.unknown`); the table adds what to write instead. `advised` gives a class the calls of others. Reading
one raises AttributeError with its sentence. The class needs no ``__getattr__`` for that, which would make each of its
own attributes slower to read. To type checkers these names do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "NotAwaited",
    "advice",
    "advised",
    "elsewhere",
    "own_names",
    "refuse",
    "running_loop",
    "takes_no_other",
    "unmade",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_HAS_FOREIGN: Final = 0x08
"""`inspect.CO_VARKEYWORDS`: the function's last parameter takes all other keyword arguments."""

_VERSIONS: Final = "versions are always agreed with each broker; leave it out"
_LOGGING: Final = "logging is Python's: logging.getLogger('kadence').setLevel(...)"
_METRICS: Final = "call metrics() whenever you like; it asks no broker"
_NOT_NEEDED: Final = "it is not needed: the first call connects"
_CALLBACK: Final = (
    "call add_done_callback(function); in the function, future.exception() returns the error, or None"
)
_RECORDS: Final = (
    "poll() returns several records, or none: `for record in consumer.poll(1)`, with record.key, record.value, … as "
    "attributes; errors are raised by poll()"
)

_LISTENER: Final = "pass a RebalanceListener, which has a method for each: subscribe(topics, listener=...)"

_ADVICE: Final[Mapping[str, Mapping[str, str]]] = {
    "setting": {
        # confluent-kafka
        "metadata.broker.list": "bootstrap.servers",
        "socket.timeout.ms": "request.timeout.ms",
        "sasl.mechanisms": "sasl.mechanism",
        "oauth.cb": "sasl.oauthbearer.token.provider",
        "fetch.wait.max.ms": "fetch.max.wait.ms",
        "queued.max.messages.kbytes": "buffer.memory",
        "queued.min.messages": "prefetching is bounded by bytes: buffer.memory",
        "enable.auto.offset.store": "auto-commit takes only what a later poll() marked as processed; leave it out",
        "enable.partition.eof": "there is no such event; current_lag(partition) == 0 says the same, without a request",
        "on.commit": "pass a callback to commit_async(), or in interceptors=[...] an object that sees all commits",
        "compression.codec": "compression.type",
        "queue.buffering.max.ms": "linger.ms",
        "queue.buffering.max.kbytes": "buffer.memory",
        "queue.buffering.max.messages": "what waits is bounded by bytes, not by a number of records: buffer.memory",
        "batch.num.messages": "batches are bounded by bytes, not by a number of records: batch.size",
        "request.required.acks": "acks",
        "message.timeout.ms": "delivery.timeout.ms",
        "message.max.bytes": "max.request.size",
        "message.send.max.retries": "retries",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "error.cb": "errors are raised by the calls they belong to, and what happens is logged under 'kadence'",
        "stats.cb": _METRICS,
        "statistics.interval.ms": _METRICS,
        "debug": _LOGGING,
        "logger": _LOGGING,
        "api.version.request": _VERSIONS,
        "broker.address.family": "addresses of both families are tried; leave it out",
        "enable.ssl.certificate.verification": (
            "certificates are always verified; ssl.endpoint.identification.algorithm='' leaves out only the check of "
            "the host's name"
        ),
        # kafka-python, aiokafka
        "ssl.cafile": "ssl.ca.location",
        "ssl.certfile": "ssl.certificate.location",
        "ssl.keyfile": "ssl.key.location",
        "ssl.password": "ssl.key.password",
        "ssl.context": "certificates and keys are PEM files: see ssl.ca.location and ssl.certificate.location",
        "sasl.plain.username": "sasl.username",
        "sasl.plain.password": "sasl.password",
        "sasl.oauth.token.provider": "sasl.oauthbearer.token.provider",
        "api.version": _VERSIONS,
        "consumer.timeout.ms": "iterate consumer.records(idle_timeout=seconds), which ends when nothing comes",
        "max.batch.size": "batch.size",
        "loop": "a client for asyncio belongs to the loop it is made on; leave it out",
    },
    "Consumer": {
        "consume": "call poll(timeout, max_records=n)",
        "store_offsets": (
            "records count as processed when you poll() again; to commit them yourself, call commit_async(records)"
        ),
        "get_watermark_offsets": "call beginning_offsets(partitions) and end_offsets(partitions)",
        "unassign": "call unsubscribe()",
        "topics": "call list_topics()",
        "partitions_for_topic": "call partitions_for(topic)",
        "start": _NOT_NEEDED,
        "getone": "call poll(timeout, max_records=1), or iterate the consumer",
        "getmany": "call poll(timeout, max_records=n), with the timeout in seconds",
    },
    "Consumer.poll": {"timeout_ms": "write timeout=, in seconds"},
    "Consumer.subscribe": {
        "on_assign": _LISTENER,
        "on_revoke": _LISTENER,
        "on_lost": _LISTENER,
    },
    "Consumer.commit": {
        "asynchronous": "commit() waits and raises; commit_async(offsets, callback) does not wait",
        "message": "write commit(record), for the record and all before it in its partition",
    },
    "ShareConsumer": {
        "consume": "call poll(timeout, max_records=n)",
        "commit_sync": "call commit(), which returns an error or None for each partition",
        "acquisition_lock_timeout_ms": "read lock_timeout, in seconds",
        "seek": "a queue has no positions; Admin.alter_share_group_offsets moves where it begins",
        "pause": "a queue has no positions to hold; poll less, or unsubscribe()",
        "nack": "call acknowledge(record, AcknowledgeType.RELEASE), or REJECT",
        "ack": "call acknowledge(record)",
    },
    "ShareConsumer.poll": {"timeout_ms": "write timeout=, in seconds"},
    "Records": {
        "error": _RECORDS,
        "value": _RECORDS,
        "items": (
            "poll() returns records in the order read; by_partition() is the mapping of partitions to them"
        ),
    },
    "Producer": {
        "produce": "call send(topic, value, key); result() of the future that it returns waits for the delivery",
        "poll": "it is not needed: the producer sends records and runs the callbacks of futures by itself",
        "start": _NOT_NEEDED,
    },
    "RecordFuture": {"get": "call result(timeout)", "add_callback": _CALLBACK, "add_errback": _CALLBACK},
    "Admin": {
        "alter_configs": "call incremental_alter_configs({resource: {name: value}})",
        "list_consumer_groups": "call list_groups()",
    },
}
"""By the class, the method or, for settings, the word ``setting``.

Of a setting that only is called otherwise: our name for it.
"""


def advice(kind: str, name: str) -> str | None:
    """What to write instead of another client's name; None if there is no advice.

    Args:
        kind: ``setting``, or a class of ours, or a method; one for asyncio has the advice of the one for threads.
    """
    return _of(kind).get(name)


def _of(kind: str) -> Mapping[str, str]:
    return _ADVICE[kind.removeprefix("Async")]


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
    return _Elsewhere(name, _of(kind)[name])


def own_names(made: object, kind: str) -> list[str]:
    """Names of an object without those that only raise: a shell offers what dir() lists."""
    return [name for name in object.__dir__(made) if name not in _of(kind)]


def advised(cls: type[T]) -> type[T]:
    """The class, with advice for the names that other clients have and this one does not."""
    kind = cls.__name__
    for name in _of(kind):
        setattr(cls, name, elsewhere(kind, name))
    cls.__dir__ = lambda self: own_names(self, kind)  # type: ignore[method-assign]
    return cls


def takes_no_other(function: F) -> F:
    """A method that ends in ``**foreign``, which it gives to `refuse`: its signature is shown without that.

    Advice for arguments that other clients have thus costs a call next to nothing; to type checkers there are none.
    """
    # `inspect.signature` reads the function that is wrapped. A signature made here would load `inspect`, for 10 ms.
    code = function.__code__
    shown = FunctionType(code.replace(co_flags=code.co_flags & ~_HAS_FOREIGN), function.__globals__)
    shown.__defaults__ = function.__defaults__
    shown.__kwdefaults__ = function.__kwdefaults__
    shown.__annotations__ = function.__annotations__
    function.__wrapped__ = shown  # type: ignore[attr-defined]
    return function


def refuse(method: Callable[..., Any], foreign: Mapping[str, object]) -> NoReturn:
    """Raise TypeError for keyword arguments that a method does not take."""
    call = method.__qualname__
    name = next((each for each in foreign if each in _of(call)), next(iter(foreign)))
    hint = advice(call, name)
    raise TypeError(
        f"{call}() got an unexpected keyword argument {name!r}" + ("" if hint is None else f": {hint}")
    )


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
            f"stop() cannot be awaited: it {self._does}, from any thread or signal handler. To close the "
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
