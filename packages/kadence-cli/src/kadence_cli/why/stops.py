"""Reasons why a group or partition does not move or has lost records, except those of `holds`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kadence.admin import MemberDescription
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import duration
from kadence_cli.names import ranges, spelled
from kadence_cli.why.finding import (
    NAMED,
    Finding,
    Harm,
    names_of,
    one_of,
    some,
    waiting,
)
from kadence_cli.why.looks import Cause, Evidence, PartitionLook
from kadence_cli.why.watching import Watch, named

__all__ = ["lost", "not_owned", "stuck_rebalance", "unreadable"]


def lost(watch: Watch) -> Iterator[Finding]:
    """Committed offsets outside of a partition's range."""
    early = {tp: each for tp, each in watch.partitions.items() if _is_before(each)}
    if early:
        lost = sum((each.first or 0) - (each.committed or 0) for each in early.values())
        yield Finding(
            "offsets-out-of-range",
            Harm.LOSES,
            f"{plural(lost, 'record')} were deleted before the group read them",
            tuple(
                f"{spelled(tp)}: committed {each.committed}, the first that is left is {each.first}"
                for tp, each in some(early)
            ),
            (
                f"kadence topics config {one_of(early).topic} --all",
                f"kadence groups reset {quote(watch.group)} --topic {spelled(one_of(early))} --to earliest --dry-run",
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
            "committed offsets are beyond the end: the topic was recreated, or its log was truncated",
            tuple(
                f"{spelled(tp)}: committed {each.committed}, the end is at {each.end}"
                for tp, each in some(late)
            ),
            (
                f"kadence groups reset {quote(watch.group)} --topic {spelled(one_of(late))} --to earliest --dry-run",
            ),
            tuple(late),
        )


def _is_before(each: PartitionLook) -> bool:
    return each.committed is not None and each.first is not None and each.committed < each.first


def _is_behind_end(each: PartitionLook) -> bool:
    return each.committed is not None and each.end is not None and each.committed > each.end


def unreadable(watch: Watch) -> Iterator[Finding]:
    """Partitions that cannot be read, do not exist any more, or that this login may not describe."""
    gone: dict[Cause, dict[TopicPartition, PartitionLook]] = {}
    for tp, each in watch.partitions.items():
        if each.trouble:
            gone.setdefault(each.cause, {})[tp] = each
    for cause, found in gone.items():
        tp = one_of(found)
        number = plural(len(found), "partition")
        commands: tuple[str, ...]
        match cause:
            case "no-leader":
                says, commands = "cannot be read", (f"kadence topics describe {tp.topic}", "kadence cluster")
            case "no-topic":
                says, commands = "is no more", ("kadence topics list",)
            case "not-allowed":
                says, commands = "may not be looked at by this login", ("kadence doctor",)
        # Offsets of a deleted topic are harmless, and expire, unless a member still waits for the topic.
        is_left = cause == "no-topic" and all(watch.history.owner(each) is None for each in found)
        yield Finding(
            cause,
            Harm.PASSES if is_left else Harm.STOPS,
            f"of {number} {spelled(tp)} {says}: {found[tp].trouble}"
            if len(found) > 1
            else f"{spelled(tp)} {says}: {found[tp].trouble}",
            tuple(f"{spelled(tp)}: {each.trouble}" for tp, each in some(found)),
            commands,
            tuple(found),
        )


def stuck_rebalance(watch: Watch) -> Iterator[Finding]:
    """A rebalance that does not end: a member has not given up its partitions, or not rejoined."""
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


def not_owned(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """Partitions with lag and without an owner."""
    group = watch.description
    if not group.members or watch.is_rebalancing or group.state != "Stable":
        return
    left = [tp for tp in watch.lagging if watch.history.owner(tp) is None and tp not in evidence.read_up]
    if left:
        held = sum(watch.lag_of(tp) for tp in left)
        yield Finding(
            "not-owned",
            Harm.STOPS,
            f"no member reads {ranges(left)}",
            (
                f"{waiting(held)} there; the members own other partitions",
                "its members no longer subscribe to it, or take only partitions that they chose",
            ),
            (
                f"kadence groups describe {quote(watch.group)}",
                f"kadence groups forget {quote(watch.group)} --topic {left[0].topic}",
            ),
            tuple(left),
            held=held,
        )
