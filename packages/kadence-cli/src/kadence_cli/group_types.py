"""Groups of the types that commands know: consumer groups, classic and KIP-848, and share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kadence.admin.values import Outcomes
from kadence.errors import BrokerError, UnsupportedVersionError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol import error_codes as ec
from kadence.work.frontier import done_above

if TYPE_CHECKING:
    from kadence import Admin
    from kadence.admin import ConsumerGroupDescription, ShareGroupDescription
    from kadence.types import TopicPartition

__all__ = ["KNOWN", "SHARE", "Description", "Place", "described", "is_share", "places", "places_again"]

SHARE: Final = "share"

KNOWN: Final = frozenset({"consumer", "classic", SHARE, ""})
"""Types of groups whose members have partitions and offsets; "": brokers before 3.8 do not send the type."""

Description: TypeAlias = "ConsumerGroupDescription | ShareGroupDescription"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group is in a partition.

    Attributes:
        offset: the committed offset, or the start offset of a share group. None: a share group that has no place yet.
        metadata: of the committed offset. waiting: the lag of a share group, if its broker knows it.
    """

    offset: int | None
    metadata: str = ""
    waiting: int | None = None

    def above(self, end: int | None) -> int:
        """How many records are done above the offset, where the partition ends at ``end``."""
        if self.offset is None:
            return 0
        if self.waiting is None or end is None:
            return done_above(self.offset, self.metadata)
        return max(0, end - self.offset - self.waiting)


def is_share(group: Description) -> bool:
    """Whether it is a share group."""
    return group.group_type == SHARE


def described(
    admin: Admin, groups: Iterable[str], timeout: float | None = None
) -> Outcomes[str, Description]:
    """Descriptions of groups, whatever their type. Share groups take a second request."""
    found: Outcomes[str, Description] = Outcomes()
    as_consumers = admin.describe_consumer_groups(groups, raise_errors=False, timeout=timeout)
    found.update(as_consumers)
    found.errors.update(as_consumers.errors)
    others = [name for name, error in found.errors.items() if _is_no_such(error)]
    if others:
        as_shares = admin.describe_share_groups(others, raise_errors=False, timeout=timeout)
        found.update(as_shares)
        for name in as_shares:
            del found.errors[name]
        # Brokers before 4.1 have no share groups; of a group that is none the first error says more.
        found.errors.update(
            {
                name: error
                for name, error in as_shares.errors.items()
                if not _is_no_such(error) and not isinstance(error, UnsupportedVersionError)
            }
        )
    return found


def _is_no_such(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == ec.GROUP_ID_NOT_FOUND


def places(
    admin: Admin, groups: Mapping[str, Description], timeout: float | None = None
) -> Outcomes[str, dict[TopicPartition, Place]]:
    """The committed offsets of consumer groups, and the start offsets of share groups."""
    consumers = [name for name, group in groups.items() if not is_share(group)]
    committed = admin.list_offsets_of_groups(consumers, raise_errors=False, timeout=timeout)
    found: Outcomes[str, dict[TopicPartition, Place]] = Outcomes(
        {
            name: {tp: Place(at.offset, at.metadata) for tp, at in of_group.items()}
            for name, of_group in committed.items()
        },
        committed.errors,
    )
    return places_again(admin, groups, found, timeout)


def places_again(
    admin: Admin,
    groups: Mapping[str, Description],
    found: Outcomes[str, dict[TopicPartition, Place]],
    timeout: float | None = None,
) -> Outcomes[str, dict[TopicPartition, Place]]:
    """The same with the places of share groups looked up now.

    What is done above a start offset is counted by the end offset, which must not be newer than the lag.
    """
    shares = [name for name, group in groups.items() if is_share(group)]
    if not shares:
        return found
    offsets = admin.list_offsets_of_share_groups(shares, raise_errors=False, timeout=timeout)
    now = {
        name: {tp: Place(at.start_offset, waiting=at.lag) for tp, at in of_group.items()}
        for name, of_group in offsets.items()
    }
    values = {**found, **now}
    return Outcomes(
        {name: values[name] for name in groups if name in values}, {**found.errors, **offsets.errors}
    )
