"""Keys and values from bytes, and what becomes of records that a deserialiser refuses (``deserialization.errors``).

raise        it is released, and poll() raises; the records before it are returned first. In explicit mode the
             application may choose another type, so nothing is said of it before the poll that raises
release      it is released: another delivery, perhaps to another member, until the group's limit
reject       it is rejected: the broker archives it, or writes it to the group's dead letter topic
dead-letter  it is written to dead.letter.topic, and accepted once that has acknowledged it

A queue has no order, so no other record waits for a bad one. Application side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kadence.clock import Clock
from kadence.config import ShareConsumerConfig
from kadence.consumer.decoded_records import Decoder
from kadence.consumer.fetch.dead_letters import BadRecord, DeadLetters, Delivery
from kadence.consumer.fetch.decoding import refused, said_of
from kadence.errors import ConfigError, DeadLetterError, KafkaError, SchemaRegistryError
from kadence.errors.local import AnswerPendingError
from kadence.logs import logger
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType
from kadence.share.application.holding import Holding
from kadence.share.share_state import AcquiredFetch

__all__ = ["Decoded", "Decoding"]

log = logger("kadence.share")

_ADVICE: Final = (
    "; it is released and delivered again: to end that, set deserialization.errors to reject or dead-letter"
)

_KINDS: Final = {
    "raise": AcknowledgeType.RELEASE,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}

_AT_ONCE: Final = 32
"""Records that are decoded between two looks at the clock."""

_LEAST_MS: Final = 100
"""So long a poll decodes at least, whatever its timeout."""


Letter = tuple[AcquiredFetch, int, Delivery]
"""The dead letter of a bad record, with the record's fetch and offset."""


class Decoded:
    """What became of some records.

    Attributes:
        good: decoded. raw: the same as they came. bad: how many are bad.
        settled: what is to be said of bad ones. held: their offsets and what is to be said, where the application may
            say another thing. letters: their dead letters on the way. errors: to be raised.
        waits: what the next one waits for; None: nothing. interrupted: what ended it, such as Ctrl-C, behind those that
            were looked at.
    """

    __slots__ = ("bad", "errors", "good", "held", "interrupted", "letters", "raw", "settled", "waits")

    def __init__(self) -> None:
        self.good: list[Record[Any, Any]] = []
        self.raw: list[Record[Any, Any]] = []
        self.bad = 0
        self.settled: list[Acknowledged] = []
        self.held: list[tuple[int, int]] = []
        self.letters: list[Letter] = []
        self.errors: list[KafkaError] = []
        self.waits: AnswerPendingError | None = None
        self.interrupted: BaseException | None = None

    @property
    def passed(self) -> int:
        """How many were looked at, good or bad."""
        return len(self.raw) + self.bad


class Decoding:
    """Deserialises keys and values, and decides about the records that are bad.

    Args:
        wake: makes a poll that waits look again. Any thread.

    Attributes:
        decoder: calls the deserialisers. until: the deadline (ms) of the poll under way. under_way: dead letters that
            the topic has not answered for.
        errors: of what was decoded, to be raised by the polls that find nothing before it.
        skipped: bad records released or rejected, ever, once for each delivery; without those whose outcome the
            application may choose. dead_lettered: those acknowledged by the dead letter topic.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        holding: Holding,
        dead_letters: DeadLetters | None,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.until = 0
        self.errors: deque[KafkaError] = deque()
        self.skipped = self.dead_lettered = 0
        self._policy = config.deserialization_errors
        self._asks = holding.is_explicit and self._policy == "raise"
        self.decoder = Decoder(config.key_deserializer, config.value_deserializer)
        self._holding = holding
        self._letters = dead_letters
        self._wake = wake
        self._clock = clock
        self.under_way: list[Letter] = []

    def decode(
        self, fetch: AcquiredFetch, records: list[Record[Any, Any]], *, is_first: bool = True
    ) -> Decoded:
        """Decode the first of these, as many as the poll's deadline allows. Nothing is said of bad ones by this.

        Args:
            is_first: whether the poll has no records yet, so that it would raise the error of a bad one.

        Raises:
            SchemaRegistryError, ConfigError: the first of them needs a registry that does not answer, or refuses us.
        """
        decoded = Decoded()
        try:
            self._decode(fetch, records, decoded, is_first=is_first)
        except Exception:
            raise
        except BaseException as interrupted:
            if not decoded.passed:
                raise
            decoded.interrupted = interrupted
            del decoded.good[len(decoded.raw) :]
        return decoded

    def _decode(
        self, fetch: AcquiredFetch, records: list[Record[Any, Any]], decoded: Decoded, *, is_first: bool
    ) -> None:
        decoder = self.decoder
        ends_at = max(self.until, self._clock.now_ms() + _LEAST_MS)
        end = len(records)
        while decoded.passed < end:
            at = decoded.passed
            stop = decoder.run(records, at, min(at + _AT_ONCE, end), decoded.good)
            decoded.raw += records[at:stop]
            if decoder.failed is None:
                if self._clock.now_ms() >= ends_at:
                    break
                continue
            (record, field, error), decoder.failed = decoder.failed, None
            if isinstance(error, AnswerPendingError):
                # Its traceback has the records.
                decoded.waits = error.with_traceback(None)
                error.call_back(self._wake)
                break
            assert isinstance(error, Exception)
            if isinstance(error, SchemaRegistryError | ConfigError):
                # The registry's fault, or that of our settings: the record is not bad, and the next poll asks again.
                if not decoded.passed:
                    raise error
                break
            if self._asks and (decoded.good or not is_first):
                # The next poll decodes it again, and raises.
                break
            self._see_to(fetch, record, field, error, decoded)
            decoded.bad += 1
            if decoded.errors:
                break

    def _see_to(
        self, fetch: AcquiredFetch, record: Record[Any, Any], field: str, error: Exception, decoded: Decoded
    ) -> None:
        offset = record.offset
        if self._letters is not None:
            decoded.letters.append((fetch, offset, self._letters.deliver([BadRecord(record, field, error)])))
            return
        kind = _KINDS[self._policy]
        if self._policy == "raise":
            bad = refused(record, field, error, _ADVICE)
            bad.__cause__ = error
            decoded.errors.append(bad)
        else:
            log.warning(
                "%s: %s",
                "rejected" if kind is AcknowledgeType.REJECT else "released",
                said_of(record, field, error),
            )
        if self._asks:
            decoded.held.append((offset, kind))
        else:
            decoded.settled.append(Acknowledged(offset, offset, kind))

    # ------------------------------------------------------------ dead letters

    @property
    def awaits_letters(self) -> bool:
        """Whether the dead letter topic has not answered for some."""
        return bool(self.under_way)

    def settle_letters(self) -> None:
        """Accept what the dead letter topic has, and release what it does not take."""
        for each in tuple(self.under_way):
            fetch, offset, delivery = each
            if not delivery.done:
                continue
            assert self._letters is not None
            for line in delivery.shortened:
                log.warning("%s", line)
            [bad] = delivery.bad
            refusal: DeadLetterError | None = None
            if delivery.error is None:
                log.warning("to %s: %s", self._letters.topic, said_of(bad.record, bad.field, bad.error))
                kind = AcknowledgeType.ACCEPT
            else:
                kind = AcknowledgeType.RELEASE
                refusal = DeadLetterError(
                    f"the bad record of {bad.record.topic}-{bad.record.partition} at offset {offset} could not be "
                    f"written to dead.letter.topic {self._letters.topic!r}, and is released: {delivery.error}"
                )
                refusal.__cause__ = delivery.error
            self._holding.settle(fetch, [Acknowledged(offset, offset, kind)])
            # Nothing comes between what is said and this, not even Ctrl-C.
            self.under_way.remove(each)
            if refusal is None:
                self.dead_lettered += 1
            else:
                self.errors.append(refusal)
