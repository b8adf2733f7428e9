"""The producer's keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kadence.config.client import ClientConfig
from kadence.config.table import key

__all__ = ["ProducerConfig"]


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
        if self.linger_ms >= self.delivery_timeout_ms:
            yield (
                f"linger.ms={self.linger_ms} must be below delivery.timeout.ms={self.delivery_timeout_ms}, or records "
                "fail before they are sent"
            )
        if self.transactional_id == "":
            yield "transactional.id is empty; give it a name, or leave it out"
        if self.transactional_id is not None and not self.enable_idempotence:
            yield "transactional.id needs enable.idempotence=true and acks=all"
