"""ElectLeaders (43): partitions without a leader get their replica back, if its node runs (KIP-460). v2 flexible.

Each partition has one replica here, so the preferred leader and any eligible one are the same.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kadence_broker.service import Call, Handler, Services
from kadence_broker.storage import Partition

__all__ = ["HANDLER"]

_PREFERRED, _UNCLEAN = 0, 1
_WORDS = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: "This partition does not exist.",
    codes.ELECTION_NOT_NEEDED: "The partition has its leader.",
    codes.PREFERRED_LEADER_NOT_AVAILABLE: "The node that has the replica is down.",
    codes.ELIGIBLE_LEADERS_NOT_AVAILABLE: "The node that has the replica is down.",
    codes.INVALID_REQUEST: "Elections are of the types preferred (0) and unclean (1).",
}


def handle(services: Services, call: Call) -> ElectLeadersResponse | None:
    request: ElectLeadersRequest = call.message
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return refuse(call, codes.INVALID_REQUEST)
    if request.topic_partitions is None:
        asked = [
            (topic.name, [each.index for each in topic.partitions])
            for topic in services.cluster.topics.values()
        ]
    else:
        asked = [(each.topic, each.partitions) for each in request.topic_partitions]
    elected: dict[Partition, int] = {}
    results = []
    for name, indexes in asked:
        found = [
            (index, _elect(services, services.cluster.partition(name, index), request, elected))
            for index in indexes
        ]
        if request.topic_partitions is None:
            # Asked for all, Kafka leaves out those that need none.
            found = [each for each in found if each[1] != codes.ELECTION_NOT_NEEDED]
        results.append(_result(name, found))
    try:
        services.cluster.lead(elected)
    except OSError:
        return refuse(call, codes.KAFKA_STORAGE_ERROR)
    services.leaders_changed(elected)
    services.reply_durably(
        call, ElectLeadersResponse(error_code=codes.NONE, replica_election_results=results)
    )
    return None


def _elect(
    services: Services,
    partition: Partition | None,
    request: ElectLeadersRequest,
    elected: dict[Partition, int],
) -> int:
    """Elect the partition's replica if it has no leader; it is then added to ``elected``. Returns the error code."""
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader_id >= 0:
        return codes.ELECTION_NOT_NEEDED
    if partition.replica_id not in services.cluster.nodes:
        is_preferred = request.election_type == _PREFERRED
        return codes.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else codes.ELIGIBLE_LEADERS_NOT_AVAILABLE
    elected[partition] = partition.replica_id
    return codes.NONE


def _result(name: str, found: list[tuple[int, int]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=name,
        partition_result=[
            PartitionResult(partition_id=index, error_code=code, error_message=_WORDS.get(code))
            for index, code in found
        ],
    )


def refuse(call: Call, code: int) -> ElectLeadersResponse:
    # Version 0 has no error of its own.
    return ElectLeadersResponse(
        error_code=code if call.version >= 1 else codes.NONE,
        replica_election_results=[
            _result(each.topic, [(index, code) for index in each.partitions])
            for each in call.message.topic_partitions or ()
        ],
    )


HANDLER = Handler(ElectLeadersRequest, handle, refuse)
