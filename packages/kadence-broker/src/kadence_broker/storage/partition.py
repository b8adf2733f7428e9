"""One partition of a topic: everything that decides what its log takes in and gives out.

`append` and `append_marker` are the only ways in, wherever the bytes come from. Soft state (who waits for news, who
leads) is here too; what must survive a restart follows from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.records import BatchHeader
from kadence_broker.storage.aborted import Aborted
from kadence_broker.storage.batches import Allowance, check_client_batch, frame, prepare
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.errors import BatchError
from kadence_broker.storage.log import Log, MemoryStore
from kadence_broker.storage.lookup import TimedOffset, newest_record, record_since
from kadence_broker.storage.producers import Marker, Producers, marker_batch
from kadence_broker.storage.retention import retained_by_size, retained_from
from kadence_broker.storage.segment import Segment

if TYPE_CHECKING:
    from kadence_broker.cluster import Topic
    from kadence_broker.storage.folder import PartitionFolder

__all__ = ["Appended", "Isolation", "Origin", "Partition", "Resting", "Waiter"]


_log = logger("kadence.broker")


class Origin(Enum):
    """The writer of a batch."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class Isolation(Enum):
    """The end up to which a reader may read."""

    LOG_END = "log end"
    """Everything, acknowledged or not: a coordinator that loads its records."""
    UNCOMMITTED = "high watermark"
    COMMITTED = "last stable offset"


class Appended(NamedTuple):
    """The outcome of an append.

    Attributes:
        log_append_time: the broker's time in its records; -1 where they keep the producer's. Of a duplicate its
            largest date.
        duplicate: it was there already, and was not appended again.
    """

    base_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


class Waiter(Protocol):
    """A request that waits for more records, or for another leader."""

    def try_answer(self, partition: Partition) -> None: ...


class Resting(Protocol):
    """A fetch session's partition of which the client knows all."""

    def wake(self) -> None: ...


class Partition:
    """One partition. The broker's thread owns it.

    Attributes:
        leader_id: the node that serves it, -1 without one. replica_id: the node that has its log.
        high_watermark: readers see what lies below it.
        waiting: notified by `wake`, the longest waiting first.
        resting: notified of the next change at once, before readers see it, and removed.
        cleaned_upto: compaction has seen what lies below it.
        trouble: the reason why the disk takes no records at present; None if it does.
        on_readable: called when readers may see more than before; it may wake them later, once for many batches.
    """

    __slots__ = (
        "_folder",
        "_is_lost",
        "_waiting_for_disk",
        "cleaned_upto",
        "high_watermark",
        "index",
        "leader_epoch",
        "leader_id",
        "log",
        "on_readable",
        "producers",
        "replica_id",
        "resting",
        "topic",
        "trouble",
        "waiting",
    )

    def __init__(self, topic: Topic, index: int, leader_id: int, leader_epoch: int = 0) -> None:
        self.topic = topic
        self.index = index
        self.leader_id = leader_id
        self.replica_id = leader_id
        self.leader_epoch = leader_epoch
        self.log = Log(MemoryStore(lambda: self.config))
        self.producers = Producers()
        self.high_watermark = 0
        self.cleaned_upto = 0
        self.waiting: dict[Waiter, None] = {}
        self.resting: dict[Resting, None] = {}
        self.on_readable: Callable[[Partition], None] | None = None
        self.trouble: str | None = None
        self._folder: PartitionFolder | None = None
        self._is_lost = False
        self._waiting_for_disk: deque[tuple[int, Callable[[int], None]]] = deque()

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index} {self.start_offset}..{self.end_offset}>"

    @property
    def config(self) -> LogConfig:
        return self.topic.log_config

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the decided records: no open transaction begins below it."""
        first_open = self.producers.first_open
        if first_open is None:
            return self.high_watermark
        # Retention may have taken the beginning of an open transaction; the rest begins at the log's start.
        return min(max(first_open, self.start_offset), self.high_watermark)

    # In

    def append(
        self,
        now: int,
        batch: memoryview,
        *,
        leader_epoch: int | None = None,
        origin: Origin = Origin.CLIENT,
        transactional_id: str | None = None,
        admit: Callable[[BatchHeader], None] | None = None,
        from_zero: bool = False,
        allowance: Allowance | None = None,
    ) -> Appended:
        """Append the one batch in ``batch``; it is copied.

        Args:
            now: milliseconds since 1970, by the broker's clock.
            leader_epoch: the epoch for the batch; None for the partition's present one.
            transactional_id: the request's; transactional batches of clients need one.
            admit: asked before the first batch of a transaction here; it raises `BatchError` to refuse the batch.
            from_zero: a transactional producer that is not known here must begin with sequence 0.
            allowance: the bytes to which the batches of its request may still unpack; None: there is no such bound.

        Raises:
            BatchError: it was not appended, with the code that the producer gets.
        """
        batch, header = frame(batch)
        if origin is Origin.CLIENT:
            if header.is_transactional and not transactional_id:
                raise BatchError(
                    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "a transactional batch came in a request without a transactional id",
                    at_log=False,
                )
            check_client_batch(batch, header, self.config)
            batch, header = prepare(batch, header, self.config, now, allowance)
            is_new = not self.producers.is_open(header.producer_id, header.producer_epoch)
            if admit is not None and header.is_transactional and is_new:
                admit(header)
            known = self.producers.check(header, from_zero=from_zero and header.is_transactional)
            if known is not None:
                # A retry of a batch that is there already: the same answer again, but for the timestamp, as in Kafka.
                return Appended(known.base_offset, header.max_timestamp, self.start_offset, duplicate=True)
        base_offset = self._store(now, batch, header, leader_epoch)
        self.producers.appended(header, base_offset, now)
        self._grown()
        is_stamped = origin is Origin.CLIENT and self.config.append_time
        return Appended(base_offset, now if is_stamped else -1, self.start_offset, duplicate=False)

    def append_marker(
        self, now: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, committed: bool
    ) -> Appended:
        """End a producer's transaction here; a marker where none is open is appended all the same, as Kafka does.

        Raises:
            BatchError: the epoch of the producer or of the coordinator is old, or it could not be stored.
        """
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = Marker(committed, coordinator_epoch)
        batch, header = marker_batch(producer_id, producer_epoch, marker, now)
        base_offset = self._store(now, batch, header, None)
        self.producers.ended(header, marker, base_offset, now)
        self._grown()
        return Appended(base_offset, -1, self.start_offset, duplicate=False)

    def _store(self, now: int, batch: memoryview, header: BatchHeader, leader_epoch: int | None) -> int:
        if self._is_lost:
            raise BatchError(codes.KAFKA_STORAGE_ERROR, f"{self.topic.name}-{self.index}: {self.trouble}")
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        try:
            base_offset = self.log.append(batch, header, epoch, now)
        except OSError as error:
            if self.trouble is None:
                _log.error("%s-%d takes no records: %s", self.topic.name, self.index, error)
            self.trouble = str(error)
            raise BatchError(
                codes.KAFKA_STORAGE_ERROR, f"{self.topic.name}-{self.index} could not be written to: {error}"
            ) from error
        if self.trouble is not None:
            _log.warning("%s-%d takes records again", self.topic.name, self.index)
            self.trouble = None
        return base_offset

    def _grown(self) -> None:
        if self._folder is not None:
            self._folder.appended()
        if self._folder is None or not self._folder.flushes:
            self.high_watermark = self.end_offset
            self._notify()
        if (offset := retained_by_size(self.log, self.config)) > self.start_offset:
            self.delete_before(min(offset, self.high_watermark))

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Call ``callback`` with an error code once all that has been appended so far is stored for good."""
        if self._is_lost:
            callback(codes.KAFKA_STORAGE_ERROR)
        elif self._folder is None or not self._folder.flushes or self.high_watermark >= self.end_offset:
            callback(codes.NONE)
        else:
            self._waiting_for_disk.append((self.end_offset, callback))

    def on_flushed(self, callback: Callable[[int], None]) -> None:
        """As `on_durable`, once it is on the disk whatever the policy: a directory's ``fsync`` need not say so."""
        if self._folder is None or self._folder.flushes or self._is_lost:
            self.on_durable(callback)
        else:
            self._waiting_for_disk.append((self.end_offset, callback))
            self._folder.flush()

    def durable(self, end_offset: int, error: OSError | None) -> None:
        """All below ``end_offset`` is durable; or it may be lost, and the log takes no more until a restart."""
        if error is not None:
            self._is_lost = True
            self.trouble = f"records could not be made durable ({error}); start the broker again"
        elif self.high_watermark < end_offset:
            self.high_watermark = min(end_offset, self.end_offset)
            self._notify()
        while self._waiting_for_disk and (error is not None or self._waiting_for_disk[0][0] <= end_offset):
            callback = self._waiting_for_disk.popleft()[1]
            try:
                callback(codes.NONE if error is None else codes.KAFKA_STORAGE_ERROR)
            except Exception:  # noqa: BLE001 - the callbacks behind it must still be called
                _log.exception("a bug in a callback of %r; the broker continues to serve", self)

    def load(self, log: Log, producers: Producers) -> None:
        """Begin with what a folder holds."""
        self.log, self.producers = log, producers
        self.high_watermark = log.end_offset
        self.leader_epoch = max(self.leader_epoch, log.epochs.at_end())

    def keep_in(self, folder: PartitionFolder) -> None:
        """From now on ``folder`` hears of what changes."""
        self._folder = folder

    # Out

    def limit(self, isolation: Isolation) -> int:
        """The offset below which a reader of this kind may read."""
        if isolation is Isolation.COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if isolation is Isolation.UNCOMMITTED else self.end_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.UNCOMMITTED,
        *,
        at_least_one: bool = True,
    ) -> list[memoryview]:
        """Whole batches from the one that holds ``offset`` on; see `Log.read`. Empty at the reader's end."""
        return self.log.read(offset, max_bytes, at_least_one=at_least_one, upto=self.limit(isolation))

    def available(self, offset: int, max_bytes: int, isolation: Isolation = Isolation.UNCOMMITTED) -> int:
        """Bytes that `read` would find, counted up to ``max_bytes``."""
        return self.log.available(offset, max_bytes, self.limit(isolation))

    def aborted(self, offset: int) -> list[Aborted]:
        """The aborted transactions that a reader of committed records from ``offset`` on must know of."""
        return self.producers.aborted.between(offset, self.last_stable_offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and where it ends (KIP-320); (-1, -1): it was never heard of."""
        if epoch == self.leader_epoch:
            # The present epoch has no end yet, even if nothing has been appended in it.
            return epoch, self.end_offset
        return self.log.epochs.end_of(epoch, self.end_offset) if epoch < self.leader_epoch else (-1, -1)

    def offset_since(self, timestamp: int) -> TimedOffset | None:
        """The first record with ``timestamp`` or a later one; None if there is none."""
        return record_since(self.log, timestamp)

    def offset_of_newest(self) -> TimedOffset | None:
        """The first record with the largest timestamp of all; None if there is no record."""
        return newest_record(self.log)

    # Changes from outside

    def lead(self, node_id: int) -> None:
        """Give the partition to another node, or to none (-1); its leader epoch rises."""
        self.leader_id = node_id
        self.replica_id, self.leader_epoch = self.led_by(node_id)
        self._notify()

    def led_by(self, node_id: int) -> tuple[int, int]:
        """The replica and the leader epoch that it would have under another leader, or none (-1)."""
        return node_id if node_id >= 0 else self.replica_id, self.leader_epoch + 1

    def delete_before(self, offset: int) -> None:
        """Let all records below ``offset`` go.

        Raises:
            ValueError: ``offset`` lies above the high watermark.
        """
        if offset > self.high_watermark:
            raise ValueError(
                f"cannot delete up to {offset}: the partition's readers see up to {self.high_watermark}"
            )
        self.log.delete_before(offset)
        if self._folder is not None:
            self._folder.started_at(self.start_offset)
        self.producers.aborted.delete_before(self.start_offset)
        self._notify()

    def truncate(self, offset: int, now: int) -> None:
        """Lose everything from ``offset`` on, whole batches; producers are known by what is left."""
        self.log.truncate(offset)
        batches = (
            segment.views(found.position, found.position + found.size)[0]
            for segment, found in self.log.batches(self.start_offset)
        )
        self.producers = self.producers.rebuilt(batches, self.end_offset, now)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.cleaned_upto = min(self.cleaned_upto, self.end_offset)
        if self._folder is not None:
            self._folder.truncated()
            lost = [each for each in self._waiting_for_disk if each[0] > self.end_offset]
            for each in lost:
                self._waiting_for_disk.remove(each)
                each[1](codes.NOT_LEADER_OR_FOLLOWER)
        self._notify()

    def retain(self, now: int) -> None:
        """Let go what is too old or too much."""
        offset = retained_from(self.log, self.config, now, self.high_watermark)
        if offset <= self.start_offset:
            return
        if offset == self.end_offset:
            self.log.roll()
        self.delete_before(offset)

    # Compaction (`kadence_broker.storage.compaction`)

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put a cleaned segment in the place of others. Returns False if these are not as they were any more."""
        if self._folder is not None:
            self._folder.cleans(self.cleaned_upto)
        end = old[-1].next_offset
        if not self.log.replace(old, new):
            return False
        # Of an aborted transaction whose marker is below, no record is left: a reader must not wait for a marker that
        # will go, too.
        self.producers.aborted.delete_before(end)
        return True

    def cleaned(self, upto: int) -> None:
        """A pass has seen everything below ``upto``."""
        self.cleaned_upto = upto
        if self._folder is not None:
            self._folder.cleaned(upto)

    # News

    def wake(self) -> None:
        """Let waiting fetches look again. A fetch that was answered together with another one is skipped."""
        for each in list(self.waiting):
            if each in self.waiting:
                each.try_answer(self)

    def removed(self) -> None:
        """Its topic has been deleted: all who read it are to look again."""
        self._wake_resting()
        self.wake()

    def _wake_resting(self) -> None:
        for each in list(self.resting):
            each.wake()

    def _notify(self) -> None:
        self._wake_resting()
        if self.on_readable is not None:
            self.on_readable(self)
