"""The program under test: orders become shipments."""

from __future__ import annotations

from typing import Any

from kadence import Consumer, Producer


def ship(settings: dict[str, Any], group: str, orders: str, shipments: str, *, patience: float = 5) -> int:
    """Ship what is there, and commit each order when its shipment is written.

    Args:
        settings: how to reach the brokers, under Kafka's keys.
        group: the group that commits.
        orders: the topic to read.
        shipments: the topic to write.
        patience: seconds without an order after which it ends.

    Returns:
        How many orders were shipped.
    """
    shipped = 0
    with (
        Consumer(
            settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        Producer(settings) as producer,
    ):
        consumer.subscribe(orders)
        for order in consumer.records(idle_timeout=patience):
            if not order.value:
                raise ValueError(f"the order at offset {order.offset} is empty")
            producer.send(shipments, order.value + b" shipped", key=order.key).result(timeout=10)
            consumer.commit(order)
            shipped += 1
    return shipped
