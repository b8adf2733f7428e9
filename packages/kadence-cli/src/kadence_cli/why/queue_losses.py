"""Reasons why a share group (a queue, KIP-932) loses records, or cannot be one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from kadence.client.dead_letter_topics import comes_back
from kadence.printable import plural
from kadence_cli.names import ranges, spelled
from kadence_cli.why.finding import NAMED, Finding, Harm, one_of
from kadence_cli.why.looks import Evidence
from kadence_cli.why.watching import Watch

__all__ = ["dead_letters", "deleted", "wrong_type"]

_MEANT: Final = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    "errors.deadletterqueue.topic.name",
)
"""Settings that only a share group has, and that no setting of the brokers changes for all groups."""


def wrong_type(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """A group that has settings of a share group, and is of another type: share consumers cannot join it."""
    keys = [key for key in _MEANT if (entry := evidence.settings.get(key)) and not entry.is_default]
    if not keys or watch.description.members:
        return
    group = quote(watch.group)
    yield Finding(
        "wrong-type",
        Harm.STOPS,
        f"{watch.group} is a {watch.description.group_type} group, and was configured as a share group",
        (
            f"it has {', '.join(keys)}",
            "share consumers cannot join it (GROUP_ID_NOT_FOUND), even if it is empty: delete it, or rename one",
        ),
        (f"kadence groups config {group}", f"kadence groups delete {group}"),
        tuple(watch.partitions),
        held=watch.lag,
        details=(("type", watch.description.group_type), ("keys", keys)),
    )


def deleted(watch: Watch) -> Iterator[Finding]:
    """Start offsets outside of a partition's range."""
    early = {
        tp: each
        for tp, each in watch.partitions.items()
        if each.committed is not None and each.first is not None and each.committed < each.first
    }
    if early:
        lost = sum((each.first or 0) - (each.committed or 0) for each in early.values())
        yield Finding(
            "offsets-out-of-range",
            Harm.LOSES,
            f"up to {plural(lost, 'record')} were deleted before they were done",
            tuple(
                f"{spelled(tp)}: the group starts at {each.committed}, the first that is left is {each.first}"
                for tp, each in list(early.items())[:NAMED]
            ),
            (f"kadence topics config {one_of(early).topic} --all",),
            tuple(early),
            held=lost,
            details=(("lost", lost),),
        )
    late = [
        tp
        for tp, each in watch.partitions.items()
        if each.committed is not None and each.end is not None and each.committed > each.end
    ]
    if late:
        yield Finding(
            "offsets-out-of-range",
            Harm.LOSES,
            f"start offsets are beyond the end of {ranges(late)}: the topic was recreated, or they were set so",
            tuple(f"{spelled(tp)}: the end is at {watch.partitions[tp].end}" for tp in late[:NAMED]),
            (
                f"kadence groups reset {quote(watch.group)} --topic {spelled(late[0])} --to earliest --dry-run",
            ),
            tuple(late),
        )


def dead_letters(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """A dead letter topic that brokers do not write to, or that the group itself reads."""
    queue = evidence.dead_letters
    if queue is None:
        return
    group = quote(watch.group)
    if queue.faults:
        yield Finding(
            "dead-letters-refused",
            Harm.LOSES,
            f"brokers do not write dead letters to {queue.topic}: records that are rejected, or fail too often, are "
            "lost",
            queue.faults,
            (f"kadence groups config {group}", f"kadence topics config {quote(queue.topic or '')} --all"),
            details=(("topic", queue.topic),),
        )
    if queue.is_read:
        yield Finding(
            "dead-letters-return",
            Harm.SLOWS,
            comes_back(queue.topic or ""),
            (f"its members subscribe to {queue.topic}, or it has a start offset there",),
            (
                f"kadence groups config {group}",
                f"kadence groups forget {group} --topic {quote(queue.topic or '')}",
            ),
            details=(("topic", queue.topic),),
        )
