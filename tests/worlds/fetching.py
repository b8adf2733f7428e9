"""A fetch manager with all that it stands on, told and answered by hand."""

from __future__ import annotations

from typing import Any

from tests.worlds.cluster import TOPIC_ID, answer, config, knowing
from tests.worlds.hand import BackgroundEvents, Hand, Managers

from kadence.connection.request import Request
from kadence.consumer.fetch.manager.fetch import FetchRequestManager
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.consumer.subscription import Subscription
from kadence.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kadence.records import encode_batch
from kadence.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Arena:
    def __init__(self, size: int = 0) -> None:
        self.holds = 1
        self.size = size

    def retain(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


class World(Hand):
    """A fetch manager with all that it stands on; partitions 0 and 1 are led by broker 1, 2 by broker 2."""

    def __init__(
        self,
        *partitions: TopicPartition,
        metadata: MetadataManager | None = None,
        arrivals: Any = None,
        **settings: Any,
    ) -> None:
        self.background_events = BackgroundEvents()
        self.subscription = Subscription()
        self.metadata = metadata or knowing({P0: 1, P1: 1, P2: 2}, self.background_events)
        self.wakes = 0
        self.shared_state = SharedState(self._wake, arrivals=arrivals)
        self.in_use = self.slack = self.limit = 0
        self.manager = FetchRequestManager(
            config(**settings),
            self.subscription,
            self.metadata,
            self.shared_state,
            self,
            self.background_events,
        )
        super().__init__(Managers(self.manager))
        self.subscription.assign(partitions)
        for partition in partitions:
            self.subscription.position(partition, 0, None)

    def _wake(self) -> None:
        self.wakes += 1

    def pause(self, partition: TopicPartition, paused: bool = True) -> None:
        """As the application does it."""
        shared_partition = self.state(partition).shared_partition
        shared_partition.paused = paused
        self.shared_state.look_at(shared_partition)

    def drain(self, fetched: CompletedFetch) -> bool:
        """The application is done with what was fetched. Whether that woke the network thread."""
        before = self.wakes
        fetched.shared_partition.drained_bytes += len(fetched.data)
        fetched.arena.release()
        self.shared_state.made_room(fetched.shared_partition)
        return self.wakes != before

    def state(self, partition: TopicPartition) -> Any:
        return self.subscription.partitions[partition]

    def poll(self, now: int) -> list[Request]:
        self.now = now
        return self.turn()

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
        stable: int = 100,
        end: int = 100,
        arena_size: int = 0,
    ) -> Arena:
        """Without ``arena_size`` what comes fills its arena."""
        arena = Arena(arena_size or sum(map(len, (batches or {}).values())))
        told = {**dict.fromkeys([*(codes or {}), *(preferred or {})], b""), **(batches or {})}
        data = [
            PartitionData(
                partition_index=partition.partition,
                error_code=(codes or {}).get(partition, 0),
                preferred_read_replica=(preferred or {}).get(partition, -1),
                high_watermark=end,
                last_stable_offset=stable,
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
        self.manager.on_response(now, answer(request, response, now, loan=arena, version=17))
        return arena


def batch(count: int = 2, offset: int = 0, size: int = 1) -> bytes:
    return encode_batch([(0, None, b"v" * size, ())] * count, base_offset=offset)


def asked(request: Request) -> dict[int, int]:
    """Partition number to fetch offset."""
    return {
        part.partition: part.fetch_offset for topic in request.message.topics for part in topic.partitions
    }
