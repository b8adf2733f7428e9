"""The producer of a simulation: the real `AsyncProducer`, which reports to the simulation's history."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kadence.config import ProducerConfig
from kadence.producer.arguments import Headers
from kadence.producer.async_producer import AsyncProducer
from kadence.producer.futures import RecordFuture
from kadence.types import TopicPartition
from kadence_testing.simulation.history import History
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.transactions import Fate, Transaction

__all__ = ["SimulatedProducer"]


class SimulatedProducer(AsyncProducer):
    """An `AsyncProducer` for a program of a simulation, whose history checks its records.

    Args:
        config: Kafka's dotted keys.

    Raises:
        SimulationError: a serialiser is configured: the history knows records by their bytes.
    """

    def __init__(self, history: History, config: Mapping[str, Any]) -> None:
        parsed = ProducerConfig.parse(config)
        if parsed.key_serializer or parsed.value_serializer:
            raise SimulationError("the producer of a simulation takes bytes and has no serialisers")
        super().__init__(config)
        self._history = history
        self._open: Transaction | None = None

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordFuture:
        """As `AsyncProducer.send`."""
        future = await super().send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers
        )
        # No other code runs between send() and this line.
        self._history.sent[topic, value] += 1
        # On the network loop, not on the program's: the record counts even if the program is killed now.
        future._when_done(partial(self._decided, self._open, value))
        return future

    def _decided(self, transaction: Transaction | None, value: bytes | None, future: RecordFuture) -> None:
        if future.exception() is not None:
            return
        place = future.result()
        at = TopicPartition(place.topic, place.partition)
        self._history.wrote(at, place.offset, value)
        if transaction is not None:
            self._history.transactions.wrote(transaction, at, place.offset)

    async def begin_transaction(self) -> None:
        """As `AsyncProducer.begin_transaction`."""
        await super().begin_transaction()
        self._open = self._history.transactions.begins(str(self._config.transactional_id))

    async def commit_transaction(self) -> None:
        """As `AsyncProducer.commit_transaction`."""
        if self._open is not None:
            # From here on the outcome is unknown until the brokers have answered.
            self._history.transactions.ends(self._open, Fate.UNKNOWN)
        await super().commit_transaction()
        self._ended(Fate.COMMITTED)

    async def abort_transaction(self) -> None:
        """As `AsyncProducer.abort_transaction`."""
        await super().abort_transaction()
        self._ended(Fate.ABORTED)

    def _ended(self, fate: Fate) -> None:
        if self._open is not None:
            self._history.transactions.ends(self._open, fate)
            self._open = None
