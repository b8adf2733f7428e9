"""Reasons why a share group (a queue, KIP-932) moves too slowly: its members come and go, or are too few. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from shlex import quote
from typing import Final

from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import duration, rate
from kadence_cli.why.finding import NAMED, Finding, Harm, waiting
from kadence_cli.why.watching import Watch

__all__ = ["come_and_go", "too_slow"]

_REPEATED: Final = 3
"""So many members that joined and left are no deployment."""

_SOON_S: Final = 60.0


def come_and_go(watch: Watch) -> Iterator[Finding]:
    """Members that join and leave again and again: each time what they hold is released, and counts as delivered."""
    joined, left = watch.joined, watch.left
    if min(joined.total(), left.total()) < _REPEATED:
        return
    yield Finding(
        "members-come-and-go",
        Harm.SLOWS,
        f"members joined {joined.total()} times and left {left.total()} times in {duration(watch.recent_ms / 1000)}",
        (
            *(
                f"{name} joined {joined[name]} and left {left[name]} times"
                for name, _ in (joined + left).most_common(NAMED)
            ),
            "they crash (often at one record) and are restarted, or work longer than max.poll.interval.ms",
            "what they held is given out again, and counts as one more delivery: after the last one it is archived",
        ),
        (f"kadence groups describe {quote(watch.group)}",),
        members=tuple(name for name, _ in (joined + left).most_common()),
        held=watch.lag,
    )


def too_slow(watch: Watch, stands: Collection[TopicPartition]) -> Iterator[Finding]:
    """More is written than done."""
    lagging = [tp for tp in watch.lagging if tp not in stands]
    if watch.missing_ms or not watch.description.members:
        return
    if all(watch.history.progress(tp).keeps_up for tp in lagging):
        return
    whole = watch.history.progress_of(lagging)
    waits = [watch.history.progress(tp).catches_up_in for tp in lagging]
    eta = max(math.inf if each is None else each for each in waits)
    total = sum(map(watch.lag_of, lagging))
    never = math.isinf(eta)
    yield Finding(
        "too-slow" if never else "behind",
        Harm.PASSES if eta <= _SOON_S else Harm.SLOWS,
        "the group is slower than its producers"
        if never
        else f"{plural(total, 'record')} behind, caught up in {duration(eta)}",
        (
            f"in {rate(whole.produced)}/s, done {rate(whole.consumed)}/s; {waiting(total)}",
            f"{plural(len(watch.description.members), 'member')}: more can help, several share a partition",
        ),
        (f"kadence top {quote(watch.group)}",),
        tuple(lagging),
        held=total,
        details=(("produced", whole.produced), ("consumed", whole.consumed)),
    )
