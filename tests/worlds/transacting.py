"""A transactional producer under virtual time, with a coordinator that answers by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.worlds.producer import TP, World

from kadence.connection.request import ANY_NODE, Request
from kadence.producer.transaction_states import State
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kadence.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kadence.protocol.end_txn import EndTxnRequest, EndTxnResponse
from kadence.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kadence.types import TopicPartition

OTHER = TopicPartition("t", 1)


class TransactionWorld(World):
    """A transactional producer and a coordinator that says yes, or what ``codes`` has for an API, once each."""

    def __init__(self, *, version: int = 2, offers_end: bool = True, **settings: Any) -> None:
        super().__init__(transactional_id="x", **settings)
        assert self.transactions is not None
        self.now_in: Transactions = self.transactions
        self.leaders = {TP: 1, OTHER: 1}
        self.codes: dict[type, list[int]] = {}
        self.asked: list[Any] = []
        self.epoch = 0
        self._features = [FinalizedFeatureKey("transaction.version", version, version)] if version else []
        self._apis = [ApiVersion(26, 0, 5)] if offers_end else []

    def run(self, done: Callable[[], bool] | None = None, *, produce: int = ec.NONE) -> None:
        """Answer everything until nothing is asked; then ``done`` must be so."""
        for _ in range(30):
            requests = self.turn()
            for request in requests:
                if isinstance(request.message, ProduceRequest):
                    self.acknowledge(request, code=produce)
                else:
                    self.say(request)
            if not requests:
                self.advance(200)
        if done is not None:
            with self.gate:
                assert done()

    def say(self, request: Request) -> None:
        """Answer what is not about records."""
        message = request.message
        if isinstance(message, MetadataRequest):
            self.answer(request, self.metadata())
            return
        self.asked.append(message)
        codes = next((codes for kind, codes in self.codes.items() if isinstance(message, kind)), [])
        code = codes.pop(0) if codes else ec.NONE
        match message:
            case ApiVersionsRequest():
                self.answer(
                    request, ApiVersionsResponse(api_keys=self._apis, finalized_features=self._features)
                )
            case FindCoordinatorRequest():
                assert request.node_id == ANY_NODE
                self.answer(
                    request,
                    FindCoordinatorResponse(error_code=code, node_id=2 + message.key_type, host="b", port=1),
                )
            case InitProducerIdRequest():
                self.epoch += message.producer_id >= 0
                self.answer(
                    request, InitProducerIdResponse(error_code=code, producer_id=9, producer_epoch=self.epoch)
                )
            case AddPartitionsToTxnRequest():
                results = [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions],
                    )
                    for topic in message.v3_and_below_topics
                ]
                self.answer(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
            case AddOffsetsToTxnRequest():
                self.answer(request, AddOffsetsToTxnResponse(error_code=code))
            case TxnOffsetCommitRequest():
                answers = [TxnOffsetCommitResponsePartition(0, code)]
                (topic,) = message.topics
                by_id = request.max_version is None
                named = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
                answered = TxnOffsetCommitResponseTopic(partitions=answers, **named)
                self.answer(request, TxnOffsetCommitResponse(topics=[answered]))
            case EndTxnRequest():
                raised = bool(self._features) and not code
                self.epoch += raised
                self.answer(
                    request,
                    EndTxnResponse(
                        error_code=code,
                        producer_id=9 if raised else -1,
                        producer_epoch=self.epoch if raised else -1,
                    ),
                )

    def warm(self) -> None:
        """Open a transaction in which a record is written, so that the broker takes several batches at once."""
        self.begin()
        self.append()
        self.run()

    def begin(self) -> None:
        """Get ready, and open a transaction."""
        if self.now_in.state is State.UNINITIALIZED:
            self.run(self.now_in.begin_init())
        self.asked.clear()
        self.now_in.begin()

    def asked_for(self) -> list[str]:
        """What the coordinators were asked since `begin`."""
        return [type(message).__name__.removesuffix("Request") for message in self.asked]
