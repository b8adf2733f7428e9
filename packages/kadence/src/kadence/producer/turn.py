"""One turn of a producer's network thread: records, the requests that they need, and the end after `close()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kadence.client import network_thread
from kadence.client.engine import ended
from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock, add_ms
from kadence.config import ProducerConfig
from kadence.connection.request import ConnectionPurpose
from kadence.net import NetworkClient, drain
from kadence.producer.accumulator import Accumulator
from kadence.producer.network_state import NetworkState, not_in_time
from kadence.producer.sender import Sender
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.types import Node

__all__ = ["Turn"]

_LEAST_LIMIT_MS: Final = 2_000
"""With shorter time limits the network thread, which keeps them, sends all."""


def _may_send_directly(config: ProducerConfig) -> bool:
    """True if the application's threads may send plain batches of this producer by themselves."""
    return (
        config.enable_idempotence
        and config.transactional_id is None
        and config.compression_type == "none"
        and min(config.request_timeout_ms, config.delivery_timeout_ms) >= _LEAST_LIMIT_MS
    )


class Turn(network_thread.Turn):
    """One turn of the loop over everything that runs on a producer's network thread."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        client: NetworkClient,
        state: NetworkState,
        accumulator: Accumulator,
        topics: Topics,
        transactions: Transactions | None = None,
    ) -> None:
        self._sender = Sender(config, accumulator, topics, client.can_send, transactions)
        super().__init__(clock, NetworkClientDelegate(client), self._sender.managers)
        self._accumulator = accumulator
        self._topics = topics
        self._client = client
        topics.on_rebootstrap = lambda now: client.rebootstrap()
        client.on_wrong_node = self._brokers_are_wrong
        self._transactions = transactions
        self._state = state
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._lingers = True
        self._wake_at = 0
        self._is_quiet = False
        if drain.COMPILED and _may_send_directly(config):
            from kadence.producer.direct_sends import DirectSends

            direct = DirectSends(
                accumulator, topics, self._sender, self._delegate, clock, lambda: state.is_closing
            )
            client.direct_users[ConnectionPurpose.MAIN] = direct
            accumulator.send_by(direct)

    def run_once(self) -> bool:
        """Run one turn. False when the producer is closed and nothing is left to do."""
        now = self._clock.now_ms()
        if not self._is_quiet or now >= self._wake_at or self._state.is_closing:
            self._state.wake_stirred()
            if self._has_ended(now):
                return False
            self._wake_at = self._ask(now, self._managers)
            # The last work may be done by now, for example an abort that needs no request. Nothing would end the wait.
            if self._has_ended(now):
                return False
            self._wake_at = min(self._wake_at, self._state.close_at)
            self._state.trouble = self._client.trouble()
        cluster, coordinators = self._topics.cluster, self._coordinators
        delivered, plain = self._delegate.delivered, self._sender.plain_answers
        self._exchange(now, self._wake_at)
        # After plain answers alone no manager has more to send, and none must be asked before the time that it named.
        self._is_quiet = (
            0 < self._delegate.delivered - delivered == self._sender.plain_answers - plain
            and not self._client.was_woken
            and self._sender.has_nothing_to_send
        )
        if self._topics.cluster is not cluster or self._coordinators != coordinators:
            known = self._topics.cluster
            nodes = [*self._coordinators.values(), *known.nodes.values()]
            # Without brokers the id is that of the cluster before.
            self._client.set_nodes(nodes, known.cluster_id if known.nodes else None)
        return True

    def _brokers_are_wrong(self) -> None:
        self._topics.brokers_are_wrong()
        self._wake_at = 0

    def finish(self, cause: BaseException | None) -> None:
        self._sender.fail_all(not_in_time() if cause is None else ended("producer", cause))

    def _has_ended(self, now: int) -> bool:
        return self._state.is_closing and not self._goes_on(now)

    def _goes_on(self, now: int) -> bool:
        """True if there is work before the end. When the time is over, it fails."""
        if self._lingers:
            self._lingers = False
            with self._accumulator.gate:
                # If close() was called, it is shut already.
                self._state.shut()
                self._accumulator.flushing += 1
                if self._transactions is not None:
                    # Records end by their delivery.timeout.ms; an abort without a response must end, too.
                    self._state.close_at = min(self._state.close_at, add_ms(now, self._delivery_timeout_ms))
        if not self._must_end_transaction() and not self._accumulator.incomplete:
            return False
        if now < self._state.close_at:
            return True
        self._sender.fail_all(not_in_time())
        return False

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
