"""KIP-848's groups on the embedded broker: what a restart keeps, and what the broker refuses to be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import FAST_GROUPS
from tests.patience import PATIENCE

from kadence import Broker, Consumer, Producer
from kadence.errors import ConfigError


def member(broker: Broker) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        group_protocol="consumer",
        group_instance_id="i",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def test_a_restart_keeps_groups_members_and_offsets(tmp_path: Path) -> None:
    """A static member's place is kept for its session, by a broker that was not there meanwhile."""
    with Broker(topics={"t": 2}, config=FAST_GROUPS, data_dir=tmp_path) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(4):
                producer.send("t", b"%d" % number, partition=number % 2)
        with member(broker) as consumer:
            consumer.subscribe("t")
            seen = 0
            while seen < 4:
                seen += len(consumer.poll(PATIENCE))
            consumer.commit()
        before = broker.describe_groups()["g"]
    assert "epoch 2, 1 members" in before

    with Broker(config=FAST_GROUPS, data_dir=tmp_path) as broker:
        assert broker.describe_groups()["g"] == before
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"new", partition=0)
        with member(broker) as consumer:
            consumer.subscribe("t")
            records = consumer.poll(PATIENCE)
            assert [record.value for record in records] == [b"new"]
        assert broker.describe_groups()["g"] == before, "no rebalance"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"group.consumer.session.timeout.ms": 1_000}, "must be between 45000 and 60000"),
        ({"group.consumer.heartbeat.interval.ms": 20_000}, "must be between 1000 and 15000"),
        ({"group.consumer.assignors": "uniform,mine"}, "knows uniform and range"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "'classic' or 'classic,consumer'"),
        ({"group.consumer.migration.policy": "sideways"}, "bidirectional, upgrade, downgrade or disabled"),
    ],
)
def test_values_that_contradict_each_other_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Broker(config=config)
