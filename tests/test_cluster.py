"""The cluster value: newer news wins, older news does not, whoever brings it."""

from __future__ import annotations

from kadence.cluster import Cluster, apply
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import Node, TopicPartition

ID, OTHER = b"1" * 16, b"2" * 16


def told(
    leader: int, epoch: int, *, topic_id: bytes = ID, error: int = 0, name: str = "t"
) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
        )
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=1, host="a", port=1),
            MetadataResponseBroker(node_id=2, host="b", port=2),
        ],
        topics=[
            MetadataResponseTopic(
                name=name, topic_id=topic_id, error_code=error, partitions=[] if error else partitions
            )
        ],
        controller_id=1,
        cluster_id="c",
    )


PARTITION = TopicPartition("t", 0)


def test_an_answer_becomes_the_value() -> None:
    cluster = apply(Cluster(), told(1, 3), ["t"])
    assert cluster.nodes[2] == Node(2, "b", 2)
    assert (cluster.leader(PARTITION), cluster.cluster_id, cluster.controller_id) == (1, "c", 1)
    info = cluster.partition(PARTITION)
    assert info is not None
    assert (info.leader_epoch, info.replicas, info.in_sync_replicas) == (3, (1, 2), (1,))
    assert cluster.name_of(ID) == "t"
    assert cluster.partitions_for("absent") == ()


def test_an_older_leader_epoch_never_replaces_a_newer_one() -> None:
    cluster = apply(apply(Cluster(), told(2, 5), ["t"]), told(1, 4), ["t"])
    assert cluster.leader(PARTITION) == 2
    assert apply(cluster, told(1, 6), ["t"]).leader(PARTITION) == 1


def test_a_recreated_topic_starts_anew() -> None:
    cluster = apply(apply(Cluster(), told(2, 5), ["t"]), told(1, 0, topic_id=OTHER), ["t"])
    assert cluster.leader(PARTITION) == 1


def test_no_leader_is_none() -> None:
    assert apply(Cluster(), told(-1, 3), ["t"]).leader(PARTITION) is None


def test_an_answer_about_all_topics_forgets_the_others() -> None:
    cluster = apply(apply(Cluster(), told(1, 1), ["t"]), told(1, 1, name="u", topic_id=OTHER), ["u"])
    assert set(cluster.topics) == {"t", "u"}
    assert set(apply(cluster, told(1, 1), None).topics) == {"t"}


def test_passing_trouble_keeps_what_is_known_and_absence_does_not() -> None:
    cluster = apply(Cluster(), told(1, 1), ["t"])
    assert apply(cluster, told(0, 0, error=ec.LEADER_NOT_AVAILABLE), ["t"]).leader(PARTITION) == 1
    gone = apply(cluster, told(0, 0, error=ec.UNKNOWN_TOPIC_OR_PARTITION), ["t"])
    assert gone.leader(PARTITION) is None
    assert gone.topics["t"].error_code == ec.UNKNOWN_TOPIC_OR_PARTITION
