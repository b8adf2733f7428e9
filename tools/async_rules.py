"""How each asyncio class is made from the threads' one; see async_text.py for what the rules mean.

One more class gets its asyncio twin so: its public module only calls a shell, ``self._shell.run(...)`` say; a shell for
threads and one for asyncio are written by hand; and `TWINS` gets its `Rules`. Then ``make generate`` writes the twin.
"""

from __future__ import annotations

from typing import Final

from async_text import Rules

__all__ = ["ADMIN", "CONSUMER", "PRODUCER", "SHARE_CONSUMER", "TWINS"]

_CONSUMER: Final = '''"""`Consumer` for asyncio: the same calls, awaited. It belongs to the event loop it is made on.

    A network thread of the client's own talks to the brokers. So a consumer whose loop is blocked keeps
    its membership for up to max.poll.interval.ms, and no call below waits for brokers on the loop's thread.
    One task polls; others may commit, seek or close meanwhile. Rebalances take place in the background; their callbacks
    run inside `poll`, `unsubscribe` and `close`. They and commit callbacks may be coroutine functions.
    Cancelling an await loses no record, and commits nothing that was not returned.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        key_deserializer, value_deserializer: the settings key.deserializer and value.deserializer. As keywords they
            also give the records their types, as with `Consumer`.
        settings: the other keys in snake_case (`ConsumerSettings`), e.g. ``group_id="g"``.

    Raises:
        ConfigError: a key is unknown, a value is not allowed, or two values contradict each other.
        RuntimeError: no event loop is running.

    Delivery is at least once by default: auto-commit does not commit the records of a poll before the next poll or
    `close`.
    """'''

CONSUMER: Final = Rules(
    folder="consumer",
    source="consumer.py",
    target="async_consumer.py",
    awaited={"self._shell.run", "self._shell.close", "self._shell.process"},
    contexts={"self._shell.polling"},
    always_async={"__enter__", "__exit__"},
    names={
        "Consumer": "AsyncConsumer",
        "Shell": "AsyncShell",
        "RebalanceListener": "AsyncRebalanceListener",
        "Iterator": "AsyncIterator",
        "Iteration": "AsyncIteration",
        "__iter__": "__aiter__",
        "__next__": "__anext__",
        "__enter__": "__aenter__",
        "__exit__": "__aexit__",
        "StopIteration": "StopAsyncIteration",
    },
    modules={"kadence.consumer.application.shell": "kadence.consumer.application.async_shell"},
    docstrings={
        "": '''"""`AsyncConsumer`: the public API for asyncio, on the loop's own thread. Application side.

Generated from consumer.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""''',
        "Consumer": _CONSUMER,
    },
    sentences={
        "listener: called when partitions are assigned and revoked. None removes the listener of an earlier call.": (
            "listener: called when partitions are assigned and revoked; its methods may be coroutine functions.\n"
            "                None removes the listener of an earlier call."
        ),
        "callback: runs as ``callback(offsets, error)`` inside a later `poll`, `commit`, `unsubscribe` or `close`, in\n"
        "                the order of the commits. ``error`` is None if the commit succeeded.": (
            "callback: a function or coroutine function. It runs as ``callback(offsets, error)`` inside a later\n"
            "                `poll`, `commit`, `unsubscribe` or `close`, in the order of the commits. ``error`` is\n"
            "                None if the commit succeeded."
        ),
    },
)

_SHARE_CONSUMER: Final = '''"""`ShareConsumer` for asyncio: the same calls, awaited. It belongs to its event loop.

    **Leaving an ``async with`` block releases what was returned and not acknowledged, with or without an exception.**
    With ``share.acknowledgement.mode=implicit``, the default, the next `poll` or `commit` accepts what the last poll
    returned; so after the last loop await `commit` if its records are done. With ``explicit`` call `acknowledge` for
    each record.

    A network thread of the client's own talks to the brokers, and renews the locks of what your code holds; no call
    below waits for brokers on the loop's thread. One task polls; others may acknowledge or commit meanwhile. Cancelling
    an await loses no record. The acknowledgement callback may be a coroutine function.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "jobs"}``.
        key_deserializer, value_deserializer: the settings key.deserializer and value.deserializer. As keywords they
            also give the records their types, as with `Consumer`.
        settings: the other keys in snake_case (`ShareConsumerSettings`), e.g. ``group_id="jobs"``.

    Raises:
        ConfigError: a key is unknown or one that a queue cannot have, a value is not allowed, or two values contradict
            each other. RuntimeError: no event loop is running.
    """'''

SHARE_CONSUMER: Final = Rules(
    folder="share",
    source="share_consumer.py",
    target="async_share_consumer.py",
    awaited={"self._shell.run", "self._shell.close", "self._shell.process"},
    contexts={"self._shell.polling"},
    always_async={"__enter__", "__exit__"},
    names={
        "ShareConsumer": "AsyncShareConsumer",
        "Shell": "AsyncShell",
        "Iterator": "AsyncIterator",
        "Iteration": "AsyncIteration",
        "__iter__": "__aiter__",
        "__next__": "__anext__",
        "__enter__": "__aenter__",
        "__exit__": "__aexit__",
        "StopIteration": "StopAsyncIteration",
    },
    modules={"kadence.consumer.application.shell": "kadence.consumer.application.async_shell"},
    docstrings={
        "": '''"""`AsyncShareConsumer`: queues for asyncio (KIP-932), on the loop's own thread. Application side.

Generated from share_consumer.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""''',
        "ShareConsumer": _SHARE_CONSUMER,
    },
    sentences={
        "After a ``break`` call `commit`": "After a ``break`` await `commit`",
    },
)

_PRODUCER: Final = '''"""`Producer` for asyncio: the same calls, awaited. It belongs to the event loop it is made on.

    A network thread of the client's own talks to the brokers, and no call below waits for them on the loop's thread.
    Any number of tasks may share one producer. If ``send()`` is cancelled, its record is not sent. Cancelling the await
    of its future does not stop the record from being sent.

    Idempotent by default: retries neither repeat nor reorder records of a partition. By default keys choose partitions
    as in Kafka's Java client.

    Example:
        >>> async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:  # doctest: +SKIP
        ...     future = await producer.send("greetings", b"hello", key=b"en")
        ...     metadata = await future

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used. RuntimeError: no event loop is running.
    """'''

PRODUCER: Final = Rules(
    folder="producer",
    source="producer.py",
    target="async_producer.py",
    awaited={"self._shell.run", "self._shell.breathe", "self._shell.outcome", "self._shell.end"},
    always_async={"__enter__", "__exit__", "begin_transaction"},
    names={
        "Producer": "AsyncProducer",
        "Shell": "AsyncShell",
        "Iterator": "AsyncIterator",
        "contextmanager": "asynccontextmanager",
        "__enter__": "__aenter__",
        "__exit__": "__aexit__",
    },
    modules={"kadence.producer.shell": "kadence.producer.async_shell"},
    docstrings={
        "": '''"""`AsyncProducer`: the public API for asyncio, on the loop's own thread.

Generated from producer.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""''',
        "Producer": _PRODUCER,
    },
    sentences={
        "A future of the record's place in the log; its ``result()`` raises why it was not written.": (
            "A future of the record's place in the log. Awaiting it raises why the record was not written."
        ),
        "One future for all rows. Its ``result()`` says how many rows each partition got and at which offsets.": (
            "One future for all rows. Awaiting it says how many rows each partition got and at which offsets."
        ),
        "Begin a transaction for a ``with`` block": "Begin a transaction for an ``async with`` block",
        """>>> with producer.transaction():  # doctest: +SKIP
            ...     producer.send(""": """>>> async with producer.transaction():  # doctest: +SKIP
            ...     await producer.send(""",
    },
)

_ADMIN: Final = '''"""`Admin` for asyncio: the same calls, awaited. It belongs to the event loop it is made on.

    A network thread of the client's own talks to the brokers, and no call blocks the loop. Any number of tasks
    may share one client; their calls run side by side. Every call takes at most ``timeout`` seconds
    (``default.api.timeout.ms`` when None). It repeats a request after a retriable error, such as a controller or
    coordinator that moved, or a broker that is down. If a call is for several items and some of them fail, it raises
    the first error, with a note for each other failed item; with ``raise_errors=False`` it returns the `Outcomes`,
    which have the ``errors``, instead. Cancelling a call ends it; the brokers may carry out its requests all the same.

    Raises of every call:
        KafkaTimeoutError: the call did not finish in time; the message has the last error. Its cause is a
            ConnectError if no broker could be reached.
        BrokerError: a broker refused. AuthenticationError: a login or a certificate was refused.
            UnsupportedVersionError: the broker is too old.
        ClosedError, ForkedError: this client cannot be used (any more).
        ConcurrentAccessError: called on another event loop than the client's own.

    Example:
        >>> async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:  # doctest: +SKIP
        ...     await admin.create_topics({"orders": 3})

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used. RuntimeError: no event loop is running.
    """'''

ADMIN: Final = Rules(
    folder="admin",
    source="admin.py",
    target="async_admin.py",
    awaited={"self._shell.close"},
    always_async={"__enter__", "__exit__"},
    names={
        "Admin": "AsyncAdmin",
        "Operations": "AsyncOperations",
        "AdminShell": "AsyncAdminShell",
        "__enter__": "__aenter__",
        "__exit__": "__aexit__",
    },
    modules={
        "kadence.admin.operations": "kadence.admin.async_operations",
        "kadence.admin.shell": "kadence.admin.async_shell",
    },
    docstrings={
        "": '''"""`AsyncAdmin`: the public admin client for asyncio.

Generated from admin.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""''',
        "Admin": _ADMIN,
    },
    sentences={
        "Calls that other threads are making end": "Calls that other tasks are making end",
    },
)

TWINS: Final = (CONSUMER, SHARE_CONSUMER, PRODUCER, ADMIN)
"""Every module that is made so."""
