"""The checks and waits before the accumulator: is the producer usable, is the topic known, is there memory.

The application's side. Calls that may wait are generators of waits (`waits`), run by the producer's shell. The
network thread notifies the producer's lock of each change.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kadence._native.append import TopicInfo
from kadence.client.engine import END_MS, ended, forked_error
from kadence.client.gate import Gate
from kadence.client.grace import RESERVE_MS, Grace
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, Seconds, add_ms, to_ms
from kadence.config import ProducerConfig
from kadence.errors import (
    ForkedError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kadence.errors.copies import own_copy
from kadence.forked import in_children
from kadence.producer.accumulator import Accumulator
from kadence.producer.futures import runs_callbacks
from kadence.producer.network_state import NetworkState
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.types import TopicPartition

__all__ = ["SendChecks"]


def _refuse_all(accumulator: Accumulator) -> None:
    """Fail all records of the parent's producer in a forked child, which has no thread to send them.

    Without places no record takes the short way, which begins with the lock: a thread of the parent may have held it.
    """
    error = ForkedError("this record was sent before fork(); only the parent process gets its result")
    accumulator.is_usable = False
    accumulator.places.clear()
    for batch in accumulator.incomplete:
        batch.delivery.forsake(error)


class SendChecks:
    """Checks, and waits for, the conditions for queueing a record: metadata, memory, an open producer.

    Attributes:
        gate: the producer's lock. is_closed: whether close() was called. is_stopping: whether stop() was.
        transactions: of a producer that has them.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        accumulator: Accumulator,
        topics: Topics,
        network: NetworkState,
        transactions: Transactions | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._accumulator = accumulator
        self._topics = topics
        self._network = network
        self.transactions = transactions
        self._pid = os.getpid()
        self._line: dict[object, int] = {}
        self.gate: Gate = accumulator.gate
        self.is_closed = False
        self.is_stopping = False
        self._grace = Grace()
        self._closes_with_grace = False
        in_children(accumulator, _refuse_all)
        accumulator.now_ms = clock.now_ms

    @property
    def largest(self) -> int:
        """The most bytes of one record."""
        return self._accumulator.largest

    @property
    def is_forked(self) -> bool:
        """True if this process is a child of the one that made the producer."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise if nothing can be sent."""
        self.check_usable()
        if self.transactions is not None:
            self.transactions.check_open()

    @property
    def is_in_doubt(self) -> bool:
        """True if the open transaction has failed, and the coordinator has not yet said if the producer was fenced."""
        return self.transactions is not None and self.transactions.is_in_doubt

    def know_why(self, deadline: int) -> Waits[None]:
        """Wait until the reason why the open transaction has failed is known, if it was asked for."""
        with self.gate:
            while self.is_in_doubt and self._clock.now_ms() < deadline:
                yield from self.wait(deadline, "")

    def check_usable(self) -> None:
        """Raise if the producer cannot be used.

        The pid is compared, too: Python's fork hooks do not run when a C library forks.
        """
        if self.is_closed or self._network.is_shut or self.is_forked:
            raise self.unusable()

    def shut(self) -> bool:
        """close() was called: take no more records.

        Returns:
            True if the caller can wait for the end. It cannot if a signal handler interrupted a call of this producer:
            that call holds the lock and must continue first.
        """
        if self.gate.is_mine:
            self.is_closed = True
            self._accumulator.is_usable = False
            return False
        if self._network.has_ended:
            # At the end of the process the lock may be held by a thread that no longer runs.
            self.is_closed = True
            return True
        with self.gate:
            self.is_closed = True
            self._accumulator.is_usable = False
            self.gate.notify_all()
        return True

    # ------------------------------------------------------------ the end of the program

    def stop(self, grace: Seconds | None) -> None:
        """The program is to end. Called in a signal handler: only sets attributes that other threads read."""
        self._grace.begin(self._clock.now_ms(), grace)
        self.is_stopping = True
        if self._closes_with_grace:
            # A close that has begun keeps to the grace period, too.
            self._network.begin_close(self.closed_by(None))
        self._network.stir()

    def closed_by(self, timeout: Seconds | None) -> int:
        """The deadline of a close: from its timeout, else the end of the grace period of `stop`."""
        now, ms = self._clock.now_ms(), to_ms(timeout)
        if ms is not None:
            deadline = add_ms(now, ms)
        else:
            deadline = max(self._grace.close_by, add_ms(now, RESERVE_MS))
        # FOREVER means "not closing" to the network thread.
        return min(deadline, FOREVER - 1)

    def end_by(self) -> int:
        """The deadline if the program does not close this producer and the grace period is nearly over."""
        return min(self.closed_by(None), max(self._grace.close_by, add_ms(self._clock.now_ms(), END_MS)))

    def begin_close(self, timeout: Seconds | None) -> int:
        """close() was called: return its deadline. Without a timeout `stop` may bring that forward."""
        # First: a signal handler may call `stop` next.
        self._closes_with_grace = timeout is None
        return self.closed_by(timeout)

    def unfinished(self) -> str | None:
        """The work that close() would still have to do; None if it was called. Any thread."""
        if self.is_closed or self.is_forked or self._network.has_ended:
            return None
        with self.gate:
            return f"{self._accumulator.undecided} records are neither acknowledged nor failed yet."

    # ------------------------------------------------------------ topics

    def block_until(self) -> int:
        """The time by which a call that begins now must end (``max.block.ms``)."""
        return self.deadline(self._config.max_block_ms)

    def place_of(self, topic: str, deadline: int) -> Waits[TopicInfo]:
        """The partitions of a topic; waits until they are known."""
        return self._accumulator.places.get(topic) or (yield from self.look_up(topic, deadline))

    def look_up(self, topic: str, deadline: int) -> Waits[TopicInfo]:
        """The topic in the newest cluster metadata; waits for metadata that have it."""
        with self.gate:
            topics = self._topics
            while not (infos := topics.cluster.partitions_for(topic)):
                yield from self._ask_for(topic, deadline)
                self._raise_if_hopeless(topic)
            topics.used(topic, self._clock.now_ms())
            available = tuple(info.partition for info in infos if info.leader is not None)
            sticky = topics.sticky(topic)
            sticky.near = topics.near(infos)
            sticky.leave_unless(available)
            self._accumulator.places[topic] = place = TopicInfo(
                infos,
                tuple(TopicPartition(topic, partition) for partition in range(len(infos))),
                available,
                sticky,
            )
            return place

    def with_partition(
        self, topic: str, known: TopicInfo, partition: int, deadline: int, row: str = ""
    ) -> Waits[TopicInfo]:
        """Check an explicit partition; if it is not known it may be new, so the metadata are requested once."""
        if 0 <= partition < len(known.partitions):
            return known
        if partition >= 0:
            with self.gate:
                yield from self._ask_for(topic, deadline)
            known = yield from self.look_up(topic, deadline)
            if partition < len(known.partitions):
                return known
        count = len(known.partitions)
        there = "1 partition, 0" if count == 1 else f"{count} partitions, 0 to {count - 1}"
        raise UnknownTopicOrPartitionError(f"{row}topic {topic!r} has {there}; {partition} is none of them")

    def _ask_for(self, topic: str, deadline: int) -> Waits[None]:
        """Request the metadata of a topic, and wait for the response."""
        began = self._clock.now_ms()
        number = self._topics.want(topic, began)
        self._network.wakeup()
        try:
            while self._topics.awaits(number):
                yield from self._wait_for_topic(topic, deadline)
        finally:
            self._accumulator.measures.metadata_ms += self._clock.now_ms() - began

    def _raise_if_hopeless(self, topic: str) -> None:
        """Raise if the topic has an error that waiting does not cure."""
        if self._topics.failure is not None:
            raise own_copy(self._topics.failure)
        entry = self._topics.cluster.topics.get(topic)
        code = ec.NONE if entry is None else entry.error_code
        if code not in (ec.NONE, ec.UNKNOWN_TOPIC_OR_PARTITION) and code not in ec.RETRIABLE:
            raise for_code(code, f"topic {topic!r}: {ec.MESSAGES.get(code, 'the broker refused it')}")

    def _wait_for_topic(self, topic: str, deadline: int) -> Waits[None]:
        if self._clock.now_ms() < deadline:
            yield from self.wait(deadline, "")
            return
        entry = self._topics.cluster.topics.get(topic)
        brokers = ",".join(self._config.bootstrap_servers)
        if entry is not None and entry.error_code == ec.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} does not exist on the cluster at {brokers}, which does not create topics by "
                f"itself; create it, e.g. kadence topics create {topic} --partitions 1"
            )
        why = self._network.trouble or self._topics.last_error or "no answer"
        raise KafkaTimeoutError(
            f"no metadata of topic {topic!r} came within max.block.ms={self._config.max_block_ms} "
            f"(brokers {brokers}): {why}"
        )

    # ------------------------------------------------------------ waiting, under the gate

    def deadline(self, wait_ms: int | None) -> int:
        return FOREVER if wait_ms is None else add_ms(self._clock.now_ms(), wait_ms)

    def wait(self, deadline: int, message: str) -> Waits[None]:
        """Wait for a change, once. With an empty message the caller handles the end of the time.

        No call waits beyond the grace period of `stop`.
        """
        if self.is_closed or self._network.is_shut:
            raise self.unusable()
        now = self._clock.now_ms()
        if message and now >= deadline:
            raise KafkaTimeoutError(message)
        yield min(deadline, self._grace.wait_until(now))

    def wait_until(
        self, done: Callable[[], bool], call: str, limit: tuple[str, int] | None = None
    ) -> Waits[None]:
        """Wait for the end of a step of a transaction. Batches do not linger meanwhile.

        Args:
            limit: the time, in words and in ms; ``max.block.ms`` otherwise.
        """
        began = self._clock.now_ms()
        words, limit_ms = limit or (f"max.block.ms={self._config.max_block_ms}", self._config.max_block_ms)
        deadline = self.deadline(limit_ms)
        self._accumulator.flushing += 1
        try:
            self._network.wakeup()
            while not done():
                why = (
                    self._network.trouble
                    or "the coordinator has not answered, or records are not acknowledged yet"
                )
                yield from self.wait(deadline, f"{call} has not ended within {words}: {why}")
        finally:
            self._accumulator.flushing -= 1
            spent = self._accumulator.measures.calls_ms
            spent[call] = spent.get(call, 0) + self._clock.now_ms() - began

    def must_wait_for_room(self, size: int) -> bool:
        """True if a record of ``size`` bytes must wait for room.

        The bytes that the longest waiting record needs are kept from others, but not from callbacks, which cannot wait.
        """
        accumulator = self._accumulator
        claimed = 0 if runs_callbacks(self.gate) else accumulator.claimed_bytes
        return not accumulator.has_room(size + claimed) or (claimed > 0 and not accumulator.incomplete)

    def wait_for_room(self, size: int, deadline: int) -> Waits[None]:
        """Wait in line until a record of ``size`` bytes fits; small records do not overtake a large one."""
        measures, began = self._accumulator.measures, self._clock.now_ms()
        ticket = object()
        try:
            self._line[ticket] = size
            self._claim()
            self._network.wakeup()
            while not (next(iter(self._line)) is ticket and self._accumulator.has_room(size)):
                yield from self.wait(
                    deadline,
                    f"no room for a record of {size} bytes within max.block.ms={self._config.max_block_ms}: "
                    f"buffer.memory={self._config.buffer_memory} is full of records that no broker has "
                    f"acknowledged yet; "
                    f"{self._network.trouble or 'the brokers acknowledge records more slowly than they are sent'}",
                )
        except KafkaTimeoutError:
            measures.exhausted.record(self._clock.now_ms())
            raise
        finally:
            try:
                self._leave_line(ticket)
            finally:
                # Once more, should Ctrl-C come in the midst of it: the claim would stay for ever.
                self._leave_line(ticket)
            now = self._clock.now_ms()
            measures.room_ms.record(now, now - began)

    def _leave_line(self, ticket: object) -> None:
        self._line.pop(ticket, None)
        self._claim()
        if self._line:
            self.gate.notify_all()

    def _claim(self) -> None:
        """The line has changed."""
        self._accumulator.claimed_bytes = next(iter(self._line.values()), 0)
        self._accumulator.blocked = len(self._line)

    # ------------------------------------------------------------ errors

    def unusable(self) -> KafkaError:
        if self.is_forked:
            return forked_error("producer")
        return ended("producer", self._network.fatal)

    def too_large(self, topic: str, size: int, what: str = "a record") -> RecordTooLargeError:
        if size > self._config.max_request_size:
            limit = f"max.request.size={self._config.max_request_size}"
        else:
            limit = f"buffer.memory={self._config.buffer_memory}"
        return RecordTooLargeError(
            f"{what} for topic {topic!r} takes {size} bytes, more than {limit}; raise it (and the broker's "
            "message.max.bytes), or send something smaller"
        )
