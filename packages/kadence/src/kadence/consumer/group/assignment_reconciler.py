"""Assignment and revocation of partitions, and the callbacks that they run in the application (C5).

Each partition that leaves is told of exactly once: revoked, while it is still ours and the application may
finish and commit, or lost, when it is gone already. The network side stops handing out a partition the moment
it is to be revoked, and drops it when the application has let go. What the application was asked and has not begun
when the membership ends is void: the loss names those callbacks, and takes in their partitions (B11).

`RebalanceHistory` tells the application how one rebalance after another went.
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence.consumer.events import (
    AddBackgroundEvent,
    AssignPartitions,
    LosePartitions,
    Rebalance,
    RebalanceFailed,
    RebalanceFinished,
    RevokePartitions,
)
from kadence.consumer.subscription import Subscription
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["AssignmentReconciler", "RebalanceHistory"]


class AssignmentReconciler:
    """What is owned, what should be, and which callbacks are still to come back.

    Attributes:
        target: the latest assignment.
    """

    def __init__(self, subscription: Subscription, add_event: AddBackgroundEvent) -> None:
        self.target: frozenset[TopicPartition] = frozenset()
        self._subscription = subscription
        self._add_event = add_event
        self._revoking: dict[int, frozenset[TopicPartition]] = {}
        self._assigning: dict[int, frozenset[TopicPartition]] = {}
        self._before_joining: set[int] = set()

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """What the application has been asked to let go of and still holds."""
        return frozenset().union(*self._revoking.values())

    @property
    def may_join(self) -> bool:
        """Whether everything is given up that has to be before a JoinGroup."""
        return not self._before_joining

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop handing these out and ask the application to let go of them."""
        going = frozenset(partitions) - self.revoking
        if not going:
            return
        callback = next(self._subscription.callbacks)
        self._revoking[callback] = going
        self._subscription.mark_revoking(going)
        self._add_event(RevokePartitions(callback, tuple(sorted(going))))

    def subscription_changed(self) -> None:
        """Partitions of topics that are not subscribed any more stop, and those of topics that are again go on."""
        self._install(self._subscription.partitions)
        self._subscription.mark_revoking(self._subscription.deserted)

    def before_joining(self, topics: frozenset[str], *, eager: bool) -> None:
        """Ask for what must be given up first: eagerly everything, else what is no longer subscribed."""
        self.revoke(p for p in self._subscription.partitions if eager or p.topic not in topics)
        self._before_joining = {
            callback
            for callback, going in self._revoking.items()
            if eager or any(p.topic not in topics for p in going)
        }

    def reconcile(self, finished: RebalanceFinished | None = None) -> None:
        """Go from what is owned towards the target.

        Args:
            finished: the rebalance that ends with this, which is told even if no partition is added.

        A partition that is assigned again while the application still gives it up is added as new once it has:
        its callback was told that it goes.
        """
        owned = self._subscription.assigned
        added = self.target - owned
        self.revoke(owned - self.target)
        if added or finished is not None:
            self._install([*self._subscription.partitions, *sorted(added)])
            callback = next(self._subscription.callbacks)
            if self._subscription.has_listener:
                self._assigning[callback] = added
            states = self._subscription.partitions
            shared_partitions = {p: states[p].shared_partition for p in added}
            self._add_event(AssignPartitions(callback, tuple(sorted(added)), shared_partitions, finished))

    def done(self, callback_id: int) -> frozenset[TopicPartition]:
        """A callback came back. Returns what was given up by it."""
        if (added := self._assigning.pop(callback_id, None)) is not None:
            self._subscription.release(added)
        given_up = self._revoking.pop(callback_id, frozenset())
        self._before_joining.discard(callback_id)
        if given_up:
            self._install([p for p in self._subscription.partitions if p not in given_up])
        return given_up

    def lose(self) -> None:
        """From now on no partition is ours: callbacks that the application has not begun are void (B11).

        Which these are only the application knows, so it is told of all that were asked for.
        """
        lost = self._subscription.assigned
        instead_of = {callback: tuple(sorted(going)) for callback, going in self._revoking.items()}
        instead_of.update(dict.fromkeys(self._assigning, ()))
        self._revoking.clear()
        self._assigning.clear()
        self._before_joining.clear()
        self.target = frozenset()
        self._subscription.assign(())
        if lost:
            callback = next(self._subscription.callbacks)
            self._subscription.losses[callback] = lost
            self._add_event(LosePartitions(callback, tuple(sorted(lost)), instead_of))

    def _install(self, partitions: Iterable[TopicPartition]) -> None:
        self._subscription.assign(partitions, held=self._subscription.has_listener)
        self._subscription.mark_revoking(self.revoking)


class RebalanceHistory:
    """Which rebalance is under way, and what the one before it ended with.

    A rebalance that is started again before it ends is one rebalance: its first cause stays.

    Attributes:
        cause: of the rebalance under way, or of the last one.
    """

    def __init__(self, add_event: AddBackgroundEvent) -> None:
        self.cause = ""
        self._add_event = add_event
        self._started_at: int | None = None
        self._before: frozenset[TopicPartition] = frozenset()
        self._lost: frozenset[TopicPartition] = frozenset()
        self._detail = ""

    def begin(self, now: int, cause: str) -> bool:
        """It starts, or starts again. Returns whether it is a new one."""
        if self._started_at is not None:
            return False
        self._started_at, self.cause, self._detail = now, cause, ""
        return True

    def found(self, detail: str) -> None:
        """What is known of its cause since: who came and who went, to the member that leads."""
        self._detail = detail

    def finish(
        self, now: int, group: GroupMetadata, assigned: frozenset[TopicPartition]
    ) -> RebalanceFinished:
        """It ended with this assignment. The caller tells the application."""
        before, self._before = self._before, assigned
        rebalance = Rebalance(
            cause=f"{self.cause}; {self._detail}" if self._detail else self.cause,
            started_monotonic_ms=now if self._started_at is None else self._started_at,
            ended_monotonic_ms=now,
            generation=group.generation_id,
            assigned=tuple(sorted(assigned)),
            added=tuple(sorted(assigned - before)),
            removed=tuple(sorted((before - assigned) | self._lost)),
        )
        self._started_at, self._lost = None, frozenset()
        return RebalanceFinished(rebalance, group)

    def abandon(self) -> None:
        """The identity is gone, and everything owned with it; what comes next is another rebalance, with its own cause.

        The next one tells what was lost here, also of partitions that come back in it: others may have read them.
        """
        if self._started_at is not None:
            self._add_event(RebalanceFailed())
        self._started_at = None
        self._lost |= self._before
        self._before = frozenset()

    def give_up(self, now: int, cause: str, group: GroupMetadata) -> None:
        """Nothing comes next: what was lost is an entry of its own, of no generation."""
        if self._lost:
            self.cause, self._detail = cause, ""
            self._add_event(self.finish(now, group, frozenset()))

    def forget(self) -> None:
        """Out of the group by our own will: the next membership starts from nothing."""
        self._started_at = None
        self._before = self._lost = frozenset()
