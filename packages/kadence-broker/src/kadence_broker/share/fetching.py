"""A share fetch from its session to its answer: waiting for records, acquiring them, and the fields of the answer.

It waits until there are ``min_bytes`` that it may acquire, or ``max_wait_ms`` have passed. What it acquires is decided
at that moment. Acknowledgements that came with it have been taken before (`kadence_broker.share.requests`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kadence_broker.share.acquiring import Wish
from kadence_broker.share.led import Led
from kadence_broker.share.reading import budgets, isolation_of, read_log
from kadence_broker.share.requests import NEW_LEADER_HINTS, Acknowledged, named_leader, when_stored
from kadence_broker.share.sessions import ShareSession, TopicIdPartition

if TYPE_CHECKING:
    from kadence_broker.cluster import BrokerNode
    from kadence_broker.server.loop import Timer
    from kadence_broker.service import Call, Services, Steps
    from kadence_broker.storage import Partition

__all__ = ["ParkedShareFetch"]

_PARTITION_US: Final = 50
_RECORD_LIMIT: Final = 1
_RENEWAL_VERSION: Final = 2


class ParkedShareFetch:
    """One fetch. `start` answers it or parks it; its end removes it from its partitions.

    Args:
        session: None: the request closes its session, and reads nothing.
        acknowledged: the results of its acknowledgements.
        is_incremental: the answer names only what is new to the session.
    """

    __slots__ = (
        "_acknowledged",
        "_call",
        "_epoch",
        "_failed",
        "_is_incremental",
        "_isolation",
        "_led",
        "_max_bytes",
        "_message",
        "_order",
        "_services",
        "_session",
        "_timer",
    )

    def __init__(
        self,
        services: Services,
        call: Call,
        session: ShareSession | None,
        acknowledged: Acknowledged,
        *,
        is_incremental: bool,
    ) -> None:
        self._services = services
        self._call = call
        self._message: ShareFetchRequest = call.message
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._is_incremental = is_incremental
        self._acknowledged = acknowledged
        self._max_bytes = min(self._message.max_bytes, services.settings.fetch_max_bytes)
        self._order: list[TopicIdPartition] = []
        self._led: dict[TopicIdPartition, Led] = {}
        self._failed: dict[TopicIdPartition, int] = {}
        self._timer: Timer | None = None
        settings = services.shares.settings_of(self._message.group_id or "")
        self._isolation = isolation_of(read_committed=settings.read_committed)

    def __repr__(self) -> str:
        return f"<share fetch of {len(self._order)} partitions for {self._call.connection.peer}>"

    def start(self) -> None:
        """Answer now if there is reason to, else wait."""
        if self._session is not None and not self._is_renewal:
            self._find(self._rotated(list(self._session.partitions)))
        if not self._led or self._message.max_wait_ms <= 0 or self._is_due():
            self._answer()
            return
        for each in self._led.values():
            each.waiting[self] = None
            each.log.waiting[self] = None
        deadline = add_ms(self._call.now, self._message.max_wait_ms)
        self._timer = self._services.loop.at(deadline, self._answer)
        self._call.on_abandoned = self._stop_waiting

    @property
    def _is_renewal(self) -> bool:
        """A renewed lock is not to be spent on waiting for records (KIP-1222)."""
        return self._call.version >= _RENEWAL_VERSION and self._message.is_renew_ack

    def _rotated(self, partitions: list[TopicIdPartition]) -> list[TopicIdPartition]:
        """Each fetch of a session begins with another partition."""
        epoch = self._message.share_session_epoch
        at = epoch % len(partitions) if partitions and epoch > 0 else 0
        return partitions[at:] + partitions[:at]

    def _find(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Find the share-partitions to read. With limits of 0 none is read, nor loaded for it."""
        reads = self._message.max_records > 0 and self._max_bytes > 0
        for named in partitions:
            self._order.append(named)
            _, code = self._services.shares.partition(self._call.node_id, named)
            if code in (codes.UNKNOWN_TOPIC_ID, codes.UNKNOWN_TOPIC_OR_PARTITION):
                self._failed[named] = code
            elif reads:
                self._load(named)

    def _load(self, named: TopicIdPartition) -> None:
        led, code = self._services.shares.led(self._call.node_id, self._message.group_id or "", named)
        if led is None:
            self._led.pop(named, None)
            self._failed[named] = code
        else:
            self._led[named] = led

    # Waiting

    def try_answer(self, _partition: Partition) -> None:
        """Something changed in the log of one of its partitions."""
        self.look_again()

    def look_again(self) -> None:
        """Something changed in one of its share-partitions."""
        if self._is_due():
            self._answer()

    def _ready(self) -> Iterator[tuple[TopicIdPartition, Led]]:
        for named, led in self._led.items():
            if not led.state.is_fenced and led.state.may_read(led.settings):
                yield named, led

    def _is_due(self) -> bool:
        """Enough bytes may be acquired, or something happened that the client should hear of now."""
        if any(led.state.is_fenced for led in self._led.values()):
            return True
        ready = [led for _, led in self._ready()]
        if not ready:
            return False
        missing: int = min(self._message.min_bytes, self._max_bytes)
        for led, budget in zip(ready, budgets(self._max_bytes, len(ready)), strict=True):
            offset = led.state.next_offset
            if offset < led.log.start_offset:
                return True
            missing -= led.log.available(offset, budget, self._isolation)
        return missing <= 0

    def _stop_waiting(self) -> None:
        for each in self._led.values():
            each.waiting.pop(self, None)
            each.log.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    # Answering

    def _answer(self) -> None:
        self._stop_waiting()
        self._services.in_pieces(self._call, self._steps())

    def _steps(self) -> Steps:
        for named in [named for named, led in self._led.items() if led.state.is_fenced]:
            self._load(named)
        data = {named: _failure(named, code) for named, code in self._failed.items()}
        ready = list(self._ready())
        left, is_first = self._message.max_records, True
        shares = budgets(self._max_bytes, len(ready)) if ready else []
        for (named, led), budget in zip(ready, shares, strict=True):
            yield _PARTITION_US
            data[named], taken = self._read(named, led, left, budget, is_first)
            left -= taken
            is_first = is_first and not data[named].acquired_records
        response = self._response(data)
        when_stored(
            self._services, self._call, self._acknowledged, lambda: self._call.reply(self._finished(response))
        )
        return None

    def _read(
        self, named: TopicIdPartition, led: Led, most: int, budget: int, is_first: bool
    ) -> tuple[PartitionData, int]:
        """Acquire records of one partition; how many that are."""
        data = PartitionData(partition_index=named.partition, records=b"")
        if led.state.is_fenced:
            return data, 0  # Since the last piece of this request; its log may have gone, too.
        offset = led.state.next_offset
        if offset < led.log.start_offset:
            # As in Kafka, this answer only finds out that records were deleted; the next has those that are left.
            led.log_started_at(led.log.start_offset)
            return data, 0
        if most <= 0:
            return data, 0
        read = read_log(led.log, offset, budget, self._isolation, at_least_one=is_first)
        wish = Wish(
            self._message.member_id or "",
            most,
            offset,
            self._message.batch_size,
            self._call.version >= _RENEWAL_VERSION and self._message.share_acquire_mode == _RECORD_LIMIT,
        )
        now = self._services.loop.clock.now_ms()
        acquired, taken = led.acquire(now, wish, read.batches, read.aborted)
        if acquired:
            data.records = cast(Any, read.chunks(acquired))
            data.acquired_records = [
                AcquiredRecords(
                    first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries
                )
                for each in acquired
            ]
        return data, taken

    def _response(self, data: dict[TopicIdPartition, PartitionData]) -> ShareFetchResponse:
        """The answer to the fetch, without the results of acknowledgements."""
        session = self._session
        if session is not None and self._is_incremental:
            if session.epoch != self._epoch:
                # Another connection has gone on with the session.
                return ShareFetchResponse(error_code=codes.INVALID_SHARE_SESSION_EPOCH)
            data = {
                named: each
                for named, each in data.items()
                if session.must_answer(
                    named,
                    has_records=len(each.records) > 0,
                    has_error=each.error_code != codes.NONE,
                )
            }
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._services.shares.settings_of(
                self._message.group_id or ""
            ).lock_duration_ms
        )
        _add(response, {named: data[named] for named in self._order if named in data})
        return response

    def _finished(self, response: ShareFetchResponse) -> ShareFetchResponse:
        """The answer with the results of the acknowledgements, and with leaders for those who asked the wrong node."""
        known = {
            TopicIdPartition(topic.topic_id, each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }
        new = {
            named: PartitionData(partition_index=named.partition, records=b"")
            for named in self._acknowledged
            if named not in known
        }
        _add(response, new)
        known |= new
        for named, code in self._acknowledged.items():
            known[named].acknowledge_error_code = code
        leaders: dict[int, BrokerNode] = {}
        for named, each in known.items():
            if NEW_LEADER_HINTS & {each.error_code, each.acknowledge_error_code}:
                partition, _ = self._services.shares.partition(self._call.node_id, named)
                each.current_leader = LeaderIdAndEpoch(*named_leader(self._services, partition, leaders))
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port) for node in leaders.values()
        ]
        return response


def _failure(named: TopicIdPartition, code: int) -> PartitionData:
    return PartitionData(partition_index=named.partition, error_code=code, records=b"")


def _add(response: ShareFetchResponse, data: dict[TopicIdPartition, PartitionData]) -> None:
    topics = {each.topic_id: each for each in response.responses}
    for named, each in data.items():
        if named.topic_id not in topics:
            topics[named.topic_id] = ShareFetchableTopicResponse(topic_id=named.topic_id)
            response.responses.append(topics[named.topic_id])
        topics[named.topic_id].partitions.append(each)
