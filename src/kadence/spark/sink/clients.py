"""The port of this room, done with Kadence's own producer. The only file of the room that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence import Producer
from kadence.spark.sink.task import Delivery
from kadence.spark.source.pool import Pool

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PRODUCERS", "ProducerSink", "executor_sink"]

_NAME: Final = "spark-kafka-sink"
"""client.id where the options have none."""


def executor_sink(client: Mapping[str, str]) -> ProducerSink:
    """The writer of a worker.

    Args:
        client: Kafka's keys, as `SinkOptions.client`.
    """
    settings: dict[str, Any] = {"client.id": _NAME, **client}
    return ProducerSink(Producer(settings))


class ProducerSink:
    """`kadence.spark.sink.task.RecordSink`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, records: pa.RecordBatch, topic: str | None) -> Delivery:
        return self._producer.send_arrow(records, topic)

    def park(self) -> None:
        """Nothing to do: all is acknowledged, and an idle producer sends nothing."""

    def close(self) -> None:
        # Whoever gives it up has failed: what is on its way would only arrive twice.
        self._producer.close(0)


PRODUCERS: Final[Pool[ProducerSink]] = Pool()
"""The producers of this process."""
