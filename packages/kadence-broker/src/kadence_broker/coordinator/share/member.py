"""One member of a share group, as a value with the fields of its records."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kadence_broker.coordinator.partitions import Partitions

__all__ = ["ShareMember"]

_NOTHING: Final[Partitions] = MappingProxyType({})


class ShareMember(NamedTuple):
    """A member; `evolved` makes its next version.

    Attributes:
        assigned: the partitions that it was told to read. Others may have them, too, and nobody confirms anything.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = _NOTHING

    def evolved(self, **changes: Any) -> ShareMember:
        """A copy with changes."""
        return self._replace(**changes)
