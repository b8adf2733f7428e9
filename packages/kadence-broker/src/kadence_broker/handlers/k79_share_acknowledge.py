"""ShareAcknowledge (79): acknowledgements without a fetch, and the end of a session (KIP-932).

v1 acknowledgement by batches  v2 renewal of locks (KIP-1222)
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kadence_broker.cluster import BrokerNode
from kadence_broker.service import Call, Handler, Services
from kadence_broker.share.requests import (
    NEW_LEADER_HINTS,
    Acknowledged,
    acknowledge_all,
    fault_of,
    named_leader,
    session_key,
    when_stored,
)
from kadence_broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> ShareAcknowledgeResponse | None:
    request: ShareAcknowledgeRequest = call.message
    code, message = fault_of(services, request)
    if code != codes.NONE:
        return ShareAcknowledgeResponse(error_code=code, error_message=message)
    if request.share_session_epoch == INITIAL_EPOCH:  # only a fetch opens a session
        return ShareAcknowledgeResponse(error_code=codes.INVALID_SHARE_SESSION_EPOCH)
    session, code = services.shares.sessions.check(session_key(call), request.share_session_epoch)
    if session is None:
        return ShareAcknowledgeResponse(error_code=code)
    is_last = request.share_session_epoch == FINAL_EPOCH
    if not is_last:
        session.count()
    done = acknowledge_all(services, call, request.topics)
    if is_last:
        services.shares.close_session(session)
    when_stored(services, call, done, lambda: call.reply(_response(services, call, done)))
    return None


def _response(services: Services, call: Call, done: Acknowledged) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, BrokerNode] = {}
    for named, code in done.items():
        data = PartitionData(partition_index=named.partition, error_code=code)
        if code in NEW_LEADER_HINTS:
            partition, _ = services.shares.partition(call.node_id, named)
            data.current_leader = LeaderIdAndEpoch(*named_leader(services, partition, leaders))
        topics.setdefault(
            named.topic_id, ShareAcknowledgeTopicResponse(topic_id=named.topic_id)
        ).partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=services.shares.settings_of(call.message.group_id).lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port) for node in leaders.values()
        ],
    )


def refuse(call: Call, code: int) -> ShareAcknowledgeResponse:
    request: ShareAcknowledgeRequest = call.message
    topics = [
        ShareAcknowledgeTopicResponse(
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    # A request that only closes a session names no partition.
    return ShareAcknowledgeResponse(error_code=codes.NONE if topics else code, responses=topics)


HANDLER = Handler(ShareAcknowledgeRequest, handle, refuse)
