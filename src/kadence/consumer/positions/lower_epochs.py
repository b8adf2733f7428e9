"""Leader epochs that went back for good: a cluster that was restored from a copy, under the same topic ids.

One answer with an older epoch is older news, from a broker that is behind (KIP-320), and is ignored. But when every
answer stays below what we know, for longer than any broker is behind, then what we know is out of date and must be
forgotten. Otherwise we would wait for that leader for ever, and each fetch would end with UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from kadence.connection.cluster import Cluster, forget_epochs
from kadence.logs import logger
from kadence.protocol.metadata import MetadataResponse
from kadence.types import TopicPartition

__all__ = ["LowerLeaderEpochs"]

log = logger("kadence.consumer.metadata")

_PATIENCE_MS: Final = 10_000
_ANSWERS: Final = 3
"""So many answers in a row, at least: two that are minutes apart may both come from the same stale broker."""


class LowerLeaderEpochs:
    """Counts the answers that are behind, for each partition."""

    def __init__(self) -> None:
        self._behind: dict[TopicPartition, tuple[int, int]] = {}

    def consider(self, now: int, cluster: Cluster, response: MetadataResponse) -> Cluster:
        """The cluster to apply the answer to: without the epochs that have been contradicted for long enough."""
        behind = _behind(cluster, response)
        counted: dict[TopicPartition, tuple[int, int]] = {}
        given_up = set()
        for partition in behind:
            since, answers = self._behind.get(partition, (now, 0))
            if now - since >= _PATIENCE_MS and answers + 1 >= _ANSWERS:
                given_up.add(partition)
            else:
                counted[partition] = (since, answers + 1)
        told = {topic.name for topic in response.topics}
        self._behind = {p: at for p, at in self._behind.items() if p.topic not in told} | counted
        if not given_up:
            return cluster
        log.warning(
            "the leader epochs of %s are lower than before: the cluster seems to be restored from an older state",
            ", ".join(str(partition) for partition in sorted(given_up)[:5]),
        )
        return forget_epochs(cluster, given_up)


def _behind(cluster: Cluster, response: MetadataResponse) -> list[TopicPartition]:
    found = []
    for topic in response.topics:
        known = cluster.topics.get(topic.name or "")
        if known is None or known.topic_id != topic.topic_id:
            continue
        for told in topic.partitions:
            partition = TopicPartition(known.name, told.partition_index)
            info = cluster.partition(partition)
            if (
                info is not None
                and info.leader_epoch is not None
                and 0 <= told.leader_epoch < info.leader_epoch
            ):
                found.append(partition)
    return found
