"""Records that polls returned in explicit mode, and marking what the application says of each. Application side.

`acknowledge` is called for each record, and to enter the consumer costs ten times what it costs to note a byte. So a
poll opens the `Marks` at its records. Until they are closed, a word on the record behind the last one, or on any of the
same chunk, is noted here, if the same thread says it. Every other call of the consumer closes them before it looks at
what was said, or says anything.

It is compiled; the C types of the fields are in the .pxd file.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import cython

from kadence._native import refuse
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, runs

if not cython.compiled:
    refuse(__name__)
    from collections import deque
    from collections.abc import Callable

    from kadence.consumer.decoded_records import DecodedRecords
    from kadence.records import Record

    PyThread_get_thread_ident: Callable[[], int]

if TYPE_CHECKING:
    from kadence.share.acquired_reader import Rows
    from kadence.share.share_state import AcquiredFetch
    from kadence.types import TopicPartition

__all__ = ["GONE", "RENEWED", "RENEWING", "UNSAID", "Chunk", "Marks", "Words", "neighbours"]

UNSAID: Final = 0
"""States of a record beside the types: nothing is said of it;"""
RENEWING: Final = 5
"""its renewal was sent;"""
RENEWED: Final = 6
"""its lock was renewed, and it is to be returned again;"""
GONE: Final = 7
"""it is not held any more, or another delivery of it is."""

_UNSAID = UNSAID
_RENEWING = RENEWING
_RENEWED = RENEWED
_GONE = GONE
_ACCEPT = AcknowledgeType.ACCEPT.value
_RENEW = AcknowledgeType.RENEW.value

_SAID: Final = re.compile(rb"\x01+|\x02+|\x03+|\x04+")
"""Neighbours of which the same is said."""

_offset = attrgetter("offset")


@cython.final
@cython.cclass
class Chunk:
    """Records of one fetch that one poll returns. Compared by identity.

    Attributes:
        fetch: whose locks they have. partition: whose they are. records: as the application gets them, ascending.
        states: in explicit mode, of each record a byte: the type that is said of it and not sent, or a state above.
        bad: in explicit mode, what is said of bad records, by their offsets. No poll returns these.
        rows: what the application gets as columns instead of records. is_decoded: whether deserialisers made the
            keys and values.
    """

    def __init__(
        self,
        fetch: AcquiredFetch,
        partition: TopicPartition,
        records: list[Record],
        rows: Rows | None = None,
    ) -> None:
        self.fetch = fetch
        self.partition = partition
        self.records = records
        self.rows = rows
        self.is_decoded = False
        self.states = bytearray()
        self.bad: dict[int, int] = {}
        self.first = 0
        self.is_dense = True

    @property
    def count(self) -> int:
        """How many records the application gets."""
        rows = self.rows
        return len(self.records) if rows is None else rows.last - rows.first + 1

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last offset of these."""
        rows, records = self.rows, self.records
        if rows is not None:
            return rows.first, rows.last
        return records[0].offset, records[len(records) - 1].offset

    def all_said(self, kind: int) -> list[Acknowledged]:
        """The same said of all of them."""
        rows = self.rows
        return runs(self.records, kind) if rows is None else [Acknowledged(rows.first, rows.last, kind)]

    def first_states(self) -> bytearray:
        """What `states` is when the application gets the records."""
        self._look_at_gaps()
        return bytearray(self.count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def extend(self, records: list[Any]) -> cython.bint:
        """Steps may return these behind them. They are not held before."""
        self.states = self.states + bytes((_GONE,)) * len(records)
        self.records = self.records + records
        return self._look_at_gaps()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def cut(self, count: cython.Py_ssize_t, sent: cython.Py_ssize_t) -> cython.bint:
        """Steps have returned so many of them, and what is said of the first ones was sent."""
        states: bytearray = self.states[:count]
        if states[count - 1] == _GONE:
            # Something was said of those before it, or it would not have been returned.
            states[count - 1] = _UNSAID
        states[:sent] = bytes((_GONE,)) * sent
        self.records = self.records[:count]
        self.states = states
        return self._look_at_gaps()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _look_at_gaps(self) -> cython.bint:
        first, last = self.ends
        self.first = first
        self.is_dense = last - first + 1 == self.count
        return True

    def offset(self, place: int) -> int:
        """The offset of the record at a place."""
        return self.first + place if self.is_dense else self.records[place].offset

    def record(self, place: int) -> Record:
        """The record at a place."""
        return self.records[place] if self.rows is None else self.rows.record(place)

    def offsets(self) -> Iterable[int]:
        """The offsets of all of them."""
        if self.rows is None:
            return [record.offset for record in self.records]
        return range(self.rows.first, self.rows.last + 1)

    def place(self, offset: int) -> int:
        """The place of the record at an offset, if it is held; -1: it is not."""
        place: cython.Py_ssize_t
        if self.is_dense:
            if not 0 <= offset - self.first < len(self.states):
                return -1
            place = offset - self.first
        else:
            place = bisect_left(self.records, offset, key=_offset)
            if place >= len(self.states) or self.records[place].offset != offset:
                return -1
        return place if self.states[place] != _GONE else -1

    def places(self, *wanted: int) -> list[int]:
        """Where records are in one of these states."""
        return [place for place, state in enumerate(bytes(self.states)) if state in wanted]

    def alike(self, records: Sequence[Record], at: cython.Py_ssize_t, place: cython.Py_ssize_t) -> int:
        """How many of these, from ``at`` on, are the held ones from a place on."""
        count: cython.Py_ssize_t = 0
        own: list[Any] = self.records
        states: bytearray = self.states
        most: cython.Py_ssize_t = min(len(records) - at, min(len(states), len(own)) - place)
        given: list[Any] = list(records[at : at + most])
        while count < most and own[place + count] is given[count] and states[place + count] != _GONE:
            count += 1
        return count

    def run(self, place: cython.Py_ssize_t, most: cython.Py_ssize_t) -> int:
        """How many neighbouring offsets, from this place on, have records that are held."""
        states: bytearray = self.states
        count: cython.Py_ssize_t = 1
        most = min(most, len(states) - place)
        first: cython.longlong = self.offset(place)
        while count < most and states[place + count] != _GONE:
            if not self.is_dense and self.records[place + count].offset != first + count:
                break
            count += 1
        return count

    def said(self) -> list[tuple[int, int, int]]:
        """Neighbours of which the same is said: their first place, the end of their places, and the type."""
        states = self.states
        return [(each.start(), each.end(), states[each.start()]) for each in _SAID.finditer(states)]

    def said_of(self, states: bytes) -> list[Acknowledged]:
        """What is said of the first records, of which these are the states."""
        return [
            each
            for found in _SAID.finditer(states)
            for each in self.ranges(found.start(), found.end(), states[found.start()])
        ]

    def ranges(self, start: int, end: int, kind: int) -> list[Acknowledged]:
        """The offsets of the records at these places, and what is said of them."""
        if self.is_dense:
            return [Acknowledged(self.first + start, self.first + end - 1, kind)]
        return runs(self.records[start:end], kind)

    @property
    def is_held(self) -> bool:
        """Whether something of it is held."""
        return bool(self.bad) or self.states.count(_GONE) < len(self.states)


def neighbours(offsets: list[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of offsets that follow each other."""
    found: list[tuple[int, int]] = []
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = len(offsets)
    while at < count:
        first: cython.longlong = offsets[at]
        after: cython.longlong = first
        while after == offsets[at]:
            after += 1
            at += 1
            if at == count:
                break
        found.append((first, after - 1))
    return found


@cython.final
@cython.cclass
class Words:
    """All that is to be sent, as somebody has looked at it: see `Marks.hand_over`.

    Attributes:
        fetches: what is said of the offsets of each fetch. settled, count: as of `Marks`, then. said: the same; 0 if
            only what was settled is to be sent. renews: of how many records it is a renewal.
    """

    def __init__(self, settled: dict[AcquiredFetch, list[Acknowledged]], count: int, said: int) -> None:
        self.fetches: dict[AcquiredFetch, Any] = {fetch: list(ranges) for fetch, ranges in settled.items()}
        self.settled = settled
        self.count = count
        self.said = said
        self.renews = 0
        self._looked: list[tuple[Chunk, bytearray, bytearray, dict[int, int]]] = []

    def add(self, chunk: Chunk) -> None:
        """What is said of the records of a chunk, too."""
        found = chunk.said()
        bad = dict(chunk.bad)
        ranges = [Acknowledged(offset, offset, kind) for offset, kind in bad.items()]
        before = bytearray(chunk.states)
        after = bytearray(before)
        for start, end, kind in found:
            ranges += chunk.ranges(start, end, kind)
            if kind == _RENEW:
                self.renews += end - start
            after[start:end] = bytes((RENEWING if kind == _RENEW else _GONE,)) * (end - start)
        if ranges:
            self.fetches.setdefault(chunk.fetch, []).extend(ranges)
            self._looked.append((chunk, before, after, bad))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def stands(self, marks: Marks) -> cython.bint:
        """Whether nothing was said, or sent, since."""
        if self.settled is not marks.settled or self.count != marks.count:
            return False
        if self.said and self.said != marks.said:
            return False
        for entry in self._looked:
            chunk: Chunk = entry[0]
            if chunk.states != entry[1] or chunk.bad != entry[3]:
                return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_as_sent(self) -> cython.bint:
        for entry in self._looked:
            chunk: Chunk = entry[0]
            chunk.states = entry[2]
            chunk.bad = {}
        return True


@cython.final
@cython.cclass
class Marks:
    """See the top of the file.

    Attributes:
        settled: what is to be sent beside what the application says: gaps, bad records, and what implicit polls accept.
        count: of how many offsets that is. gives_back: some of it is released or rejected.
        says_renew: some of what is said, and not sent, is a renewal. renewing: how many renewals were sent, and have
            not ended. renewed: how many records are to be returned again.
        unsaid: of how many records nothing is said. said: of how many something is said, and not sent.
        calls: how many calls of the application's callback are under way: inside them nothing may be said.
        is_open: whether anything is noted here.
    """

    def __init__(self) -> None:
        self.unsaid = self.said = self.calls = 0
        self.settled: dict[AcquiredFetch, list[Acknowledged]] = {}
        self.count = self.renewing = self.renewed = 0
        self.gives_back = self.says_renew = False
        self.is_open = False
        self._thread = 0
        self._chunk: Chunk | None = None
        self._place = 0
        self._later: list[Chunk] = []
        self._ahead: DecodedRecords | None = None
        self._followed: Chunk | None = None
        self._base = 0

    def give(self, chunks: list[Chunk]) -> None:
        """A poll returns these: most probably something is said of their records one after the other."""
        later: list[Any] = chunks[::-1]
        self._chunk = later.pop() if later else None
        self._place = 0
        self._later = later
        self.open()

    def follow(self, chunk: Chunk, ahead: DecodedRecords) -> None:
        """Steps may return what lies behind the one record of a chunk: each, once something is said of the one before.

        For steps there are as many records as something was said of, and one more.
        """
        chunk.extend(ahead.records[ahead.index :])
        self._base = ahead.index - 1
        ahead.count = ahead.index
        self._followed = chunk
        self._ahead = ahead

    def unfollow(self, sent: cython.Py_ssize_t, latest: Any) -> None:
        """Steps have ended.

        Args:
            sent: the place in the records ahead below which the network thread has sent what is said.
            latest: the record that a step has decoded last.
        """
        ahead: DecodedRecords | None = self._ahead
        if ahead is None:
            return
        count: cython.Py_ssize_t = ahead.index - self._base
        chunk: Chunk = cython.cast(Chunk, self._followed)
        sent = max(sent - self._base, 0)
        chunk.cut(count, sent)
        if is_one(latest, cython.cast(object, chunk.records[count - 1])):
            # Should it be renewed, the application gets it again.
            chunk.records[count - 1] = latest
        ahead.count = len(ahead.records)
        self.unsaid += count - 1
        self.said -= sent
        self._ahead = None
        self._followed = None
        self.move(chunk, count - 1)

    def move(self, chunk: Chunk | None, place: cython.Py_ssize_t = 0) -> None:
        """Most probably something is said next of the record at this place; None: nothing is said of any."""
        self._chunk = chunk
        self._place = place

    def open(self) -> None:
        """The caller is done with what is said."""
        with cython.critical_section(self):
            self._thread = PyThread_get_thread_ident()
            self.is_open = True

    def close(self) -> None:
        """The caller goes on with what is said: nothing is noted from now on."""
        with cython.critical_section(self):
            self.is_open = False

    def turn(
        self, chunk: Chunk, start: cython.Py_ssize_t, end: cython.Py_ssize_t, state: cython.longlong
    ) -> None:
        """Give the records of a chunk at these places a state, and count them so: Ctrl-C does not come between."""
        with cython.critical_section(self):
            states: bytearray = chunk.states
            place: cython.Py_ssize_t
            for place in range(start, end):
                self._count(states[place], -1)
                self._count(state, 1)
                states[place] = state
            if state == _RENEW:
                self.says_renew = True

    def turn_bad(self, chunk: Chunk, offset: int, kind: int | None) -> None:
        """The same of a bad record. None: it is not held any more."""
        with cython.critical_section(self):
            if offset in chunk.bad:
                del chunk.bad[offset]
                self.said -= 1
            if kind is not None:
                chunk.bad[offset] = kind
                self.said += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _count(self, state: cython.longlong, sign: cython.Py_ssize_t) -> cython.void:
        if state == _UNSAID:
            self.unsaid += sign
        elif state == _RENEWING:
            self.renewing += sign
        elif state == _RENEWED:
            self.renewed += sign
        elif state != _GONE:
            self.said += sign

    def hand_over(self, words: Words, to: deque[Any], what: object) -> bool:
        """Append these to what the network thread takes up, and count them as sent. False: others were said meanwhile.

        What is compiled cannot be interrupted: neither Ctrl-C nor a call of a signal handler comes between the two, so
        nothing is lost on its way, and nothing is said twice.
        """
        with cython.critical_section(self):
            if not words.stands(self):
                return False
            words.count_as_sent()
            self.settled = {}
            self.count = 0
            self.gives_back = False
            if words.said:
                self.said = 0
                self.says_renew = False
                self.renewing += words.renews
                self._chunk = None
            to.append(what)
        return True

    def say(self, record: Any, place: tuple[Any, ...], kind: Any) -> bool:
        """Note a word on a record that nothing was said of. False: nothing is noted, and the consumer is to be asked.

        Args:
            place, kind: see `ShareConsumer.acknowledge`.
        """
        number: cython.longlong = _ACCEPT
        if place:
            if kind is not None or len(place) > 1:
                return False
            kind = place[0]
        if kind is not None:
            if type(kind) is not AcknowledgeType:
                return False
            number = kind
            if number == _RENEW:
                return False
        with cython.critical_section(self):
            return self._say(record, number)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _say(self, record: object, kind: cython.longlong) -> cython.bint:
        if not self.is_open or self._thread != PyThread_get_thread_ident():
            return False
        if self.calls or self._chunk is None:
            return False
        if self._ahead is not None:
            return self._say_behind_step(cython.cast(DecodedRecords, self._ahead), record, kind)
        at: cython.Py_ssize_t = self._place
        chunk: Chunk = cython.cast(Chunk, self._chunk)
        records: list[Any] = chunk.records
        if at >= len(records) and self._later:
            records = cython.cast(Chunk, self._later[len(self._later) - 1]).records
            if records and cython.cast(object, records[0]) is record:
                chunk = self._later.pop()
                self._chunk = chunk
                at = 0
            else:
                records = chunk.records
        states: bytearray = chunk.states
        count: cython.Py_ssize_t = min(len(states), len(records))
        if not (at < count and cython.cast(object, records[at]) is record):
            # Not in their order.
            if type(record) is not Record or not chunk.is_dense:
                return False
            offset: cython.longlong = cython.cast(Record, record).offset
            at = offset - chunk.first
            if not (0 <= at < count and cython.cast(object, records[at]) is record):
                return False
        if states[at] != _UNSAID:
            return False
        states[at] = kind
        self._place = at + 1
        self.unsaid -= 1
        self.said += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _say_behind_step(self, ahead: DecodedRecords, record: object, kind: cython.longlong) -> cython.bint:
        """Of the record that the last step returned."""
        chunk: Chunk = cython.cast(Chunk, self._followed)
        at: cython.Py_ssize_t = ahead.index - self._base - 1
        states: bytearray = chunk.states
        if not is_one(record, cython.cast(object, chunk.records[at])):
            return False
        if states[at] != _UNSAID and states[at] != _GONE:
            return False
        states[at] = kind
        # Should it be renewed behind other steps, the application gets it again, with what deserialisers made of it.
        chunk.records[at] = cython.cast(Record, record)
        self.unsaid -= 1
        self.said += 1
        # The last one of a fetch is no step: see `fetch._steps`.
        ahead.count = min(ahead.index + 1 + ahead.is_last, len(ahead.records))
        return True


@cython.cfunc
@cython.exceptval(check=False)
def is_one(record: object, kept: object) -> cython.bint:
    """Whether they are one record: a step has made one of them of the other, if there are deserialisers."""
    if record is kept:
        return True
    if type(record) is not Record:
        return False
    one: Record = cython.cast(Record, record)
    other: Record = cython.cast(Record, kept)
    return one.offset is other.offset and one.topic is other.topic and one.partition == other.partition
