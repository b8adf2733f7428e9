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

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Key",
    "ProducerConfig",
    "Secret",
    "generated_client_id",
    "keys",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The producer's keys when they are first used: a consumer needs none of them."""
        if name == "ProducerConfig":
            from kadence.config.producer import ProducerConfig

            globals()[name] = ProducerConfig
            return ProducerConfig
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
