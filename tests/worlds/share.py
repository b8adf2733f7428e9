"""The network side of a share consumer under virtual time, its brokers played by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.worlds.cluster import FakeMetadata, id_of
from tests.worlds.hand import START, BackgroundEvents, Hand, Managers
from tests.worlds.positions import batch

from kadence.clock import FOREVER
from kadence.config import ShareConsumerConfig
from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.client_state import Progress
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.protocol.share_acknowledge import PartitionData as AcknowledgedPartition
from kadence.protocol.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kadence.protocol.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kadence.protocol.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, TopicIdPartition
from kadence.share.events import Acknowledge, AcknowledgementsEnded, Ended, Sending
from kadence.share.network.manager import ShareRequestManager
from kadence.share.network.member import ShareMembership
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import GroupMetadata, Node, TopicPartition

INTERVAL = 1_000
LOCK_MS = 30_000
NODE, OTHER = 1, 2

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def config(**settings: Any) -> ShareConsumerConfig:
    return ShareConsumerConfig.parse(**{"bootstrap_servers": "localhost:9092", "group_id": "q", **settings})


def tip(number: int = 0, topic: str = "t") -> TopicIdPartition:
    return TopicIdPartition(id_of(topic), topic, number)


class ShareCluster(FakeMetadata):
    """Leaders by partition. Metadata as the managers see them.

    Attributes:
        told: leaders that answers have told.
    """

    def __init__(
        self, leaders: Mapping[TopicPartition, int], topics: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(topics or {"t": 8})
        self.leaders = dict(leaders)
        self.version = 0
        self.told: list[tuple[TopicPartition, int, int]] = []

    def leader(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition)

    def has_node(self, node_id: int) -> bool:
        return node_id in (NODE, OTHER)

    def moved(
        self, now: int, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
    ) -> bool:
        del now, endpoints
        self.told.append((partition, leader, epoch))
        self.leaders[partition] = leader
        self.version += 1
        return True


class KnownPollWait:
    """The poll that waits: until when (0: none does), and for how many records."""

    def __init__(self) -> None:
        self.until = self.count = 0

    def begin(self, until: int, count: int) -> None:
        self.until, self.count = until, count

    def end(self) -> None:
        self.until = self.count = 0


class Requests:
    """A `ShareRequestManager`, an application that obeys the test, and brokers that are answered by hand.

    Attributes:
        lock_ms: how long brokers lock records.
    """

    def __init__(self, leaders: Mapping[int, int] | None = None, **settings: Any) -> None:
        self.config = config(**settings)
        self.cluster = ShareCluster(
            {TopicPartition("t", number): node for number, node in (leaders or {0: NODE}).items()}
        )
        self.wakes = 0
        self.lock_ms = LOCK_MS
        self.poll_wait = KnownPollWait()
        self.state = ShareState(self._wake, poll_wait=self.poll_wait)
        self.told = BackgroundEvents()
        self.member = SimpleNamespace(group=GroupMetadata("q", 3, "m1"))
        member: Any = self.member
        self.manager = ShareRequestManager(self.config, member, self.cluster, self.state, self.told)
        self.hand = Hand(Managers(self.manager), version=2)
        self.assign(*(leaders or {0: NODE}))
        self.loans: list[Loan] = []
        self._ids = 0

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def now(self) -> int:
        return self.hand.now

    # -- the application

    def assign(self, *numbers: int) -> None:
        self.manager.assigned(self.now, {TopicPartition("t", number): id_of("t") for number in numbers})

    def waits(self, count: int = 500, timeout: int | None = None) -> None:
        """A poll found nothing buffered, and waits."""
        self.state.want(count, self.now, FOREVER if timeout is None else self.now + timeout)

    def take(self) -> AcquiredFetch:
        """The poll takes all that the next answer brought of a partition, and returns."""
        fetch = self.state.acquired_fetches.popleft()
        self.state.took(fetch, self.now, fetch.left)
        self.state.unwant(self.now, found=True)
        return fetch

    def acknowledge(
        self,
        fetch: AcquiredFetch,
        first: int | None = None,
        last: int | None = None,
        kind: int = ACCEPT,
        *,
        sending: Sending = Sending.WITH_FETCH,
        timeout: int = 60_000,
    ) -> int:
        """Say this of its offsets, of all if none are named. Returns the call's id."""
        first = fetch.acquired[0].first if first is None else first
        last = fetch.acquired[-1].last if last is None else last
        return self.say({fetch: (Acknowledged(first, last, kind),)}, sending=sending, timeout=timeout)

    def say(
        self,
        said: Mapping[AcquiredFetch, tuple[Acknowledged, ...]],
        *,
        sending: Sending = Sending.SYNC,
        timeout: int = 60_000,
    ) -> int:
        self._ids += 1
        event = Acknowledge(self._ids, self.now + timeout, said, sending)
        self.manager.acknowledge(self.now, event)
        return self._ids

    def ended(self) -> list[Ended]:
        """What acknowledgements have ended since the last look."""
        events = self.told.of(AcknowledgementsEnded)
        ended = [each for event in events for each in event.ended]
        for event in events:
            self.told.remove(event)
        return ended

    def answer_to(self, call_id: int) -> Any:
        (answer,) = [each for each in self.told.of(m.Answer) if each.id == call_id]
        return answer.value

    # -- brokers

    def sent(self) -> list[Request]:
        return self.hand.turn()

    def fetch(self) -> Request:
        """The one ShareFetch that goes out now."""
        (request,) = self.sent()
        assert isinstance(request.message, ShareFetchRequest), request
        return request

    def said(self) -> Request:
        """The one ShareAcknowledge that goes out now."""
        (request,) = self.sent()
        assert isinstance(request.message, ShareAcknowledgeRequest), request
        return request

    def bring(
        self,
        request: Request,
        *acquired: tuple[int, int, int],
        number: int = 0,
        loan: Loan | None = None,
        acknowledge_code: int = 0,
    ) -> None:
        """The fetch brings these offsets (first, last, delivery count) of one partition."""
        records = b"".join(batch(first, last - first + 1, 0) for first, last, _ in acquired)
        self.answer_fetch(
            request,
            [
                PartitionData(
                    partition_index=number,
                    acknowledge_error_code=acknowledge_code,
                    records=records,
                    acquired_records=[
                        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=deliveries)
                        for first, last, deliveries in acquired
                    ],
                )
            ],
            loan=loan,
        )

    def answer_fetch(
        self,
        request: Request,
        partitions: Sequence[PartitionData] = (),
        code: int = 0,
        *,
        loan: Any = None,
        lock_ms: int | None = None,
    ) -> None:
        topics = [ShareFetchableTopicResponse(topic_id=id_of("t"), partitions=list(partitions))]
        response = ShareFetchResponse(
            error_code=code,
            acquisition_lock_timeout_ms=self.lock_ms if lock_ms is None else lock_ms,
            responses=topics if partitions else [],
        )
        self.hand.answer(request, response, loan=loan)

    def answer(self, request: Request, code: int = 0, **codes: int) -> None:
        """Answer either kind: an error of all of it, or of the partitions p0, p1 …; the others it names are done."""
        message = request.message
        named = [each.partition_index for topic in message.topics for each in topic.partitions]
        if isinstance(message, ShareFetchRequest):
            parts = [
                PartitionData(partition_index=number, acknowledge_error_code=codes.get(f"p{number}", 0))
                for topic in message.topics
                for number, batches in (
                    (p.partition_index, p.acknowledgement_batches) for p in topic.partitions
                )
                if batches
            ]
            self.answer_fetch(request, [] if code else parts, code)
            return
        parts_ = [
            AcknowledgedPartition(partition_index=number, error_code=codes.get(f"p{number}", 0))
            for number in named
        ]
        topics = [ShareAcknowledgeTopicResponse(topic_id=id_of("t"), partitions=parts_)]
        self.hand.answer(
            request,
            ShareAcknowledgeResponse(
                error_code=code,
                acquisition_lock_timeout_ms=0 if code else self.lock_ms,
                responses=[] if code else topics,
            ),
        )

    def acquired(self, *acquired: tuple[int, int, int], number: int = 0) -> AcquiredFetch:
        """A poll has waited, and has returned these."""
        self.waits()
        (request,) = [
            each for each in self.sent() if each.node_id == self.cluster.leaders[TopicPartition("t", number)]
        ]
        self.bring(request, *acquired, number=number)
        return self.take()


def moved_to(node_id: int, epoch: int = 5) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader_id=node_id, leader_epoch=epoch)


def batches_of(request: Request) -> dict[int, list[tuple[int, int, list[int]]]]:
    """What a request acknowledges, by the partition's number."""
    return {
        partition.partition_index: [
            (each.first_offset, each.last_offset, each.acknowledge_types)
            for each in partition.acknowledgement_batches
        ]
        for topic in request.message.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def named(request: Request) -> list[int]:
    """The partitions that a request names."""
    return [partition.partition_index for topic in request.message.topics for partition in topic.partitions]


def forgotten(request: Request) -> list[int]:
    """The partitions that a fetch takes out of the session."""
    return [number for topic in request.message.forgotten_topics_data for number in topic.partitions]


class Loan:
    """The memory of one answer."""

    def __init__(self) -> None:
        self.size = 1_000
        self.holds = 1

    def retain(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


class Member:
    """A `ShareMembership` with its heartbeats, and a coordinator that is answered by hand."""

    def __init__(self, **settings: Any) -> None:
        self.config = config(**settings)
        self.metadata = FakeMetadata({"t": 4, "u": 1})
        self.told = BackgroundEvents()
        self.progress = Progress()
        self.coordinator = CoordinatorRequestManager("q", self.config, self.told)
        self.coordinator.node, self.coordinator.found_at = Node(7, "b7", 9092), START
        ids = iter(f"m{number}" for number in range(1, 100))
        self.member = ShareMembership(self.coordinator, self.metadata, self.config, self.told, ids.__next__)
        self.heartbeat = HeartbeatRequestManager(
            self.coordinator, self.member, self.progress, self.config, self.told
        )
        managers = Managers(self.heartbeat, self.member)
        self.owners = managers.owners
        self.hand = Hand(managers, version=1)
        self.assignments: list[Any] = []
        self.partings = 0
        self.member.on_assignment = lambda now, assignment: self.assignments.append(dict(assignment))
        self.rebalances: list[int] = []
        self.member.on_rebalance = self.rebalances.append
        self.member.on_leaving = self._left

    def _left(self) -> None:
        self.partings += 1

    def subscribe(self, *topics: str) -> None:
        self.member.topics = frozenset(topics)
        self.member.subscription_changed(self.hand.now)
        self.member.polled(self.hand.now)

    def beat(self) -> Request:
        """The one heartbeat that is due, whenever that is."""
        for _ in range(8):
            if requests := [request for _ in range(3) for request in self.hand.turn()]:
                (request,) = requests
                return request
            self.hand.now = self.hand.wake_at()
        raise AssertionError("no heartbeat")

    def answer(
        self,
        request: Request,
        epoch: int = 1,
        assigned: Mapping[str, Iterable[int]] | None = None,
        code: int = 0,
    ) -> None:
        assignment = None
        if assigned is not None:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=id_of(topic), partitions=list(numbers))
                    for topic, numbers in assigned.items()
                ]
            )
        self.hand.answer(
            request,
            ShareGroupHeartbeatResponse(
                error_code=code,
                member_id=request.message.member_id,
                member_epoch=epoch,
                heartbeat_interval_ms=INTERVAL,
                assignment=assignment,
            ),
        )

    def find(self) -> None:
        if self.coordinator.node is None:
            self.coordinator.node, self.coordinator.found_at = Node(7, "b7", 9092), self.hand.now
