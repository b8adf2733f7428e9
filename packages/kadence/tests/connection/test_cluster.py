"""The cluster value: newer news wins, older news does not, whoever brings it."""

from __future__ import annotations

from collections.abc import Iterator

from kadence.connection.cluster import Cluster, Topic, apply, follow, forget_brokers, forget_epochs
from kadence.layered import Layered
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kadence.types import Node, TopicPartition
from kadence.wire import ZERO_UUID

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
    assert cluster.names_of([ID, OTHER, ZERO_UUID]) == {ID: "t"}
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


def test_kip951_a_leader_that_is_told_beside_an_error_is_followed_when_it_is_news() -> None:
    cluster = apply(Cluster(), told(1, 5), ["t"])
    moved = follow(cluster, PARTITION, 2, 6, {})
    info = moved.partition(PARTITION)
    assert info is not None
    assert (info.leader, info.leader_epoch, info.replicas) == (2, 6, (1, 2))
    assert cluster.leader(PARTITION) == 1, "a value"
    new = follow(cluster, PARTITION, 3, 6, {3: Node(3, "c", 3)})
    assert (new.leader(PARTITION), new.nodes[3]) == (3, Node(3, "c", 3))
    elsewhere = follow(cluster, PARTITION, 2, 6, {2: Node(2, "moved", 9)})
    assert elsewhere.nodes[2] == Node(2, "moved", 9)


def test_kip951_what_is_no_news_or_leads_nowhere_is_not_followed() -> None:
    cluster = apply(Cluster(), told(1, 5), ["t"])
    for leader, epoch in ((2, 5), (2, 4), (2, -1), (-1, 6), (9, 6)):
        assert follow(cluster, PARTITION, leader, epoch, {}) is cluster
    assert follow(cluster, TopicPartition("absent", 0), 2, 6, {}) is cluster


def test_kip1102_forgetting_the_brokers_keeps_the_topics_and_believes_who_answers_next() -> None:
    cluster = forget_brokers(apply(Cluster(), told(2, 5), ["t"]))
    assert (dict(cluster.nodes), cluster.leader(PARTITION), len(cluster.partitions_for("t"))) == ({}, None, 1)
    restored = apply(cluster, told(1, 3), ["t"])
    info = restored.partition(PARTITION)
    assert info is not None
    assert (info.leader, info.leader_epoch) == (1, 3)


def test_an_answer_without_news_leaves_the_very_same_topics() -> None:
    cluster = apply(Cluster(), told(1, 5), ["t"])
    for answer, requested in ((told(1, 5), ["t"]), (told(1, 5), None), (told(0, 4), ["t"])):
        after = apply(cluster, answer, requested)
        assert after.topics is cluster.topics
        assert after.says_as(cluster)
    assert not apply(cluster, told(2, 6), ["t"]).says_as(cluster)
    moved = told(1, 5)
    moved.brokers[0].port = 7
    assert not apply(cluster, moved, ["t"]).says_as(cluster)


class Unread(dict[str, Topic]):
    """Topics of which nobody may read but one at a time."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics are looked at")

    keys = values = items = copy = __iter__  # type: ignore[assignment]


def test_an_answer_about_one_topic_costs_as_much_as_that_topic() -> None:
    many = apply(Cluster(), told(1, 1), ["t"]).topics.changed({f"{n}": Topic(f"{n}") for n in range(2_000)})
    cluster = Cluster(topics=Layered(Unread(many)))
    after = apply(cluster, told(2, 2), ["t"])
    assert after.leader(PARTITION) == 2
    assert after.topics["7"] is many["7"]
    assert apply(after, told(1, 1, name="new"), ["new"]).leader(TopicPartition("new", 0)) == 1
    assert follow(after, PARTITION, 1, 3, {}).leader(PARTITION) == 1
    assert forget_epochs(after, [("t", 0)]).leader(PARTITION) is None
    assert cluster.leader(PARTITION) == 1, "whoever holds an older cluster still sees that"
