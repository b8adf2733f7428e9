"""The list of all groups, of each type: the messages and what their answers mean (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kadence.admin.arguments import as_names
from kadence.admin.calls import Ask, Calls, operation
from kadence.client.waits import Waits
from kadence.errors import KafkaError, for_code
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.list_groups import ListGroupsRequest

__all__ = ["GroupListing", "list_groups"]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as `Admin.list_groups` returns it.

    ``group_type`` is "classic", "consumer" (KIP-848), "share" (KIP-932), "streams", or "" if the broker does not say.
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: str


_TYPES: Final = ("classic", "consumer", "share", "streams")
_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)


@operation
def list_groups(
    calls: Calls, deadline: int, *, types: str | Iterable[str] = (), states: str | Iterable[str] = ()
) -> Waits[list[GroupListing]]:
    """The groups of all brokers, sorted by name.

    Args:
        types: only those of these types: "classic", "consumer", "share", "streams" (Kafka 3.8); empty: all.
        states: only those in one of these states, such as "Empty" (Kafka 2.6, KIP-518); empty: all.
    """
    message = ListGroupsRequest(_known("state", _STATES, states), _known("type", _TYPES, types))
    # Older brokers would list all groups.
    first = 5 if message.types_filter else 4 if message.states_filter else None

    def attempt(deadline: int) -> Waits[list[GroupListing]]:
        known = yield from calls.metadata([], deadline)
        asks = [Ask(message, broker.node_id, min_version=first) for broker in known.brokers]
        answers = yield from calls.ask_all(asks, deadline)
        found: dict[str, GroupListing] = {}
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
            if answer.error_code:
                raise for_code(answer.error_code)
            for group in answer.groups:
                found[group.group_id] = GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type.lower()
                )
        return [found[group] for group in sorted(found)]

    return calls.settle_one(attempt, deadline)


def _known(what: str, known: tuple[str, ...], given: str | Iterable[str]) -> list[str]:
    """States or types of groups, in Kafka's spelling. Brokers pass over names that they do not know."""
    spelled = {each.lower(): each for each in known}
    for each in (names := as_names(given)):
        if each.lower() not in spelled:
            raise ValueError(f"the {what} of a group is one of {', '.join(known)}, not {each!r}")
    return [spelled[each.lower()] for each in names]
