"""Polls that one partition's decoded records can serve: the plain half of `_steps_c`. Application side.

A poll has much to look at: background events, a commit that is due, the poll timer, who is inside. None of that changes
unless somebody raises the shared state's attention or time passes. So a poll that looked at all of it *arms* the steps,
and until then a poll is what is left: the next partition's turn, and an index that moves. Time passes with a tick of
the system where the compiled half can read it (1 to 10 ms, mostly 4), else with a millisecond.

The compiled half also decodes the next few records when those are used up; here a poll does that. The last record of a
fetch is never a step: whoever takes it gives the fetch back, which may wake the network thread.

Where deserialisers are set a step runs them (C14). They are the application's code and may take long, or call this
consumer. So they run before anything moves, and what they may have changed is looked at again. A record that they
refuse is left to a whole poll, which knows what becomes of it, and the error is kept for that poll.

Each step is a whole poll (C6): what the one before it returned is processed, partitions take turns (A2), and
what the poll timer says of the last poll is true to a tick.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any

from kadence.consumer.decoded_records import Attention, DecodedRecords
from kadence.consumer.shared_partition import SharedPartition
from kadence.metrics.sensors import Tally
from kadence.records import Cursor, Record
from kadence.types import TopicPartition

__all__ = ["AsyncIteration", "Decoder", "Iteration", "ReaderState", "Steps"]

Failure = tuple[Record[Any, Any], str, Exception]
"""A record, which part of it (``key`` or ``value``) its deserialiser refused, and what that raised."""


class ReaderState:
    """What the steps need of one partition's reader.

    Attributes:
        records: counts the records that were returned.
        cursor: what the fetch that is open is read with; a step of the compiled half decodes with it where those
            records are used up. None: no fetch is open.
        is_torn: the cursor does not stand behind the decoded records: it is to be opened again before anything is read.
        held: bytes of the decoded records, as the shared state counts them.
        gone: how many records a poll has given out and counted that are not kept any more. gone_in: which poll,
            as `Steps.calls` numbers them.
    """

    __slots__ = ("cursor", "gone", "gone_in", "held", "is_torn", "partition", "records", "shared_partition")

    def __init__(self, shared_partition: SharedPartition, partition: TopicPartition, records: Tally) -> None:
        self.shared_partition = shared_partition
        self.partition = partition
        self.records = records
        self.cursor: Cursor | None = None
        self.is_torn = False
        self.held = 0
        self.gone = self.gone_in = 0


class Decoder:
    """Makes keys and values out of their bytes.

    Args:
        key, value: a function of the bytes, or an object with ``deserialize(topic, headers, data)``; None leaves bytes.

    Attributes:
        failed: what the last `run` stopped at, if it stopped.
    """

    __slots__ = ("_key", "_key_in_full", "_value", "_value_in_full", "failed")

    def __init__(self, key: Any, value: Any) -> None:
        self._key_in_full = getattr(key, "deserialize", None)
        self._key = key if self._key_in_full is None else None
        self._value_in_full = getattr(value, "deserialize", None)
        self._value = value if self._value_in_full is None else None
        self.failed: Failure | None = None

    def run(self, records: Sequence[Record[Any, Any]], at: int, end: int, out: list[Record[Any, Any]]) -> int:
        """Append what becomes of ``records[at:end]`` to ``out``, up to one that a deserialiser refuses.

        A run that begins with the record at which the one before stopped stops there again, and asks no deserialiser.

        Returns:
            where it stopped: ``end``, or the place of the record in ``failed``.

        Raises:
            MemoryError: nobody's fault, and no reason to refuse a record.
        """
        failed, self.failed = self.failed, None
        if failed is not None and at < end and failed[0] is records[at]:
            self.failed = failed
            return at
        key_of, key_in_full = self._key, self._key_in_full
        value_of, value_in_full = self._value, self._value_in_full
        field = "key"
        try:
            while at < end:
                record = records[at]
                field = "key"
                key, value = record.key, record.value
                if key is not None:
                    if key_of is not None:
                        key = key_of(key)
                    elif key_in_full is not None:
                        key = key_in_full(record.topic, record.headers, key)
                field = "value"
                if value is not None:
                    if value_of is not None:
                        value = value_of(value)
                    elif value_in_full is not None:
                        value = value_in_full(record.topic, record.headers, value)
                out.append(
                    Record(
                        record.topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        key,
                        value,
                        record.headers,
                        record.leader_epoch,
                    )
                )
                at += 1
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, `deserialization.errors` says what it means
            self.failed = (records[at], field, error)
        return at


class Steps:
    """Serves polls that need only the next records of one partition.

    Args:
        attention: the shared state's. clock: the milliseconds of now. polls: counts polls.
        is_system: ``clock`` is the machine's own, which the compiled half can read by itself.

    Attributes:
        decoder: what runs the deserialisers; None where there are none.
        is_taking: records are being taken, be it by a step or by a whole poll: nobody may poll meanwhile.
        touched: readers of which the present poll, or the one that ended last, has taken something.
        calls: how often `mark_processed` was called or a step was made.
        taken: steps that are not counted yet.
    """

    __slots__ = (
        "_at",
        "_attention",
        "_clock",
        "_now",
        "_order",
        "_polls",
        "_thread",
        "calls",
        "decoder",
        "is_taking",
        "taken",
        "touched",
    )

    def __init__(
        self, attention: Attention, clock: Callable[[], int], polls: Tally, *, is_system: bool = False
    ) -> None:
        self._attention = attention
        self._clock = clock
        self._polls = polls
        self._order: Sequence[ReaderState] = ()
        self._at = 0
        self._now = -1
        self._thread = 0
        self.decoder: Decoder | None = None
        self.is_taking = False
        self.touched: list[ReaderState] = []
        self.calls = 0
        self.taken = 0

    def take_over(self) -> None:
        """From here on only the thread that calls this may take steps: it is inside a call of the consumer."""
        self._thread = threading.get_ident()

    def arm(self, now: int, order: Sequence[ReaderState]) -> None:
        """A poll that began at ``now`` found nothing to do but to take records.

        Args:
            order: readers, in the order in which they are to be served.
        """
        self._order = order
        self._at = 0
        self._now = now
        self._thread = threading.get_ident()

    def disarm(self) -> Sequence[ReaderState]:
        """A poll looks at everything again. Returns the readers that are to be served after all others."""
        served = self._order[: self._at]
        self.settle()
        self._now = -1
        self._order = ()
        self._at = 0
        return served

    def settle(self) -> None:
        """Count the steps made so far. Any thread: one that reads the metrics wants to see them."""
        taken = self.taken
        if not taken:
            return
        self.taken = 0
        self._polls.count += taken
        for place in self._order:
            decoded = place.shared_partition.decoded
            if decoded is not None and decoded.count and decoded.counted != decoded.index:
                place.records.total += decoded.index - decoded.counted
                decoded.counted = decoded.index

    def step(self) -> Record[Any, Any] | None:
        """A poll of one; None when there is more to do, or nothing is decoded of the next partition."""
        decoded = self._take_turn(1)
        if decoded is None:
            return None
        index = decoded.index
        if self.decoder is None:
            record = decoded.records[index]
        else:
            records = self._decoded(self.decoder, decoded, 1)
            if records is None:
                return None
            record = records[0]
        decoded.index = index + 1
        self._pass_on()
        return record

    def several(self, limit: int) -> Sequence[tuple[TopicPartition, list[Record[Any, Any]]]] | None:
        """A poll of ``limit``; None when there is more to do, or less than that is decoded of the next partition.

        It returns fewer where a deserialiser refuses one of them.
        """
        decoded = self._take_turn(limit)
        if decoded is None:
            return None
        # Deserialisers may change what is touched.
        place = self.touched[0]
        index = decoded.index
        records: list[Record[Any, Any]] | None
        if self.decoder is None:
            records = decoded.records[index : index + limit]
        else:
            records = self._decoded(self.decoder, decoded, limit)
            if records is None:
                return None
        chunks = ((place.partition, records),)
        decoded.index = index + len(records)
        self._pass_on()
        return chunks

    def _decoded(
        self, decoder: Decoder, decoded: DecodedRecords, limit: int
    ) -> list[Record[Any, Any]] | None:
        """What deserialisers make of the next records in the decoded records; None when a whole poll has to look.

        They may have called this consumer: sought, closed it, or given the partition up.
        """
        shared_partition = self.touched[0].shared_partition
        index = decoded.index
        records: list[Record[Any, Any]] = []
        self.is_taking = True
        try:
            decoder.run(decoded.records, index, index + limit, records)
        finally:
            self.is_taking = False
        if (
            not records
            or self._now < 0
            or shared_partition.decoded is not decoded
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or decoded.index != index
        ):
            return None
        return records

    def _pass_on(self) -> None:
        """The turn is the next partition's."""
        self.taken += 1
        self._at = (self._at + 1) % len(self._order)

    def is_inside_elsewhere(self) -> bool:
        """Whether another thread is in a deserialiser, which it called without entering the consumer."""
        return self.is_taking and self._thread != threading.get_ident()

    def _take_turn(self, least: int) -> DecodedRecords | None:
        """Begin a poll that the next partition's decoded records alone can serve; None where there is more to do."""
        order = self._order
        if self._attention.up or self.is_taking or not order or self._thread != threading.get_ident():
            return None
        if self._clock() != self._now:
            return None
        place = order[self._at]
        shared_partition = place.shared_partition
        decoded = shared_partition.decoded
        if (
            decoded is None
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or decoded.count - decoded.index < least + decoded.is_last
        ):
            return None
        if shared_partition.paused or shared_partition.revoking or shared_partition.held:
            return None
        if not all(map(_is_of_its_fetch_epoch, self.touched)):
            return None
        self.mark_processed()
        self.touched.append(place)
        return decoded

    def mark_processed(self) -> None:
        """The application polls again, so what it was given is processed: at least once (D1)."""
        for place in self.touched:
            shared_partition = place.shared_partition
            decoded = shared_partition.decoded
            if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                decoded.began = decoded.index
            else:
                # The fetch epoch has changed since without a jump: what was given before it is processed, too.
                shared_partition.processed = shared_partition.current()
        self.touched.clear()
        # Last: only what is taken after this may be put back.
        self.calls += 1

    def let_go(self) -> None:
        """The poll returns: records that it took as a whole list are the application's alone.

        Else their memory could not be used for the next ones, which costs large records half as much again. Should
        Ctrl-C still come before the caller has them, they are fetched again.
        """
        for place in self.touched:
            decoded = place.shared_partition.decoded
            if (
                decoded is not None
                and decoded.count
                and decoded.began == 0
                and decoded.index == decoded.count
            ):
                place.gone, place.gone_in = decoded.counted, self.calls
                decoded.records = []
                decoded.count = 0
                decoded.index = 1

    def put_back(self) -> list[ReaderState]:
        """What the present poll took was not returned: each index goes back to where the poll began.

        Returns:
            readers of which that is not enough: what they gave is not kept any more, or their fetch epoch has changed.
        """
        again = []
        for place in self.touched:
            shared_partition = place.shared_partition
            decoded = shared_partition.decoded
            if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                decoded.index = decoded.began
                if decoded.count or decoded.index:
                    continue
            again.append(place)
        return again


def _is_of_its_fetch_epoch(place: ReaderState) -> bool:
    """Whether these decoded records are still those that the partition's position goes by."""
    decoded = place.shared_partition.decoded
    return decoded is not None and decoded.fetch_epoch == place.shared_partition.fetch_epoch


class Iteration:
    """An endless iterator over records, each of them a poll of one.

    Args:
        slowly: the next record where a step gives none; it may wait.
    """

    __slots__ = ("_slowly", "_steps")

    def __init__(self, steps: Steps, slowly: Callable[[], Record[Any, Any]]) -> None:
        self._steps = steps
        self._slowly = slowly

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Record[Any, Any]:
        steps = self._steps
        calls = steps.calls
        try:
            record = steps.step()
            return self._slowly() if record is None else record
        except StopIteration:
            # The end: what the last poll passed over without a record stays passed over.
            raise
        except BaseException:
            # Ctrl-C: the compiled half cannot be interrupted here.
            if steps.calls != calls:
                steps.put_back()
            raise


class AsyncIteration:
    """As `Iteration`, for ``async for``.

    Args:
        slowly: a coroutine function that gives the next record where a step gives none.
    """

    __slots__ = ("_slowly", "_steps")

    def __init__(self, steps: Steps, slowly: Callable[[], Coroutine[Any, Any, Record[Any, Any]]]) -> None:
        self._steps = steps
        self._slowly = slowly

    def __aiter__(self) -> AsyncIteration:
        return self

    def __anext__(self) -> Awaitable[Record[Any, Any]]:
        return _Next(self._steps, self._slowly)


class _Next:
    """The next record, awaited: a step when it is awaited, or else all of the slow coroutine.

    Not earlier: one that is never awaited has taken nothing.
    """

    __slots__ = ("_inner", "_slowly", "_steps")

    def __init__(self, steps: Steps, slowly: Callable[[], Coroutine[Any, Any, Record[Any, Any]]]) -> None:
        self._steps = steps
        self._slowly = slowly
        self._inner: Coroutine[Any, Any, Record[Any, Any]] | None = None

    def __await__(self) -> Generator[Any, Any, Record[Any, Any]]:
        return self

    def __iter__(self) -> _Next:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        inner = self._inner
        if inner is None:
            steps = self._steps
            calls = steps.calls
            try:
                record = steps.step()
                if record is not None:
                    raise StopIteration(record)
            except StopIteration:
                raise
            except BaseException:
                # Ctrl-C: the compiled half cannot be interrupted here.
                if steps.calls != calls:
                    steps.put_back()
                raise
            inner = self._inner = self._slowly()
        return inner.send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        if self._inner is None:
            raise error
        return self._inner.throw(error, *rest)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
