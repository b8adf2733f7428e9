"""Which answers about metadata say something, and when a client that gets none begins again at ``bootstrap.servers``.

It begins again when no broker has answered its metadata requests for ``metadata.recovery.rebootstrap.trigger.ms``, or
one says that it is not to be asked any more (KIP-899, KIP-1102). Sans-IO.
"""

from __future__ import annotations

from logging import Logger

from kadence.clock import FOREVER, add_ms
from kadence.config import ClientConfig
from kadence.connection.request import Completed
from kadence.errors import (
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    TransportError,
    UnsupportedVersionError,
    for_code,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse

__all__ = ["Recovery", "fault_of"]


class Recovery:
    """Is told how metadata requests end; tells when to begin again.

    Attributes:
        is_on: whether this ever happens: ``metadata.recovery.strategy``.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.is_on = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        self._failing_since: int | None = None
        self._is_told = False

    def took(self, completed: Completed, since: int) -> KafkaError | None:
        """A request that was sent at ``since`` has ended. Returns why it says nothing of the cluster, if so."""
        response: MetadataResponse | None = completed.response
        error = completed.error if response is None else fault_of(response, rebootstraps=self.is_on)
        if error is None:
            self._failing_since = None
        elif not isinstance(error, UnsupportedVersionError) and self._failing_since is None:
            # A broker that lacks the version is there; one that swallows requests was silent since they were sent.
            self._failing_since = since
        if response is not None and response.error_code == ec.REBOOTSTRAP_REQUIRED:
            self._is_told = self.is_on
        return error

    @property
    def due(self) -> int:
        """When to begin again, unless a broker answers before (ms)."""
        if self._is_told:
            return 0
        if self._failing_since is None or not self.is_on:
            return FOREVER
        return add_ms(self._failing_since, self._trigger_ms)

    def begin(self, now: int, log: Logger) -> None:
        """The client begins again, and time counts anew."""
        silent_ms = now - (self._failing_since or now)
        why = "a broker said so" if self._is_told else f"no broker has answered for {silent_ms} ms"
        log.warning("%s: asking bootstrap.servers for the brokers again", why)
        self._failing_since, self._is_told = None, False


def fault_of(response: MetadataResponse, *, rebootstraps: bool) -> KafkaError | None:
    """Why an answer says nothing of the cluster; None when it does.

    Args:
        rebootstraps: whether the client begins again when a broker says so.
    """
    if rebootstraps and response.error_code == ec.REBOOTSTRAP_REQUIRED:
        return DisconnectedError("a broker said that bootstrap.servers are to be asked again")
    if response.error_code:
        return for_code(response.error_code)
    if not response.brokers:
        # Believed, it would cost every connection.
        return TransportError("the broker names no broker of its cluster: it was just started")
    return _miscounted(response)


def _miscounted(response: MetadataResponse) -> MalformedMessageError | None:
    """What is wrong with the partitions: they count from 0, which partitioners and assignors rely on."""
    for topic in response.topics:
        numbers = sorted(each.partition_index for each in topic.partitions)
        if numbers != list(range(len(numbers))):
            return MalformedMessageError(
                f"a broker says that topic {topic.name!r} has the partitions {numbers[:10]}, and they must be counted "
                "from 0 without gaps"
            )
    return None
