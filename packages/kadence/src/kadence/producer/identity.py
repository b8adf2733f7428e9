"""The producer id, which sequence numbers need (KIP-98): requested once there is something to send. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import add_ms
from kadence.config import ProducerConfig
from kadence.connection.request import ANY_NODE, Backoff, Completed, Request
from kadence.errors import KafkaError, for_code
from kadence.logs import logger
from kadence.producer.sequences import MAX_EPOCH
from kadence.protocol.init_producer_id import InitProducerIdRequest

__all__ = ["Identity"]

_log = logger("kadence.producer")


class Identity:
    """Network thread only.

    Attributes:
        known: producer id and epoch for new partitions; None until the broker gave one, and again when its
            epochs are used up.
        wanted: returns whether records are undecided or on their way. on_refused: called when the broker refuses an id
        for good.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.known: tuple[int, int] | None = None
        self.wanted: Callable[[], bool] = lambda: False
        self.on_refused: Callable[[KafkaError], None] = lambda error: None
        self._request_timeout_ms = config.request_timeout_ms
        self._is_asked = False
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def poll(self, now: int) -> Poll:
        """The request for an id, if one is wanted and none is in flight; and the latest time of the next poll."""
        if self.known is not None or self._is_asked or not self.wanted():
            return NOTHING
        if not self._backoff.ready(now):
            return Poll(wake_at=self._backoff.until)
        self._is_asked = True
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        return Poll([Request(message, ANY_NODE, add_ms(now, self._request_timeout_ms))])

    def may_forget(self, producer_id: int, epoch: int) -> bool:
        """True always: the numbering of a partition under this id and epoch may be forgotten.

        If its numbers were used again, a broker would take new records for duplicates and drop them. So partitions that
        begin from now on, including this one, get a higher epoch.
        """
        if self.known is not None and self.known[0] == producer_id and self.known[1] <= epoch:
            self.known = (producer_id, epoch + 1) if epoch < MAX_EPOCH else None
        return True

    def on_response(self, now: int, completed: Completed) -> None:
        """Handle the response."""
        self._is_asked = False
        response = completed.response
        error = completed.error
        if response is not None and response.error_code:
            error = for_code(response.error_code, "the broker gave no producer id")
        elif response is not None:
            self._backoff.succeeded()
            self.known = (response.producer_id, response.producer_epoch)
            _log.info("producer id %d epoch %d", *self.known)
            return
        self._backoff.failed(now)
        _log.info("no producer id yet: %s", error)
        if error is not None and not error.retriable:
            error.add_note(
                "idempotent records need a producer id; enable.idempotence=false works without one"
            )
            self.on_refused(error)
