"""Arguments and results of the coordinator other than Kafka's messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kadence.coordinator.records import Record

__all__ = ["Answer", "Caller", "Outcome"]


# Made for each request, so not frozen: that would cost three times as much. Nobody changes them.


@dataclass(slots=True, eq=False)
class Caller:
    """Who asks, and in which version of the API; identity is equality, since two requests may look alike.

    Attributes:
        ticket: the shell's own handle of the request. The coordinator only carries it, from `handle` to the
            one `Answer` that ends it, perhaps much later (a parked JoinGroup or SyncGroup).
        version: version of the request; some rules differ by it, and the answer is encoded in it.
    """

    ticket: Any
    version: int
    client_id: str = ""
    client_host: str = ""


class Answer(NamedTuple):
    """One request is over: give ``response`` to ``caller``."""

    caller: Caller
    response: Any


@dataclass(slots=True)
class Outcome:
    """What one step of the coordinator leads to.

    Attributes:
        records: changes of state that the coordinator has made already and that must be stored, in this order.
        answers: to be delivered once the records are stored, and not before.
    """

    records: list[Record] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
