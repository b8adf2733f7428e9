"""The producer's keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kadence.config.client import ClientConfig, Fault
from kadence.config.table import INT32_MAX, key
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger

__all__ = ["ProducerConfig"]

_log = logger("kadence.producer")

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
        "all, -1: the broker acknowledges a record once all in-sync replicas have it. 1: once the leader has it. 0:"
        " the broker acknowledges nothing. With 1 or 0 enable.idempotence is false by default.",
        choices=("all", "-1", "1", "0"),
    )
    enable_idempotence: bool = key(
        "bool",
        True,
        "Whether brokers recognise batches that the producer sends again, so that its retries neither duplicate nor"
        " reorder records.",
        since="KIP-98",
    )
    compression_type: str = key(
        "choice",
        "none",
        "How the producer compresses batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_level: int | None = key(
        "int",
        None,
        "The compression level: 1 to 9 for gzip, 1 to 12 for lz4, 1 to 22 for zstd. -1 or not set: the codec's "
        "default.",
        low=-1,
        high=22,
        since="KIP-390",
    )
    key_serializer: Any = key(
        "serializer",
        None,
        "Turns keys into bytes: a callable, an object with serialize(topic, headers, data), or the name of a built-"
        "in one (kadence.serializers; Java's class names work, too). When not set, keys must be bytes or None.",
    )
    value_serializer: Any = key(
        "serializer", None, "Turns values into bytes, as key.serializer does for keys."
    )
    partitioner: Any = key(
        "partitioner",
        "murmur2_random",
        "How the producer chooses a record's partition by its key. murmur2_random: as Kafka's Java client. "
        "consistent_random: as librdkafka and confluent-kafka by default. A callable gets (key, all_partitions, "
        "available_partitions) and returns a partition, or None for any.",
        choices=_PARTITIONERS,
        since="librdkafka",
    )
    partitioner_ignore_keys: bool = key(
        "bool",
        False,
        "Whether the producer chooses partitions as if no record had a key. Only with the default partitioner.",
        since="KIP-794",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        "bool",
        True,
        "Whether records without a key go less often to partitions for which more batches wait to be sent.",
        since="KIP-794",
    )
    partitioner_availability_timeout_ms: int = key(
        "int",
        0,
        "Records without a key avoid a broker's partitions while a batch has been ready for this long and could not"
        " be sent to it. 0: they avoid none. Needs partitioner.adaptive.partitioning.enable.",
        low=0,
        since="KIP-794",
    )
    partitioner_rack_aware: bool = key(
        "bool",
        False,
        "Whether records without a key go only to partitions whose leader is in the rack of client.rack. If the "
        "topic has no such partition, they go to any.",
        since="KIP-1123",
    )
    client_rack: str = key(
        "string", "", "The rack in which this producer runs, for partitioner.rack.aware.", since="KIP-1123"
    )
    retries: int = key(
        "int",
        INT32_MAX,
        "The most times that the producer sends a record again after retriable errors. delivery.timeout.ms may end "
        "this sooner. With 0 enable.idempotence is false by default.",
        low=0,
        high=INT32_MAX,
    )
    linger_ms: int = key(
        "number",
        5,
        "The longest time that a batch waits for more records of its partition before the producer sends it. "
        "Fractions are rounded up to whole ms.",
        low=0,
    )
    batch_size: int = key(
        "int", 1_000_000, "The most bytes of a batch with several records, before compression.", low=1
    )
    buffer_memory: int = key(
        "int",
        33_554_432,
        "The most bytes of records that wait to be sent or acknowledged. When it is full, send() waits, up to "
        "max.block.ms.",
        low=1,
    )
    metadata_max_idle_ms: int = key(
        "int",
        300_000,
        "The producer stops refreshing the metadata of a topic to which it has sent nothing for this long.",
        low=5_000,
        since="KIP-526",
    )
    max_block_ms: int = key(
        "int",
        60_000,
        "How long send() and transaction calls may wait for brokers and memory. Serialisers' time does not count.",
        low=0,
    )
    max_request_size: int = key(
        "int", 1_048_576, "The most bytes of one record, and of a request with several batches.", low=1
    )
    delivery_timeout_ms: int = key(
        "int",
        120_000,
        "A record fails when the broker has not acknowledged it within this time. When not set, the producer raises"
        " it to linger.ms plus request.timeout.ms if that is more.",
        low=1,
        since="KIP-91",
    )
    max_in_flight_requests_per_connection: int = key(
        "int",
        5,
        "The most Produce requests to one broker that await an answer; with idempotence at most 5.",
        low=1,
    )

    transactional_id: str | None = key(
        "string",
        None,
        "Enables transactions. Give a producer the same id again when it restarts: its init_transactions() makes "
        "brokers refuse earlier producers with this id.",
        since="KIP-98",
    )
    transaction_timeout_ms: int = key(
        "int",
        60_000,
        "The brokers abort a transaction that is open for longer than this.",
        low=1,
        since="KIP-98",
    )

    def _contradictions(self, given: Mapping[str, str]) -> Iterator[Fault]:
        yield from ClientConfig._contradictions(self, given)
        if self.enable_idempotence and self.acks not in ("all", "-1"):
            if "enable.idempotence" in given:
                yield "enable.idempotence", f"enable.idempotence needs acks=all, not {self.acks}"
            self._without_idempotence(f"{given.get('acks', 'acks')}={self.acks}")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            yield (
                "enable.idempotence",
                "enable.idempotence allows at most 5 max.in.flight.requests.per.connection",
            )
        if self.enable_idempotence and self.retries == 0:
            if "enable.idempotence" in given:
                yield "enable.idempotence", "enable.idempotence needs retries above 0"
            self._without_idempotence(f"{given.get('retries', 'retries')}=0")
        low, high = _LEVELS.get(self.compression_type, (0, -1))
        if self.compression_level not in (None, -1) and not low <= self.compression_level <= high:
            of = f"compression.type={self.compression_type}"
            yield (
                "compression.level",
                (
                    f"compression.level={self.compression_level} is not {low} to {high}, the levels of {of}"
                    if high > 0
                    else f"compression.level means nothing with {of}"
                ),
            )
        if self.partitioner_ignore_keys and self.partitioner != "murmur2_random":
            yield (
                "partitioner.ignore.keys",
                "partitioner.ignore.keys and partitioner contradict each other; give one of them",
            )
        yield from self._check_delivery(given)
        if self.transactional_id == "":
            yield "transactional.id", "transactional.id is empty; give it a name, or leave it out"
        if self.transactional_id is not None and not self.enable_idempotence:
            yield "transactional.id", "transactional.id needs enable.idempotence=true and acks=all"

    def _without_idempotence(self, cause: str) -> None:
        object.__setattr__(self, "enable_idempotence", False)
        _log.info("%s turns enable.idempotence off: a record that is sent again may be written twice", cause)

    def _check_delivery(self, given: Mapping[str, str]) -> Iterator[Fault]:
        """Check that there is time to linger and then to wait for the response to a request.

        Java's producer also refuses a delivery.timeout.ms that is too short for the default of request.timeout.ms.
        librdkafka's takes it, and it has a meaning: a record that fails soon.
        """
        needed = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms >= needed:
            return
        delivery, linger, request = (
            given.get(name, name) for name in ("delivery.timeout.ms", "linger.ms", "request.timeout.ms")
        )
        if "delivery.timeout.ms" not in given:
            _log.warning(
                "%s raised from %d to %d, because %s=%d and %s=%d together take that long",
                delivery,
                self.delivery_timeout_ms,
                needed,
                linger,
                self.linger_ms,
                request,
                self.request_timeout_ms,
            )
            object.__setattr__(self, "delivery_timeout_ms", needed)
        elif self.linger_ms >= self.delivery_timeout_ms:
            yield (
                "linger.ms",
                (
                    f"{linger}={self.linger_ms} must be below {delivery}={self.delivery_timeout_ms}, or records fail "
                    "before they are sent"
                ),
            )
        elif "request.timeout.ms" in given:
            yield (
                "delivery.timeout.ms",
                (
                    f"{delivery}={self.delivery_timeout_ms} is below {linger}={self.linger_ms} plus "
                    f"{request}={self.request_timeout_ms}, so records fail while their request may still be answered; "
                    f"raise {delivery}, or lower {request}"
                ),
            )
