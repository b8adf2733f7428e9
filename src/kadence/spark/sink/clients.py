"""The port of this room, done with Kadence's own producer. The only file of the room that knows it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence import Producer
from kadence.errors import ConfigError, UnsupportedVersionError
from kadence.spark.pool import Pool
from kadence.spark.sink.task import Delivery

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PRODUCERS", "ProducerSink", "executor_sink"]

_NAME: Final = "spark-kafka-sink"
"""client.id where the options have none."""


_TRANSACTION_MS: Final = 300_000
"""Kafka's minute is short for a task: its transaction is open while Spark computes its rows."""

_FAREWELL_SECONDS: Final = 5.0
"""How long the abort of a failed task's transaction may take."""


def executor_sink(client: Mapping[str, str], transactional_prefix: str | None) -> ProducerSink:
    """The writer of a worker.

    Args:
        client: Kafka's keys, as `SinkOptions.client`. transactional_prefix: of its transactional.id; None: it has none.
    """
    settings: dict[str, Any] = {"client.id": _NAME, **client}
    if transactional_prefix is None:
        return ProducerSink(Producer(settings))
    # A name of its own for each producer: two attempts of one task (speculation) must not fence each other.
    name = f"{transactional_prefix}-{uuid.uuid4().hex}"
    producer = Producer({"transaction.timeout.ms": _TRANSACTION_MS, **settings, "transactional.id": name})
    try:
        producer.init_transactions()
    except UnsupportedVersionError:
        producer.close(0)
        raise ConfigError(
            "option transactions=true: the brokers at "
            f"{client['bootstrap.servers']} have no transactions; leave the option out"
        ) from None
    except BaseException:
        producer.close(0)
        raise
    return TransactionalSink(producer)


class ProducerSink:
    """`kadence.spark.sink.task.RecordSink`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, records: pa.RecordBatch, topic: str | None) -> Delivery:
        return self._producer.send_arrow(records, topic)

    def finish(self) -> None:
        """Nothing to do: what is acknowledged counts."""

    def park(self) -> None:
        """Nothing to do: an idle producer sends nothing."""

    def close(self) -> None:
        # The task has failed and will be repeated: what is on its way would only arrive twice.
        self._producer.close(0)


class TransactionalSink(ProducerSink):
    """The same, with a transaction for each task that has rows."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(producer)
        self._is_open = False

    def send(self, records: pa.RecordBatch, topic: str | None) -> Delivery:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        return super().send(records, topic)

    def finish(self) -> None:
        if self._is_open:
            self._producer.commit_transaction()
            self._is_open = False

    def close(self) -> None:
        # Aborts what is open, or readers would wait for it until transaction.timeout.ms.
        self._producer.close(_FAREWELL_SECONDS)


PRODUCERS: Final[Pool[ProducerSink]] = Pool()
"""The producers of this process."""
