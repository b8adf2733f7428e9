"""ShareFetch (78), with acknowledgements on the way (KIP-932).

v1 acknowledgement by batches  v2 acquire mode (KIP-1206), renewal of locks (KIP-1222)
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kadence_broker.service import Call, Handler, Services
from kadence_broker.share.fetching import ParkedShareFetch
from kadence_broker.share.requests import acknowledge_all, fault_of, session_key
from kadence_broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition

__all__ = ["HANDLER"]

_RENEWAL_VERSION = 2


def handle(services: Services, call: Call) -> ShareFetchResponse | None:
    request: ShareFetchRequest = call.message
    code, message = fault_of(services, request)
    if code == codes.NONE and call.version >= _RENEWAL_VERSION and request.is_renew_ack:
        code, message = _renewal_fault(request)
    if code != codes.NONE:
        return ShareFetchResponse(error_code=code, error_message=message)
    if request.share_session_epoch == INITIAL_EPOCH:
        return _open(services, call)
    session, code = services.shares.sessions.check(session_key(call), request.share_session_epoch)
    if session is None:
        return ShareFetchResponse(error_code=code)
    is_last = request.share_session_epoch == FINAL_EPOCH
    if not is_last:
        session.update(_named(request), _forgotten(request))
        session.count()
    acknowledged = acknowledge_all(services, call, request.topics) if _acknowledges(request) else {}
    if is_last:
        services.shares.close_session(session)
    ParkedShareFetch(services, call, None if is_last else session, acknowledged, is_incremental=True).start()
    return None


def _open(services: Services, call: Call) -> ShareFetchResponse | None:
    request: ShareFetchRequest = call.message
    if _acknowledges(request):
        return ShareFetchResponse(error_code=codes.INVALID_REQUEST)
    session = services.shares.open_session(session_key(call), _named(request), call.connection)
    if session is not None:
        ParkedShareFetch(services, call, session, {}, is_incremental=False).start()
        return None
    # The client is to try again, but not at once.
    refusal = ShareFetchResponse(error_code=codes.SHARE_SESSION_LIMIT_REACHED)
    timer = services.loop.at(add_ms(call.now, max(request.max_wait_ms, 0)), lambda: call.reply(refusal))
    call.on_abandoned = timer.cancel
    return None


def _acknowledges(request: ShareFetchRequest) -> bool:
    return any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)


def _named(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]


def _forgotten(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _renewal_fault(request: ShareFetchRequest) -> tuple[int, str | None]:
    """A request that renews locks brings no records, so that it takes no time (KIP-1222). In Kafka's words."""
    wrong = [
        f"{name} must be set to 0, "
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait_ms),
        )
        if value != 0
    ]
    if not wrong:
        return codes.NONE, None
    return codes.INVALID_REQUEST, "".join(wrong) + "if isRenewAck is true."


def refuse(call: Call, code: int) -> ShareFetchResponse:
    request: ShareFetchRequest = call.message
    topics = [
        ShareFetchableTopicResponse(
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(
                    partition_index=each.partition_index,
                    error_code=code,
                    acknowledge_error_code=code if each.acknowledgement_batches else codes.NONE,
                    records=b"",
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    # A request that goes on with a session may name no partition; then only the whole answer can be in error.
    return ShareFetchResponse(error_code=codes.NONE if topics else code, responses=topics)


HANDLER = Handler(ShareFetchRequest, handle, refuse)
