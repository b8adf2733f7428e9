"""The rows of consumer-coordinator-metrics: the membership in the group."""

from __future__ import annotations

from kadence.consumer.application.metrics.rows import Row, Rows, ago, count, events, per_hour, times
from kadence.consumer.shared_state import SharedState

__all__ = ["membership"]


def membership(shared_state: SharedState) -> Rows:
    """Rows of classic groups are there in every group."""
    group, poll_measures = shared_state.measures.group, shared_state.measures.poll_measures
    yield Row(
        "assigned-partitions",
        "The number of partitions that are this consumer's",
        lambda now: len(shared_state.assignment),
    )
    yield from events("heartbeat", "heartbeats that were answered", group.heartbeats)
    yield Row(
        "heartbeat-response-time-max",
        "The longest time to the answer of a heartbeat, in ms",
        group.heartbeats.highest,
    )
    yield from ago("last-heartbeat", "the last heartbeat was sent", lambda: group.heartbeat_sent_at)
    for name, what, meter in (("join", "JoinGroup", group.joins), ("sync", "SyncGroup", group.syncs)):
        yield from events(name, f"{what} requests that were answered (classic groups)", meter)
        yield from times(f"{name}-time", f"time to the answer of {what}", meter)
    yield from events("commit", "OffsetCommit requests that were answered", group.commits)
    yield from times("commit-latency", "time to the answer of an OffsetCommit", group.commits)
    yield from times("rebalance-latency", "rebalance, from its cause to the new assignment", group.rebalances)
    yield Row(
        "rebalance-latency-total", "Time spent in rebalances, in ms", lambda now: group.rebalances.total
    )
    for name, what, meter in (
        ("rebalance", "rebalances", group.rebalances),
        ("failed-rebalance", "rebalances that ended with the loss of the membership", group.failed),
    ):
        yield Row(
            f"{name}-rate-per-hour",
            f"The number of {what} per hour",
            per_hour(meter),
        )
        yield Row(f"{name}-total", f"The number of {what}", count(meter))
    yield from ago("last-rebalance", "the last rebalance ended", lambda: group.last_at)
    yield from times("partition-assigned-latency", "on_partitions_assigned callback", poll_measures.assigned)
    yield from times("partition-revoked-latency", "on_partitions_revoked callback", poll_measures.revoked)
    yield from times("partition-lost-latency", "on_partitions_lost callback", poll_measures.lost)
