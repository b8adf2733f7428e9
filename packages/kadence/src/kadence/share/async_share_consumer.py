"""`AsyncShareConsumer`: queues for asyncio (KIP-932), on the loop's own thread. Application side.

Generated from share_consumer.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, Unpack, cast, overload

from kadence.client.engine import end_if_unclosed, opened
from kadence.client.surroundings import surroundings
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Seconds
from kadence.config import ShareConsumerConfig
from kadence.consumer.application.arguments import given
from kadence.consumer.application.async_shell import AsyncShell
from kadence.consumer.assembly import aside, letter_producer
from kadence.consumer.client_state import FAREWELL_MS
from kadence.consumer.decoded_records import Records
from kadence.consumer.fetch._iteration import AsyncIteration
from kadence.errors import KafkaError
from kadence.idioms import advised, refuse, takes_no_other
from kadence.lazy_dataclasses import replace
from kadence.loading import load
from kadence.records import Record
from kadence.share.acknowledgements import AcknowledgeType
from kadence.share.application.calls import ShareCalls
from kadence.share.application.results import AcknowledgementCallback
from kadence.share.application.state import ShareConsumerState
from kadence.share.assembly import core_of, network_side
from kadence.types import K_co, TopicPartition, V_co

if TYPE_CHECKING:
    import pyarrow

    from kadence.deserializers import DeserializerLike
    from kadence.share.settings import SettingsWithoutDeserializers
    from kadence.work.queue import QueueTotals
    from kadence.work.retry import Retry
    from kadence.work.settings import BatchFormat, Executor

__all__ = ["AsyncShareConsumer"]

T = TypeVar("T")


@advised
class AsyncShareConsumer(ShareConsumerState, Generic[K_co, V_co]):
    """`ShareConsumer` for asyncio: the same calls, awaited. It belongs to its event loop.

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
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: DeserializerLike[K_co] | None = None,
        value_deserializer: DeserializerLike[V_co] | None = None,
        **settings: Unpack[SettingsWithoutDeserializers],
    ) -> None:
        typed = given(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        parsed = ShareConsumerConfig.parse(config, **typed, **settings)
        around = surroundings("AsyncShareConsumer", awaits=AsyncShell.AWAITS)
        self._config = replace(parsed, client_id=parsed.client_id or around.client_id("share-consumer"))
        shared_state, engine = network_side(self._config, around)
        clock = shared_state.clock
        self._core = core_of(self._config, shared_state, engine, clock, letter_producer, aside)
        self._finalizer = end_if_unclosed(self, "AsyncShareConsumer", shared_state, engine, FAREWELL_MS)
        self._calls = ShareCalls(self._config, shared_state, self._core, clock, awaits=AsyncShell.AWAITS)
        self._shell = AsyncShell(self._core, shared_state, clock)
        self._say = self._core.holding.marks.say
        opened(self)

    # ------------------------------------------------------------ what to read

    async def subscribe(self, topics: str | Iterable[str]) -> None:
        """Join the group for these topics, replacing the subscription. The join starts with the next poll.

        Records of other topics that were fetched and not returned are released. An empty list is `unsubscribe`.

        Args:
            topics: one name, or several. A queue has no patterns.

        Raises:
            InvalidTopicError: a name that Kafka does not allow. ConfigError: dead.letter.topic is among the topics.
        """
        await self._run(self._calls.subscribe(topics))

    async def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group. What is not acknowledged is released, also records that polls have returned.

        Acknowledgements that you gave before are still sent. To keep what is held, `subscribe` to other topics instead.
        """
        await self._run(self._calls.unsubscribe(timeout))

    # ------------------------------------------------------------ records

    @takes_no_other
    async def poll(
        self, timeout: Seconds = 0.0, *, max_records: int | None = None, **foreign: Never
    ) -> Records[K_co, V_co]:
        """Wait for records, at most ``timeout`` seconds, and return them; empty when none came.

        With ``share.acknowledgement.mode=implicit`` this accepts all records that the last poll returned. A record
        whose lock ended before a poll could return it is not returned: it is delivered again. Records that you renewed
        (`acknowledge`) are returned again, without others.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            IllegalStateError: `subscribe` was not called; or, in explicit mode, a record of the last poll is not
                acknowledged yet.
            RecordDeserializationError: a deserialiser refused a record (deserialization.errors=raise). It is released;
                the next poll returns the others. In explicit mode you can first `acknowledge` it otherwise.
            UnsupportedRecordFormatError: the same for a batch of a format that this client cannot read.
            DeadLetterError: a bad record could not be written to the dead letter topic; it is released.
            WakeupError: `wakeup` was called. KafkaError: the group refuses this consumer (each poll raises it until the
                group lets it in), or another error that needs a change by you.
        """
        if foreign:
            refuse(self.poll, foreign)
        polls = self._core.polls
        begun: int | None = None
        try:
            async with self._shell.polling():
                begun = polls.begun
                records = self._calls.poll_buffered(timeout, max_records)
                if records is None:
                    records = await self._shell.run(self._calls.poll(timeout, max_records))
            # From here to the caller nothing can come between: the interpreter looks for signals at calls only.
            return records
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                polls.put_back(begun)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                polls.put_back(begun)
            raise

    async def poll_arrow(
        self,
        timeout: Seconds = 0.0,
        *,
        max_records: int | None = None,
        headers: bool = False,
        columns: Sequence[str] | None = None,
    ) -> pyarrow.Table:
        """Poll, and return one Arrow table; keys and values are raw bytes.

        It has the columns of `Consumer.poll_arrow` and ``deliveryCount``. In explicit mode give it, or a part of it,
        to `acknowledge`.

        Args:
            max_records: the most rows of this table instead of max.poll.records; -1 for no cap.
            headers: add a column of list<struct<key, value>>.
            columns: make only these columns, in this order: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
                ``timestamp``, ``timestampType``, ``headers``, ``deliveryCount``. None: all but headers.

        Raises:
            ValueError: ``columns`` is empty, or names an unknown column, or one column twice.
            IllegalStateError: a renewed record waits that `poll` returned deserialised: only `poll` returns it again.
            MissingDependencyError: pyarrow is not installed (``pip install 'kadence[arrow]'``). Or as `poll`.
        """
        polls = self._core.polls
        begun: int | None = None
        try:
            async with self._shell.polling():
                begun = polls.begun
                return await self._shell.run(self._calls.poll_arrow(timeout, max_records, headers, columns))
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                polls.put_back(begun)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                polls.put_back(begun)
            raise

    def __aiter__(self) -> AsyncIterator[Record[K_co, V_co]]:
        """Iterate over records until `stop`; each step is a poll of one.

        In implicit mode a step accepts the record before it: a record counts as processed when the loop asks for the
        next one. After a ``break`` await `commit` if the last record is done, or it is released at the end.
        """
        # With tracing each poll has a span, which steps would leave out.
        return AsyncIteration(self._core.polls.steps, self.__anext__) if self._core.tracing is None else self

    async def __anext__(self) -> Record[K_co, V_co]:
        while True:
            begun = self._core.polls.begun
            try:
                # That deadline never comes. Nothing stands between the record and the caller: see `poll`.
                records = await self.poll(FOREVER / 1000, max_records=1)
                if records:
                    return records[0]
            except self._shell.BEFORE_TAKING:
                raise
            except BaseException:
                self._core.polls.put_back(begun)
                raise
            if self._core.stopping:
                raise StopAsyncIteration

    # ------------------------------------------------------------ acknowledging

    @overload
    def acknowledge(
        self,
        records: Record[Any, Any] | Iterable[Record[Any, Any]] | pyarrow.Table,
        /,
        type: AcknowledgeType = ...,
    ) -> None: ...

    @overload
    def acknowledge(
        self,
        topic: str,
        partition: int,
        offset: int,
        /,
        type: AcknowledgeType = ...,
    ) -> None: ...

    def acknowledge(self, records: Any, /, *place: Any, type: AcknowledgeType | None = None) -> None:  # noqa: A002
        """Say what becomes of a record that a poll returned; only with ``share.acknowledgement.mode=explicit``.

        The next poll or commit sends it. Until then another call for the same record replaces it.

        Args:
            records: a record; several, such as what `poll` returned; a table of `poll_arrow`; or a topic's name, with
                a partition and an offset after it.
            type: ``AcknowledgeType.ACCEPT``, the default: it is done. RELEASE: deliver it again. REJECT: never deliver
                it again; the group's dead letter topic gets it, if it has one. RENEW: its lock begins anew, and then a
                poll returns it again; rarely needed, since the consumer renews locks by itself.

        Raises:
            IllegalStateError: this consumer does not hold one of the records: no poll has returned it, or its
                acknowledgement was sent. The call has no effect on the others either. Or the mode is implicit.
        """
        if not self._say(records, place, type):
            with self._shell:
                self._calls.acknowledge(records, place, type)

    async def commit(self, *, timeout: Seconds | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements, and wait for the brokers' answers, also to those that polls have sent before.

        In implicit mode it accepts all records that the last poll returned. Retriable errors are retried until
        ``timeout`` (default.api.timeout.ms), or until the locks end.

        Returns:
            For each partition that had unanswered acknowledgements the error, or None if the broker took all of them.
            With an error some of them do not count, and those records may be delivered again:
            InvalidRecordStateError: their locks had ended. KafkaTimeoutError: no broker answered in time; they may
            count.

        Raises:
            WakeupError: `wakeup` was called; the acknowledgements are sent all the same.
        """
        return await self._run(self._calls.commit(timeout))

    async def commit_async(self) -> None:
        """As `commit`, without waiting for the answers; the acknowledgement callback gets them."""
        await self._run(self._calls.commit_async())

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have ``callback(partition, offsets, error)`` called when acknowledgements are answered or fail; None: none.

        It runs inside `poll`, `process`, `commit`, `commit_async`, `unsubscribe` and `close`. Its exceptions are only
        logged. It must not call this consumer (`IllegalStateError`). ``error`` is None if the broker took the
        acknowledgements.
        """
        with self._shell:
            self._calls.set_callback(callback)

    # ------------------------------------------------------------ work

    async def process(
        self,
        handler: Callable[..., Any],
        *,
        workers: int = 16,
        executor: Executor | None = None,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        batch: tuple[int, Seconds] | None = None,
        halve: bool = False,
        batch_format: BatchFormat = "records",
        max_records: int = 2_000,
        max_bytes: int = 64 << 20,
        drain: Seconds = 20.0,
    ) -> QueueTotals:
        """Call ``handler(record)`` with every record, on several workers, and acknowledge each by itself.

        This call contains the poll loop, in both acknowledgement modes, and returns after `stop` (or a signal, see
        `stop_on_signals`). A record is accepted when its handler has returned and the records that the handler returned
        are acknowledged. If the handler raises, that is a failed attempt. While the record runs or waits for its next
        attempt, its lock is renewed. After the last attempt it is rejected, and the group's dead letter topic gets it,
        if there is one; or it is written to ``dead_letter`` and then accepted. There is no order. Records that are not
        done at the end are released.

        Args:
            handler: a function or coroutine function that takes a record, or a list of records with ``batch``. With a
                second argument it also gets a `Context`, which has the ``delivery_count``. It returns None, or one or
                more `ProducerRecord` to send (a list, or a generator).
            workers: how many handlers run at once, at most.
            executor: where handlers run, as for `Consumer.process`.
            retry: how often, and after which waits, a record is tried again within one delivery; None: not at all.
                ``Retry(topic=...)`` is not allowed.
            dead_letter: the topic for records whose attempts all failed; None: they are rejected.
            timeout: seconds that one attempt may take. A coroutine is cancelled then, which counts as a failed
                attempt, and a process is killed; a thread cannot be stopped: its record is released, and `Context.lost`
                and `Context.timed_out` become true.
            batch, halve, batch_format: as for `Consumer.process`.
            max_records, max_bytes: the most that is read ahead. While less keeps the workers busy, less is read, and
                other members can get the rest.
            drain: seconds that running handlers get at the end. Choose less than the ``grace`` of `stop_on_signals`.

        Returns:
            How many records this call has done, of these rejected or written to the dead letter topic, and how many
            attempts failed.

        Raises:
            DeadLetterError: a dead letter can never be written to its topic; the record is released.
            TypeError: the handler returned something other than records to send.
            RecordDeserializationError: with ``deserialization.errors=raise``; the record is released.
            ConfigError, ValueError, TypeError: arguments that are not allowed, or a topic of dead letters that the
                cluster does not have. Or what `poll` raises.
        """
        # Most consumers do not need it.
        load("kadence.work.queue")
        from kadence.work.queue import queue_settings

        settings = queue_settings(
            handler,
            workers=workers,
            executor=executor,
            retry=retry,
            dead_letter=dead_letter,
            timeout=timeout,
            batch=batch,
            halve=halve,
            batch_format=batch_format,
            max_records=max_records,
            max_bytes=max_bytes,
            drain=drain,
            deserialization_errors=self._config.deserialization_errors,
            dead_letter_topic=self._config.dead_letter_topic,
        )
        totals: Any = await self._shell.process(self, settings, letter_producer, aside())
        return cast("QueueTotals", totals)

    # ------------------------------------------------------------ the end

    async def close(self, timeout: Seconds | None = None) -> None:
        """Send acknowledgements, release what is held, leave the group and stop. Idempotent; never hangs.

        In implicit mode this accepts nothing: the records of the last poll are released.

        Args:
            timeout: seconds for everything together; None: 30, or what `stop` allowed.
        """
        # After fork() the sockets and the thread are the parent's: a child has nothing to say to anybody.
        if not self._shell.forked:
            deadline = self._calls.closed_by(timeout)
            await self._shell.close(self._calls.close(deadline), deadline)
        # Only now: after Ctrl-C in the middle of it there is still somebody who leaves the group.
        self._finalizer.detach()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Waits[T]) -> T:
        with self._shell:
            return await self._shell.run(call)
