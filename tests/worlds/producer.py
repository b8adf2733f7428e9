"""The sender under virtual time: requests come out, the test answers them by hand, or hands them to a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.worlds.hand import Hand, Managers

from kadence._native.append import estimated_size
from kadence.client.gate import Gate
from kadence.config import ProducerConfig
from kadence.connection.request import Request
from kadence.producer.accumulator import Accumulator
from kadence.producer.futures import RecordFuture
from kadence.producer.sender import Sender
from kadence.producer.topics import Topics
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kadence.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.protocol.produce import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kadence.records import BatchHeader, FetchedRecords
from kadence.types import TopicPartition

TOPIC_ID = b"\x01" * 16
TP = TopicPartition("t", 0)
MAX_VERSION = ProduceRequest.MAX_VERSION


class World(Hand):
    """A sender, its accumulator and a clock that the test moves."""

    def __init__(self, **settings: Any) -> None:
        settings = {"bootstrap_servers": "b:1", "linger_ms": 0, "retry_backoff_ms": 100, **settings}
        self.config = ProducerConfig.parse(None, **settings)
        self.gate = Gate()
        self.accumulator = Accumulator(
            batch_size=self.config.batch_size,
            linger_ms=self.config.linger_ms,
            buffer_memory=self.config.buffer_memory,
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            gate=self.gate,
        )
        self.topics = Topics(self.config, self.gate)
        self.reachable: Callable[[int], bool] = lambda node: True
        self.is_open = True
        self.transactions = (
            None
            if self.config.transactional_id is None
            else Transactions(self.config, self.gate, partial(setattr, self, "is_open"))
        )
        self.sender = Sender(
            self.config,
            self.accumulator,
            self.topics,
            lambda node, purpose, now: self.reachable(node),
            self.transactions,
        )
        super().__init__(Managers(*self.sender.managers), version=MAX_VERSION)
        self.leaders: dict[TopicPartition, int] = {TP: 1}
        self.racks: dict[int, str] = {}

    def append(
        self, value: bytes | None = b"v", key: bytes | None = None, tp: TopicPartition = TP
    ) -> RecordFuture:
        with self.gate:
            self.topics.want(tp.topic, self.now) if tp.topic not in self.topics.cluster.topics else None
            size = estimated_size(key, value, ())
            future, _ = self.accumulator.append(tp, 7, key, value, (), size, self.now)
            return future

    def ready(self) -> None:
        """Known topics and, for an idempotent producer, an id. Without sending a batch."""
        reachable, self.reachable = self.reachable, lambda node: False
        for _ in range(4):
            for request in self.turn():
                self.answer_housekeeping(request)
        self.reachable = reachable

    def warm_up(self, *partitions: TopicPartition) -> None:
        """A record of each partition is written, so that the broker knows the producer and takes several batches."""
        for tp in partitions or (TP,):
            self.append(tp=tp)
        self.ready()
        while requests := self.turn():
            for request in requests:
                self.acknowledge(request)

    def answer_housekeeping(self, request: Request) -> None:
        if isinstance(request.message, MetadataRequest):
            self.answer(request, self.metadata())
        else:
            assert isinstance(request.message, InitProducerIdRequest)
            self.answer(request, InitProducerIdResponse(producer_id=9, producer_epoch=0))

    def metadata(self) -> MetadataResponse:
        topics: dict[str, MetadataResponseTopic] = {}
        for tp, leader in self.leaders.items():
            topic = topics.setdefault(tp.topic, MetadataResponseTopic(name=tp.topic, topic_id=TOPIC_ID))
            topic.partitions.append(
                MetadataResponsePartition(partition_index=tp.partition, leader_id=leader, leader_epoch=1)
            )
        brokers = [
            MetadataResponseBroker(node, f"b{node}", 9092, self.racks.get(node))
            for node in sorted(set(self.leaders.values()))
        ]
        return MetadataResponse(brokers=brokers, topics=list(topics.values()))

    def acknowledge(
        self,
        request: Request,
        offset: int = 0,
        code: int = ec.NONE,
        node_endpoints: Sequence[NodeEndpoint] = (),
        **fields: Any,
    ) -> None:
        """Answer a ProduceRequest with one offset or error for all its partitions."""
        message: ProduceRequest = request.message
        responses = [
            TopicProduceResponse(
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=part.index, error_code=code, base_offset=-1 if code else offset, **fields
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
        self.answer(request, ProduceResponse(responses=responses, node_endpoints=[*node_endpoints]))


def batches_of(request: Request) -> dict[TopicPartition, bytes]:
    """The batches of a ProduceRequest."""
    assert isinstance(request.message, ProduceRequest)
    return {
        TopicPartition(topic.name, part.index): bytes(part.records or b"")
        for topic in request.message.topic_data
        for part in topic.partition_data
    }


def header_of(batch: bytes) -> BatchHeader:
    return BatchHeader.parse(batch)


def values_of(batch: bytes) -> list[bytes | None]:
    """What the records of a batch hold."""
    return [record.value for record in FetchedRecords(batch, "t", 0, 0).take(10_000)]
