"""The transaction coordinator of this broker: carries requests to it, stores what it records, and writes its markers.

One coordinator serves the transactional ids of all nodes; a node answers for those whose partition of
`__transaction_state` it leads. The order makes a crash harmless: a decision is stored for good before its first marker
is written, and all markers before the decision counts as carried out. A transaction that is open in a partition and
unknown to the coordinator is aborted when the broker starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kadence.broker.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from kadence.broker.coordination import ClusterTopics, Coordination
from kadence.broker.settling import Settling
from kadence.broker.state_topic import Ended, StateTopic
from kadence.broker.storage import BatchError, Partition
from kadence.clock import add_ms
from kadence.coordinator import Record
from kadence.coordinator.records import decode_transaction
from kadence.coordinator.transactions import Ending, Step, TransactionConfig, TransactionCoordinator
from kadence.protocol import error_codes as codes
from kadence.types import TopicPartition
from kadence.wire import WireError

if TYPE_CHECKING:
    from kadence.broker.cluster import BrokerNode, Cluster
    from kadence.broker.server.loop import Loop
    from kadence.broker.service import Call

__all__ = ["Transactions"]

_log = logging.getLogger("kadence.broker")

_RETRY_MS: Final = 50
"""After which a marker is tried again whose partition has no leader."""


class Transactions:
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
        self._loop = loop
        self._endings: dict[str, Ending] = {}
        """What is being carried out, by transactional id; whatever is not here has been overtaken."""
        self.topic = StateTopic(cluster, loop.wall_ms, TRANSACTIONS_TOPIC, decode_transaction)
        self.coordinator = TransactionCoordinator(
            config,
            topics=ClusterTopics(cluster),
            offsets_partition=coordinator_partition,
            new_producer_id=cluster.new_producer_id,
            wall=lambda _now: loop.wall_ms(),
        )

    def start(self) -> None:
        """Load what an earlier broker has stored, and abort what nobody will end."""
        if self.topic.exists:
            for partition in self.topic.partitions():
                self._load(partition.index)
            self._settle(self.coordinator.loaded(self._now()))
        for topic in list(self._cluster.topics.values()):
            for partition in topic.partitions:
                self._abort_orphans(partition)

    # Requests and timers

    def node_of(self, transactional_id: str) -> BrokerNode | None:
        """The node that coordinates the id; None while its partition has no leader."""
        return self.topic.node_of(transactional_id)

    def coordinator_error(self, call: Call, transactional_id: str | None) -> int:
        """NONE if the node that was asked coordinates the id. An empty id is the coordinator's to refuse."""
        if not transactional_id:
            return codes.NONE
        node = self.node_of(transactional_id)
        return codes.NONE if node is not None and node.node_id == call.node_id else codes.NOT_COORDINATOR

    def serve(self, call: Call, amend: Callable[[Any], None] | None = None) -> None:
        """Let the coordinator serve the call.

        Args:
            amend: what the broker adds to the answer.
        """
        try:
            step = self.coordinator.handle(call.now, call.caller(), call.message)
        except OSError as error:
            # A new producer id is kept on the disk before anybody gets it.
            _log.error("no producer id can be given out: %s", error)
            call.reply(call.handler.refuse(call, codes.KAFKA_STORAGE_ERROR))
            return
        if amend is not None:
            for answer in step.answers:
                amend(answer.response)
        self._settle(step)

    def poll(self, now: int) -> None:
        """Fire the coordinator's timers that are due."""
        if self.coordinator.next_deadline() <= now:
            self._settle(self.coordinator.poll(now))

    def next_deadline(self) -> int:
        return self.coordinator.next_deadline()

    # What a producer writes within a transaction (KIP-890)

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
        """Whether a producer may write to ``partition`` now: an error code, in the words of its version.

        Args:
            adds: it speaks transactions v2, so its write makes the partition part of the transaction; others must have
                added it.
            knows_abortable: it knows TRANSACTION_ABORTABLE.
        """
        if transactional_id and self.node_of(transactional_id) is None:
            # Nobody can say; producers try again after this one.
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
        """As `admit`, for offsets of a group. Nobody is asked once the transaction is open in the group's partition."""
        keeper = self._coordination.offsets_topic.keeper_of(group_id)
        if keeper.producers.is_open(producer_id, producer_epoch):
            return codes.NONE
        code = self.admit(
            transactional_id,
            producer_id,
            producer_epoch,
            TopicPartition(OFFSETS_TOPIC, keeper.index),
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
                partition.index, producer_id, producer_epoch, coordinator_epoch, committed=committed
            )
        else:
            partition.append_marker(
                self._loop.wall_ms(), producer_id, producer_epoch, coordinator_epoch, committed=committed
            )

    def _end(self, ending: Ending) -> None:
        """Write a marker into each partition; what cannot have one now gets it later.

        A later ending of the id takes the place of this one: a marker that came late would end the next transaction.
        """
        self._endings[ending.transactional_id] = ending
        coordinator_epoch = self.topic.keeper_of(ending.transactional_id).leader_epoch
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
                self.write_marker(
                    partition,
                    ending.producer_id,
                    ending.producer_epoch,
                    coordinator_epoch,
                    committed=ending.committed,
                )
            except BatchError as error:
                if error.code != codes.KAFKA_STORAGE_ERROR:
                    # Somebody has ended it there under a later epoch.
                    _log.warning("no marker of %r in %s: %s", ending.transactional_id, each, error)
                    continue
                left.append(each)
            else:
                marked.append(partition)
        settling = Settling(
            [], partial(self._marked, ending, tuple(left)), partial(self._marked, ending, ending.partitions)
        )
        for partition in marked:
            settling.begin()
            partition.on_durable(settling.done)
        settling.done(codes.NONE)

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

    def _abort_orphans(self, partition: Partition) -> None:
        here = TopicPartition(partition.topic.name, partition.index)
        known = self.coordinator.producers_in(here)
        for producer_id, epoch in partition.producers.open_transactions():
            if producer_id not in known:
                _log.warning(
                    "aborting a transaction of producer %d in %s that nobody knows", producer_id, here
                )
                # A marker under an older coordinator epoch than the last one there would be refused.
                coordinator_epoch = max(partition.producers.known[producer_id].coordinator_epoch, 0)
                try:
                    self.write_marker(partition, producer_id, epoch, coordinator_epoch, committed=False)
                except BatchError as error:
                    _log.error(
                        "producer %d's transaction in %s could not be aborted: %s", producer_id, here, error
                    )

    # Storing and moving

    def _settle(self, step: Step) -> None:
        """Store the records, then deliver the answers, then write the markers."""
        by_partition: dict[int, list[Record]] = {}
        for record in step.records:
            index = coordinator_partition(record.key.transactional_id)
            by_partition.setdefault(index, []).append(record)
        settling = Settling(step.answers, lambda: self._end_all(step.endings))
        for index, records in by_partition.items():
            self._store(index, records, settling)
        settling.done(codes.NONE)
        for index in by_partition:
            if self.topic.is_grown(index):
                self._rewrite(index)

    def _end_all(self, endings: Iterable[Ending]) -> None:
        for each in endings:
            self._end(each)

    def _store(self, index: int, records: Iterable[Record], settling: Settling) -> None:
        try:
            partition = self.topic.append(index, records)
        except (BatchError, OSError, WireError) as error:
            _log.error("transactions of %s-%d could not be stored: %s", self.topic.name, index, error)
            settling.fail()
            self.reload(index)
            return
        settling.begin()
        partition.on_durable(partial(self._stored, index, settling))

    def _stored(self, index: int, settling: Settling, code: int) -> None:
        if code != codes.NONE:
            name = codes.name(code)
            _log.error("transactions of %s-%d could not be stored: %s", self.topic.name, index, name)
            self.reload(index)
        settling.done(code)

    def _rewrite(self, index: int) -> None:
        try:
            self.topic.rewrite(index, self.coordinator.snapshot(_owns(index)))
        except (BatchError, OSError) as error:
            # What is stored already stands; the next step that grows the partition tries again.
            _log.warning("%s-%d could not be written anew: %s", self.topic.name, index, error)

    def reload(self, index: int) -> None:
        """Forget the ids of one partition and load them from the log, as a node does that takes it over."""
        self.coordinator.unload(_owns(index))
        self._load(index)
        self._settle(self.coordinator.loaded(self._now(), _owns(index)))

    def on_new_leader(self, partition: Partition) -> None:
        """A partition has another leader, or none: if it keeps transactional ids, they have another coordinator."""
        if partition.topic.name == self.topic.name:
            self.reload(partition.index)

    def _load(self, index: int) -> None:
        if self.topic.partition(index).leader_id >= 0:
            for each in self.topic.read(index):
                if not isinstance(each, Ended):
                    self.coordinator.replay(each)

    def _now(self) -> int:
        return self._loop.clock.now_ms()


def _owns(index: int) -> Callable[[str], bool]:
    """Whether a transactional id belongs to one partition of the topic."""
    return lambda transactional_id: coordinator_partition(transactional_id) == index
