"""Assignment and revocation of partitions, and the callbacks that they run in the application (C5).

Each partition that leaves is reported exactly once: revoked, while the member still owns it and the application may
finish and commit, or lost, when it is gone already. The network side stops returning a partition as soon as it is to be
revoked, and drops it when the application has given it up. Callbacks that have not begun when the membership ends are
void: the loss names them, and includes their partitions (B11).

`RebalanceHistory` records each rebalance for the application.
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
    """The owned partitions, the target, and the callbacks that have not ended.

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
        """Partitions that the application was asked to give up and still holds."""
        return frozenset().union(*self._revoking.values())

    @property
    def may_join(self) -> bool:
        """Whether everything that must be given up before a JoinGroup is given up."""
        return not self._before_joining

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these, and ask the application to give them up."""
        going = frozenset(partitions) - self.revoking
        if not going:
            return
        callback = next(self._subscription.callbacks)
        self._revoking[callback] = going
        self._subscription.mark_revoking(going)
        self._add_event(RevokePartitions(callback, tuple(sorted(going))))

    def subscription_changed(self) -> None:
        """Stop partitions of topics that are no longer subscribed, and continue those of topics that are again."""
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
        """Move from the owned partitions towards the target.

        Args:
            finished: the rebalance that ends with this, which is reported even if no partition is added.

        A partition that is assigned again while the application still gives it up is added as new once it has: its
        callback was called for it.
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
        """A callback has ended. Returns the partitions that it gave up."""
        if (added := self._assigning.pop(callback_id, None)) is not None:
            self._subscription.release(added)
        given_up = self._revoking.pop(callback_id, frozenset())
        self._before_joining.discard(callback_id)
        if given_up:
            self._install([p for p in self._subscription.partitions if p not in given_up])
        return given_up

    def lose(self) -> None:
        """From now on the member owns no partition: callbacks that have not begun are void (B11).

        Only the application knows which have begun, so the event names all requested ones.
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
    """The current rebalance, and the result of the previous one.

    A rebalance that is started again before it ends is one rebalance: its first cause stays.

    Attributes:
        cause: of the current rebalance, or of the last one.
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
        """Add details of the cause that the leader has learnt: members that joined and left."""
        self._detail = detail

    def finish(
        self, now: int, group: GroupMetadata, assigned: frozenset[TopicPartition]
    ) -> RebalanceFinished:
        """It ended with this assignment. The caller reports it to the application."""
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
        """The identity is gone, with all owned partitions; another rebalance follows, with its own cause.

        It reports the loss, even of partitions that it returns: other members may have read them.
        """
        if self._started_at is not None:
            self._add_event(RebalanceFailed())
        self._started_at = None
        self._lost |= self._before
        self._before = frozenset()

    def give_up(self, now: int, cause: str, group: GroupMetadata) -> None:
        """No rebalance follows: the loss is an entry of its own, without a generation."""
        if self._lost:
            self.cause, self._detail = cause, ""
            self._add_event(self.finish(now, group, frozenset()))

    def forget(self) -> None:
        """The member has left the group: the next membership starts with no partitions."""
        self._started_at = None
        self._before = self._lost = frozenset()
