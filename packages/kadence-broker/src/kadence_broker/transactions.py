"""The transaction coordinator of this broker: who may write in a transaction, and the markers that end one.

How its requests are served and its records kept: `kadence_broker.coordinator_runtime`. The order makes a crash
harmless: a decision is stored for good before its first marker is written, and all markers before the decision counts
    as carried out. A
transaction that is open in a partition and unknown to the coordinator is aborted when the broker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import add_ms
from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from kadence.types import TopicPartition
from kadence_broker.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from kadence_broker.coordination import ClusterTopics, Coordination
from kadence_broker.coordinator import Record
from kadence_broker.coordinator.records import decode_transaction
from kadence_broker.coordinator.transactions import Ending, Step, TransactionConfig, TransactionCoordinator
from kadence_broker.coordinator_runtime import CoordinatorRuntime
from kadence_broker.pending_responses import PendingResponses
from kadence_broker.state_topic import StateTopic
from kadence_broker.storage import BatchError, Partition

if TYPE_CHECKING:
    from kadence_broker.cluster import Cluster
    from kadence_broker.server.loop import Loop
    from kadence_broker.service import Call

__all__ = ["Transactions"]

_log = logger("kadence.broker")

_RETRY_MS: Final = 50
"""The delay before a marker whose partition has no leader is tried again."""


class Transactions(CoordinatorRuntime[Step]):
    """The shell of `TransactionCoordinator`. The broker's thread owns it."""

    def __init__(
        self,
        config: TransactionConfig,
        cluster: Cluster,
        coordination: Coordination,
        loop: Loop,
    ) -> None:
        self._cluster = cluster
        self._coordination = coordination
        self._endings: dict[str, Ending] = {}
        """Endings in progress, by transactional id; one that is not here has been overtaken."""
        self.coordinator = TransactionCoordinator(
            config,
            topics=ClusterTopics(cluster),
            offsets_partition=coordinator_partition,
            new_producer_id=cluster.new_producer_id,
            wall=lambda _now: loop.wall_ms(),
        )
        topic = StateTopic(cluster, loop.wall_ms, TRANSACTIONS_TOPIC, decode_transaction)
        super().__init__(self.coordinator, topic, loop)

    def _key_of(self, record: Record) -> str:
        return str(record.key.transactional_id)

    def _asked_for(self, request: Any) -> Collection[str] | None:
        if isinstance(request, AddPartitionsToTxnRequest):
            return (request.v3_and_below_transactional_id,)
        transactional_id = getattr(request, "transactional_id", None)
        return (transactional_id,) if transactional_id else None

    def start(self) -> None:
        """Load the stored ids, and abort transactions that no coordinator has."""
        super().start()
        self._abort_orphans()

    def topic_deleted(self, topic: str) -> None:
        """The coordinator's topic was deleted: forget all ids, and abort open transactions, which none can end."""
        super().topic_deleted(topic)
        if topic == self.topic.name:
            self._abort_orphans()

    def serve(self, call: Call, amend: Callable[[Any], None] | None = None) -> None:
        try:
            super().serve(call, amend)
        except OSError as error:
            # A new producer id is kept on the disk before anybody gets it.
            _log.error("no producer id can be given out: %s", error)
            call.reply(call.handler.refuse(call, codes.KAFKA_STORAGE_ERROR))

    # Writes of a producer within a transaction (KIP-890)

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> int:
        """The code for a producer's write to ``partition`` now, as of the version of its request.

        Args:
            adds: it speaks transactions v2, so its write makes the partition part of the transaction; others must have
                added it.
            knows_abortable: it knows TRANSACTION_ABORTABLE.
        """
        if transactional_id and self.node_of(transactional_id) is None:
            # The transaction cannot be checked; producers retry after this code.
            return codes.NOT_ENOUGH_REPLICAS
        if not adds:
            code = self.coordinator.verify(transactional_id, producer_id, producer_epoch, partition)
        else:
            code, step = self.coordinator.add(
                self._now(), transactional_id, producer_id, producer_epoch, [partition]
            )
            self._settle(step)
            if code == codes.NONE and not self.coordinator.is_part(transactional_id, partition):
                # The record could not be stored.
                return codes.NOT_ENOUGH_REPLICAS
        if code == codes.PRODUCER_FENCED:
            return codes.INVALID_PRODUCER_EPOCH
        if code == codes.TRANSACTION_ABORTABLE and not knows_abortable:
            return codes.INVALID_TXN_STATE
        if code == codes.CONCURRENT_TRANSACTIONS and not adds:
            # Older producers do not expect it here, and try again after this one.
            return codes.NOT_ENOUGH_REPLICAS
        return code

    def admit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> int:
        """As `admit`, for offsets of a group. Not checked once the transaction is open in the group's partition."""
        runtime = self._coordination.topic.coordinator_of(group_id)
        if runtime.producers.is_open(producer_id, producer_epoch):
            return codes.NONE
        code = self.admit(
            transactional_id,
            producer_id,
            producer_epoch,
            TopicPartition(OFFSETS_TOPIC, runtime.index),
            adds=adds,
            knows_abortable=knows_abortable,
        )
        return codes.COORDINATOR_NOT_AVAILABLE if code == codes.NOT_ENOUGH_REPLICAS else code

    # Ends

    def write_marker(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
    ) -> None:
        """End a producer's transaction in one partition.

        Raises:
            BatchError: the epoch of the producer or of the coordinator is old, or the marker could not be stored.
        """
        if partition.topic.name == OFFSETS_TOPIC:
            self._coordination.end_transaction(
                partition, producer_id, producer_epoch, coordinator_epoch, committed=committed
            )
        else:
            partition.append_marker(
                self._loop.wall_ms(), producer_id, producer_epoch, coordinator_epoch, committed=committed
            )

    def _follow(self, step: Step) -> None:
        for each in step.endings:
            self._end(each)

    def _end(self, ending: Ending) -> None:
        """Write a marker into each partition; what cannot have one now gets it later.

        A later ending of the id takes the place of this one: a marker that came late would end the next transaction.
        """
        self._endings[ending.transactional_id] = ending
        epoch = self.topic.epoch_of(ending.transactional_id)
        marked: list[Partition] = []
        left: list[TopicPartition] = []
        for each in ending.partitions:
            partition = self._cluster.partition(*each)
            if partition is None:
                # The topic was deleted meanwhile, and the transaction's records with it.
                continue
            if partition.leader_id < 0:
                left.append(each)
                continue
            try:
                self._decide(
                    partition, ending.producer_id, ending.producer_epoch, epoch, committed=ending.committed
                )
            except BatchError as error:
                if error.code == codes.INVALID_PRODUCER_EPOCH:
                    # It was ended there under a later epoch.
                    _log.warning("no marker of %r in %s: %s", ending.transactional_id, each, error)
                else:
                    left.append(each)
            else:
                marked.append(partition)
        pending = PendingResponses(
            [], partial(self._marked, ending, tuple(left)), partial(self._marked, ending, ending.partitions)
        )
        for partition in marked:
            pending.begin()
            partition.on_durable(pending.done)
        pending.done(codes.NONE)

    def _marked(self, ending: Ending, left: tuple[TopicPartition, ...]) -> None:
        """The markers of ``ending`` are stored for good, but those of the partitions ``left``."""
        if not self._is_current(ending):
            return
        if left:
            rest = replace(ending, partitions=left)
            self._endings[ending.transactional_id] = rest
            self._loop.at(add_ms(self._now(), _RETRY_MS), lambda: self._end_rest(rest))
        else:
            del self._endings[ending.transactional_id]
            self._settle(self.coordinator.marked(self._now(), ending.transactional_id))

    def _end_rest(self, rest: Ending) -> None:
        if self._is_current(rest):
            self._end(rest)

    def _is_current(self, ending: Ending) -> bool:
        return self._endings.get(ending.transactional_id) is ending

    def _abort_orphans(self) -> None:
        """Abort what is open in a partition, and neither known to the coordinator nor being ended."""
        ending = {each.producer_id for each in self._endings.values()}
        for partition in [each for topic in self._cluster.topics.values() for each in topic.partitions]:
            here = TopicPartition(partition.topic.name, partition.index)
            known = ending | self.coordinator.producers_in(here)
            for producer_id, epoch in partition.producers.open_transactions():
                if producer_id in known:
                    continue
                _log.warning(
                    "aborting a transaction of producer %d in %s that no coordinator has", producer_id, here
                )
                try:
                    self._decide(partition, producer_id, epoch, 0, committed=False)
                except BatchError as error:
                    _log.error(
                        "producer %d's transaction in %s could not be aborted: %s", producer_id, here, error
                    )

    def _decide(
        self, partition: Partition, producer_id: int, producer_epoch: int, epoch: int, *, committed: bool
    ) -> None:
        """Write a marker for this coordinator, whose epoch is ``epoch``. Raises `BatchError`.

        No other coordinator can fence it. If an administrator's marker had a later epoch, this marker has that one,
        too: refused, it would leave the transaction open for ever.
        """
        known = partition.producers.known.get(producer_id)
        if known is not None:
            epoch = max(epoch, known.coordinator_epoch)
        self.write_marker(partition, producer_id, producer_epoch, epoch, committed=committed)
