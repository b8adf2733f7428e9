"""Dead letters (KIP-1191): the leader writes what a group gave up to the group's dead letter topic, then archives it.

At least once: records that were ARCHIVING when a leader stopped get another letter when they are loaded again. A topic
that may not take letters, or that took none in five tries, costs the letter: the record is archived regardless, and an
ERROR line says so. Keys and values are copied only where the group wants it; headers never are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kadence.clock import add_ms
from kadence.errors import LocalError
from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.records import FetchedRecords, Record, encode_batch
from kadence_broker.cluster import Cluster, Topic, is_valid_topic_name
from kadence_broker.settings import Settings
from kadence_broker.share.changes import DeadLetter
from kadence_broker.share.led import Led
from kadence_broker.storage import BatchError, Isolation, Origin, Partition

if TYPE_CHECKING:
    from kadence_broker.server.loop import Loop

__all__ = ["ENABLED", "DeadLetters"]

_log = logger("kadence.broker")

ENABLED: Final = "errors.deadletterqueue.group.enable"
"""The topic's key that lets it take letters."""

_REJECTED: Final = "Offset rejected by client."
_EXCEEDED: Final = "Offset delivery count exceeded the threshold."
_PREFIX: Final = "__dlq.errors."
_TRIES: Final = 5
_FIRST_BACKOFF_MS: Final = 1_000
_LONGEST_BACKOFF_MS: Final = 30_000
_ROUND: Final = 500
"""Letters that are written in one go; other clients have their turn before the next."""
_AT_ONCE: Final = 20
"""Letters of different records' states, however few records each has."""
_RETRIABLE: Final = frozenset({codes.NOT_LEADER_OR_FOLLOWER, codes.KAFKA_STORAGE_ERROR})


@dataclass(slots=True)
class _Sending:
    """One letter on its way: the records from ``next`` on are still to be written."""

    led: Led
    letter: DeadLetter
    next: int
    tries: int = 0


class _LostError(Exception):
    """The letter cannot be written."""


class DeadLetters:
    """Writes letters to the topics of this broker. The broker's thread owns it."""

    __slots__ = ("_cluster", "_loop", "_settings", "_waiting")

    def __init__(self, cluster: Cluster, loop: Loop, settings: Settings) -> None:
        self._cluster = cluster
        self._loop = loop
        self._settings = settings
        self._waiting: deque[_Sending] = deque()

    def send(self, led: Led, letter: DeadLetter) -> None:
        """Write a dead letter, and have its records archived."""
        self._wait(_Sending(led, letter, letter.first))

    def _wait(self, sending: _Sending) -> None:
        if not self._waiting:
            self._loop.soon(self._take_turns)
        self._waiting.append(sending)

    def _take_turns(self) -> None:
        """Write some of the letters that wait: one request may have thousands of them."""
        for _ in range(min(len(self._waiting), _AT_ONCE)):
            self._loop.soon(partial(self._go_on, self._waiting.popleft()))
        if self._waiting:
            self._loop.soon(self._take_turns)

    def _go_on(self, sending: _Sending) -> None:
        led, letter = sending.led, sending.letter
        if led.state.is_fenced and not led.is_void:
            return  # Who loads what is stored begins anew with the letter.
        try:
            end = min(sending.next + _ROUND - 1, letter.last)
            partition = self._write(sending, end)
        except _LostError as error:
            self._lost(sending, str(error))
        except BatchError as error:
            if error.code in _RETRIABLE:
                self._again(sending, str(error))
            else:
                self._lost(sending, str(error))
        except OSError as error:
            self._again(sending, str(error))
        else:
            partition.on_durable(self._written(sending, end))

    def _written(self, sending: _Sending, end: int) -> Callable[[int], None]:
        def durable(code: int) -> None:
            if code != codes.NONE:
                self._again(sending, codes.name(code))
                return
            sending.next, sending.tries = end + 1, 0
            if sending.next <= sending.letter.last:
                self._wait(sending)
            else:
                sending.led.letter_written(sending.letter)

        return durable

    def _again(self, sending: _Sending, why: str) -> None:
        sending.tries += 1
        if sending.tries >= _TRIES:
            self._lost(sending, f"{why}; it was tried {_TRIES} times")
            return
        wait = min(_FIRST_BACKOFF_MS << (sending.tries - 1), _LONGEST_BACKOFF_MS)
        self._loop.at(add_ms(self._loop.clock.now_ms(), wait), lambda: self._go_on(sending))

    def _lost(self, sending: _Sending, why: str) -> None:
        letter, key = sending.letter, sending.led.key
        _log.error(
            "no dead letters for offsets %d to %d of %s-%d, which group %r gave up: %s. The records are archived "
            "regardless",
            sending.next,
            letter.last,
            sending.led.log.topic.name,
            key.partition,
            key.group_id,
            why,
        )
        sending.led.letter_written(letter)

    # One round

    def _write(self, sending: _Sending, end: int) -> Partition:
        """Append the letters of ``sending.next`` to ``end``.

        Raises:
            _LostError: they cannot be written. BatchError: the log did not take them.
        """
        led = sending.led
        topic = self._topic(led)
        partition = topic.partitions[led.key.partition % len(topic.partitions)]
        if partition.leader_id < 0:
            raise BatchError(codes.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{partition.index} has no leader")
        now = self._loop.wall_ms()
        copies = self._records(led, sending.next, end) if led.settings.dead_letter_copies else {}
        most = topic.log_config.max_message_bytes
        offset = sending.next
        while offset <= end:
            batch: list[_Letter] = []
            size = _BATCH_OVERHEAD
            while offset <= end:
                letter = self._letter(sending, offset, copies.get(offset), now, most)
                size += _size(letter)
                if batch and size > most:
                    break
                batch.append(letter)
                offset += 1
            partition.append(now, memoryview(encode_batch(batch)), origin=Origin.CLIENT)
            sending.next = offset
        return partition

    def _topic(self, led: Led) -> Topic:
        """The group's dead letter topic, made if the broker's settings allow it.

        Raises:
            _LostError: there is none that may take letters.
        """
        name = led.settings.dead_letter_topic
        prefix = self._settings.dead_letter_prefix
        topic = self._cluster.topics.get(name)
        if not name:
            raise _LostError("the group has no dead letter topic any more")
        if topic is led.log.topic:
            raise _LostError(f"{name!r} is the topic that the group reads")
        if topic is not None and topic.config.get(ENABLED) != "true":
            raise _LostError(f"{name!r} does not have {ENABLED}=true")
        if topic is None and not self._settings.dead_letter_auto_create:
            raise _LostError(
                f"topic {name!r} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if not name.startswith(prefix):
            raise _LostError(
                f"{name!r} does not begin with {prefix!r} (errors.deadletterqueue.topic.name.prefix)"
            )
        return topic or self._create(name)

    def _create(self, name: str) -> Topic:
        if not is_valid_topic_name(name) or not self._cluster.nodes:
            raise _LostError(f"no topic {name!r} can be made")
        config = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
        try:
            return self._cluster.create_topic(name, self._settings.num_partitions, config)
        except OSError as error:
            raise _LostError(f"topic {name!r} could not be made: {error}") from error

    def _letter(self, sending: _Sending, offset: int, record: Record | None, now: int, most: int) -> _Letter:
        key, letter = sending.led.key, sending.letter
        headers = [
            (_PREFIX + name, value.encode())
            for name, value in (
                ("topic", sending.led.log.topic.name),
                ("partition", str(key.partition)),
                ("offset", str(offset)),
                ("group", key.group_id),
                ("delivery.count", str(letter.deliveries)),
                ("message", _REJECTED if letter.is_rejected else _EXCEEDED),
            )
        ]
        made: _Letter = (now, None, None, headers)
        if record is not None:
            copy: _Letter = (now, record.key, record.value, headers)
            if _BATCH_OVERHEAD + _size(copy) <= most:
                return copy
        return made

    def _records(self, led: Led, first: int, last: int) -> dict[int, Record]:
        """The records of these offsets, as far as they can be read."""
        found: dict[int, Record] = {}
        offset = max(first, led.log.start_offset)
        while offset <= last:
            views = led.log.read(offset, 1, Isolation.UNCOMMITTED)
            if not views:
                break
            records = FetchedRecords(views[0], "", 0, offset)
            try:
                found.update((each.offset, each) for each in records.take() if each.offset <= last)
                offset = max(records.next_offset, offset + 1)
            except LocalError as error:
                _log.warning("records of %r from offset %d on cannot be read: %s", led.log, offset, error)
                break
            finally:
                records.close()
        return found


_Letter = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Time, key, value and headers."""

_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 24
"""Lengths and differences of a record, each in one to five bytes; more than they take."""


def _size(letter: _Letter) -> int:
    _, key, value, headers = letter
    return (
        _RECORD_OVERHEAD
        + len(key or b"")
        + len(value or b"")
        + sum(len(name) + len(content) + 6 for name, content in headers)
    )
