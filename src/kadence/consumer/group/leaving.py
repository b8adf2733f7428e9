"""Leaves the group for memberships that have ended, while the next membership may already begin.

What is said, and who says it at all, each group protocol adds.

Each departure carries its own identity, so it outlives whatever the member does next. It is repeated until
the coordinator knows, or until the session would have ended anyway. A JoinGroup without a member id that is
still on its way when the member leaves would leave a phantom behind (KIP-394): its answer is awaited, and the
id in it leaves.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Final

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, ConnectionPurpose, Request
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import GroupConfig
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata

__all__ = ["Departure", "Departures"]

log = logger("kadence.consumer")

_REASON_MAX: Final = 255


@dataclass(slots=True, eq=False)
class Departure:
    """One goodbye, until the coordinator knows."""

    member_id: str
    reason: str
    ends_at: int
    backoff: Backoff
    joining: Request | None = None
    """The join whose answer brings the member id."""
    instance_id: str | None = None
    sent: Request | None = None


class Departures(abc.ABC):
    """All memberships of this consumer that are over but not yet known to be."""

    def __init__(self, config: GroupConfig, coordinator: CoordinatorRequestManager) -> None:
        self._config = config
        self._coordinator = coordinator
        self._waiting: list[Departure] = []
        self.goodbye: bool | None = None
        """Whether to say so for good (KIP-1092); None: dynamic members do, of static ones the place is kept."""

    @property
    def done(self) -> bool:
        return not self._waiting

    @property
    def said(self) -> bool:
        """Whether each goodbye was sent."""
        return all(departure.sent is not None for departure in self._waiting)

    def add(
        self, now: int, group: GroupMetadata, joining: Request | None, reason: str, *, awaited: bool = False
    ) -> None:
        """This membership is over, if the coordinator may know of it.

        Args:
            group: its identity. joining: the join under way, which will bring a member id if it has none.
            awaited: the application waits until it was heard, and not for a coordinator that is silent.
        """
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        patience = self._config.session_timeout_ms
        if awaited:
            # The other half was for the commit before.
            patience = min(patience, self._config.request_timeout_ms // 2)
        ends_at = add_ms(now, patience)
        self._waiting.append(
            Departure(
                group.member_id,
                reason[:_REASON_MAX],
                ends_at,
                backoff,
                None if group.member_id else joining,
                instance_id=group.group_instance_id,
            )
        )

    def poll(self, now: int) -> Poll:
        if not self._waiting:
            return NOTHING
        before = len(self._waiting)
        self._waiting = [departure for departure in self._waiting if now < departure.ends_at]
        requests: list[Request] = []
        # A static member's join waits for this end, and may have had its turn in this poll already.
        wake_at = now if len(self._waiting) < before else FOREVER
        for departure in self._waiting:
            wake_at = min(wake_at, departure.ends_at)
            if departure.joining is not None or departure.sent is not None:
                continue
            node_id = self._coordinator.node_id
            if node_id is None:
                wake_at = min(wake_at, self._coordinator.require(now))
            elif now < departure.backoff.until:
                wake_at = min(wake_at, departure.backoff.until)
            else:
                departure.sent = self._request(now, node_id, departure)
                requests.append(departure.sent)
        return Poll(requests, wake_at)

    @abc.abstractmethod
    def _goodbye(self, departure: Departure) -> Any:
        """The message that says it."""

    def _code(self, answer: Any) -> int:
        """What the coordinator said to it."""
        code: int = answer.error_code
        return code

    def _request(self, now: int, node_id: int, departure: Departure) -> Request:
        return Request(
            self._goodbye(departure),
            node_id,
            min(add_ms(now, self._config.request_timeout_ms), departure.ends_at),
            ConnectionPurpose.GROUP,
        )

    def on_response(self, now: int, completed: Completed) -> None:
        departure = next((d for d in self._waiting if d.sent is completed.request), None)
        if departure is None:
            return
        departure.sent = None
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if completed.error.retriable:
                departure.backoff.failed(now)
            else:
                self._waiting.remove(departure)
            return
        code = self._code(completed.response)
        self._coordinator.check(now, completed.request.node_id, code)
        if code in error_codes.RETRIABLE:
            departure.backoff.failed(now)
            return
        self._waiting.remove(departure)
        log.info(
            "group %s: member %s left (%s): %s",
            self._config.group_id,
            departure.member_id,
            departure.reason,
            error_codes.name(code),
        )
