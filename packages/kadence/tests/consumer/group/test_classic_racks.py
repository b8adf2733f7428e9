"""KIP-881 in the leader: racks reach the assignor, and only replicas that really move are a rebalance (pain 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from tests.worlds.classic import Bench, lead
from tests.worlds.cluster import NODE, cluster_of

from kadence.connection.cluster import Cluster
from kadence.connection.request import Request
from kadence.consumer.assignors import MemberSubscription
from kadence.consumer.assignors.embedded import decode_assignment, encode_subscription
from kadence.layered import Layered
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponseMember
from kadence.protocol.sync_group import SyncGroupRequest
from kadence.types import Node

RACKS = {1: "r1", 2: "r2", 3: "r3"}


def scattered(racks: Mapping[int, str | None], *placed: tuple[int, ...], down: int | None = None) -> Cluster:
    """Topic t with a partition for each entry: the brokers that have a replica of it."""
    cluster = cluster_of({"t": len(placed)})
    topic = cluster.topics["t"]
    infos = tuple(
        dataclasses.replace(info, replicas=replicas)
        for info, replicas in zip(topic.partitions, placed, strict=True)
    )
    nodes = {NODE: Node(NODE, "b", 1)} | {n: Node(n, "b", 1, rack) for n, rack in racks.items() if n != down}
    return dataclasses.replace(
        cluster, nodes=nodes, topics=Layered({"t": dataclasses.replace(topic, partitions=infos)})
    )


def member_in(name: str, rack: str | None) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=name, metadata=encode_subscription(MemberSubscription(frozenset("t"), rack=rack))
    )


def leading(cluster: Cluster, *racks: str | None) -> tuple[Bench, Request]:
    bench = Bench()
    bench.member.metadata.cluster = cluster
    lead(bench, *(member_in(f"m-{n}", rack) for n, rack in enumerate(racks, 1)))
    bench.turn()
    return bench, bench.ask(SyncGroupRequest)


def test_members_get_what_is_near() -> None:
    _, sync = leading(scattered(RACKS, (2,), (1,), (2,), (1,)), "r1", "r2")
    given = {
        a.member_id: sorted(p.partition for p in decode_assignment(a.assignment))
        for a in sync.message.assignments
    }
    assert given == {"m-1": [1, 3], "m-2": [0, 2]}


BEFORE = ((1, 2), (2, 3))
CHANGES: dict[str, tuple[Any, bool]] = {
    "moved to another rack": (scattered(RACKS, (1, 3), (2, 3)), True),
    "moved within the racks": (scattered(RACKS | {4: "r1"}, (4, 2), (2, 3)), False),
    "a broker is restarted": (scattered(RACKS, *BEFORE, down=2), False),
    "a broker forgot its rack": (scattered({**RACKS, 2: None}, *BEFORE), False),
}


@pytest.mark.parametrize(("changed", "rebalances"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("rack", ["r1", None])
def test_pain_3_only_replicas_in_other_racks_are_a_change(
    changed: Cluster, rebalances: bool, rack: str | None
) -> None:
    bench, sync = leading(scattered(RACKS, *BEFORE), rack)
    bench.synced(sync, 0, 1)
    bench.turn()
    bench.member.metadata.cluster = changed
    joins = [r for r in bench.turn() if isinstance(r.message, JoinGroupRequest)]
    assert len(joins) == (rebalances and rack is not None)


def test_a_broker_that_comes_back_where_it_was_is_no_change_either() -> None:
    bench, sync = leading(scattered(RACKS, *BEFORE, down=2), "r1")
    bench.synced(sync, 0, 1)
    bench.turn()
    bench.member.metadata.cluster = scattered(RACKS, *BEFORE)
    assert [r for r in bench.turn() if isinstance(r.message, JoinGroupRequest)] == []
