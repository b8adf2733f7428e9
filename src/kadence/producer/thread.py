"""The producer's network thread: asks the sender, moves bytes, and ends when the producer is closed and empty.

`NetworkSide` runs its turns on whatever thread: a simulation runs them without one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from kadence.clock import FOREVER, Clock, add_ms
from kadence.config import ProducerConfig
from kadence.errors import ClosedError, FatalNetworkError, KafkaError
from kadence.idioms import unmade
from kadence.logs import logger
from kadence.net import NetworkClient
from kadence.producer.accumulator import Accumulator
from kadence.producer.futures import decides
from kadence.producer.sender import Sender
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.types import Node

__all__ = ["END_MS", "NetworkSide", "NetworkThread", "Turn"]

_log = logger("kadence.producer")

END_MS: Final = 500
"""What the thread needs at the end of its time to fail what is left, and to close its sockets."""


class Turn:
    """One round over everything that lives on the network thread.

    Attributes:
        trouble: why no broker can be reached, for the message of a call that waits in vain.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        client: NetworkClient,
        accumulator: Accumulator,
        topics: Topics,
        transactions: Transactions | None = None,
    ) -> None:
        self._clock = clock
        self._accumulator = accumulator
        self._topics = topics
        self._client = client
        topics.on_rebootstrap = client.rebootstrap
        self._transactions = transactions
        self._sender = Sender(config, accumulator, topics, client.can_send, transactions)
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._close_at = FOREVER
        self._lingers = True
        self.trouble: str | None = None

    def begin_close(self, deadline: int) -> None:
        """Send what is left until ``deadline``, drop the rest, end. Any thread, be it one that holds the gate.

        Of several calls the earliest deadline holds.
        """
        self._close_at = min(self._close_at, deadline)
        self._client.wakeup()

    @property
    def is_closing(self) -> bool:
        """Whether `begin_close` was called."""
        return self._close_at != FOREVER

    def fail_all(self, error: KafkaError) -> None:
        """End every record that is not decided."""
        self._sender.fail_all(error)

    def run_once(self) -> bool:
        """One round. False when the producer is closed and nothing is left to do."""
        now = self._clock.now_ms()
        if self.is_closing:
            if self._lingers:
                self._lingers = False
                with self._accumulator.gate:
                    self._accumulator.flushing += 1
                    # A close() in a signal handler could not.
                    self._accumulator.gate.notify_all()
                    if self._transactions is not None:
                        # Records end by their delivery.timeout.ms; an abort that nobody answers must end, too.
                        self._close_at = min(self._close_at, add_ms(now, self._delivery_timeout_ms))
            if not self._must_end_transaction() and not self._accumulator.incomplete:
                return False
            if now >= self._close_at:
                self._sender.fail_all(
                    ClosedError(
                        "the producer was closed, or the process ended, before this record was acknowledged; close() "
                        "later, or with more time"
                    )
                )
                return False
        step = self._sender.poll(now)
        for request in step.requests:
            self._client.send(request)
        wake_at = min(step.wake_at, self._close_at)
        self.trouble = self._client.trouble()
        cluster, coordinators = self._topics.cluster, self._coordinators
        for completed in self._client.poll(None if wake_at == FOREVER else max(0, wake_at - now)):
            self._sender.on_response(completed.received_at, completed)
        if self._topics.cluster is not cluster or self._coordinators != coordinators:
            self._client.set_nodes([*self._coordinators.values(), *self._topics.cluster.nodes.values()])
        return True

    def _must_end_transaction(self) -> bool:
        if self._transactions is None:
            return False
        with self._accumulator.gate:
            must_wait = self._transactions.end_for_close()
        self._transactions.lines.write()
        return must_wait

    @property
    def _coordinators(self) -> Mapping[int, Node]:
        return {} if self._transactions is None else dict(self._transactions.coordinators)

    def __repr__(self) -> str:
        return repr(self._sender)


class NetworkSide:
    """One network side from its first turn to its end, on whatever thread runs its turns.

    It ends after `begin_close`, once everything is decided, or by a bug of ours. Whoever makes one starts it.

    Attributes:
        name: of the thread, for the log. fatal: the bug that ended it; raised by the producer's next call.
        has_ended: whether it has; notified by the gate.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        client: NetworkClient,
        accumulator: Accumulator,
        topics: Topics,
        transactions: Transactions | None = None,
    ) -> None:
        self.name = f"{config.client_id}-network"
        self._accumulator = accumulator
        self._client = client
        self._turn = Turn(config, clock, client, accumulator, topics, transactions)
        self.fatal: FatalNetworkError | None = None
        self.has_ended = False

    def start(self) -> None:
        """Let the first turn come."""
        raise NotImplementedError

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Whether turns still come."""
        raise NotImplementedError

    def runs_here(self) -> bool:
        """Whether this is the thread of its turns, which cannot wait for their end."""
        raise NotImplementedError

    @property
    def trouble(self) -> str | None:
        """Why no broker can be reached, for the message of a call that waits in vain."""
        return self._turn.trouble

    def wakeup(self) -> None:
        """There is something new to look at. Any thread."""
        self._client.wakeup()

    def begin_close(self, deadline: int) -> None:
        """Send what is left until ``deadline``, drop the rest, end. Any thread, be it one that holds the gate.

        Of several calls the earliest deadline holds.
        """
        self._turn.begin_close(deadline)

    @property
    def is_closing(self) -> bool:
        """Whether it was told to end."""
        return self._turn.is_closing

    def left_behind(self) -> None:
        """Whoever waited for the end waits no longer. Any thread."""
        with self._accumulator.gate:
            count = self._accumulator.undecided
        _log.warning(
            "%s: close() does not wait any longer for the network thread, which is busy, as with a callback of a "
            "future that takes long; %d records are neither acknowledged nor failed yet",
            self.name,
            count,
        )

    def run_once(self) -> bool:
        """One turn. False when it was the last: the producer is closed, or a bug ended it."""
        try:
            if self._turn.run_once():
                return True
        except BaseException as error:  # noqa: BLE001 - whatever it is, every caller must hear of it (B6)
            _log.exception("the producer's network thread ended with a bug")
            fatal = FatalNetworkError(f"the producer's network thread ended with a bug: {error!r}")
            fatal.__cause__ = error
            self.fatal = fatal
            self._accumulator.is_usable = False
            self._end(fatal)
        else:
            self._end(None)
        return False

    def _end(self, cause: KafkaError | None) -> None:
        try:
            if cause is not None:
                self._turn.fail_all(cause)
        finally:
            self._client.close()
            with self._accumulator.gate:
                self.has_ended = True
                self._accumulator.gate.notify_all()

    def __repr__(self) -> str:
        if "_turn" not in vars(self):
            return unmade(type(self).__name__)
        return f"<{self.name} {'alive' if self.is_alive() else 'ended'} {self._turn!r}>"


class NetworkThread(NetworkSide):
    """Runs turns on a daemon thread of its own. The arguments are `NetworkSide`'s."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        client: NetworkClient,
        accumulator: Accumulator,
        topics: Topics,
        transactions: Transactions | None = None,
    ) -> None:
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-network", daemon=True)
        super().__init__(config, clock, client, accumulator, topics, transactions)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def runs_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        decides(self._accumulator.gate)
        while self.run_once():
            pass
