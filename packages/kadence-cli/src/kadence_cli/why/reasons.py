"""Finds the reasons why a group lags, the worst first. Pure; times are parameters."""

from __future__ import annotations

from typing import Final

from kadence_cli.group_types import is_share
from kadence_cli.why import queue_losses, queue_pace, queue_stops
from kadence_cli.why.behind import far_behind
from kadence_cli.why.comings import rebalances, without_members
from kadence_cli.why.finding import Finding, Harm
from kadence_cli.why.holds import never_committed, standing, transactions
from kadence_cli.why.looks import Evidence
from kadence_cli.why.slow import slow
from kadence_cli.why.stops import lost, not_owned, stuck_rebalance, unreadable
from kadence_cli.why.watching import Watch

__all__ = ["findings"]

_NAMING: Final = frozenset({"offsets-out-of-range", "open-transaction", "stuck-record", "silent-member"})
"""Reasons that already explain why a partition does not move."""


def findings(watch: Watch, evidence: Evidence, now_ms: int) -> list[Finding]:
    """The reasons, the worst first.

    Args:
        now_ms: ms since 1970.
    """
    if watch.latest is None:
        return []
    if is_share(watch.description):
        return _of_queue(watch, evidence, now_ms)
    found = [
        *lost(watch),
        *unreadable(watch),
        *queue_losses.wrong_type(watch, evidence),
        *without_members(watch, evidence),
        *stuck_rebalance(watch),
        *transactions(watch, evidence, now_ms),
        *standing(watch, evidence, now_ms),
        *never_committed(watch, evidence),
        *not_owned(watch, evidence),
        *rebalances(watch),
    ]
    named = {tp for each in found if each.reason in _NAMING for tp in each.partitions}
    found += far_behind(watch, evidence, now_ms, named)
    # A member that does not move at all has its own reason, and is not called slow, too. Nor is one that has nothing
    # left to read.
    stands = {tp for each in found if each.harm <= Harm.STOPS for tp in each.partitions} | evidence.read_up
    found += slow(watch, stands)
    return sorted(found, key=lambda each: (each.harm, -each.held))


def _of_queue(watch: Watch, evidence: Evidence, now_ms: int) -> list[Finding]:
    """The reasons of a share group."""
    found = [
        *queue_losses.deleted(watch),
        *queue_losses.dead_letters(watch, evidence),
        *unreadable(watch),
        *without_members(watch, evidence),
        *(transactions(watch, evidence, now_ms) if queue_stops.reads_committed(evidence) else ()),
        *queue_stops.no_place(watch, evidence),
        *queue_stops.nothing_done(watch, evidence, now_ms),
        *queue_stops.open_records(watch, evidence, now_ms),
        *queue_stops.unassigned(watch),
        *not_owned(watch, evidence),
        *queue_pace.come_and_go(watch),
    ]
    stands = {tp for each in found if each.harm <= Harm.STOPS for tp in each.partitions} | evidence.read_up
    found += queue_pace.too_slow(watch, stands)
    return sorted(found, key=lambda each: (each.harm, -each.held))
