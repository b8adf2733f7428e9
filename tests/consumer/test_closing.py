"""close(leave=): who is told that a member goes (KIP-1092), on the brokers and in both group protocols."""

from __future__ import annotations

import asyncio

import pytest
from tests.consumer.support import Cluster, member_settings, poll_until

from kadence import Admin, AsyncConsumer


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


def members(cluster: Cluster, group: str) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return len(admin.describe_groups([group])[group].members)


@pytest.mark.needs("admin", "groups", "static members")
@pytest.mark.parametrize(
    ("instance", "leave", "left"),
    [
        (None, None, 0),
        (None, True, 0),
        (None, False, 1),
        ("static", None, 1),
        ("static", False, 1),
        ("static", True, 0),
    ],
)
def test_b7_close_tells_the_group_what_it_is_asked_to(
    cluster: Cluster, protocol: str, instance: str | None, leave: bool | None, left: int
) -> None:
    topic, group = cluster.topic(1), cluster.name("g")
    subject = cluster.consumer(group_instance_id=instance, **member_settings(protocol, group_id=group))
    subject.subscribe(topic)
    poll_until(subject, lambda: len(subject.assignment()) == 1)
    assert members(cluster, group) == 1
    subject.close(leave=leave)
    assert members(cluster, group) == left


@pytest.mark.needs("admin", "groups")
def test_b7_close_tells_the_group_what_it_is_asked_to_with_asyncio(cluster: Cluster) -> None:
    topic, group = cluster.topic(1), cluster.name("g")

    async def work() -> None:
        subject = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group)
        await subject.subscribe(topic)
        while not subject.assignment():
            await subject.poll(0.1)
        await subject.close(leave=False)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert members(cluster, group) == 1
