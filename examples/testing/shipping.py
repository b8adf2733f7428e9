"""The program under test: orders become shipments."""

from __future__ import annotations

from typing import Any

from kadence import Consumer, Producer


def ship(settings: dict[str, Any], group: str, orders: str, shipments: str, *, most: int) -> int:
    """Ship orders, and commit each once its shipment is written. End after ``most``, or after 30 s without an order.

    Args:
        settings: how to reach the brokers, under Kafka's keys.
        group: the group that commits.
        orders: the topic to read.
        shipments: the topic to write.
        most: how many orders to ship at most.

    Returns:
        How many were shipped.
    """
    shipped = 0
    with (
        Consumer(
            settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        Producer(settings) as producer,
    ):
        consumer.subscribe(orders)
        for order in consumer.records(idle_timeout=30):
            if not order.value:
                raise ValueError(f"the order at offset {order.offset} is empty")
            producer.send(shipments, order.value + b" shipped", key=order.key).result(timeout=10)
            consumer.commit(order)
            shipped += 1
            if shipped == most:
                break
    return shipped
