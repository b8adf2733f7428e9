"""The producer of a consumer's dead letters: the same cluster, the same login. It knows the consumer's keys only."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from kadence.client.surroundings import here
from kadence.config import ClientConfig, ConsumerConfig
from kadence.producer.producer import Producer

__all__ = ["producer_for"]

_TRANSACTION_TIMEOUT_MS: Final = 10_000
"""As that of Kafka Streams (KIP-447): so long the offsets of a member that died amid a transaction cannot be read."""


_MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one record: what its memory takes. The topic decides what is too large, and no default of the producer's."""


def producer_for(config: ConsumerConfig, transactional_id: str | None = None) -> Any:
    """A producer with what the consumer was told of its cluster."""
    given = {
        item.name.replace("_", "."): value
        for item in fields(ClientConfig)
        if (value := getattr(config, item.name)) != item.default
    }
    given["client.id"] = f"{config.client_id}-dead-letters"
    given["max.request.size"] = _MOST_BYTES
    if transactional_id is not None:
        given |= {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "client.id": f"{config.client_id}-transactions",
        }
    return (here().new_sender or Producer)(given)
