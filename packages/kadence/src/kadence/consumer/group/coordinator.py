"""Finds the group's coordinator with FindCoordinator, and forgets it when it moves or fails.

The managers call `require` when they have something to send and no coordinator; a consumer that never uses its group
never looks it up. One look-up is under way at a time, and two look-ups are at least a backoff apart even when each
succeeds, so a coordinator that is named but unreachable causes no spin (KIP-580).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.client import coordinators
from kadence.client.coordinators import KeyType
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.group.membership import GroupConfig
from kadence.errors import BrokerError, KafkaError, MalformedMessageError, TransportError
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes
from kadence.types import Node

__all__ = ["CoordinatorRequestManager"]

log = logger("kadence.consumer")

_GONE = frozenset({error_codes.NOT_COORDINATOR, error_codes.COORDINATOR_NOT_AVAILABLE})

_ADVICE: Final = {
    error_codes.COORDINATOR_NOT_AVAILABLE: (
        ". If this lasts, look in the brokers' logs for why __consumer_offsets is not created or has no leader: "
        "offsets.topic.replication.factor may be above the number of brokers"
    )
}

_LONG_MS: Final = 10_000
"""A group that waits longer for its coordinator gets a WARNING: clusters that start need less."""


class _Wait:
    """Logs that a group waits for its coordinator, and why: at INFO, and at WARNING when it lasts."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id
        self._since: int | None = None
        self._limiter = LogLimiter()

    def goes_on(self, now: int, why: str, advice: str = "") -> None:
        """It still waits. A WARNING has the ``advice``, too."""
        if self._since is None:
            self._since = now
        is_long = now - self._since >= _LONG_MS
        if not self._limiter.is_new(now, None, (why, is_long)):
            return
        if is_long:
            waited_s = (now - self._since) // 1000
            log.warning(
                "group %s has waited %d s for its coordinator: %s%s", self._group_id, waited_s, why, advice
            )
        else:
            log.info("group %s waits for its coordinator: %s", self._group_id, why)

    def over(self) -> None:
        if self._since is not None:
            self._since = None
            self._limiter.over(None)


class CoordinatorRequestManager:
    """Knows the group's coordinator, or looks it up.

    Args:
        group_id: the group; None for a consumer without one, which must never ask.
        config: request and backoff times.
        add_event: takes a `Failed` for a fatal error that none of the ``on_failed`` listeners took.
    """

    def __init__(self, group_id: str | None, config: GroupConfig, add_event: AddBackgroundEvent) -> None:
        self.group_id = group_id
        self.node: Node | None = None
        self.on_found: Callable[[Node], None] | None = None
        """Called for each coordinator found, before anything is sent to it: gives the client its address."""
        self.on_silent: Callable[[int, int], None] | None = None
        """Called for a coordinator that stopped answering, with the time (ms) since when, so that no request waits
        behind unanswered ones.
        """
        self.watched = False
        """Whether heartbeats run, which notice when the coordinator is gone."""
        self.on_hang_up: Callable[[int], None] | None = None
        """Called to close the connection of the heartbeats, so that the next one opens a new one; see `hang_up`."""
        self.on_failed: list[Callable[[int, KafkaError], bool]] = []
        """Called for a fatal error; True: this listener reports it, so the background event handler need not."""
        self._config = config
        self._add_event = add_event
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._no_coordinator, self._loading = _Wait(group_id), _Wait(group_id)
        self._wanted = False
        self._in_flight: Request | None = None
        self._not_before = 0
        self._hung_up_on: int | None = None
        self.found_at = 0
        """When (ms) the current coordinator was found."""

    @property
    def node_id(self) -> int | None:
        """The coordinator's broker id; None while unknown."""
        return None if self.node is None else self.node.node_id

    def require(self, now: int) -> int:
        """A manager waits for the coordinator: look it up.

        Returns:
            When to poll again: now, the first time, so that the look-up is sent at once; else the end of the look-up
            wakes all.
        """
        if self.node is not None or self._wanted:
            return FOREVER
        self._wanted = True
        return now

    def mark_unknown(self, now: int, reason: str) -> None:
        """The coordinator has moved, or does not answer."""
        del now
        if self.node is not None:
            log.info(
                "group %s: stopped using coordinator %s: %s",
                self.group_id,
                self.node.node_id,
                reason,
            )
            self.node = None

    def mark_silent(self, now: int, since: int, reason: str) -> None:
        """As `mark_unknown`, for a coordinator that does not answer: also closes its silent connections."""
        node_id = self.node_id
        self.mark_unknown(now, reason)
        if node_id is not None and self.on_silent is not None:
            self.on_silent(node_id, since)

    def hang_up(self, now: int, reason: str) -> None:
        """Close the connection, but keep the coordinator: it may be alive, and only the network path dead.

        Requests on their way end with an error before the next `poll`. We caused that error, so `check` ignores it.
        Looking the coordinator up instead would use other connections, which may be just as dead.
        """
        del now
        if self.node is not None and self.on_hang_up is not None:
            log.info("group %s: coordinator %s: %s", self.group_id, self.node.node_id, reason)
            self._hung_up_on = self.node.node_id
            self.on_hang_up(self.node.node_id)

    def check(self, now: int, node_id: int, error: KafkaError | int) -> None:
        """Forget the coordinator if the end of a request to it says that it is gone.

        Args:
            node_id: the broker of the request; a late response of an earlier coordinator changes nothing.
            error: a transport error, or the code of the answer.
        """
        if node_id != self.node_id:
            return
        if isinstance(error, int):
            if error == error_codes.COORDINATOR_LOAD_IN_PROGRESS:
                self._loading.goes_on(
                    now, f"broker {node_id} is loading the group's state ({error_codes.name(error)})"
                )
            else:
                self._loading.over()
            if error in _GONE:
                self.mark_unknown(now, error_codes.name(error))
        elif isinstance(error, TransportError) and error.retriable and node_id != self._hung_up_on:
            self.mark_unknown(now, str(error))

    def check_elsewhere(self, now: int, node_id: int, error: KafkaError) -> None:
        """As `check`, for another connection than that of the heartbeats: while those run, they alone decide."""
        if not self.watched:
            self.check(now, node_id, error)

    def poll(self, now: int) -> Poll:
        self._hung_up_on = None
        if not self._wanted or self._in_flight is not None:
            return NOTHING
        start = max(self._backoff.until, self._not_before)
        if now < start:
            return Poll(wake_at=start)
        deadline = add_ms(now, self._config.request_timeout_ms)
        self._in_flight = coordinators.look_up(KeyType.GROUP, self.group_id or "", deadline)
        return Poll([self._in_flight])

    def on_response(self, now: int, completed: Completed) -> None:
        if completed.request is not self._in_flight:
            return
        self._in_flight = None
        self._not_before = now + self._config.retry_backoff_ms
        told = coordinators.read(completed.request.message, completed.error or completed.response)
        (node,) = told.values()
        if isinstance(node, Node):
            self._found(now, node)
        elif node.retriable or isinstance(completed.error, MalformedMessageError):
            # After unreadable bytes there is a new connection.
            self._backoff.failed(now)
            # Errors of connections are logged where they happen.
            if isinstance(node, BrokerError):
                self._no_coordinator.goes_on(now, str(node).rstrip("."), _ADVICE.get(node.code, ""))
        else:
            self._fatal(now, node)

    def _found(self, now: int, node: Node) -> None:
        self._backoff.succeeded()
        self._no_coordinator.over()
        self._wanted = False
        self.node, self.found_at = node, now
        log.info(
            "group %s: coordinator is %s (%s:%d)",
            self.group_id,
            node.node_id,
            node.host,
            node.port,
        )
        if self.on_found is not None:
            self.on_found(node)

    def _fatal(self, now: int, error: KafkaError) -> None:
        """Stop looking until `require` is called again: the application's next poll tries again (B6)."""
        self._backoff.failed(now)
        self._no_coordinator.over()
        self._wanted = False
        told = [listener(now, error) for listener in self.on_failed]
        if not any(told):
            self._add_event(Failed(error, gave_up=True))

    def __repr__(self) -> str:
        return f"<coordinator of {self.group_id} {'unknown' if self.node is None else self.node.node_id}>"
