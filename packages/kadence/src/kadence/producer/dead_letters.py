"""The producer of a consumer's dead letter records: same cluster, same login. It takes the consumer's settings."""

from __future__ import annotations

from typing import Any, Final

from kadence.client.surroundings import here
from kadence.config import ClientConfig
from kadence.lazy_dataclasses import fields
from kadence.producer.producer import Producer

__all__ = ["producer_for"]

_TRANSACTION_TIMEOUT_MS: Final = 10_000
"""As in Kafka Streams (KIP-447): for this long the offsets of a member that died in a transaction cannot be read."""


_BLOCK_MS: Final = 5_000
"""No call may wait longer than brokers leave a transaction open. Calls that must not fail are repeated."""

_DELIVERY_MS: Final = 8_000
"""A record of a transaction that cannot be written in this time (its topic was deleted, for example) fails before
the brokers abort the transaction: the others can be committed in another one."""

_MOST_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of one record: a bound for memory. The topic decides which records are too large, not the
producer's default."""


def producer_for(config: ClientConfig, transactional_id: str | None = None) -> Any:
    """Make a producer with the consumer's connection settings."""
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
            "max.block.ms": _BLOCK_MS,
            "delivery.timeout.ms": _DELIVERY_MS,
            "request.timeout.ms": min(config.request_timeout_ms, _DELIVERY_MS - 1_000),
            "client.id": f"{config.client_id}-transactions",
        }
    return (here().new_sender or Producer)(given)
