"""The producer that a consumer writes its dead letters with: the same cluster, the same login.

Beside the front door because the consumer and the producer do not know each other.
"""

from __future__ import annotations

from dataclasses import fields

from kadence.config import ClientConfig, ConsumerConfig
from kadence.producer import Producer

__all__ = ["make"]


def make(config: ConsumerConfig) -> Producer:
    """A producer with what the consumer was told of its cluster."""
    given = {
        item.name.replace("_", "."): value
        for item in fields(ClientConfig)
        if (value := getattr(config, item.name)) != item.default
    }
    return Producer({**given, "client.id": f"{config.client_id}-dead-letters"})
