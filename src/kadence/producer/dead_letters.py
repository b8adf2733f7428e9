"""The producer of a consumer's dead letters: the same cluster, the same login. It knows the consumer's keys only."""

from __future__ import annotations

from dataclasses import fields

from kadence.config import ClientConfig, ConsumerConfig
from kadence.producer.producer import Producer

__all__ = ["producer_for"]


def producer_for(config: ConsumerConfig) -> Producer:
    """A producer with what the consumer was told of its cluster."""
    given = {
        item.name.replace("_", "."): value
        for item in fields(ClientConfig)
        if (value := getattr(config, item.name)) != item.default
    }
    return Producer({**given, "client.id": f"{config.client_id}-dead-letters"})
