"""What became of a commit that failed, in the words of an error."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kadence import errors
from kadence.errors import CommitFailedError, KafkaError
from kadence.protocol import error_codes
from kadence.types import TopicPartition

__all__ = ["IDENTITY", "error_of", "expelled", "not_ours", "outsider"]

IDENTITY: Final = frozenset(
    {
        error_codes.UNKNOWN_MEMBER_ID,
        error_codes.ILLEGAL_GENERATION,
        error_codes.REBALANCE_IN_PROGRESS,
        error_codes.FENCED_INSTANCE_ID,
        error_codes.STALE_MEMBER_EPOCH,
        error_codes.FENCED_MEMBER_EPOCH,
    }
)
"""Codes that judge the member, not the offsets."""


def error_of(codes: Mapping[TopicPartition, int]) -> KafkaError | None:
    """What became of one commit: what cannot be mended comes before what can."""
    failed = {partition: code for partition, code in codes.items() if code != error_codes.NONE}
    if not failed:
        return None
    denied = sorted({p.topic for p, code in failed.items() if code == error_codes.TOPIC_AUTHORIZATION_FAILED})
    lasting = [
        (p, code)
        for p, code in failed.items()
        if code not in error_codes.RETRIABLE and code != error_codes.TOPIC_AUTHORIZATION_FAILED
    ]
    if lasting:
        partition, code = lasting[0]
        return errors.for_code(code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused')}")
    if denied:
        return errors.for_code(
            error_codes.TOPIC_AUTHORIZATION_FAILED, f"not allowed to commit for {', '.join(denied)}"
        )
    partition, code = next(iter(failed.items()))
    return errors.for_code(
        code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused for now')}"
    )


def outsider(code: int, group_id: str | None) -> CommitFailedError:
    """The group has members, and this consumer is none of them."""
    return CommitFailedError(
        f"{error_codes.name(code)}: group {group_id!r} has members that subscribe, so offsets "
        "of partitions chosen with assign() are refused; use a group id of its own"
    )


def expelled(code: int) -> CommitFailedError:
    """The group goes on without this member."""
    return CommitFailedError(
        f"{error_codes.name(code)}: the group has removed this member, and other members may read its partitions "
        f"now. {_ADVICE}"
    )


def not_ours(
    partitions: set[TopicPartition], *, others: bool, strangers: Collection[TopicPartition] = ()
) -> CommitFailedError:
    """These were not the member's all the time.

    Args:
        others: the rest of the commit is committed. strangers: those that never were this member's.
    """
    names = ", ".join(str(partition) for partition in sorted(partitions)[:5])
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    rest = " The other partitions of the commit are committed." if others else ""
    any_more, advice = (" (any more)", _ADVICE) if partitions - set(strangers) else ("", _STRANGE)
    return CommitFailedError(
        f"{names}{more} not assigned to this member{any_more}.{rest} {advice}",
        partitions=frozenset(partitions) if others else frozenset(),
    )


_STRANGE = "It never was: the group gives each partition of its topics to one member, which commits it"

_ADVICE = (
    "This happens when the time between two polls exceeds max.poll.interval.ms (poll more often, process less "
    "per poll by max.poll.records, or raise it), or when the process stands still for longer than its session. The "
    "members that own the partitions now read the records again"
)
