"""Server-side assignors (KIP-848): they assign partitions to members. Pure: a specification in, partitions out.

`ASSIGNORS` names them as Kafka does; the first is the default (``group.consumer.assignors``). Neither looks at racks:
Kafka's do not either, a reader fetches from the nearest replica anyway (KIP-392).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence_broker.coordinator.consumer.assignors import range as range_
from kadence_broker.coordinator.consumer.assignors import uniform
from kadence_broker.coordinator.consumer.assignors.specification import GroupSpec, MemberSpec, Shares

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "GroupSpec", "MemberSpec", "Shares"]

ASSIGNORS: Final[Mapping[str, Callable[[GroupSpec], Shares]]] = {
    "uniform": uniform.assign,
    "range": range_.assign,
}

DEFAULT_ASSIGNOR: Final = "uniform"
