"""Produce (0).

v3 record batches (magic 2)  v5 log start offset  v7 zstd  v8 error messages  v9 flexible
v10 the new leader (KIP-951)  v13 topic ids
v0-2 are offered and not served: librdkafka leaves compression off unless 0 is in the range (KAFKA-18659)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kadence.records import BatchHeader
from kadence.types import TopicPartition
from kadence.wire.reader import Buffer
from kadence_broker.cluster import Topic
from kadence_broker.fetching import check_leader
from kadence_broker.service import Call, Handler, Services
from kadence_broker.storage import Allowance, BatchError

__all__ = ["HANDLER"]

_FIRST_LEADER_HINT_VERSION = 10
_FIRST_ABORTABLE_VERSION = 11
_FIRST_ADDING_VERSION = 12
_FIRST_TOPIC_ID_VERSION = 13
_FIRST_ZSTD_VERSION = 7
_ZSTD = 4
_ATTRIBUTES_AT = 22
"""The byte of a batch that says how it is compressed."""
_WITHOUT_LOG_START = frozenset({codes.CORRUPT_MESSAGE, codes.MESSAGE_TOO_LARGE, codes.KAFKA_STORAGE_ERROR})
"""Errors beside which Kafka does not say where the log begins."""
_ADMIN_CLIENT = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""
_MOST_UNPACKED_BYTES: Final = 1024 * 1024 * 1024
"""The most bytes to which the compressed batches of one request may unpack; each has its own bound, too."""
_BREAK_BYTES: Final = 1024 * 1024
"""After this many unpacked bytes, other connections are served before the next partition."""
_PARTITION_BYTES: Final = 8 * 1024
"""The fixed cost of a partition, in bytes."""


def handle(services: Services, call: Call) -> None:
    _Produce(services, call).start()


class _Produce:
    """One request: its batches are appended, with breaks; then it waits until they are stored for good."""

    __slots__ = ("_allowance", "_call", "_leaders", "_pending", "_responses", "_rest", "_services")

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call
        self._responses: list[TopicProduceResponse] = []
        self._leaders: set[int] = set()
        self._pending = 1
        self._allowance = Allowance(_MOST_UNPACKED_BYTES)
        self._rest = self._append_all()

    def start(self) -> None:
        for _ in self._rest:
            self._services.soon(self._call, lambda _call: self.start())
            return
        self._done()

    def _append_all(self) -> Iterator[None]:
        """Append partition by partition; each step is as much as others may have to wait for."""
        work = 0
        for data in self._call.message.topic_data:
            results: list[PartitionProduceResponse] = []
            for each in data.partition_data:
                if work >= _BREAK_BYTES:
                    work = 0
                    yield
                before = self._allowance.left
                results.append(self._append(*self._topic(data), each))
                work += _PARTITION_BYTES + len(each.records or b"") + before - self._allowance.left
            if results:  # as in Kafka: topics without partitions are left out
                self._responses.append(
                    TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=results)
                )

    def _stored(self, result: PartitionProduceResponse, code: int) -> None:
        if code != codes.NONE:
            result.error_code, result.base_offset = code, -1
        self._done()

    def _done(self) -> None:
        self._pending -= 1
        if self._pending:
            return
        if self._call.message.acks == 0:
            _end_silently(self._call, self._responses)
            return
        nodes = self._services.cluster.nodes
        self._call.reply(
            ProduceResponse(
                responses=self._responses,
                node_endpoints=[
                    NodeEndpoint(node_id=each, host=nodes[each].host, port=nodes[each].port)
                    for each in sorted(self._leaders & nodes.keys())
                ],
            )
        )

    def _topic(self, data: TopicProduceData) -> tuple[Topic | None, int]:
        cluster = self._services.cluster
        if self._call.version >= _FIRST_TOPIC_ID_VERSION:
            return cluster.topic_by_id(data.topic_id), codes.UNKNOWN_TOPIC_ID
        return cluster.topics.get(data.name), codes.UNKNOWN_TOPIC_OR_PARTITION

    def _append(
        self,
        topic: Topic | None,
        missing: int,
        data: PartitionProduceData,
    ) -> PartitionProduceResponse:
        call = self._call
        partition = None if topic is None else topic.partition(data.index)
        code = missing if topic is None else check_leader(partition, call.node_id, -1)
        if topic is not None and topic.is_internal and call.client_id != _ADMIN_CLIENT:
            code = codes.INVALID_TOPIC_EXCEPTION
        if call.message.acks not in (-1, 0, 1):
            code = codes.INVALID_REQUIRED_ACKS
        result = PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)
        if partition is None:
            return result
        if code == codes.NOT_LEADER_OR_FOLLOWER and call.version >= _FIRST_LEADER_HINT_VERSION:
            result.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
            )
            self._leaders.add(partition.leader_id)
        if code == codes.NONE and call.version < _FIRST_ZSTD_VERSION and _is_zstd(data.records):
            result.error_code = code = codes.UNSUPPORTED_COMPRESSION_TYPE
        if code != codes.NONE:
            return result
        try:
            there = partition.append(
                self._services.wall_ms(),
                memoryview(data.records or b""),
                transactional_id=call.message.transactional_id,
                admit=partial(self._admit, TopicPartition(partition.topic.name, partition.index)),
                # A producer that adds partitions by writing to them could lose its first batch unnoticed (KIP-890).
                from_zero=call.version >= _FIRST_ADDING_VERSION,
                allowance=self._allowance,
            )
        except BatchError as error:
            result.error_code, result.error_message = error.code, error.message
            if error.at_log and error.code not in _WITHOUT_LOG_START:
                result.log_start_offset = partition.start_offset
            result.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.records
            ]
            return result
        result.base_offset, result.log_append_time_ms, result.log_start_offset, _ = there
        if call.message.acks != 0:
            self._pending += 1
            partition.on_durable(partial(self._stored, result))
        return result

    def _admit(self, partition: TopicPartition, header: BatchHeader) -> None:
        """Ask the transaction coordinator about a transaction's first batch in a partition (KIP-890)."""
        code = self._services.transactions.admit(
            self._call.message.transactional_id,
            header.producer_id,
            header.producer_epoch,
            partition,
            adds=self._call.version >= _FIRST_ADDING_VERSION,
            knows_abortable=self._call.version >= _FIRST_ABORTABLE_VERSION,
        )
        if code != codes.NONE:
            message = f"the transaction does not allow it: {codes.name(code)}"
            raise BatchError(code, message, at_log=False)


def _is_zstd(records: Buffer | None) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & 7 == _ZSTD


def _end_silently(call: Call, responses: list[TopicProduceResponse]) -> None:
    """A client that wants no answer learns of an error only by losing its connection."""
    for topic in responses:
        for each in topic.partition_responses:
            if each.error_code != codes.NONE:
                name = codes.name(each.error_code)
                call.connection.close(f"produce with acks=0 to {topic.name}-{each.index} failed: {name}")
                return
    call.finish()


def refuse(call: Call, code: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in call.message.topic_data
        ]
    )


HANDLER = Handler(ProduceRequest, handle, refuse, offered=(0, ProduceRequest.MAX_VERSION), keeps_frame=True)
