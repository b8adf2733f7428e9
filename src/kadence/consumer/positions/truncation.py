"""What a truncated log means for a position (KIP-320). Network thread, sans-IO.

An unclean leader election loses records that a replica had not copied. A reader that is past that point learns it by
the end of its epoch: from OffsetForLeaderEpoch, or beside the answer to a fetch. What the application was given and
what only lies in the buffer are told apart: records that it never saw are not lost to it, they are read again.
"""

from __future__ import annotations

from kadence.config import ConsumerConfig
from kadence.consumer.events import Failed
from kadence.consumer.request_manager import AddBackgroundEvent
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.errors import LogTruncationError
from kadence.logs import logger
from kadence.records import first_epoch, leader_epochs

__all__ = ["Truncation", "note_epochs"]

log = logger("kadence.consumer.offsets")


class Truncation:
    """Finds which positions a truncated log has made invalid, and resets them or tells the application."""

    def __init__(
        self, config: ConsumerConfig, subscription: Subscription, add_event: AddBackgroundEvent
    ) -> None:
        self._has_policy = config.auto_offset_reset != "none"
        self._subscription = subscription
        self._add_event = add_event

    def judge(self, state: PartitionState, epoch: int, end_offset: int) -> bool:
        """Whether the position is good, given the largest epoch up to its own on the leader, and where that ends.

        Where it is not, the position has been moved, or is waiting for a seek. Both −1: the leader has no such epoch.
        """
        if epoch < 0 or end_offset < 0:
            self._truncated(state, None, None)
            return False
        diverging = end_offset if end_offset < state.offset else None
        if state.epoch is not None and epoch < state.epoch:
            # The leader has nothing of our epoch: whatever we read in it, or in any after the leader's, is gone.
            ours = next((start for read, start in state.epoch_starts if read > epoch), None)
            diverging = min((each for each in (diverging, ours) if each is not None), default=None)
        if diverging is None or diverging >= state.offset:
            return True
        self._truncated(state, diverging, epoch)
        return False

    def _truncated(self, state: PartitionState, diverging: int | None, epoch: int | None) -> None:
        partition = state.partition
        given = state.shared_partition.current()
        position, given_epoch = (
            (state.offset, state.epoch) if given is None else (given.offset, given.leader_epoch)
        )
        if diverging is not None and position <= diverging:
            log.warning(
                "%s: the log was truncated to offset %d; what was fetched beyond it is dropped and read again from %d",
                partition,
                diverging,
                position,
            )
            self._move(state, position, given_epoch)
            return
        log.warning("%s", _lost(state, position, diverging))
        if not self._has_policy:
            # Keep its epoch: whoever starts from this offset, once committed, is told of the truncation again.
            self._move(state, position, given_epoch)
            self._raise(state, _error(state, position, diverging, epoch))
        elif diverging is not None:
            self._move(state, diverging, epoch)
        else:
            self._subscription.lose(partition, _error(state, position, diverging, epoch))

    def _move(self, state: PartitionState, offset: int, epoch: int | None) -> None:
        """Start a new fetch epoch in the midst of reading. The application did not ask for it, so it proves nothing.

        What was read before the offset stays known, and the position gets the epoch of *that*: where the leader has
        another one there, the logs parted earlier still, and the next question finds out (as followers do, KIP-279).
        """
        topic_id, processed = state.topic_id, state.shared_partition.processed_position()
        kept = (
            None
            if processed is None or processed.offset >= offset
            else (processed.offset, processed.leader_epoch)
        )
        starts = [entry for entry in state.epoch_starts if entry[1] < offset]
        if offset < state.floor:
            # Of the range that is to be read nothing is left. The epochs that were read are of the old log.
            offset, epoch, starts = state.floor, None, []
        self._subscription.position(state.partition, offset, starts[-1][0] if starts else epoch, kept)
        state.topic_id, state.epoch_starts = topic_id, starts

    def _raise(self, state: PartitionState, error: LogTruncationError) -> None:
        """Wait for a seek; nothing that was fetched before is handed out."""
        state.status = Status.AWAIT_RESET
        self._add_event(
            Failed(error, partition=state.partition, fetch_epoch=state.shared_partition.fetch_epoch)
        )


def note_epochs(state: PartitionState, data: memoryview, newest: int | None) -> None:
    """Keep the epoch of the last record in ``data``, and where each epoch before it began.

    Args:
        data: whole batches, at the position. newest: the leader's epoch as far as is known.
    """
    if first_epoch(data) == state.epoch == newest:
        return
    for epoch, start in leader_epochs(data):
        if state.epoch is None or epoch > state.epoch or not state.epoch_starts:
            state.epoch_starts.append((epoch, start))
        state.epoch = epoch


def _lost(state: PartitionState, position: int, diverging: int | None) -> str:
    if diverging is None:
        return (
            f"{state.partition} was truncated by an unclean leader election: its leader does not know epoch "
            f"{state.epoch}, in which records up to offset {position} were read"
        )
    return (
        f"{state.partition} was truncated by an unclean leader election: records {diverging} to {position - 1}, which "
        "were read, are not in it any more"
    )


def _error(
    state: PartitionState, position: int, diverging: int | None, epoch: int | None
) -> LogTruncationError:
    return LogTruncationError(
        f"{_lost(state, position, diverging)}; auto.offset.reset is none: seek() to where you want to go on",
        partition=state.partition,
        position=position,
        diverging_offset=diverging,
        leader_epoch=epoch,
    )
