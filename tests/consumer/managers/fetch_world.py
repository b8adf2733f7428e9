"""A fetch manager with all that it stands on, told and answered by hand."""

from __future__ import annotations

from typing import Any

from tests.consumer.managers.drive import TOPIC_ID, Facts, answer, config, knowing

from kadence.connection.request import Request
from kadence.consumer.border.buffer import Border
from kadence.consumer.managers.fetch import FetchManager
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.state.subscription import Subscription
from kadence.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kadence.records import encode_batch
from kadence.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Arena:
    def __init__(self) -> None:
        self.holds = 1
        self.size = 1000

    def retain(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


class World:
    """A fetch manager with all that it stands on; partitions 0 and 1 are led by broker 1, 2 by broker 2."""

    def __init__(
        self, *partitions: TopicPartition, metadata: MetadataManager | None = None, **settings: Any
    ) -> None:
        self.facts = Facts()
        self.subscription = Subscription()
        self.metadata = metadata or knowing({P0: 1, P1: 1, P2: 2}, self.facts)
        self.border = Border(lambda: None)
        self.in_use = self.slack = self.limit = 0
        self.manager = FetchManager(
            config(**settings), self.subscription, self.metadata, self.border, self, self.facts
        )
        self.subscription.assign(partitions)
        for partition in partitions:
            self.subscription.position(partition, 0, None)

    def state(self, partition: TopicPartition) -> Any:
        return self.subscription.partitions[partition]

    def poll(self, now: int) -> list[Request]:
        return self.manager.poll(now).requests

    def reply(
        self,
        request: Request,
        now: int,
        batches: dict[TopicPartition, bytes] | None = None,
        *,
        code: int = 0,
        codes: dict[TopicPartition, int] | None = None,
        preferred: dict[TopicPartition, int] | None = None,
        session: int = 7,
    ) -> Arena:
        arena = Arena()
        told = {**dict.fromkeys([*(codes or {}), *(preferred or {})], b""), **(batches or {})}
        data = [
            PartitionData(
                partition_index=partition.partition,
                error_code=(codes or {}).get(partition, 0),
                preferred_read_replica=(preferred or {}).get(partition, -1),
                high_watermark=100,
                last_stable_offset=100,
                log_start_offset=0,
                records=memoryview(raw),
            )
            for partition, raw in told.items()
        ]
        response = FetchResponse(
            error_code=code,
            session_id=session,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)],
        )
        self.manager.on_response(now, answer(request, response, now, lease=arena, version=17))
        return arena


def batch(count: int = 2, offset: int = 0, size: int = 1) -> bytes:
    return encode_batch([(0, None, b"v" * size, ())] * count, base_offset=offset)


def asked(request: Request) -> dict[int, int]:
    """Partition number to fetch offset."""
    return {
        part.partition: part.fetch_offset for topic in request.message.topics for part in topic.partitions
    }
