"""Finds members that come and go, and groups without members, over all looks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import duration
from kadence_cli.why.finding import NAMED, Finding, Harm, names_of, waiting
from kadence_cli.why.holds import consume
from kadence_cli.why.looks import Evidence
from kadence_cli.why.watching import SETTLED, Watch, named

__all__ = ["rebalances", "without_members"]

_REPEATS: Final = (
    "it crashes (often at one record) and is restarted, or works longer than max.poll.interval.ms"
)
_UNSEEN: Final = (
    "its consumers come and go between two looks (they crash, often at one record), or they choose their partitions "
    "themselves and join no group"
)
_LONGER: Final = (
    "it has crashed and was restarted, was deployed again, or works longer than max.poll.interval.ms"
)


def rebalances(watch: Watch) -> Iterator[Finding]:
    """The rebalances that were seen, with joined and left members; or one reason for a rebalance loop."""
    if watch.is_loop:
        yield _loop(watch)
    elif (watch.rebalances or watch.moves) and not watch.is_rebalancing:
        yield _few(watch)


def _loop(watch: Watch) -> Finding:
    joined, left = watch.joined, watch.left
    moves = joined + left
    none = watch.looks_without_members
    return Finding(
        "rebalance-loop",
        Harm.STOPS if none else Harm.SLOWS,
        f"{plural(watch.rebalances, 'rebalance')} in {duration(watch.recent_ms / 1000)}: members come and go"
        + (f", and {none} of {watch.looks} looks met none" if none else ""),
        (
            *(
                f"{name} joined {_times(joined[name])} and left {_times(left[name])}"
                for name, _ in moves.most_common(NAMED)
            ),
            *(() if moves else ("no look saw who joins and leaves, or subscriptions or partitions change",)),
            _REPEATS,
        ),
        (f"kadence groups describe {quote(watch.group)}", f"kadence top {quote(watch.group)}"),
        members=tuple(name for name, _ in moves.most_common()),
        held=watch.lag,
        details=_details(watch),
    )


def _few(watch: Watch) -> Finding:
    moves = watch.moves
    return Finding(
        "rebalance",
        Harm.PASSES,
        f"{plural(watch.rebalances, 'rebalance')} in {duration(watch.recent_ms / 1000)}: {_who(watch)}",
        (
            *(
                f"{move.name} {move.what} {duration(watch.seconds_since(move.at))} ago"
                for move in moves[-2 * NAMED :]
            ),
            *_at_an_edge(watch),
            *((_LONGER,) if watch.left else ()),
            "a deployment makes some; that they repeat, once in some minutes, a longer look shows",
        ),
        (longer(watch, 600),),
        members=tuple(dict.fromkeys(move.name for move in moves)),
        details=_details(watch),
    )


def longer(watch: Watch, seconds: int) -> str:
    """The command for a longer look."""
    return f"kadence groups why {quote(watch.group)} --for {seconds}"


def _who(watch: Watch) -> str:
    joined, left = watch.joined, watch.left
    if not joined and not left:
        return "no member was seen to join or leave; partitions moved"
    both = joined.keys() & left.keys()
    said = [
        (sorted(both), "left and joined"),
        (sorted(joined.keys() - both), "joined"),
        (sorted(left.keys() - both), "left"),
    ]
    return "; ".join(f"{_some(names)} {what}" for names, what in said if names)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _at_an_edge(watch: Watch) -> Iterator[str]:
    ends = watch.description.state not in SETTLED
    edges = [*(["began"] if watch.began_unsettled else []), *(["ended"] if ends else [])]
    if edges:
        yield f"the look {' and '.join(edges)} in a rebalance: a longer one decides"


def _details(watch: Watch) -> tuple[tuple[str, object], ...]:
    return (
        ("rebalances", watch.rebalances),
        ("joined", dict(watch.joined)),
        ("left", dict(watch.left)),
        ("looks", watch.looks),
        ("looks_without_members", watch.looks_without_members),
    )


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def without_members(watch: Watch, evidence: Evidence) -> Iterator[Finding]:
    """A group without members."""
    group = watch.description
    # A rebalance loop has a finding of its own.
    if watch.is_loop or (group.members and not _has_just_come(watch)):
        return
    lagging = [tp for tp in watch.lagging if tp not in evidence.read_up]
    if not watch.partitions:
        # Brokers silently leave out topics that the login may not describe.
        yield Finding(
            "nothing-seen",
            Harm.PASSES,
            f"the group is {group.state}, has no members, and no committed offset is to be seen",
            ("it has committed none, or this login may not describe its topics",),
            ("kadence topics list",),
            details=(("state", group.state),),
        )
    elif lagging and watch.is_read and not watch.moves and not group.members:
        yield from _unseen(watch, lagging)
    elif lagging:
        yield _nobody(watch, lagging)


def _has_just_come(watch: Watch) -> bool:
    """Whether the first members joined just now, and have read nothing yet."""
    is_new = not any(map(watch.has_stayed, watch.description.members))
    return is_new and 2 * watch.looks_without_members > watch.looks and not watch.is_read


def _unseen(watch: Watch, lagging: list[TopicPartition]) -> Iterator[Finding]:
    """Offsets are committed, although no look has seen a member."""
    if all(watch.history.progress(tp).keeps_up for tp in lagging):
        return
    yield Finding(
        "unseen-members",
        Harm.SLOWS,
        f"committed offsets move, and none of {watch.looks} looks met a member",
        (
            f"{waiting(sum(map(watch.lag_of, lagging)))} in {plural(len(lagging), 'partition')}",
            _UNSEEN,
        ),
        (longer(watch, 120), "kadence doctor"),
        tuple(lagging),
        held=sum(map(watch.lag_of, lagging)),
        details=(("state", watch.description.state), ("looks", watch.looks)),
    )


def _nobody(watch: Watch, lagging: list[TopicPartition]) -> Finding:
    state, worst = watch.description.state, max(lagging, key=watch.lag_of)
    waits = sum(map(watch.lag_of, lagging))
    gone, come = watch.left, watch.description.members
    if come:
        since = max((move.at for move in watch.moves if move.what == "joined"), default=0)
        says = (
            f"no member reads for long: {watch.looks_without_members} of {watch.looks} looks met no member, and "
            f"{names_of(come)} joined {duration(watch.seconds_since(since))} ago"
        )
        causes = "it comes and goes (crashes, often at a record), or was just started: a longer look decides, --for 120"
    elif gone:
        since = max(move.at for move in watch.moves if move.what == "left")
        ago = duration(watch.seconds_since(since))
        says = f"no member reads now: the group is {state}, and {_some(sorted(gone))} left {ago} ago"
        causes = f"{_LONGER}, or is stopped: a longer look decides, --for 120"
    else:
        looked = duration(watch.recent_ms / 1000)
        says = f"no member was met in {looked}, and records wait: the group is {state}"
        causes = (
            "its consumers are stopped, cannot log in, were thrown out, or they come and go between two looks (a crash "
            "at a record, a restart, a pause): their logs say which, and a longer look"
        )
    return Finding(
        "no-members",
        Harm.STOPS,
        says,
        (f"{waiting(waits)} in {plural(len(lagging), 'partition')}", causes),
        (
            f"kadence groups describe {quote(watch.group)}",
            # The record at which they may have crashed.
            *((consume(worst, at),) if (at := watch.partitions[worst].committed) is not None else ()),
            "kadence doctor",
        ),
        tuple(lagging),
        tuple(gone) or tuple(sorted({named(each) for each in come})),
        held=waits,
        details=(("state", state),),
    )
