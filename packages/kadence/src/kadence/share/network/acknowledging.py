"""The ends of acknowledgements: what the application hears of each, and when its calls are answered (KIP-932).

A piece ends once: taken by the broker, refused, or given up because its locks or the call's time were over. All that
ended in one turn goes into one event, and the calls that it completes are answered after it. A failure of which no call
and no callback hears is logged: polls and `process` go on without a word.
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence.clock import FOREVER
from kadence.consumer.events import AddBackgroundEvent, Answer
from kadence.errors import BrokerError, InvalidRecordStateError, KafkaError, KafkaTimeoutError
from kadence.logs import LogLimiter, logger
from kadence.printable import plural
from kadence.share.acknowledgements import GAP, Acknowledged, AcknowledgeType
from kadence.share.events import Acknowledge, AcknowledgementsEnded, Ended
from kadence.share.network.held import Call, Held, Piece
from kadence.share.network.node import ShareNode
from kadence.share.network.offsets import Range, count, without
from kadence.share.network.pace import WorkPace
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import TopicPartition

__all__ = ["Acknowledgements", "locks_ended"]

log = logger("kadence.share")

_OUTCOMES = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
"""What an application loses when it fails. A record whose release fails is delivered again all the same."""


def locks_ended(fetch: AcquiredFetch) -> KafkaError:
    """The error of what was acknowledged too late by our clock."""
    partition = fetch.partition.topic_partition
    return fetch.void or InvalidRecordStateError(
        f"the lock of records of {partition} ended before they were acknowledged: they are delivered again"
    )


def _took_too_long(piece: Piece) -> KafkaError:
    return KafkaTimeoutError(f"{piece.call.event.what} of {piece.partition.topic_partition} took too long")


class Acknowledgements:
    """The calls that are under way, and what has ended since the application was told last.

    Attributes:
        pace: of the application.
    """

    def __init__(self, share_state: ShareState, add_event: AddBackgroundEvent) -> None:
        self.pace = WorkPace()
        self._share_state = share_state
        self._measures = share_state.measures
        self._add_event = add_event
        self._calls: list[Call] = []
        self._ended: list[Ended] = []
        # Failures of this turn that nobody hears of: by partition and cause how many records, and one of the errors.
        self._unheard: dict[tuple[TopicPartition, str], tuple[int, KafkaError]] = {}
        self._log_limiter = LogLimiter()

    @property
    def next_deadline(self) -> int:
        """When a call is to be given up."""
        return min((call.event.deadline for call in self._calls), default=FOREVER)

    def begin(self, event: Acknowledge) -> Call:
        """A new call. One that is answered waits for all that was said before it, too."""
        call = Call(event)
        if event.is_answered:
            for earlier in self._calls:
                for piece in earlier.waiting:
                    if not piece.renews:
                        piece.awaited_by.append(call)
                        call.waiting.add(piece)
        self._calls.append(call)
        return call

    def overdue(self, now: int) -> list[Call]:
        """Calls whose time is over."""
        return [call for call in self._calls if call.event.deadline <= now]

    def end(self, now: int, piece: Piece, error: KafkaError | None) -> None:
        """A piece has ended. One that ended before, by its call's deadline, is only counted."""
        measures, number = self._measures, count(piece.ranges)
        if error is None:
            meter = measures.renewed if piece.renews else measures.acknowledged
            meter.record(now, number)
        else:
            measures.failed.record(now, number)
            if isinstance(error, InvalidRecordStateError) or piece.held.fetch.void is not None:
                measures.void.record(now, number)
        if piece not in piece.call.waiting:
            return
        if error is not None and not self._is_heard(piece):
            cause = error.name if isinstance(error, BrokerError) else type(error).__name__
            key = piece.partition.topic_partition, cause
            before, _ = self._unheard.get(key, (0, error))
            outcomes = [(each.first, each.last) for each in piece.ranges if each.type in _OUTCOMES]
            self._unheard[key] = before + count(outcomes), error
        for call in (piece.call, *piece.awaited_by):
            call.ended(piece, error)
        if error is not None or piece.renews or self._share_state.wants_results:
            self._ended.append(piece.ended(error))

    def supersede(
        self, now: int, node: ShareNode, held: Held, ranges: Iterable[Range | Acknowledged]
    ) -> None:
        """Something is said of these offsets: renewals of them that still wait are not sent."""
        for piece in [piece for piece in node.pieces if piece.renews and piece.held is held]:
            if not piece.leaves(ranges):
                node.pieces.remove(piece)
                self.end(now, piece, None)

    def again(self, now: int, node: ShareNode, piece: Piece) -> None:
        """Say it once more, as far as nothing else was said meanwhile."""
        if piece.renews:
            others = [each.ranges for each in node.pieces if each.renews and each.held is piece.held]
            later = sorted(each for ranges in others for each in ranges)
            said = without([(each.first, each.last) for each in piece.ranges], piece.held.open)
            if not (piece.leaves(said) and piece.leaves(later)):
                self.end(now, piece, None)
                return
        node.pieces.append(piece)

    def late(self, now: int, fetch: AcquiredFetch, piece: Piece) -> None:
        """What is said of a fetch whose locks are gone."""
        self.end(now, piece, locks_ended(fetch))

    def worked_off(self, now: int, piece: Piece) -> None:
        """The application has just said this."""
        number = sum(
            each.last - each.first + 1
            for each in piece.ranges
            if each.type not in (GAP, AcknowledgeType.RENEW)
        )
        self.pace.acknowledged(now, number, piece.held.fetch.taken_at)

    def give_up(self, now: int, call: Call) -> None:
        """The time of this call is over."""
        for piece in tuple(call.waiting):
            if piece.call is call:
                self.end(now, piece, _took_too_long(piece))
            else:
                call.ended(piece, _took_too_long(piece))

    def ended_before(self, now: int, piece: Piece) -> None:
        """Its call was given up while it was under way, and nobody waits for another attempt."""
        self.end(now, piece, _took_too_long(piece))

    def _is_heard(self, piece: Piece) -> bool:
        """Whether the callback or a call will say what became of it."""
        return self._share_state.wants_results or piece.call.event.is_answered or bool(piece.awaited_by)

    def tell(self, now: int) -> None:
        """Tell the application what has ended, then answer the calls of which all has."""
        for (partition, cause), (number, error) in self._unheard.items():
            if number and self._log_limiter.is_new(now, (partition, cause), None):
                log.warning(
                    "%s of %s could not be acknowledged, and may be delivered again: %s",
                    plural(number, "record"),
                    partition,
                    error,
                )
        self._unheard.clear()
        if self._ended:
            ended, self._ended = tuple(self._ended), []
            self._add_event(AcknowledgementsEnded(ended))
        done = [call for call in self._calls if not call.waiting]
        if not done:
            return
        self._calls = [call for call in self._calls if call.waiting]
        for call in done:
            if call.event.is_answered:
                self._add_event(Answer(call.event.id, call.results))
