"""What the application holds of a queue: records that polls returned, and what is said of them (KIP-932).

Application side. In implicit mode the next poll or commit accepts all that the last poll returned. In explicit mode the
application says of each record what becomes of it, and the next poll refuses to go on before it has. What is said lies
here until the next poll or commit sends it, so of what is said twice before that the last counts.

A renewed record stays held. Once the broker has renewed its lock, the next poll returns it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, joined
from kadence.share.events import Ended
from kadence.share.share_state import AcquiredFetch
from kadence.types import TopicPartition

__all__ = ["Chunk", "Holding"]

_ACCEPT: Final = int(AcknowledgeType.ACCEPT)
_RENEW: Final = int(AcknowledgeType.RENEW)

_NAMED: Final = 3
"""Records that an error names."""

_offset = attrgetter("offset")


class Chunk:
    """Records of one fetch that one poll returns. Compared by identity.

    Attributes:
        fetch: whose locks they have. partition: whose they are. records: as the application gets them, ascending.
    """

    __slots__ = ("fetch", "partition", "records")

    def __init__(
        self, fetch: AcquiredFetch, partition: TopicPartition, records: list[Record[Any, Any]]
    ) -> None:
        self.fetch = fetch
        self.partition = partition
        self.records = records

    def record(self, offset: int) -> Record[Any, Any] | None:
        """The record at an offset; None: it has none to return, since it was bad."""
        place = bisect_left(self.records, offset, key=_offset)
        found = self.records[place] if place < len(self.records) else None
        return found if found is not None and found.offset == offset else None


class _Partition:
    """What is held of one partition, in explicit mode.

    Attributes:
        chunks: by offset, what each record that is held belongs to. said: what is said of some, and not sent.
        renewing: offsets whose renewal was sent. renewed: those whose lock was renewed, to be returned again.
    """

    __slots__ = ("chunks", "renewed", "renewing", "said")

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        self.said: dict[int, int] = {}
        self.renewing: set[int] = set()
        self.renewed: set[int] = set()

    def unsaid(self) -> Iterator[int]:
        """Offsets of which nothing is said."""
        others = self.said.keys() | self.renewing | self.renewed
        return (offset for offset in self.chunks if offset not in others)


class Holding:
    """Records that polls returned and that are not acknowledged.

    Attributes:
        count: how many acquired offsets wait to be sent with what is said of them.
    """

    def __init__(self, *, is_explicit: bool) -> None:
        self.is_explicit = is_explicit
        self.count = 0
        self._returned: list[Chunk] = []
        """In implicit mode: what polls returned that the next one accepts."""
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._unsaid = 0
        self._settled: dict[AcquiredFetch, list[Acknowledged]] = {}
        """What is to be sent beside what the application says: gaps, bad records, and what implicit polls accept."""
        self._said = 0
        self._says_renew = False

    # ------------------------------------------------------------ what polls return

    def give(self, chunks: Sequence[Chunk]) -> None:
        """A poll returns these."""
        if not self.is_explicit:
            self._returned += chunks
            return
        for chunk in chunks:
            held = self._of(chunk.partition)
            fresh = dict.fromkeys(map(_offset, chunk.records), chunk)
            if held.chunks and not held.chunks.keys().isdisjoint(fresh):
                self._replace(held, held.chunks.keys() & fresh)
            held.chunks.update(fresh)
            self._unsaid += len(fresh)

    def _replace(self, held: _Partition, offsets: Iterable[int]) -> None:
        """These are held, and delivered anew: the locks of that delivery have ended, so nothing more is said of it."""
        for offset in offsets:
            if held.said.pop(offset, None) is not None:
                self._said -= 1
            elif offset in held.renewing or offset in held.renewed:
                held.renewing.discard(offset)
                held.renewed.discard(offset)
            else:
                self._unsaid -= 1

    def take_back(self, chunks: Sequence[Chunk]) -> None:
        """The poll that was to return these did not."""
        if not self.is_explicit:
            self._returned = [each for each in self._returned if not any(each is chunk for chunk in chunks)]
            return
        for chunk in chunks:
            held = self._of(chunk.partition)
            for record in chunk.records:
                if held.chunks.get(record.offset) is chunk and held.said.pop(record.offset, None) is None:
                    self._unsaid -= 1
                held.chunks.pop(record.offset, None)

    def check_said(self) -> None:
        """Refuse to poll before something is said of each record.

        Raises:
            IllegalStateError: nothing is said of some that the last poll returned.
        """
        if self._unsaid:
            missing = [
                f"{topic}-{number} at offset {offset}"
                for (topic, number), held in self._partitions.items()
                for offset in islice(held.unsaid(), _NAMED)
            ][:_NAMED]
            more = f" and {self._unsaid - len(missing)} more" if self._unsaid > len(missing) else ""
            raise IllegalStateError(
                f"acknowledge() was not called for {self._unsaid} of the records that the last poll returned "
                f"({', '.join(missing)}{more}); with share.acknowledgement.mode=explicit each record needs it before "
                "the next poll"
            )

    # ------------------------------------------------------------ what is said

    def accept_returned(self) -> None:
        """In implicit mode: what polls returned is processed."""
        for chunk in self._returned:
            self.settle(chunk.fetch, _runs(chunk.records, _ACCEPT))
        self._returned = []

    def say(self, topic: str, partition: int, offset: int, kind: int) -> None:
        """Say what becomes of one record.

        Raises:
            IllegalStateError: it is not held.
        """
        held = self._partitions.get((topic, partition))
        if held is None or (chunk := held.chunks.get(offset)) is None:
            raise IllegalStateError(
                f"the record of {topic}-{partition} at offset {offset} is not held: no poll has returned it, or its "
                "acknowledgement was sent before"
            )
        if kind == _RENEW and chunk.record(offset) is None:
            raise IllegalStateError(
                f"the record of {topic}-{partition} at offset {offset} is bad, and cannot be renewed: accept, release "
                "or reject it"
            )
        if offset not in held.said:
            self._said += 1
            if offset in held.renewed:
                held.renewed.discard(offset)
            elif offset in held.renewing:
                held.renewing.discard(offset)
            else:
                self._unsaid -= 1
        held.said[offset] = kind
        self._says_renew = self._says_renew or kind == _RENEW

    def settle(self, fetch: AcquiredFetch, ranges: Iterable[Acknowledged]) -> None:
        """Say something of offsets that no application sees any more."""
        into = self._settled.setdefault(fetch, [])
        for each in ranges:
            self.count += each.last - each.first + 1
            if into and into[-1].type == each.type and into[-1].last + 1 == each.first:
                into[-1] = Acknowledged(into[-1].first, each.last, each.type)
            else:
                into.append(each)

    def hold_bad(self, chunk: Chunk, offset: int, kind: int) -> None:
        """In explicit mode: a bad record that no poll returns, of which the application may say another thing."""
        held = self._of(chunk.partition)
        held.chunks[offset] = chunk
        held.said[offset] = kind
        self._said += 1

    @property
    def has_said(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._settled) or self._said > 0

    def said_count(self) -> int:
        """Of how many offsets something is to be sent."""
        return self.count + self._said

    def outgoing(self) -> Mapping[AcquiredFetch, tuple[Acknowledged, ...]]:
        """All that is to be sent. From now on it counts as sent."""
        found, self._settled, self.count = self._settled, {}, 0
        if self._said:
            self._said, self._says_renew = 0, False
            for held in self._partitions.values():
                said, held.said = held.said, {}
                for fetch, run in _said_runs(said, held.chunks):
                    found.setdefault(fetch, []).append(run)
                for offset, kind in said.items():
                    if kind == _RENEW:
                        held.renewing.add(offset)
                    else:
                        del held.chunks[offset]
        return {fetch: tuple(joined(ranges)) for fetch, ranges in found.items()}

    # ------------------------------------------------------------ what became of it

    @property
    def renews(self) -> bool:
        """Whether records are to be renewed, or were: a poll returns these alone."""
        return self._says_renew or any(held.renewing or held.renewed for held in self._partitions.values())

    def ended(self, ended: Ended) -> None:
        """Acknowledgements of a fetch have ended. Told twice of the same, it does nothing the second time."""
        held = self._partitions.get((ended.partition.topic, ended.partition.partition))
        if held is None or not held.renewing:
            return
        for first, last, kind in ended.acknowledged:
            if kind != _RENEW:
                continue
            for offset in range(first, last + 1):
                if offset not in held.renewing or held.chunks[offset].fetch is not ended.fetch:
                    continue
                held.renewing.discard(offset)
                if ended.error is None:
                    held.renewed.add(offset)
                else:
                    # Its lock is gone: it comes again as another delivery.
                    del held.chunks[offset]

    def take_renewed(self, limit: int) -> list[Chunk]:
        """Up to ``limit`` renewed records, to be returned again."""
        found: list[Chunk] = []
        for held in self._partitions.values():
            for offset in sorted(held.renewed)[:limit]:
                chunk = held.chunks[offset]
                record = chunk.record(offset)
                assert record is not None, "a bad record is not renewed"
                if not found or found[-1].fetch is not chunk.fetch:
                    found.append(Chunk(chunk.fetch, chunk.partition, []))
                found[-1].records.append(record)
                held.renewed.discard(offset)
                limit -= 1
                self._unsaid += 1
        return found

    def put_renewed_back(self, chunks: Sequence[Chunk]) -> None:
        """The poll that was to return these again did not."""
        for chunk in chunks:
            held = self._of(chunk.partition)
            for record in chunk.records:
                if record.offset in held.chunks and record.offset not in held.renewed:
                    held.renewed.add(record.offset)
                    self._unsaid -= 1

    # ------------------------------------------------------------ all of it

    def in_hand(self) -> tuple[int, dict[TopicPartition, range]]:
        """How many records are held of which nothing is said, and between which offsets. Any thread."""
        spans: dict[TopicPartition, range] = {}
        count = 0
        for chunk in tuple(self._returned):
            count += len(chunk.records)
            _widen(spans, chunk.partition, (chunk.records[0].offset, chunk.records[-1].offset))
        for (topic, number), held in tuple(self._partitions.items()):
            if unsaid := held.chunks.copy().keys() - held.said.copy().keys():
                count += len(unsaid)
                _widen(spans, TopicPartition(topic, number), (min(unsaid), max(unsaid)))
        return count, spans

    def forget(self) -> None:
        """It is closed."""
        self._returned = []
        self._partitions.clear()
        self._settled = {}
        self._unsaid = self._said = self.count = 0

    def _of(self, partition: TopicPartition) -> _Partition:
        key = (partition.topic, partition.partition)
        held = self._partitions.get(key)
        if held is None:
            held = self._partitions[key] = _Partition()
        return held


def _runs(records: Sequence[Record[Any, Any]], kind: int) -> list[Acknowledged]:
    """The offsets of these as ranges."""
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return [Acknowledged(first, last, kind)]
    return joined(Acknowledged(each.offset, each.offset, kind) for each in records)


def _said_runs(
    said: Mapping[int, int], chunks: Mapping[int, Chunk]
) -> Iterator[tuple[AcquiredFetch, Acknowledged]]:
    """What is said of offsets, as ranges of their fetches."""
    fetch: AcquiredFetch | None = None
    first = last = kind = -1
    for offset in sorted(said):
        if offset == last + 1 and said[offset] == kind and chunks[offset].fetch is fetch:
            last = offset
            continue
        if fetch is not None:
            yield fetch, Acknowledged(first, last, kind)
        fetch, first, last, kind = chunks[offset].fetch, offset, offset, said[offset]
    if fetch is not None:
        yield fetch, Acknowledged(first, last, kind)


def _widen(spans: dict[TopicPartition, range], partition: TopicPartition, ends: tuple[int, int]) -> None:
    before = spans.get(partition)
    first = ends[0] if before is None else min(ends[0], before.start)
    last = ends[1] if before is None else max(ends[1], before.stop - 1)
    spans[partition] = range(first, last + 1)
