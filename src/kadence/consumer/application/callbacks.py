"""What the application may be told during a rebalance. Runs on the application thread (C5)."""

from __future__ import annotations

from kadence.types import TopicPartition

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """Subclass it and give it to ``subscribe(..., listener=)``.

    Its methods run on the thread that polls, inside poll(), unsubscribe() or close(); commit(), seek(),
    pause() and position() work inside them. An exception is raised from that call, after the rebalance has
    gone on. The time they take counts as processing, not as polling.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """These are about to be given up; they are still yours, so a commit works."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """These are new (may be empty). Nothing of them is fetched before this returns."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """These were taken away already: a commit would fail. By default the same as revoked."""
        self.on_partitions_revoked(partitions)
