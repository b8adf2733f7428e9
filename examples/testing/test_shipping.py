"""Tests with Kadence's fixtures for pytest. They need no Kafka: an embedded broker runs as long as pytest does.

    python -m pytest examples/testing
    python -m pytest examples/testing --kadence-broker localhost:9092

On such a broker the test with faults is skipped.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shipping import ship

from kadence import Record
from kadence.protocol import error_codes
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Faults
from kadence_testing.pytest_plugin import RecordTools, Simulations, Topics
from kadence_testing.simulation import Program, member, writer


@pytest.fixture
def topics(kadence_topics: Topics) -> tuple[str, str]:
    """Two topics of this test alone: of orders and of shipments."""
    return kadence_topics("orders", partitions=3), kadence_topics("shipments")


def test_orders_are_shipped(
    topics: tuple[str, str],
    kadence_settings: dict[str, Any],
    kadence_group: str,
    kadence_records: RecordTools,
) -> None:
    orders, shipments = topics
    kadence_records.write(orders, [("ann", "book"), ("bob", "pen")])
    assert ship(kadence_settings, kadence_group, orders, shipments, most=2) == 2
    shipped = {(record.key, record.value) for record in kadence_records.read(shipments)}
    assert shipped == {(b"ann", b"book shipped"), (b"bob", b"pen shipped")}


def test_after_a_bad_order_it_continues_where_it_committed(
    topics: tuple[str, str],
    kadence_settings: dict[str, Any],
    kadence_group: str,
    kadence_records: RecordTools,
) -> None:
    orders, shipments = topics
    kadence_records.write(orders, ["book", "", "pen"], partition=0)
    for _ in range(2):
        with pytest.raises(ValueError, match="the order at offset 1 is empty"):
            ship(kadence_settings, kadence_group, orders, shipments, most=3)
    assert [record.value for record in kadence_records.read(shipments)] == [b"book shipped"]


def test_a_broker_that_refuses_for_a_while_costs_no_order(
    topics: tuple[str, str],
    kadence_settings: dict[str, Any],
    kadence_group: str,
    kadence_records: RecordTools,
    kadence_faults: Faults,
) -> None:
    orders, shipments = topics
    kadence_records.write(orders, ["book"])
    kadence_faults.error(ProduceRequest, error_codes.NOT_LEADER_OR_FOLLOWER, times=3)
    assert ship(kadence_settings, kadence_group, orders, shipments, most=1) == 1
    assert len(kadence_records.read(shipments)) == 1


def test_a_member_that_is_killed_costs_no_order(kadence_simulation: Simulations) -> None:
    """About a minute of virtual time with two members, in a second or two."""

    async def pack(program: Program, order: Record) -> None:
        await asyncio.sleep(0.2)

    simulation = kadence_simulation(topics={"orders": 4})
    packer = member("packing", ["orders"], pack)
    first = simulation.start("first", packer)
    simulation.start("second", packer)
    simulation.start("shop", writer(["orders"], count=50, pause_s=0.05))
    simulation.run(5)
    first.kill()
    simulation.run(60)
    simulation.check()
