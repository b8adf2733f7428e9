"""Leader epochs that went back for good: a cluster that was restored from a copy, under the same topic ids. Sans-IO.

One answer with an older epoch is older news, from a broker that is behind (KIP-320), and is ignored. But when every
answer stays below what we know, for longer than any broker is behind, then what we know is out of date and must be
forgotten. Otherwise a client would wait for that leader for ever: each fetch would end with UNKNOWN_LEADER_EPOCH, and
each batch would go to a broker that does not lead its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kadence.connection.cluster import Cluster
from kadence.protocol.metadata import MetadataResponse
from kadence.types import TopicPartition

__all__ = ["LowerLeaderEpochs"]

_PATIENCE_MS: Final = 10_000
_ANSWERS: Final = 3
"""So many answers in a row, at least: two that are minutes apart may both come from the same stale broker."""


class LowerLeaderEpochs:
    """Counts the answers that are behind, for each partition."""

    def __init__(self) -> None:
        self._behind: dict[TopicPartition, tuple[int, int]] = {}

    def given_up(self, now: int, cluster: Cluster, response: MetadataResponse) -> list[TopicPartition]:
        """The partitions whose known epochs have been contradicted for long enough, with this answer the last."""
        counted: dict[TopicPartition, tuple[int, int]] = {}
        given_up = []
        for partition in _behind(cluster, response):
            since, answers = self._behind.get(partition, (now, 0))
            if now - since >= _PATIENCE_MS and answers + 1 >= _ANSWERS:
                given_up.append(partition)
            else:
                counted[partition] = (since, answers + 1)
        told = {topic.name for topic in response.topics}
        self._behind = {p: at for p, at in self._behind.items() if p.topic not in told} | counted
        return given_up


def _behind(cluster: Cluster, response: MetadataResponse) -> Iterator[TopicPartition]:
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
                yield partition
