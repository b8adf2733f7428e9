"""Transactional ids under virtual time: send requests, write markers at once or later, load the records anew."""

from __future__ import annotations

import itertools
from typing import Any

from tests.worlds.hand import Clock

from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.types import TopicPartition
from kadence_broker.coordinator import Caller, TopicImage, TopicTable
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.transactions import Ending, Step, TransactionConfig, TransactionCoordinator
from kadence_broker.coordinator.transactions.transaction import Transaction

TIMEOUT = 60_000
WALL = 1_700_000_000_000
"""What to add to ``now`` to get the time of day."""


class World(Clock):
    """One transaction coordinator and a clock.

    Attributes:
        records: all that was stored. endings: whose markers were written.
        holds_markers: let markers wait until `mark`.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = TransactionConfig(**config)
        self.records: list[Record] = []
        self.endings: list[Ending] = []
        self.holds_markers = False
        self._ids = itertools.count(1_000)
        self.coordinator = self._new()

    def _new(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            topics=TopicTable([TopicImage("t", b"t" * 16, 3)]),
            offsets_partition=lambda _group: 7,
            new_producer_id=lambda: next(self._ids),
            wall=lambda now: now + WALL,
        )

    def of(self, name: str = "x") -> Transaction:
        found = self.coordinator.get(name)
        assert found is not None
        return found

    def settle(self, step: Step) -> list[Any]:
        """Do what the broker does with a step; the responses in it."""
        self.records += step.records
        responses = [each.response for each in step.answers]
        for each in step.endings:
            self.endings.append(each)
            if not self.holds_markers:
                responses += self.settle(self.coordinator.marked(self.now, each.transactional_id))
        return responses

    def mark(self) -> None:
        """Write the markers that wait."""
        for each in self.endings:
            self.settle(self.coordinator.marked(self.now, each.transactional_id))

    def send(self, request: Any, version: int) -> Any:
        (response,) = self.settle(self.coordinator.handle(self.now, Caller(None, version), request))
        return response

    def advance(self, ms: int) -> None:
        self.go(ms, self.coordinator.next_deadline, lambda: self.settle(self.coordinator.poll(self.now)))

    def restart(self) -> None:
        """Another coordinator loads what this one stored."""
        self.coordinator = self._new()
        for record in self.records:
            self.coordinator.replay(record)
        self.settle(self.coordinator.loaded(self.now))

    # Requests

    def init(
        self,
        name: str | None = "x",
        producer: tuple[int, int] = (-1, -1),
        *,
        version: int = 5,
        timeout: int = TIMEOUT,
    ) -> Any:
        producer_id, producer_epoch = producer
        return self.send(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            ),
            version,
        )

    def begin(self, name: str = "x", **options: Any) -> tuple[int, int]:
        """A producer id and epoch for ``name``."""
        response = self.init(name, **options)
        assert response.error_code == 0
        return response.producer_id, response.producer_epoch

    def add(
        self, producer: tuple[int, int], *partitions: int, name: str = "x", topic: str = "t", version: int = 3
    ) -> list[int]:
        """Codes of the partitions, in order."""
        response = self.send(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
            ),
            version,
        )
        (result,) = response.results_by_topic_v3_and_below
        return [each.partition_error_code for each in result.results_by_partition]

    def add_v2(self, producer: tuple[int, int], partition: int, name: str = "x") -> int:
        """What a leader says when a producer of transactions v2 writes."""
        code, step = self.coordinator.add(self.now, name, *producer, [TopicPartition("t", partition)])
        self.settle(step)
        return code

    def add_offsets(self, producer: tuple[int, int], group: str = "g", name: str = "x") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        )
        return int(self.send(request, 3).error_code)

    def end(self, producer: tuple[int, int], *, committed: bool, name: str = "x", version: int = 4) -> Any:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
        )
        return self.send(request, version)
