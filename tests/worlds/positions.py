"""All that decides where reading stands, polled in the order of a real turn and answered by hand."""

from __future__ import annotations

from typing import Any

from tests.worlds.cluster import config, told
from tests.worlds.fetching import Arena
from tests.worlds.hand import BackgroundEvents, Hand, Managers

from kadence.connection.request import Request
from kadence.consumer.events import Failed
from kadence.consumer.fetch.manager.fetch import FetchRequestManager
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.positions.offsets import OffsetsRequestManager
from kadence.consumer.positions.validation import ValidationManager
from kadence.consumer.shared_partition import Origin
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.protocol.fetch import (
    EpochEndOffset as Divergence,
)
from kadence.protocol.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kadence.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kadence.protocol.metadata import MetadataResponse
from kadence.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kadence.records import assign_offsets, encode_batch
from kadence.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = 1_700_000_000_000


def batch(offset: int, count: int, epoch: int) -> bytes:
    """Records of one leader epoch."""
    raw = bytearray(encode_batch([(0, None, b"v", ())] * count, base_offset=offset))
    assign_offsets(raw, offset, epoch)
    return bytes(raw)


class NoArenas:
    """Nothing is ever held."""

    slack = 0
    limit = 0
    in_use = 0

    def __call__(self) -> int:
        return 0


class World(Hand):
    """One consumer's positions; no group."""

    def __init__(self, *partitions: TopicPartition, epoch: int = 5, **settings: Any) -> None:
        self.background_events = BackgroundEvents()
        super().__init__(Managers(), now=0)
        self.subscription = Subscription()
        settings_ = config(**settings)
        self.metadata = MetadataManager(settings_, self.background_events)
        self.subscription.topic_id_of = self.metadata.topic_id
        self.metadata.need("test", frozenset(p.topic for p in partitions) or frozenset({"t"}))
        self.shared_state = SharedState(lambda: None)
        self.validation = ValidationManager(
            settings_, self.subscription, self.metadata, self.background_events
        )
        self.offsets = OffsetsRequestManager(
            settings_, self.subscription, self.metadata, None, self.background_events, lambda: NOON + self.now
        )
        self.fetches = FetchRequestManager(
            settings_, self.subscription, self.metadata, self.shared_state, NoArenas(), self.background_events
        )
        self._managers.managers += [self.metadata, self.validation, self.offsets, self.fetches]
        (request,) = self.turn()
        self.answer(request, told(dict.fromkeys(partitions or (P0,), 1), epoch=epoch))
        self.subscription.assign(partitions)

    # -- answers

    def tell_metadata(self, response: MetadataResponse) -> None:
        """The next answer of a metadata refresh that somebody asks for."""
        self.metadata.request_update(self.now)
        self.turn(1_000)
        (request,) = [request for request in self._managers.owners if request.name == "Metadata"]
        self.answer(request, response)

    def fetched(
        self,
        request: Request,
        raw: bytes = b"",
        *,
        code: int = 0,
        diverging: tuple[int, int] | None = None,
        leader: tuple[int, int] | None = None,
        endpoints: tuple[int, ...] = (),
        replica: int = -1,
    ) -> Arena:
        """The answer to a fetch of partition 0."""
        arena = Arena()
        topic = request.message.topics[0]
        data = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=1_000,
            last_stable_offset=1_000,
            log_start_offset=0,
            preferred_read_replica=replica,
            records=memoryview(raw),
        )
        if diverging is not None:
            data.diverging_epoch = Divergence(epoch=diverging[0], end_offset=diverging[1])
        if leader is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        response = FetchResponse(
            # Without a session, so that every fetch names its partitions.
            responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[data])],
            node_endpoints=[NodeEndpoint(node_id=node, host="n", port=node) for node in endpoints],
        )
        self.answer(request, response, loan=arena, version=17)
        return arena

    def epoch_ends(self, request: Request, epoch: int, offset: int, code: int = 0) -> None:
        """The answer to OffsetForLeaderEpoch."""
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(
                        error_code=code, partition=each.partition, leader_epoch=epoch, end_offset=offset
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
        self.answer(request, OffsetForLeaderEpochResponse(topics=topics), version=4)

    def listed(self, request: Request, offset: int, code: int = 0) -> None:
        """The answer to ListOffsets."""
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=code, offset=offset
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
        self.answer(request, ListOffsetsResponse(topics=topics), version=10)

    # -- the application

    def state(self, partition: TopicPartition = P0) -> PartitionState:
        return self.subscription.partitions[partition]

    def status(self, partition: TopicPartition = P0) -> Status:
        return self.state(partition).status

    def hand_out(self, upto: int, epoch: int) -> None:
        """The application was given the records below ``upto``; everything in the buffer is gone."""
        shared_partition = self.state().shared_partition
        shared_partition.position = Origin(shared_partition.fetch_epoch, upto, epoch)
        shared_partition.drained_bytes = self.state().fetched_bytes

    def errors(self) -> list[Exception]:
        """What the next polls would raise."""
        return [event.error for event in self.background_events if isinstance(event, Failed)]


def question(request: Request) -> dict[int, tuple[int, int]]:
    """Partition → (leader epoch that is believed in, epoch that is asked about)."""
    return {
        each.partition: (each.current_leader_epoch, each.leader_epoch)
        for topic in request.message.topics
        for each in topic.partitions
    }
