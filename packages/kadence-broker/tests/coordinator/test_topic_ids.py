"""Topics that a request names by id, and topics that do not exist: the coordinator judges them by its port."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.coordinator import World, id_of

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_commit_record import OffsetCommitValue
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

UNKNOWN = b"?" * 16


def commit(
    world: World, *topics: OffsetCommitRequestTopic, version: int, generation: int = -1
) -> list[tuple[str, bytes, list[int]]]:
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id="", topics=list(topics)
    )
    response = world.send(request, version).response
    return [
        (each.name, each.topic_id, [partition.error_code for partition in each.partitions])
        for each in response.topics
    ]


def topic(name: str = "", topic_id: bytes = bytes(16), partitions: tuple[int, ...] = (0,)) -> Any:
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in partitions
        ],
    )


def fetch(
    world: World, topics: list[OffsetFetchRequestTopics] | None
) -> list[tuple[bytes, list[tuple[int, int]]]]:
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    (found,) = world.send(OffsetFetchRequest(groups=[group]), 10).response.groups
    return [
        (each.topic_id, [(one.committed_offset, one.error_code) for one in each.partitions])
        for each in found.topics
    ]


def test_offsets_are_kept_and_told_by_topic_id() -> None:
    world = World()
    found = commit(world, topic(topic_id=id_of("t"), partitions=(0, 2)), topic(topic_id=UNKNOWN), version=10)
    assert found == [
        ("", id_of("t"), [codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION]),
        ("", UNKNOWN, [codes.UNKNOWN_TOPIC_ID]),
    ]
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (id_of("t"), UNKNOWN)]
    assert fetch(world, asked) == [
        (id_of("t"), [(7, codes.NONE)]),
        (UNKNOWN, [(-1, codes.UNKNOWN_TOPIC_ID)]),
    ]


def test_all_offsets_by_id_are_those_of_topics_that_exist() -> None:
    world = World()
    commit(world, topic("gone"), topic("t"), version=9)
    world.topics.remove("gone")
    assert fetch(world, None) == [(id_of("t"), [(7, codes.NONE)])]


def test_unknown_topics_are_refused_one_partition_at_a_time() -> None:
    world = World()
    found = commit(world, topic("t", partitions=(0, 5, -1)), topic("unheard-of"), version=9)
    missing = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert [each for _, _, each in found] == [[codes.NONE, missing, missing], [missing]]


@pytest.mark.parametrize(
    ("name", "code"), [("t", codes.GROUP_ID_NOT_FOUND), ("x", codes.UNKNOWN_TOPIC_OR_PARTITION)]
)
def test_a_group_is_asked_only_about_what_exists(name: str, code: int) -> None:
    world = World()
    ((_, _, found),) = commit(world, topic(name), version=9, generation=3)
    assert found == [code]


def test_a_commit_where_nothing_exists_makes_no_group() -> None:
    world = World()
    commit(world, topic("unheard-of"), version=9)
    assert world.coordinator.groups == {}


# ------------------------------------------------------------ in transactions (KIP-1319)


def commit_in_transaction(
    world: World, *topics: tuple[str, bytes, tuple[int, ...]], version: int, generation: int = -1
) -> list[tuple[str, bytes, list[int]]]:
    asked = [
        TxnOffsetCommitRequestTopic(
            name, topic_id, [TxnOffsetCommitRequestPartition(each, committed_offset=7) for each in partitions]
        )
        for name, topic_id, partitions in topics
    ]
    request = TxnOffsetCommitRequest("tx", "g", 1, 0, generation, topics=asked)
    answered = world.send(request, version).response.topics
    return [
        (each.name, each.topic_id, [partition.error_code for partition in each.partitions])
        for each in answered
    ]


def test_offsets_in_a_transaction_are_kept_by_topic_id() -> None:
    world = World()
    found = commit_in_transaction(world, ("", id_of("t"), (0, 2)), ("", UNKNOWN, (0,)), version=6)
    assert found == [
        ("", id_of("t"), [codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION]),
        ("", UNKNOWN, [codes.UNKNOWN_TOPIC_ID]),
    ]


@pytest.mark.parametrize(("version", "topic_id"), [(5, bytes(16)), (6, id_of("t"))])
def test_what_a_transaction_stores_says_which_topic_it_is_of(version: int, topic_id: bytes) -> None:
    """Kafka 4.4 stores the id whatever the version; 4.3 stored none."""
    world = World()
    commit_in_transaction(world, ("t", topic_id, (0,)), version=version)
    (stored,) = [record.value for record in world.log if isinstance(record.value, OffsetCommitValue)]
    assert (stored.offset, stored.topic_id) == (7, id_of("t"))


@pytest.mark.parametrize(("version", "code"), [(5, codes.ILLEGAL_GENERATION), (6, codes.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_gone_commits_nothing_in_a_transaction(version: int, code: int) -> None:
    ((_, _, found),) = commit_in_transaction(World(), ("t", id_of("t"), (0,)), version=version, generation=3)
    assert found == [code]
