"""Fetch (1).

v4 isolation level  v5 log start offset  v7 sessions (KIP-227)  v9 leader epochs  v11 rack
v12 flexible, divergence  v13 topic ids  v15 replica state  v16 new leaders (KIP-951)  v18 followers' watermark
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kadence_broker.fetching import ParkedFetch
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> FetchResponse | None:
    context = services.sessions.resolve(call.now, call.message, call.version)
    if context.error_code != codes.NONE:
        return FetchResponse(error_code=context.error_code)
    ParkedFetch(services, call, context).start()
    return None


def refuse(call: Call, code: int) -> FetchResponse:
    request: FetchRequest = call.message
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1, records=b"")
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    # An incremental request may name no partition at all; then only the whole answer can be in error.
    return FetchResponse(error_code=codes.NONE if topics else code, responses=topics)


HANDLER = Handler(FetchRequest, handle, refuse)
