"""The progress of a partition (H3): its lowest offset that is not done, and the done offsets above it. Pure.

Records end in any order, but a group commits one offset for each partition: here the lowest one that is not done. The
done offsets above it are in the commit's metadata, a string that the coordinator stores and returns. So the next owner
of the partition repeats only records that were not done.

A frontier belongs to one *stretch* of reading, without a jump. It does not apply to another stretch, whose records may
be those of another topic of the same name.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.types import OffsetAndMetadata
from kadence.wire import ZERO_UUID

if TYPE_CHECKING:
    from kadence.records import Record

__all__ = ["METADATA_BYTES", "Frontier", "Stretch", "decode", "done_above", "encode"]

METADATA_BYTES: Final = 4096
"""The longest metadata that a broker accepts by default (offset.metadata.max.bytes)."""

_RUNS: Final = "kadence-work:1:"
"""The prefix of metadata that lists runs: pairs of varints, the gap before a run and its length. Metadata without this
prefix or `_BITS` is another program's."""

_BITS: Final = "kadence-work:2:"
"""The prefix of metadata with a bit for each offset from the committed one on, the lowest bit first. 4,096 characters
hold about 1,500 runs, or the bits of 24,000 offsets. If one frequent key is held up, there are more than 1,500 runs."""

_CHECK_BYTES: Final = 4

_MOST: Final = 2**63 - 1
"""Kafka's largest offset."""
_MOST_NUMBER_BYTES: Final = 10
"""The most bytes of a 64-bit varint."""

Run = tuple[int, int]
"""Done offsets: from the first number up to the second, exclusive."""


class Stretch(NamedTuple):
    """Reading of a partition without a jump, as the consumer reports it.

    Attributes:
        fetch_epoch: the consumer's number of this stretch. offset, leader_epoch: its position.
        topic_id: of the topic that is read; zero while unknown.
        committed: the committed offset at which it began; None: a reset policy or the program chose the start.
        is_by_policy: whether a reset policy did.
    """

    fetch_epoch: int
    offset: int
    leader_epoch: int | None = None
    topic_id: bytes = ZERO_UUID
    committed: OffsetAndMetadata | None = None
    is_by_policy: bool = False

    def goes_on(self, before: Stretch) -> bool:
        """Whether it is of the same topic as the stretch before it, as far as known."""
        return ZERO_UUID in (self.topic_id, before.topic_id) or self.topic_id == before.topic_id


class Frontier:
    """The offsets of one partition that were given out, and those that are done.

    Args:
        done: runs of offsets that were done before this began, ascending: they are skipped.
        position, epoch: where reading begins, if known.

    Attributes:
        position: the next offset to be given out; None while unknown. epoch: the leader epoch there.
        has_claims: whether there are such runs, and `log_ends` has not checked them yet.
    """

    __slots__ = ("_done", "_given", "_skips", "epoch", "has_claims", "position")

    def __init__(
        self, done: Iterable[Run] = (), position: int | None = None, epoch: int | None = None
    ) -> None:
        self.position = position
        self.epoch = epoch
        # Ascending. A done offset is removed once all before it are removed.
        self._given: deque[int] = deque()
        self._done: set[int] = set()
        self._skips: deque[Run] = deque(done)
        self.has_claims = bool(self._skips)

    def log_ends(self, end: int) -> None:
        """Drop runs that end behind the log end: they are of another log, or forged, and later records are not done."""
        self.has_claims = False
        while self._skips and self._skips[-1][1] > end:
            self._skips.pop()

    def give_all(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """These were read, in the order of their offsets. Returns those that need work; see `give`."""
        given = self._given
        if not records or self._skips or (given and records[0].offset <= given[-1]):
            return [each for each in records if self.give(each.offset, each.leader_epoch)]
        given.extend([each.offset for each in records])
        self.passed(given[-1] + 1, records[-1].leader_epoch)
        return records

    def give(self, offset: int, leader_epoch: int | None) -> bool:
        """A record was read. Returns whether it needs work: False if it was done before."""
        if self.position is None or offset >= self.position:
            self.position = offset + 1
            self.epoch = leader_epoch
        given = self._given
        if given and offset <= given[-1]:
            self._give_late(offset)
        else:
            given.append(offset)
        skips = self._skips
        while skips and skips[0][1] <= offset:
            skips.popleft()
        if skips and skips[0][0] <= offset:
            self.done(offset)
            return False
        return True

    def _give_late(self, offset: int) -> None:
        """A program tracks records out of order, or twice. A record that is given again is no longer done."""
        place = bisect_left(self._given, offset)
        if self._given[place] == offset:
            self._done.discard(offset)
        else:
            self._given.insert(place, offset)

    def passed(self, position: int, leader_epoch: int | None) -> None:
        """Reading is at ``position``: offsets before it that were not given out need no work."""
        if self.position is None or position > self.position:
            self.position = position
            self.epoch = leader_epoch

    def done(self, offset: int) -> None:
        """The record at ``offset`` is done. Repeating the call has no effect."""
        given, done = self._given, self._done
        if not given:
            return
        first = given[0]
        if first == offset:
            given.popleft()
            while done and given and given[0] in done:
                done.remove(given.popleft())
        elif offset > first:
            done.add(offset)

    @property
    def offset(self) -> int | None:
        """The lowest offset that is not done; None while unknown."""
        if self._given:
            return self._given[0]
        position, skips = self.position, self._skips
        if position is not None and skips:
            return next((end for start, end in skips if start <= position < end), position)
        return position

    @property
    def window(self) -> int:
        """How many records were given out from the lowest undone one on."""
        return len(self._given)

    def runs(self) -> Iterator[Run]:
        """The done offsets above the frontier, ascending, including earlier ones that were not read again yet.

        Runs do not touch each other, so that `decode` returns exactly these.
        """
        first = last = -1
        for start, end in self._runs():
            if start == last:
                last = end
                continue
            if last > first:
                yield first, last
            first, last = start, end
        if last > first:
            yield first, last

    def _runs(self) -> Iterator[Run]:
        start: int | None = None
        for offset in self._given:
            if offset in self._done:
                if start is None:
                    start = offset
            elif start is not None:
                yield start, offset
                start = None
        position = self.position
        if start is not None and position is not None:
            yield start, position
        bound = position if self._given else self.offset
        for first, end in self._skips:
            if bound is None or end > bound:
                yield (first if bound is None else max(first, bound)), end

    def metadata(self, limit: int = METADATA_BYTES) -> str:
        """For the commit of `offset`; "" if no offset above it is done, or if ``limit`` is too small for one run."""
        offset = self.offset
        if offset is None or not (self._done or self._skips):
            return ""
        return encode(offset, self.runs(), limit)

    def holds_all(self, metadata: str) -> bool:
        """Whether this `metadata` has all runs: `encode` has not left one out for the length."""
        offset = self.offset
        return offset is None or decode(offset, metadata) == list(self.runs())

    def below(self, offset: int) -> list[Run]:
        """The runs between the frontier and ``offset``."""
        return [(start, min(end, offset)) for start, end in self.runs() if start < offset]

    def after(self, offsets: Iterable[int]) -> Frontier:
        """A copy of this frontier in which these offsets are done, too."""
        later = Frontier(self._skips)
        later.position, later.epoch = self.position, self.epoch
        later._given, later._done = self._given.copy(), self._done.copy()
        for offset in offsets:
            later.done(offset)
        return later


def encode(offset: int, runs: Iterable[Run], limit: int = METADATA_BYTES) -> str:
    """Metadata for a commit of ``offset``, with the done offsets above it. The last ones are left out if not all fit.

    Args:
        runs: ascending, and above ``offset``. limit: the most characters.
    """
    room = (limit - len(_RUNS)) // 4 * 3 - _CHECK_BYTES
    done = list(runs)
    mark = _RUNS
    body, count = _as_runs(offset, done, room)
    if count < len(done) and done[count][0] < offset + room * 8:
        mark, body = _BITS, _as_bits(offset, done, room)
    if not body:
        return ""
    return mark + b64encode(_check(offset, body) + body).decode()


def _as_runs(offset: int, runs: Iterable[Run], room: int) -> tuple[bytes, int]:
    """The first runs, as many as fit, and their number."""
    body = bytearray()
    count, at = 0, offset
    for start, end in runs:
        step = _varint(start - at) + _varint(end - start)
        if len(body) + len(step) > room:
            break
        body += step
        count += 1
        at = end
    return bytes(body), count


def _as_bits(offset: int, runs: Iterable[Run], room: int) -> bytes:
    """A bit for each offset that fits, set if it is done."""
    bits, most = 0, room * 8
    for start, end in runs:
        first, last = start - offset, min(end - offset, most)
        if first >= most:
            break
        bits |= (1 << last) - (1 << first)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def done_above(offset: int, metadata: str) -> int:
    """How many records above a committed offset are done, according to its metadata."""
    return sum(end - first for first, end in decode(offset, metadata))


def decode(offset: int, metadata: str) -> list[Run]:
    """The runs that `encode` was given; [] for metadata that is another program's, damaged, or of another offset."""
    mark = metadata[: len(_RUNS)]
    if mark not in (_RUNS, _BITS) or not 0 <= offset <= _MOST:
        return []
    try:
        raw = b64decode(metadata[len(mark) :], validate=True)
    except (binascii.Error, ValueError):
        return []
    check, body = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
    if check != _check(offset, body):
        return []
    try:
        runs = _of_runs(offset, body) if mark == _RUNS else _of_bits(offset, body)
    except ValueError:
        return []
    # The committed offset is not done, so a run that begins there was not written by `encode`.
    return runs if runs and offset < runs[0][0] and runs[-1][1] <= _MOST else []


def _of_runs(offset: int, body: bytes) -> list[Run]:
    runs = []
    at, place = offset, 0
    while place < len(body):
        gap, place = _read(body, place)
        length, place = _read(body, place)
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs


def _of_bits(offset: int, body: bytes) -> list[Run]:
    bits = f"{int.from_bytes(body, 'little'):b}"[::-1]
    runs = []
    start = bits.find("1")
    while start >= 0:
        end = bits.find("0", start)
        if end < 0:
            end = len(bits)
        runs.append((offset + start, offset + end))
        start = bits.find("1", end)
    return runs


def _check(offset: int, body: bytes | bytearray) -> bytes:
    return binascii.crc32(body, binascii.crc32(offset.to_bytes(8, "big"))).to_bytes(_CHECK_BYTES, "big")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read(body: bytes, place: int) -> tuple[int, int]:
    """A number, and where the next one begins.

    Raises:
        ValueError: the number is longer than `_MOST_NUMBER_BYTES`, or cut off.
    """
    number = 0
    for count, byte in enumerate(body[place : place + _MOST_NUMBER_BYTES]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number, place + count + 1
    raise ValueError("a number without an end")
