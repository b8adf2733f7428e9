"""What another subscribe() changes at once, and what it keeps (D4), on the brokers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.consumer.support import Cluster, member_settings, poll_until
from tests.patience import PATIENCE

from kadence import AsyncConsumer, Consumer
from kadence.errors import WakeupError

pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


def topics_of(consumer: Consumer, way: str) -> set[str]:
    if way == "columns":
        return set(consumer.poll_arrow(0.1)["topic"].to_pylist())
    return {record.topic for record in consumer.poll(0.1)}


@pytest.mark.parametrize("way", ["records", "deserialised", "columns"])
def test_after_another_subscribe_no_poll_returns_records_of_a_topic_that_left(
    cluster: Cluster, protocol: str, way: str
) -> None:
    before, after = cluster.topic(1), cluster.topic(1)
    for topic in (before, after):
        cluster.produce(topic, 100, partitions=1)
    given = {"value_deserializer": bytes} if way == "deserialised" else {}
    one = cluster.consumer(
        max_poll_records=5,
        **given,
        **member_settings(protocol, group_id=cluster.name("g"), heartbeat_interval_ms=200),
    )
    one.subscribe(before)
    poll_until(one, lambda: topics_of(one, way) == {before})
    one.subscribe([after])
    seen: set[str] = set()
    end = time.monotonic() + PATIENCE
    while after not in seen:
        assert time.monotonic() < end
        seen |= topics_of(one, way)
    assert seen == {after}


def test_a_wakeup_is_for_the_poll_and_not_for_subscribe(cluster: Cluster, protocol: str) -> None:
    """subscribe() waits for no broker; there is nothing to end."""
    one = cluster.consumer(**member_settings(protocol, group_id=cluster.name("g")))
    one.wakeup()
    one.subscribe(cluster.topic(1))
    with pytest.raises(WakeupError):
        one.poll(PATIENCE)


@pytest.mark.brokers("embedded")
def test_the_same_with_asyncio(cluster: Cluster, protocol: str) -> None:
    before, after = cluster.topic(1), cluster.topic(1)
    for topic in (before, after):
        cluster.produce(topic, 100, partitions=1)
    given: dict[str, Any] = member_settings(
        protocol, group_id=cluster.name("g"), heartbeat_interval_ms=200, auto_offset_reset="earliest"
    )

    async def work() -> set[str]:
        async with AsyncConsumer(
            bootstrap_servers=cluster.bootstrap_servers, max_poll_records=5, **given
        ) as one:
            await one.subscribe(before)
            while not await one.poll(1):
                pass
            await one.subscribe([after])
            seen: set[str] = set()
            while after not in seen:
                seen |= {record.topic for record in await one.poll(1)}
            return seen

    assert asyncio.run(asyncio.wait_for(work(), PATIENCE)) == {after}
