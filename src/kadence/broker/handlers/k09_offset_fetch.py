"""OffsetFetch (9). v2 all topics  v5 leader epoch  v7 require stable  v8 several groups  v9 member  v10 topic ids.

Topic ids become names on the way in and ids again on the way out.
"""

from __future__ import annotations

from kadence.broker.groups import coordinator_error
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> OffsetFetchResponse | None:
    request: OffsetFetchRequest = call.message
    if call.version < 8:
        code = coordinator_error(services, call, request.group_id)
        if code != codes.NONE:
            return refuse(call, code)
        services.coordination.serve(call)
        return None
    served: list[OffsetFetchRequestGroup] = []
    elsewhere: list[OffsetFetchResponseGroup] = []
    unknown: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        code = coordinator_error(services, call, group.group_id)
        if code != codes.NONE:
            elsewhere.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        if call.version >= 10:
            unknown[group.group_id] = _name_topics(services, group)
        served.append(group)
    request.groups = served

    def amend(response: OffsetFetchResponse) -> None:
        for found in response.groups:
            if call.version >= 10:
                _number_topics(services, found)
            found.topics.extend(unknown.get(found.group_id, []))
        response.groups.extend(elsewhere)

    services.coordination.serve(call, amend)
    return None


def _name_topics(services: Services, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Give the group's topics their names; topics with unknown ids are taken out and returned as errors."""
    unknown: list[OffsetFetchResponseTopics] = []
    for asked in list(group.topics or []):
        topic = services.cluster.topic_by_id(asked.topic_id)
        if topic is not None:
            asked.name = topic.name
            continue
        assert group.topics is not None
        group.topics.remove(asked)
        unknown.append(
            OffsetFetchResponseTopics(
                topic_id=asked.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, error_code=codes.UNKNOWN_TOPIC_ID
                    )
                    for index in asked.partition_indexes
                ],
            )
        )
    return unknown


def _number_topics(services: Services, found: OffsetFetchResponseGroup) -> None:
    for topic in found.topics:
        known = services.cluster.topics.get(topic.name)
        if known is not None:
            topic.topic_id = known.topic_id


def refuse(call: Call, code: int) -> OffsetFetchResponse:
    if call.version >= 8:
        groups = [
            OffsetFetchResponseGroup(group_id=each.group_id, error_code=code) for each in call.message.groups
        ]
        return OffsetFetchResponse(groups=groups)
    return OffsetFetchResponse(error_code=code)


HANDLER = Handler(OffsetFetchRequest, handle, refuse)
