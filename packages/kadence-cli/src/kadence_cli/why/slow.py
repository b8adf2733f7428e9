"""Reasons why a group moves too slowly: a slow member, or too few members. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from shlex import quote
from typing import Final

from kadence.admin import MemberDescription
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import count, duration, rate
from kadence_cli.names import ranges, spelled
from kadence_cli.top.sampling import Progress
from kadence_cli.why.finding import (
    Finding,
    Harm,
    waiting,
)
from kadence_cli.why.watching import Watch, named

__all__ = ["slow"]

_SHARE: Final = 0.75
"""A member with this share of the group's lag is the slow one."""

_SOON_S: Final = 60.0
"""A lag that is caught up sooner is harmless (seconds)."""


def slow(watch: Watch, stands: set[TopicPartition]) -> Iterator[Finding]:
    """A slow member, or else a slow group; or a lag that is caught up by itself."""
    group = watch.description
    lagging = [tp for tp in watch.lagging if tp not in stands and watch.history.owner(tp) is not None]
    total = sum(watch.lag_of(tp) for tp in lagging)
    # During a rebalance loop rates mean little, because members work only at times.
    if watch.missing_ms or watch.is_rebalancing or watch.is_loop:
        return
    if all(watch.history.progress(tp).keeps_up for tp in lagging):
        return
    slowest = max(lagging, key=lambda tp: (_eta(watch.history.progress(tp)), watch.lag_of(tp)))
    eta = _eta(watch.history.progress(slowest))
    whole = watch.history.progress_of(lagging)
    at = f"in {rate(whole.produced)}/s, out {rate(whole.consumed)}/s"
    if eta <= _SOON_S:
        yield Finding(
            "behind",
            Harm.PASSES,
            f"{plural(total, 'record')} behind, caught up in {duration(eta)}",
            (at,),
            partitions=tuple(lagging),
            held=total,
        )
        return
    owners = [each for each in group.members if each.assignment]
    shares = [
        sum(watch.lag_of(tp) for tp in each.assignment.intersection(lagging)) / total for each in owners
    ]
    share, worst = max(zip(shares, owners, strict=True), key=lambda each: each[0])
    if len(owners) > 1 and share >= max(_SHARE, 1.5 / len(owners)):
        yield _hot(watch, worst, sorted(worst.assignment.intersection(lagging)), share)
        return
    spare = len(list(watch.history.partitions)) - len(owners)
    yield Finding(
        "too-slow" if math.isinf(eta) else "behind",
        Harm.SLOWS,
        "the group is slower than its producers"
        if math.isinf(eta)
        else f"{plural(total, 'record')} behind, caught up in {duration(eta)}",
        (
            f"{at}; {waiting(total)}; the slowest is {spelled(slowest)}",
            f"{plural(len(owners), 'member')} for {plural(len(list(watch.history.partitions)), 'partition')}: "
            + (
                f"up to {spare} more can help"
                if spare > 0
                else "more members get no partition; work on several records at once, or add partitions"
            ),
        ),
        (f"kadence top {quote(watch.group)}", f"kadence groups describe {quote(watch.group)}"),
        tuple(lagging),
        held=total,
        details=(("produced", whole.produced), ("consumed", whole.consumed)),
    )


def _hot(watch: Watch, member: MemberDescription, lagging: list[TopicPartition], share: float) -> Finding:
    own = watch.history.progress_of(lagging)
    others = [
        watch.history.progress_of(each.assignment).consumed or 0.0
        for each in watch.description.members
        if each is not member and each.assignment
    ]
    worst = max(lagging, key=watch.lag_of)
    lines = [
        f"it has {share:.0%} of the lag: {plural(own.lag or 0, 'record')} in {ranges(lagging)}",
        f"in {rate(own.produced)}/s, out {rate(own.consumed)}/s; each other out {rate(sum(others) / len(others))}/s",
    ]
    if len(lagging) > 1:
        lines.append(f"most of it in {spelled(worst)}: {count(watch.lag_of(worst))}")
    lines.append(
        "its handler takes long (the likeliest), its machine is slow, or its partitions get more: one key, or one "
        "partition, is hot"
    )
    return Finding(
        "slow-member",
        Harm.SLOWS,
        f"{named(member)} ({member.host.removeprefix('/')}) is slower than the others",
        tuple(lines),
        (
            f"kadence top {quote(watch.group)}",
            f"kadence consume {spelled(worst)} --from -100 -e | jq -r .key | sort | uniq -c",
        ),
        tuple(lagging),
        (named(member),),
        own.lag or 0,
        (("share", round(share, 2)), ("produced", own.produced), ("consumed", own.consumed)),
    )


def _eta(progress: Progress) -> float:
    """Seconds until caught up; infinite while rates are unknown, before the second look."""
    return math.inf if progress.catches_up_in is None else progress.catches_up_in
