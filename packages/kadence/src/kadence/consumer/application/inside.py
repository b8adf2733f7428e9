"""What `Consumer.process` needs of the consumer that it drives, beyond the public calls. Application side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from kadence.client.aside import Aside
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, add_ms
from kadence.consumer.application.arguments import is_among
from kadence.consumer.application.commits import parts_of
from kadence.consumer.application.core import Core
from kadence.consumer.events import ReadFromStart, RefreshMetadata, Seek, TopicMetadata
from kadence.consumer.fetch.dead_letters import LetterProducers
from kadence.consumer.fetch.decoding import decoding_one
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import ClosedError, ConcurrentAccessError
from kadence.records import Record
from kadence.types import OffsetAndMetadata, PartitionInfo, ReadOffset, TopicPartition
from kadence.wire import ZERO_UUID
from kadence.work.desk import Desk
from kadence.work.frontier import Stretch
from kadence.work.meters import Meters, Totals
from kadence.work.tracing import Tracing

__all__ = ["Inside"]


class Inside:
    """One consumer's inside, as `kadence.work.driver.Insides` describes it.

    Args:
        run: carries a call of the consumer: the result is awaited under asyncio.
        aside: where calls are made that may block.
    """

    queue = None

    def __init__(
        self,
        core: Core,
        shared_state: SharedState,
        run: Callable[[Waits[Any]], Any],
        producers: LetterProducers,
        aside: Aside,
    ) -> None:
        self.clock: Clock = core.clock
        self.group = core.config.group_id
        self.commit_ms = core.config.auto_commit_interval_ms
        self.max_poll_ms = core.config.max_poll_interval_ms
        self.nudge = core.nudge
        # No function of Python's: see `Insides`.
        self.is_stopping: Callable[[], bool] = partial(getattr, core.exchange, "stopping")
        self.aside = aside
        self._core = core
        self._shared_state = shared_state
        self._run = run
        self._producers = producers
        self._seen: tuple[int, object] = (-1, None)
        self._desk: Desk | None = None
        self._is_under_way = False
        """Whether `begin` has come to its end, and polls of `process` may take records."""
        self._theirs: Any = None
        self._before: frozenset[str] | None = None
        self._meanwhile: frozenset[str] | None = None

    @property
    def listener(self) -> Any:
        return self._core.listener

    @property
    def tracing(self) -> Tracing | None:
        return self._core.tracing

    @property
    def topics(self) -> frozenset[str] | None:
        return self._core.chosen.subscribed

    def subscribes_to(self, topic: str) -> bool:
        core = self._core
        # Those of `patterns` outlast an unsubscribe().
        return is_among(
            topic, core.chosen.subscribed, None if core.chosen.pattern is None else core.chosen.patterns[0]
        )

    def listen(self, listener: Any, topics: frozenset[str] | None) -> Any:
        return self._run(self._listened(listener, topics, self._deadline()))

    def partitions_of(self, topic: str) -> Any:
        """The partitions of a topic, however long brokers are away; None as soon as the consumer is to stop."""
        return self._run(self._partitions_of(topic))

    def _partitions_of(self, topic: str) -> Waits[list[PartitionInfo] | None]:
        found = yield from self._core.exchange.call_unless_stopped(TopicMetadata, FOREVER, topics=(topic,))
        return None if found is None else found.get(topic, [])

    def _listened(self, listener: Any, topics: frozenset[str] | None, deadline: int) -> Waits[None]:
        """Rebalances are told to ``listener``. ``topics``: in place of those that are subscribed to by name."""
        core = self._core
        if core.chosen.subscribed is None and core.chosen.pattern is None:
            core.listener = listener
            return
        if topics is not None:
            self._before, self._meanwhile = core.chosen.subscribed, topics
        yield from core.subscribe(topics or core.chosen.subscribed, *core.chosen.patterns, listener, deadline)

    # ------------------------------------------------------------ where it reads, and commits of that

    @property
    def is_manual(self) -> bool:
        return self._core.chosen.by_hand

    def has_moved(self) -> bool:
        # The number before the positions: those that are set meanwhile are seen by the next look.
        shared_state = self._shared_state
        seen = (shared_state.moves, shared_state.shared_partitions if self._core.chosen.by_hand else None)
        before, self._seen = self._seen, seen
        return before[0] != seen[0] or before[1] is not seen[1]

    def stretches(self, *, from_here: bool = False) -> Mapping[TopicPartition, Stretch]:
        found = {}
        for partition, shared_partition in self._shared_state.shared_partitions.items():
            origin = shared_partition.origin
            if origin is None or shared_partition.revoking:
                continue
            at = (from_here and shared_partition.current()) or origin
            if at.fetch_epoch == origin.fetch_epoch:
                found[partition] = Stretch(
                    origin.fetch_epoch,
                    at.offset,
                    at.leader_epoch,
                    origin.topic_id,
                    origin.committed,
                    origin.is_by_policy,
                )
        return found

    def returned_under(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        assignment = self._shared_state.shared_partitions
        # Only polls move it, so it is of what the last one returned.
        return {
            partition: at.fetch_epoch
            for partition in partitions
            if (shared_partition := assignment.get(partition)) is not None
            and (at := shared_partition.position) is not None
        }

    def log_end(self, partition: TopicPartition) -> int | None:
        shared_partition = self._shared_state.shared_partitions.get(partition)
        if shared_partition is None or shared_partition.preferred_replica is not None:
            # Another replica may not have all of it yet.
            return None
        return shared_partition.high_watermark

    def fetch_epochs(self) -> Mapping[TopicPartition, int]:
        return {p: each.fetch_epoch for p, each in self._shared_state.shared_partitions.items()}

    def fetch_epochs_of_known(self) -> Mapping[TopicPartition, int]:
        assignment = self._shared_state.shared_partitions
        return {p: each.fetch_epoch for p, each in assignment.items() if not each.is_gone}

    def topic_ids(self, read: Mapping[TopicPartition, ReadOffset]) -> dict[str, bytes]:
        assignment = self._shared_state.shared_partitions
        return {
            partition.topic: origin.topic_id
            for partition, each in read.items()
            if (shared_partition := assignment.get(partition)) is not None
            and (origin := shared_partition.origin) is not None
            and origin.fetch_epoch == each.fetch_epoch
            and origin.topic_id != ZERO_UUID
        }

    def seek(self, partition: TopicPartition, at: OffsetAndMetadata, *, is_committed: bool) -> Any:
        return self._run(
            self._core.hand_over(
                Seek,
                self._deadline(),
                shared_partition=self._core.known.shared_partition(partition),
                offset=at.offset,
                leader_epoch=at.leader_epoch,
                committed=at if is_committed else None,
            )
        )

    def commit(self, read: Mapping[TopicPartition, ReadOffset]) -> Any:
        offsets, read_under = parts_of(read)
        return self._run(self._core.commits.commit(offsets, self._deadline(), read_under))

    def commit_async(
        self,
        read: Mapping[TopicPartition, ReadOffset],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object],
        *,
        is_parting: bool = False,
    ) -> None:
        offsets, read_under = parts_of(read)
        self._core.commits.commit_async(offsets, callback, read_under, is_parting=is_parting)

    def hear(self) -> Any:
        return self._run(self._heard())

    def _heard(self) -> Waits[None]:
        self._core.exchange.take_background_events()
        yield from self._core.commits.run_callbacks()

    def _deadline(self) -> int:
        return add_ms(self.clock.now_ms(), self._core.config.default_api_timeout_ms)

    def unlisten(self, listener: Any) -> Any:
        return self._run(self._unlistened(listener, self._deadline()))

    def _unlistened(self, listener: Any, deadline: int) -> Waits[None]:
        """Topics that `listen` has added leave the subscription, if it is still the one of `listen`."""
        core = self._core
        if core.exchange.closed or self._before is None or core.chosen.subscribed != self._meanwhile:
            return
        if core.exchange.fatal is not None or self._shared_state.ended:
            # There is no membership, and only the application's own subscribe() begins another one.
            core.chosen.subscribed = self._before
            return
        yield from core.subscribe(self._before, *core.chosen.patterns, listener, deadline)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        now = self.clock.now_ms()
        for shared_partition in self._assigned(partitions):
            shared_partition.work_paused_at, shared_partition.work_paused = now, True
            self._shared_state.look_at(shared_partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for shared_partition in self._assigned(partitions):
            shared_partition.work_paused = False
            self._shared_state.look_at(shared_partition)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> Iterator[SharedPartition]:
        """Those that are assigned still: of some that are lost `process` may not have been told yet."""
        assignment = self._shared_state.shared_partitions
        return (each for partition in partitions if (each := assignment.get(partition)) is not None)

    def read_from_start(self, topic: str) -> None:
        self._shared_state.send(ReadFromStart(0, 0, frozenset({topic})))

    def refresh_metadata(self) -> None:
        self._shared_state.send(RefreshMetadata(0, 0))

    def wall_ms(self) -> int:
        return self.clock.now_ms() + self._shared_state.wall_offset_ms()

    def new_decode(self) -> Callable[[Record], Record] | None:
        config = self._core.config
        if config.key_deserializer is None and config.value_deserializer is None:
            return None
        return decoding_one(config)

    @property
    def reads_committed(self) -> bool:
        return self._core.config.isolation_level == "read_committed"

    def new_producer(self, transactional_id: str | None = None) -> Any:
        if transactional_id is not None:
            self._shared_state.is_transactional = True
        return self._producers(self._core.config, transactional_id)

    def waits_end(self) -> int:
        now = self.clock.now_ms()
        try:
            return self._core.exchange.grace.wait_until(now)
        except ClosedError:
            return now

    def renew_identity(self) -> bool:
        exchange = self._core.exchange
        exchange.take_background_events()
        exchange.adopt_identity()
        return not exchange.lost

    def begin(self, desk: Desk, workers: int) -> None:
        """`process` says what is done from now on, and decodes by itself: a dead letter has the bytes of its record.

        Raises:
            ConcurrentAccessError: another call of `process` is under way.
        """
        core = self._core
        if core.polls.is_working:
            raise ConcurrentAccessError("process() of this consumer is under way already")
        # First: Ctrl-C may come after any of the others.
        self._theirs, self._desk = core.listener, desk
        core.polls.is_working = core.commits.is_for_work = core.commits.has_worked = True
        core.commits.is_automatic = False
        core.polls.take_bytes()
        if core.work is None:
            core.work = Meters()
        core.work.begin(desk, workers)
        self._is_under_way = True

    def end(
        self, listener: Any, committed: Mapping[TopicPartition, ReadOffset], *, is_put_back: bool
    ) -> Totals:
        """Polls are as they were before `begin`.

        ``committed`` stands at the coordinator, with metadata. An automatic commit of the same offsets would remove it.
        ``is_put_back``: no position is beyond what is done. Otherwise automatic commits stay off.
        """
        core = self._core
        totals = Totals() if core.work is None else core.work.end()
        # Whatever ended the processing: nobody else can undo these.
        self.resume([p for p, each in self._shared_state.shared_partitions.items() if each.work_paused])
        if not core.exchange.closed:
            core.listener = listener
            core.polls.is_working = core.commits.is_for_work = False
            core.commits.note({partition: read.at for partition, read in committed.items()})
            core.commits.is_automatic = core.config.auto_commit and is_put_back
            core.exchange.nudged = False
            core.polls.decode()
        self._desk, self._is_under_way = None, False
        return totals

    def abandon(self) -> None:
        """Be as after `end`, if Ctrl-C has kept `process` from that."""
        if self._desk is not None and not self._desk.here.is_left:
            # Polls of `process` may have taken more than was done.
            self.end(self._theirs, {}, is_put_back=not self._is_under_way)
