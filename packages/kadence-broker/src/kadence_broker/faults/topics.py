"""The topics that a request is about."""

from __future__ import annotations

from kadence.protocol.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence_broker.service import Call, Services
from kadence_broker.share.sessions import SessionKey

__all__ = ["topics_of"]


def topics_of(services: Services, call: Call) -> set[str]:
    """Names of the topics that the request names, by name or by id, and of those in its session."""
    message = call.message
    found: set[str] = set()
    ids: set[bytes] = set()
    for field in ("topics", "topic_data", "subscribed_topic_names"):
        for each in getattr(message, field, None) or ():
            if isinstance(each, str):
                found.add(each)
                continue
            found.update(getattr(each, name, None) or "" for name in ("name", "topic", "topic_name"))
            ids.add(getattr(each, "topic_id", b""))
    if isinstance(message, DescribeShareGroupOffsetsRequest):
        found.update(topic.topic_name for group in message.groups for topic in group.topics or ())
    if isinstance(message, FetchRequest):
        for name, topic_id in services.sessions.topics(message.session_id):
            found.add(name)
            ids.add(topic_id)
    if isinstance(message, ShareFetchRequest):
        key = SessionKey(call.node_id, message.group_id or "", message.member_id or "")
        ids |= services.shares.sessions.topics(key)
    for topic_id in ids:
        topic = services.cluster.topic_by_id(topic_id)
        if topic is not None:
            found.add(topic.name)
    return found - {""}
