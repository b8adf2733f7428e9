"""A first run is killed, and the second one waits for its partitions: the log says once for whom, and for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.virtual import VirtualCluster

from kadence.consumer.group import held_back

pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]

WAITS = {"classic": "has been waiting for 8 s for other members", "consumer": "no partitions for 8 s"}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> object:
    caplog.set_level(logging.WARNING, logger="kadence.consumer")
    return lambda: [each.getMessage() for each in caplog.records if "If " in each.getMessage()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_wait_for_a_dead_member_is_explained_once(
    cluster: VirtualCluster, said: object, protocol: str
) -> None:
    assert callable(said)
    topic, group = cluster.topic(partitions=1), cluster.name("g")
    settings: dict[str, Any] = {"group_id": group, "group_protocol": protocol}
    if protocol == "classic":
        settings["session_timeout_ms"] = 30_000
    first = cluster.consumer(client_id="first-run", **settings)
    first.subscribe(topic)
    while not first.assignment():
        first.poll(1)
    assert said() == []
    first.program.kill()
    second = cluster.consumer(client_id="second-run", **settings)
    second.subscribe(topic)
    while not second.assignment():
        second.poll(1)
    (text,) = said()
    assert f"group {group!r}" in text
    assert WAITS[protocol] in text
    assert "client 'first-run' at " in text
    assert "second-run" not in text
    if protocol == "consumer":
        assert f"has {topic}-0." in text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_members_are_alive_is_not_spoken_of(
    cluster: VirtualCluster, said: object, protocol: str
) -> None:
    assert callable(said)
    topic, group = cluster.topic(), cluster.name("g")
    members = [cluster.consumer(group_id=group, group_protocol=protocol) for _ in range(3)]
    for member in members:
        member.subscribe(topic)
    while not all(member.assignment() for member in members):
        for member in members:
            member.poll(0.2)
    for _ in range(3 * held_back._LONG_MS // 1_000):
        for member in members:
            member.poll(0.5)
    assert said() == []
