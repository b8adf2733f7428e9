"""Reasons for which a group, or a partition, does not move, or has lost records; but those of `holds`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kadence.admin import MemberDescription
from kadence.cli.top.rows import duration, plural
from kadence.cli.top.sampling import ranges
from kadence.cli.why.finding import (
    NAMED,
    Finding,
    Harm,
    colon,
    names_of,
    one_of,
    some,
)
from kadence.cli.why.looks import PartitionLook
from kadence.cli.why.watching import Watch, named
from kadence.types import TopicPartition

__all__ = ["lost", "not_owned", "stuck_rebalance", "without_leader", "without_members"]


def lost(watch: Watch) -> Iterator[Finding]:
    """Committed offsets outside of what a partition holds."""
    early = {tp: each for tp, each in watch.partitions.items() if _is_before(each)}
    if early:
        lost = sum((each.first or 0) - (each.committed or 0) for each in early.values())
        yield Finding(
            "offsets-out-of-range",
            Harm.LOSES,
            f"{plural(lost, 'record')} were deleted before the group read them",
            tuple(
                f"{tp}: committed {each.committed}, the first that is left is {each.first}"
                for tp, each in some(early)
            ),
            (
                f"kadence topics config {one_of(early).topic} --all",
                f"kadence groups reset {quote(watch.group)} --topic {colon(one_of(early))} --to earliest --dry-run",
            ),
            tuple(early),
            held=lost,
            details=(("lost", lost),),
        )
    late = {tp: each for tp, each in watch.partitions.items() if _is_behind_end(each)}
    if late:
        yield Finding(
            "offsets-out-of-range",
            Harm.LOSES,
            "committed offsets are beyond the end: the topic was made anew, or its log was cut",
            tuple(f"{tp}: committed {each.committed}, the end is at {each.end}" for tp, each in some(late)),
            (
                f"kadence groups reset {quote(watch.group)} --topic {colon(one_of(late))} --to earliest --dry-run",
            ),
            tuple(late),
        )


def _is_before(each: PartitionLook) -> bool:
    return each.committed is not None and each.first is not None and each.committed < each.first


def _is_behind_end(each: PartitionLook) -> bool:
    return each.committed is not None and each.end is not None and each.committed > each.end


def without_leader(watch: Watch) -> Iterator[Finding]:
    """Partitions that nobody can read."""
    gone = {tp: each for tp, each in watch.partitions.items() if each.trouble}
    if gone:
        tp = one_of(gone)
        yield Finding(
            "no-leader",
            Harm.STOPS,
            f"{plural(len(gone), 'partition')} cannot be read: {gone[tp].trouble}",
            tuple(f"{tp}: {each.trouble}" for tp, each in some(gone)),
            (f"kadence topics describe {tp.topic}", "kadence cluster"),
            tuple(gone),
        )


def without_members(watch: Watch) -> Iterator[Finding]:
    """A group that waits for its consumers."""
    group, waits = watch.description, watch.lag
    if not group.members and waits:
        yield Finding(
            "no-members",
            Harm.STOPS,
            f"nobody reads: the group is {group.state} and has no members",
            (
                f"{plural(waits, 'record')} wait in {plural(len(watch.lagging), 'partition')}",
                "its consumers are stopped, cannot log in, or were thrown out: their logs say which",
            ),
            (f"kadence groups describe {quote(watch.group)}", "kadence doctor"),
            tuple(watch.lagging),
            held=waits,
            details=(("state", group.state),),
        )


def stuck_rebalance(watch: Watch) -> Iterator[Finding]:
    """A rebalance that does not end: somebody has not given up its partitions, or not come back."""
    group = watch.description
    holders = [each for each in group.members if watch.is_behind(each)]
    seconds = duration(watch.span_ms / 1000)
    if holders:
        wanted = frozenset(tp for each in holders for tp in _to_give_up(each))
        waiting = [
            named(each) for each in group.members if (each.target_assignment or frozenset()) - each.assignment
        ]
        yield Finding(
            "stuck-revocation",
            Harm.STOPS,
            f"{names_of(holders)} does not take part in the rebalance to epoch {group.epoch}",
            tuple(
                f"{named(each)} ({each.host.removeprefix('/')}) is at epoch {each.member_epoch}"
                + (f", and has not given up {ranges(up)}" if (up := _to_give_up(each)) else "")
                for each in holders[:NAMED]
            )
            + ((f"{', '.join(waiting[:NAMED])} wait for that",) if waiting else ())
            + (f"for {seconds} at least; its application is busy, or does not poll",),
            (f"kadence groups describe {quote(watch.group)}", f"kadence top {quote(watch.group)}"),
            tuple(sorted(wanted)),
            tuple(named(each) for each in holders),
            held=sum(watch.lag_of(tp) for tp in wanted),
        )
    elif watch.is_unsettled and group.epoch is None:
        yield Finding(
            "stuck-rebalance",
            Harm.STOPS,
            f"a rebalance does not end: the group is {group.state} since {seconds} at least",
            (
                f"the coordinator waits until each of {plural(len(group.members), 'member')} has joined again",
                "one of them is busy: it comes at its next poll, or is thrown out after its rebalance timeout",
            ),
            (f"kadence groups describe {quote(watch.group)}", f"kadence top {quote(watch.group)}"),
            members=tuple(map(named, group.members)),
            held=watch.lag,
            details=(("state", group.state),),
        )


def _to_give_up(member: MemberDescription) -> frozenset[TopicPartition]:
    return member.assignment - (member.target_assignment or frozenset())


def not_owned(watch: Watch) -> Iterator[Finding]:
    """Partitions with lag that no member has."""
    group = watch.description
    if not group.members or watch.is_rebalancing or group.state != "Stable":
        return
    left = [tp for tp in watch.lagging if watch.history.owner(tp) is None]
    if left:
        held = sum(watch.lag_of(tp) for tp in left)
        yield Finding(
            "not-owned",
            Harm.STOPS,
            f"no member reads {ranges(left)}",
            (
                f"{plural(held, 'record')} wait there; the members own other partitions",
                "its members no longer subscribe to it, or take only partitions that they chose",
            ),
            (
                f"kadence groups describe {quote(watch.group)}",
                f"kadence groups forget {quote(watch.group)} --topic {left[0].topic}",
            ),
            tuple(left),
            held=held,
        )
