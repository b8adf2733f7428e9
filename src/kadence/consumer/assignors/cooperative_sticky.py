"""Kafka's ``cooperative-sticky``: balanced, and whoever reads a partition keeps it where balance allows.

Members claim what they own when they join, and the plan is that of `plan`. What is still claimed by a member other
than the one chosen is given to nobody in this round (KIP-429): its old owner gives it up first, and a second
round hands it on.

Under the eager protocol nothing is claimed when members join, so only balance is left.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kadence.consumer.assignors.base import (
    Assignment,
    Assignor,
    LastAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from kadence.consumer.assignors.plan import Plan, withhold

__all__ = ["CooperativeStickyAssignor", "generation_of"]

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Kafka's ``cooperative-sticky`` assignor: balanced; members keep partitions where balance allows."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def user_data(self, last: LastAssignment) -> bytes | None:
        """The generation, where members before Kafka 3.4 look for it; newer ones have a field for it (KIP-792)."""
        return _GENERATION.pack(last.generation)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        claims = {name: (said.owned, generation_of(said)) for name, said in members.items()}
        return withhold(Plan(partitions, members, claims).made(), partitions, claims)


def generation_of(subscription: MemberSubscription) -> int:
    """The generation of a member's claims: from the field of newer members, else from the user data of older ones."""
    if subscription.generation >= 0:
        return subscription.generation
    data = subscription.user_data
    return _GENERATION.unpack_from(data)[0] if data is not None and len(data) >= _GENERATION.size else -1
