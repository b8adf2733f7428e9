"""`health()`: what a probe asks. Application side, any thread; it sends no request and waits for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kadence.consumer.application.client_core import ClientCore
from kadence.consumer.client_state import ClientState
from kadence.consumer.measures import Group
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.loading import load

if TYPE_CHECKING:
    from kadence.consumer.application.core import Core
    from kadence.consumer.shared_state import SharedState

__all__ = ["Health", "health", "hindrances", "ills"]

_STUCK_MS: Final = 60_000

_NAMED: Final = 10
"""Partitions that are told at most."""


class Health(NamedTuple):
    """Answers for the probes of a supervisor such as Kubernetes.

    Attributes:
        alive: False when a restart of the process helps: the consumer is closed, its network thread has ended, nothing
            was polled for so long that it has left its group, or every worker of `process` has been on one record for
            longer than ``timeout``. It stays True while brokers are away.
        ready: whether the consumer reads: it is a member of its group, or has partitions by `assign`, and not all of
            its partitions are kept from being read. Pauses and full buffers do not make it False. A consumer that has
            had no answer to a heartbeat for ``session.timeout.ms`` (KIP-848: for nine heartbeat intervals, if that is
            longer) does not count as a member. A member without partitions is ready. Without ``alive`` it is False, as
            it is after `stop`.
        why: a sentence for each thing that makes one of them False, for each partition that is not read, and for each
            record that holds up the committed offset of its partition for more than a minute (`process`).
    """

    alive: bool
    ready: bool
    why: tuple[str, ...]


def health(core: Core, shared_state: SharedState, now: int) -> Health:
    """Look at one consumer."""
    wrong = list(ills(core, shared_state, now))
    hindering = list(hindrances(core, shared_state.measures.group, now))
    partitions = [
        (partition, why)
        for partition, shared_partition in shared_state.shared_partitions.items()
        if (why := shared_partition.why(now)) is not None and not why.reason.is_expected
    ]
    assigned = len(shared_state.shared_partitions)
    # An application may work for long between two polls. Of partitions that it has not seen yet, no offset is known.
    kept = sum(
        not why.reason.is_up_to_the_application or why.reason is NotFetchedReason.AWAITING_ASSIGNED_CALLBACK
        for _, why in partitions
    )
    is_kept = bool(assigned) and kept == assigned
    told = [f"{partition}: {why.reason.value}" for partition, why in islice(partitions, _NAMED)]
    if len(partitions) > _NAMED:
        told.append(f"{len(partitions) - _NAMED} more partitions are not read")
    told += _stuck(core, now)
    told += [f"{topic}: {why.reason.value}" for topic, why in shared_state.missing.items()]
    return Health(not wrong, not (wrong or hindering or is_kept), (*wrong, *hindering, *told))


def ills(core: ClientCore, client_state: ClientState, now: int) -> Iterator[str]:
    """What a restart mends."""
    if core.exchange.closed:
        yield "it is closed"
        return
    if client_state.ended:
        yield "its network thread has ended"
    for stall in core.stalls.history():
        if stall.left_group and stall.ended_at is None:
            yield f"nothing was polled since {stall.since:%Y-%m-%d %H:%M:%S} UTC: it has left its group"
    meters = core.work
    if meters is not None and meters.is_working:
        work = meters.at(now)
        if work.workers and work.overdue >= work.workers:
            yield (
                f"all {work.workers} workers have been on a record for longer than timeout, "
                f"one for {work.oldest_ms // 1000} s"
            )


def _stuck(core: Core, now: int) -> list[str]:
    """Records that hold up others. A restart would not mend them."""
    if core.work is None or not core.work.is_working:
        return []
    # `process` has loaded it.
    load("kadence.work.letters")
    from kadence.work.letters import named

    return [
        f"{named(record)} has been worked on for {ms // 1000} s, and holds up the committed offset of its partition"
        for record, ms in islice(core.work.at(now).stuck.values(), _NAMED)
        if ms >= _STUCK_MS
    ]


def hindrances(core: ClientCore, group: Group, now: int) -> Iterator[str]:
    """What keeps it from reading at all."""
    if core.exchange.closed:
        return
    if core.stopping:
        yield "stop() was called"
    elif core.chosen.subscribed is not None or core.chosen.pattern is not None:
        if core.group.generation_id < 0:
            yield f"it is not a member of group {core.group.group_id!r}"
        elif now >= group.pulse.alive_until:
            yield (
                f"no heartbeat has been answered for so long that group {core.group.group_id!r} may have removed this "
                "member"
            )
    elif not core.chosen.by_hand:
        yield core.NOTHING_CHOSEN
