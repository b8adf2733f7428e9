"""Configuration: one table, read by the clients, the error messages and the reference page.

Keys are Kafka's dotted names in a dict, or the same in snake_case as keyword arguments. Every field of a client's
class is a row of the table (`table.key`): name, type, default, bounds, meaning, since when. Unknown keys (the error
names the nearest known one), values outside their bounds and contradictory values are refused, because a key
that is silently ignored would not be noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.config.client import AdminConfig, ClientConfig, generated_client_id
from kadence.config.consumer import ConsumerConfig
from kadence.config.table import Key, keys
from kadence.security import Secret

if TYPE_CHECKING:
    from kadence.config.producer import ProducerConfig
    from kadence.config.share_consumer import ShareConsumerConfig

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Key",
    "ProducerConfig",
    "Secret",
    "ShareConsumerConfig",
    "generated_client_id",
    "keys",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Keys of other clients when they are first used: a consumer needs none of them."""
        home = {"ProducerConfig": "producer", "ShareConsumerConfig": "share_consumer"}.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kadence.loading import load

        found = globals()[name] = getattr(load(f"kadence.config.{home}"), name)
        return found
