"""The producer's keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kadence.config.client import ClientConfig
from kadence.config.table import INT32_MAX, key

__all__ = ["ProducerConfig"]

_LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 12), "zstd": (1, 22)}
"""Lowest and highest ``compression.level`` of each compression that has levels."""

_PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
    "round_robin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The producer's keys."""

    acks: str = key(
        "choice",
        "all",
        "Which replicas must have a record before it counts.",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = key("bool", True, "Retries cannot repeat or reorder records.", since="KIP-98")
    compression_type: str = key(
        "choice",
        "none",
        "Compression of batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_level: int | None = key(
        "int",
        None,
        "How hard to compress: 1 to 9 for gzip, 1 to 12 for lz4, 1 to 22 for zstd; -1, as not set, takes the codec's "
        "default.",
        low=-1,
        high=22,
        since="KIP-390",
    )
    key_serializer: Any = key(
        "serializer",
        None,
        "Makes bytes of keys: a callable, an object with serialize(topic, headers, data), or the name of a ready one "
        "(kadence.serializers; Java's class names too). Keys must be bytes without.",
    )
    value_serializer: Any = key("serializer", None, "The same for values.")
    partitioner: Any = key(
        "partitioner",
        "murmur2_random",
        "How a key chooses the partition. murmur2_random is Kafka's way; consistent_random is librdkafka's default, "
        "and so confluent-kafka's. Those without _random put all records without a key into one partition. A callable "
        "gets (key, all_partitions, available_partitions) and returns a partition, or None for any.",
        choices=_PARTITIONERS,
        since="librdkafka",
    )
    partitioner_ignore_keys: bool = key(
        "bool", False, "Records choose partitions as if they had no key.", since="KIP-794"
    )
    retries: int = key(
        "int",
        INT32_MAX,
        "How often records are sent again after an error that may pass; delivery.timeout.ms bounds it, too.",
        low=0,
        high=INT32_MAX,
    )
    linger_ms: int = key("int", 5, "Wait so long for more records of the same partition.", low=0)
    batch_size: int = key("int", 131_072, "Most uncompressed bytes of one batch.", low=1)
    buffer_memory: int = key("int", 33_554_432, "Most bytes waiting to be sent; send() blocks above.", low=1)
    metadata_max_idle_ms: int = key(
        "int",
        300_000,
        "A topic that nothing was sent to for so long is forgotten at the next refresh of metadata.",
        low=5_000,
        since="KIP-526",
    )
    max_block_ms: int = key("int", 60_000, "How long send() may block for memory or metadata.", low=0)
    max_request_size: int = key("int", 1_048_576, "Most bytes of one record or request.", low=1)
    delivery_timeout_ms: int = key(
        "int",
        120_000,
        "A record fails when it is not acknowledged by then.",
        low=1,
        since="KIP-91",
    )
    max_in_flight_requests_per_connection: int = key(
        "int", 5, "Requests sent before the first is answered.", low=1
    )

    transactional_id: str | None = key(
        "string",
        None,
        "Makes transactions possible; names the producer over restarts, so that an earlier one is fenced.",
        since="KIP-98",
    )
    transaction_timeout_ms: int = key(
        "int",
        60_000,
        "A transaction that is open for longer is aborted by the brokers.",
        low=1,
        since="KIP-98",
    )

    def _contradictions(self, given: frozenset[str]) -> Iterator[str]:
        yield from ClientConfig._contradictions(self, given)
        if self.enable_idempotence and self.acks not in ("all", "-1"):
            if "enable.idempotence" in given:
                yield f"enable.idempotence needs acks=all, not {self.acks}"
            object.__setattr__(self, "enable_idempotence", False)
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            yield "enable.idempotence allows at most 5 max.in.flight.requests.per.connection"
        if self.enable_idempotence and self.retries == 0:
            if "enable.idempotence" in given:
                yield "enable.idempotence needs retries above 0"
            object.__setattr__(self, "enable_idempotence", False)
        low, high = _LEVELS.get(self.compression_type, (0, -1))
        if self.compression_level not in (None, -1) and not low <= self.compression_level <= high:
            of = f"compression.type={self.compression_type}"
            yield (
                f"compression.level={self.compression_level} is not {low} to {high}, the levels of {of}"
                if high > 0
                else f"compression.level means nothing with {of}"
            )
        if self.partitioner_ignore_keys and self.partitioner != "murmur2_random":
            yield "partitioner.ignore.keys and partitioner contradict each other; give one of them"
        if self.linger_ms >= self.delivery_timeout_ms:
            yield (
                f"linger.ms={self.linger_ms} must be below delivery.timeout.ms={self.delivery_timeout_ms}, or records "
                "fail before they are sent"
            )
        if self.transactional_id == "":
            yield "transactional.id is empty; give it a name, or leave it out"
        if self.transactional_id is not None and not self.enable_idempotence:
            yield "transactional.id needs enable.idempotence=true and acks=all"
