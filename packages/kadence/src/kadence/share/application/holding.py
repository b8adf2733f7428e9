"""What the application holds of a queue: records that polls returned, and what is said of them (KIP-932).

Application side. In implicit mode the next poll or commit accepts all that the last poll returned. In explicit mode the
application says of each record what becomes of it, and the next poll refuses to go on before it has. What is said lies
here until the next poll or commit sends it, so of what is said twice before that the last counts.

A renewed record stays held. Once the broker has renewed its lock, the next poll returns it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kadence.consumer.application.processing import named
from kadence.errors import IllegalStateError, InvalidRecordStateError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, joined
from kadence.share.application._marks import GONE, RENEWED, RENEWING, UNSAID, Chunk, Marks, Words
from kadence.share.application.stepping import Stepped
from kadence.share.events import Ended
from kadence.share.share_state import AcquiredFetch
from kadence.types import TopicPartition

__all__ = ["Holding", "told"]

_ACCEPT: Final = int(AcknowledgeType.ACCEPT)
_RELEASE: Final = int(AcknowledgeType.RELEASE)
_RENEW: Final = int(AcknowledgeType.RENEW)

_NAMED: Final = 3
"""Records that an error names."""


def told(renews: bool, count: int, in_hand: Mapping[TopicPartition, range]) -> tuple[str, str]:
    """What is logged of held records while the application does not poll: see `Stalls`.

    Args:
        renews: whether the consumer renews their locks. count, in_hand: as of `Holding.in_hand`.
    """
    if not count:
        return "It holds no records", ""
    if renews:
        fate = "Their locks are renewed until then; after that other members get them"
    else:
        fate = "Their locks are not renewed (share.lock.renewal=false): other members get them once these have ended"
    return f"Records that it holds: {count} ({named(in_hand)})", fate


class _Partition:
    """What is held of one partition, in explicit mode.

    Attributes:
        chunks: with records that are held, in the order of their polls. end: no offset of them is at or above this.
    """

    __slots__ = ("chunks", "end")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.end = 0

    def find(self, offset: int) -> tuple[Chunk, int] | None:
        """Which chunk has the record at an offset, and at which place; -1: it is a bad record. None: it is not held."""
        # Mostly it is of the last poll.
        for chunk in reversed(self.chunks):
            if (place := chunk.place(offset)) >= 0 or offset in chunk.bad:
                return chunk, place
        return None


class Holding:
    """Records that polls returned and that are not acknowledged.

    Attributes:
        marks: what is said of records, and what is settled beside that.
        stepped: what steps of an iteration return since the last poll; None: there are none.
    """

    def __init__(self, *, is_explicit: bool) -> None:
        self.is_explicit = is_explicit
        self.stepped: Stepped | None = None
        self._returned: list[Chunk] = []
        """In implicit mode: what polls returned that the next one accepts."""
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self.marks = Marks()

    # ------------------------------------------------------------ what polls return

    def give(self, chunks: Sequence[Chunk]) -> None:
        """A poll returns these."""
        if not self.is_explicit:
            self._returned += chunks
            return
        for chunk in chunks:
            held = self._of(chunk.partition)
            first, last = chunk.ends
            if first < held.end:
                self._replace(held, chunk)
            states, count = chunk.first_states(), chunk.count
            # Nothing comes between these two, not even Ctrl-C: `take_back` undoes both.
            chunk.states = states
            self.marks.unsaid += count
            self._add(held, chunk, last)
        self.marks.give(list(chunks))

    @staticmethod
    def _add(held: _Partition, chunk: Chunk, last: int) -> None:
        if not held.chunks:
            held.end = 0
        held.end = max(held.end, last + 1)
        # Its bad records may have come first, and other chunks of the same poll since.
        if not (chunk.bad and any(each is chunk for each in held.chunks)):
            held.chunks.append(chunk)

    def _replace(self, held: _Partition, fresh: Chunk) -> None:
        """What is held of these is delivered anew: the locks before have ended, so nothing more is said of them."""
        for offset in fresh.offsets():
            if (found := held.find(offset)) is None:
                continue
            chunk, place = found
            self._goes(chunk, offset, place)

    def _goes(self, chunk: Chunk, offset: int, place: int) -> None:
        """A record is not held any more; ``place`` as of `_Partition.find`."""
        if place < 0:
            self.marks.turn_bad(chunk, offset, None)
        else:
            self.marks.turn(chunk, place, place + 1, GONE)

    def take_back(self, chunks: Sequence[Chunk]) -> None:
        """The poll that was to return these did not."""
        if not self.is_explicit:
            self._returned = [each for each in self._returned if not any(each is chunk for chunk in chunks)]
            return
        for chunk in chunks:
            self.marks.turn(chunk, 0, len(chunk.states), GONE)
            held = self._of(chunk.partition)
            held.chunks = [each for each in held.chunks if each.is_held]

    def check_said(self) -> None:
        """Refuse to poll before something is said of each record.

        Raises:
            IllegalStateError: nothing is said of some that the last poll returned.
        """
        if self.marks.unsaid:
            missing = [
                f"{topic}-{number} at offset {offset}"
                for (topic, number), held in self._partitions.items()
                for chunk in held.chunks
                for offset in (chunk.offset(place) for place in chunk.places(UNSAID)[:_NAMED])
            ][:_NAMED]
            more = f" and {self.marks.unsaid - len(missing)} more" if self.marks.unsaid > len(missing) else ""
            raise IllegalStateError(
                f"acknowledge() was not called for {self.marks.unsaid} of the records that the last poll returned "
                f"({', '.join(missing)}{more}); with share.acknowledgement.mode=explicit each record needs it before "
                "the next poll"
            )

    def end_steps(self, latest: Record[Any, Any] | None) -> None:
        """Steps have ended: what is said by them is to be sent, and the record that the last one returned is held.

        Args:
            latest: the record that one of them has decoded last.
        """
        stepped = self.stepped
        if self.is_explicit:
            self.marks.unfollow(0 if stepped is None else stepped.sent(), latest)
        if stepped is None:
            return
        fetch, steps = stepped.fetch, stepped.count
        if self.is_explicit:
            last = stepped.current()[0].offset
            held = self._of(stepped.partition)
            held.end = max(held.end, last + 1)
            # As below.
            fetch.taken_at = stepped.at
            fetch.left -= steps
            self.stepped = None
            return
        count, accepted = stepped.take_up()
        marks = self.marks
        settled, returned = marks.settled, self._returned
        if stepped.count:
            returned = [Chunk(stepped.fetch, stepped.partition, stepped.current())]
        if accepted:
            settled = {**settled, stepped.fetch: [*settled.get(stepped.fetch, ()), *accepted]}
        count += marks.count
        # As in `accept_returned`.
        fetch.taken_at = stepped.at
        fetch.left -= steps
        marks.settled, self._returned, marks.count, self.stepped = settled, returned, count, None

    # ------------------------------------------------------------ what is said

    def accept_returned(self) -> None:
        """In implicit mode: what polls returned is processed."""
        if not self._returned:
            return
        marks = self.marks
        settled, count = {fetch: list(ranges) for fetch, ranges in marks.settled.items()}, marks.count
        for chunk in self._returned:
            settled.setdefault(chunk.fetch, []).extend(chunk.all_said(_ACCEPT))
            count += chunk.count
        # No call comes between these, so neither does Ctrl-C, and nothing is accepted twice.
        marks.settled, marks.count, self._returned = settled, count, []

    def say(self, topic: str, partition: int, offset: int, kind: int) -> None:
        """Say what becomes of one record.

        Raises:
            IllegalStateError: it is not held.
        """
        chunk, place = self._find(topic, partition, offset, kind)
        self._say_all([(chunk, place, offset if place < 0 else place + 1)], kind)

    def say_of_all(self, records: Sequence[Record[Any, Any]], kind: int) -> None:
        """As `say`, of each of these, or of none if one of them is not held.

        Raises:
            TypeError: one of them is no record.
        """
        found: list[tuple[Chunk, int, int]] = []
        at = 0
        while at < len(records):
            record = records[at]
            if type(record) is not Record:
                raise TypeError(
                    f"acknowledge() takes records that poll() returned, not {type(record).__name__}"
                )
            chunk, place = self._find(record.topic, record.partition, record.offset, kind)
            # Those behind it are mostly its neighbours.
            count = 1 if place < 0 else max(chunk.alike(records, at, place), 1)
            found.append((chunk, place, record.offset if place < 0 else place + count))
            at += count
        self._say_all(found, kind)

    def say_of_runs(self, runs: Iterable[tuple[str, int, int, int]], kind: int) -> None:
        """As `say_of_all`, of topics, partitions, and first and last offsets there."""
        found: list[tuple[Chunk, int, int]] = []
        for topic, partition, first, last in runs:
            at = first
            while at <= last:
                chunk, place = self._find(topic, partition, at, kind)
                count = 1 if place < 0 else chunk.run(place, last - at + 1)
                found.append((chunk, place, at if place < 0 else place + count))
                at += count
        self._say_all(found, kind)

    def _say_all(self, found: Iterable[tuple[Chunk, int, int]], kind: int) -> None:
        """Say this of chunks from a place to an end; of a bad record, by its offset, where the place is below 0."""
        for chunk, place, end in found:
            if place < 0:
                self.marks.turn_bad(chunk, end, kind)
            else:
                self.marks.turn(chunk, place, end, kind)
                self.marks.move(chunk, end)

    def _find(self, topic: str, partition: int, offset: int, kind: int) -> tuple[Chunk, int]:
        """Whose record it is, of which this is to be said, and its place there; below 0: it is a bad one."""
        held = self._partitions.get((topic, partition))
        if held is None or (found := held.find(offset)) is None:
            raise IllegalStateError(
                f"the record of {topic}-{partition} at offset {offset} is not held: no poll has returned it, or its "
                "acknowledgement was sent before"
            )
        if found[1] < 0 and kind == _RENEW:
            raise IllegalStateError(
                f"the record of {topic}-{partition} at offset {offset} is bad, and cannot be renewed: accept, release "
                "or reject it"
            )
        return found

    def settle(self, fetch: AcquiredFetch, ranges: list[Acknowledged], *, is_buffered: bool = False) -> None:
        """Say something of offsets that no application sees any more, and empty the list of it.

        Args:
            is_buffered: no poll has taken them before.
        """
        marks = self.marks
        count = sum(each.last - each.first + 1 for each in ranges)
        gives_back = any(each.type > _ACCEPT for each in ranges)
        while ranges:
            before = marks.settled
            into = list(before.get(fetch, ()))
            for each in ranges:
                if into and into[-1].type == each.type and into[-1].last + 1 == each.first:
                    into[-1] = Acknowledged(into[-1].first, each.last, each.type)
                else:
                    into.append(each)
            settled = {**before, fetch: into}
            # Nothing comes between these, neither Ctrl-C nor a call of a signal handler.
            if marks.settled is before:
                marks.settled = settled
                marks.count += count
                if gives_back:
                    marks.gives_back = True
                if is_buffered:
                    fetch.left -= count
                del ranges[:]
                return

    def make_room(self, chunk: Chunk, offset: int) -> None:
        """In explicit mode: for a bad record that no poll returns, of which the application may say another thing.

        What is said of it follows (`Marks.turn_bad`). Before that, this may be done again.
        """
        held = self._of(chunk.partition)
        if offset < held.end and (found := held.find(offset)) is not None:
            before, place = found
            self._goes(before, offset, place)
        self._add(held, chunk, offset)

    @property
    def has_said(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.marks.settled) or self.marks.said > 0

    def said_count(self) -> int:
        """Of how many offsets something is to be sent."""
        return self.marks.count + self.marks.said

    def hand_over(
        self,
        to: deque[Any],
        made: Callable[[Mapping[AcquiredFetch, tuple[Acknowledged, ...]]], object] = lambda fetches: fetches,
        *,
        settled_only: bool = False,
    ) -> None:
        """Append what is to be sent to what the network thread takes up. From now on it counts as sent.

        Args:
            made: makes what is appended. It may be called more than once, should a signal handler say something.
            settled_only: leave what the application says, of which the last word counts.
        """
        marks = self.marks
        while True:
            words = Words(marks.settled, marks.count, 0 if settled_only else marks.said)
            if words.said:
                for held in tuple(self._partitions.values()):
                    for chunk in held.chunks:
                        words.add(chunk)
            fetches = {fetch: tuple(joined(ranges)) for fetch, ranges in words.fetches.items()}
            if marks.hand_over(words, to, made(fetches)):
                break
        if words.said:
            for held in self._partitions.values():
                held.chunks = [chunk for chunk in held.chunks if chunk.is_held]

    # ------------------------------------------------------------ what became of it

    @property
    def renews(self) -> bool:
        """Whether records are to be renewed, or were: a poll returns these alone."""
        return self.marks.says_renew or self.marks.renewing > 0 or self.marks.renewed > 0

    def ended(self, ended: Ended) -> None:
        """Acknowledgements of a fetch have ended. Told twice of the same, it does nothing the second time."""
        held = self._partitions.get((ended.partition.topic, ended.partition.partition))
        if held is None or not self.marks.renewing:
            return
        renewals = [each for each in ended.acknowledged if each.type == _RENEW]
        for chunk in held.chunks if renewals else ():
            if chunk.fetch is not ended.fetch:
                continue
            for place in chunk.places(RENEWING):
                offset = chunk.offset(place)
                if not any(first <= offset <= last for first, last, _ in renewals):
                    continue
                if ended.error is None:
                    self.marks.turn(chunk, place, place + 1, RENEWED)
                else:
                    # It comes again as another delivery.
                    self.marks.turn(chunk, place, place + 1, GONE)
                    if ended.fetch.void is None and not isinstance(ended.error, InvalidRecordStateError):
                        # Its lock may hold, and would be renewed for nobody.
                        self.settle(ended.fetch, [Acknowledged(offset, offset, _RELEASE)])

    def take_renewed(self, now: int, limit: int, into: list[Chunk], *, decoded: bool) -> None:
        """Add up to ``limit`` renewed records, to be returned again. What Ctrl-C ends is undone by `put_renewed_back`.

        Those whose locks are void by now, or have ended, are held no more: they come again as another delivery.

        Args:
            decoded: whether the poll that returns them has called deserialisers.

        Raises:
            IllegalStateError: they were returned by the other kind of poll.
        """
        for held in self._partitions.values() if self.marks.renewed else ():
            renewed: list[tuple[Chunk, int]] = []
            for chunk in held.chunks:
                for place in chunk.places(RENEWED):
                    if chunk.fetch.is_locked_at(now, chunk.offset(place)):
                        renewed.append((chunk, place))
                    else:
                        self.marks.turn(chunk, place, place + 1, GONE)
            for chunk, place in renewed:
                if chunk.is_decoded != decoded:
                    refused, returns = ("poll()", "poll_arrow()")[:: -1 if chunk.is_decoded else 1]
                    raise IllegalStateError(
                        f"{refused} cannot return the record of {chunk.partition} at offset {chunk.offset(place)}, "
                        f"which {returns} has returned and the application has renewed: call {returns} for it, or "
                        "acknowledge the record in another way"
                    )
            renewed.sort(key=lambda each: each[0].offset(each[1]))
            for chunk, place in renewed[:limit]:
                if not into or into[-1].fetch is not chunk.fetch:
                    into.append(Chunk(chunk.fetch, chunk.partition, []))
                into[-1].records.append(chunk.record(place))
                self.marks.turn(chunk, place, place + 1, UNSAID)
                limit -= 1

    def put_renewed_back(self, chunks: Sequence[Chunk]) -> None:
        """The poll that was to return these again did not."""
        for chunk in chunks:
            held = self._of(chunk.partition)
            for record in chunk.records:
                if (found := held.find(record.offset)) is None:
                    continue
                holder, place = found
                if place >= 0 and holder.states[place] == UNSAID:
                    self.marks.turn(holder, place, place + 1, RENEWED)

    # ------------------------------------------------------------ all of it

    def in_hand(self) -> tuple[int, dict[TopicPartition, range]]:
        """How many records are held of which nothing is said, and between which offsets. Any thread."""
        spans: dict[TopicPartition, range] = {}
        count = 0
        stepped, returned = self.stepped, tuple(self._returned)
        if stepped is not None and stepped.count:
            records = stepped.unsaid()
            returned = (Chunk(stepped.fetch, stepped.partition, records),) if records else ()
        for chunk in returned:
            count += chunk.count
            _widen(spans, chunk.partition, chunk.ends)
        for held in tuple(self._partitions.values()):
            for chunk in tuple(held.chunks):
                if places := chunk.places(UNSAID, RENEWING, RENEWED):
                    count += len(places)
                    ends = chunk.offset(places[0]), chunk.offset(places[-1])
                    _widen(spans, chunk.partition, ends)
        return count, spans

    def forget(self) -> None:
        """It is closed."""
        self._returned = []
        self.stepped = None
        self._partitions.clear()
        marks = self.marks
        marks.settled = {}
        marks.move(None)
        marks.unsaid = marks.said = marks.renewing = marks.renewed = marks.count = 0

    def _of(self, partition: TopicPartition) -> _Partition:
        key = (partition.topic, partition.partition)
        held = self._partitions.get(key)
        if held is None:
            held = self._partitions[key] = _Partition()
        return held


def _widen(spans: dict[TopicPartition, range], partition: TopicPartition, ends: tuple[int, int]) -> None:
    before = spans.get(partition)
    first = ends[0] if before is None else min(ends[0], before.start)
    last = ends[1] if before is None else max(ends[1], before.stop - 1)
    spans[partition] = range(first, last + 1)
