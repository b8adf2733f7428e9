"""Arguments and results of the coordinator other than Kafka's messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.share.state import StateRequest

__all__ = ["Answer", "Caller", "GroupOutcome", "Outcome"]


# Made for each request, so not frozen: that would cost three times as much. They are never changed.


@dataclass(slots=True, eq=False)
class Caller:
    """The sender of a request, with its version of the API. Equal only if identical: two requests may look alike.

    Attributes:
        ticket: the shell's own handle of the request. The coordinator only passes it from `handle` to the
            `Answer` of the request, perhaps much later (a parked JoinGroup or SyncGroup).
        version: version of the request; some rules depend on it, and the answer is encoded in it.
    """

    ticket: Any
    version: int
    client_id: str = ""
    client_host: str = ""


class Answer(NamedTuple):
    """The end of one request: send ``response`` to ``caller``."""

    caller: Caller
    response: Any


@dataclass(slots=True)
class Outcome:
    """The effects of one step of the coordinator.

    Attributes:
        records: changes of state that the coordinator has made already and that must be stored, in this order.
        answers: to be delivered once the records are stored, and not before.
    """

    records: list[Record] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class GroupOutcome(Outcome):
    """As `Outcome`, of a group coordinator.

    Attributes:
        state_requests: to be carried out once the records are stored; see `GroupCoordinator.state_answered`.
    """

    state_requests: list[StateRequest] = field(default_factory=list)
