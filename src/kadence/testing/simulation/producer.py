"""The producer of a simulation: the real accumulator, sender and connections, with calls to await."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kadence.config import ProducerConfig
from kadence.errors import IllegalStateError, KafkaTimeoutError
from kadence.net import ConnectionConfig, NetworkClient
from kadence.producer.accumulator import Accumulator
from kadence.producer.append import estimated_size
from kadence.producer.arguments import checked_group, checked_offsets
from kadence.producer.futures import RecordFuture
from kadence.producer.gate import Gate
from kadence.producer.partitioner import partition_for_key
from kadence.producer.thread import Turn
from kadence.producer.topics import Topics
from kadence.producer.transaction_states import Done
from kadence.producer.transactions import Transactions
from kadence.testing.simulation.clients import Sockets
from kadence.testing.simulation.driver import Driver
from kadence.testing.simulation.history import History
from kadence.testing.simulation.network import Network
from kadence.testing.simulation.scheduler import Process, SimulationError
from kadence.testing.simulation.transactions import Fate, Transaction
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["SimulatedProducer"]

_LOOK_AGAIN_S = 0.01


class SimulatedProducer:
    """Writes records; an idempotent producer with Kadence's defaults.

    Args:
        config: Kafka's dotted keys. With ``transactional.id`` it has transactions.
    """

    def __init__(
        self,
        process: Process,
        network: Network,
        rng: random.Random,
        history: History,
        config: Mapping[str, Any],
    ) -> None:
        parsed = ProducerConfig.parse({"client.id": process.name, **config})
        if parsed.key_serializer or parsed.value_serializer or parsed.partitioner != "murmur2_random":
            raise SimulationError(
                "a simulation's producer takes bytes, and has no partitioners and serialisers"
            )
        self._process = process
        self._rng = rng
        self._history = history
        self._clock = process.scheduler
        self._max_block_ms = parsed.max_block_ms
        gate = Gate()
        self._accumulator = Accumulator(
            batch_size=parsed.batch_size,
            linger_ms=parsed.linger_ms,
            buffer_memory=parsed.buffer_memory,
            delivery_timeout_ms=parsed.delivery_timeout_ms,
            gate=gate,
            largest=parsed.max_request_size,
        )
        self._gate = gate
        self._topics = Topics(parsed, gate, self._accumulator.places)
        self._driver = Driver(process, network)
        self._client = NetworkClient(
            ConnectionConfig.of(parsed),
            self._clock,
            rng=rng,
            sockets=Sockets(network, process, self._driver),
        )
        self._transactions: Transactions | None = None
        if parsed.transactional_id is not None:
            admit = partial(setattr, self._accumulator, "is_usable")
            self._transactions = Transactions(parsed, gate, admit)
        self._open: Transaction | None = None
        self._turn = Turn(
            parsed, self._clock, self._client, self._accumulator, self._topics, self._transactions
        )
        self._driver.turn = self._run_once
        self._driver.stir()

    async def send(
        self, topic: str, value: bytes, key: bytes | None = None, *, partition: int | None = None
    ) -> tuple[int, int]:
        """Write one record and wait for its acknowledgement.

        Returns:
            partition and offset.

        Raises:
            KafkaError: why the record was not written; KafkaTimeoutError if the topic's metadata did not arrive in
                time.
            IllegalStateError: the producer has a ``transactional.id``, and no transaction is open.
        """
        if self._transactions is not None:
            self._transactions.check_open()
        count = await self._partitions_of(topic)
        if partition is None:
            partition = self._rng.randrange(count) if key is None else partition_for_key(key, count)
        size = estimated_size(key, value, ())
        loop = asyncio.get_running_loop()
        written: asyncio.Future[tuple[int, int]] = loop.create_future()

        def decided(future: RecordFuture) -> None:
            try:
                place = future.result(0)
            except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
                loop.call_soon(_settle, written, None, error)
            else:
                # Even if the program is killed before it hears of it: it was told.
                at = TopicPartition(topic, place.partition)
                self._history.wrote(at, place.offset, value)
                if transaction is not None:
                    self._history.transactions.wrote(transaction, at, place.offset)
                loop.call_soon(_settle, written, (place.partition, place.offset), None)

        with self._gate:
            if self._transactions is not None:
                # It may have failed, or ended, while nothing was known of the topic.
                self._transactions.check_open()
            transaction = self._open
            self._history.sent[topic, value] += 1
            future, _ = self._accumulator.append(
                TopicPartition(topic, partition),
                self._process.scheduler.wall_ms(),
                key,
                value,
                (),
                size,
                self._clock.now_ms(),
            )
        future.add_done_callback(decided)
        self._client.wakeup()
        return await written

    async def init_transactions(self) -> None:
        """As `kadence.Producer.init_transactions`."""
        await self._settle("init_transactions()", self._with_transactions.begin_init)

    def begin_transaction(self) -> None:
        """As `kadence.Producer.begin_transaction`."""
        transactions = self._with_transactions
        with self._gate:
            transactions.begin()
            self._open = self._history.transactions.begins(transactions.transactional_id)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """As `kadence.Producer.send_offsets_to_transaction`."""
        transactions = self._with_transactions
        wanted, group = checked_offsets(offsets), checked_group(group_metadata)
        await self._settle("send_offsets_to_transaction()", lambda: transactions.begin_offsets(wanted, group))

    async def commit_transaction(self) -> None:
        """As `kadence.Producer.commit_transaction`."""
        await self._end("commit_transaction()", self._with_transactions.begin_commit, Fate.COMMITTED)

    async def abort_transaction(self) -> None:
        """As `kadence.Producer.abort_transaction`."""
        await self._end("abort_transaction()", self._with_transactions.begin_abort, Fate.ABORTED)

    @property
    def _with_transactions(self) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError("this producer has no transactions; make one with transactional.id")
        return self._transactions

    async def _end(self, call: str, begin: Callable[[], Done], fate: Fate) -> None:
        def begun() -> Done:
            done = begin()
            if fate is Fate.COMMITTED and self._open is not None:
                self._history.transactions.ends(self._open, Fate.UNKNOWN)
            return done

        await self._settle(call, begun)
        if self._open is not None:
            self._history.transactions.ends(self._open, fate)
            self._open = None

    async def _settle(self, call: str, begin: Callable[[], Done]) -> None:
        """Begin a step of the transactions, and wait for its end."""
        transactions = self._with_transactions
        deadline = self._clock.now_ms() + self._max_block_ms
        with self._gate:
            done = begin()
            self._accumulator.flushing += 1
        self._client.wakeup()
        try:
            while not self._has_ended(done):
                if self._clock.now_ms() >= deadline:
                    raise KafkaTimeoutError(f"{call} has not ended within max.block.ms: {self._turn.trouble}")
                await asyncio.sleep(_LOOK_AGAIN_S)
        except (asyncio.CancelledError, KafkaTimeoutError):
            transactions.left_waiting()
            raise
        finally:
            with self._gate:
                self._accumulator.flushing -= 1

    def _has_ended(self, done: Done) -> bool:
        with self._gate:
            return done()

    def _run_once(self) -> bool:
        return self._turn.run_once()

    async def _partitions_of(self, topic: str) -> int:
        deadline = self._clock.now_ms() + self._max_block_ms
        while not (known := self._topics.cluster.partitions_for(topic)):
            if self._clock.now_ms() >= deadline:
                raise KafkaTimeoutError(f"nothing is known of topic {topic!r}: {self._turn.trouble}")
            with self._gate:
                self._topics.want(topic, self._clock.now_ms())
            self._client.wakeup()
            await asyncio.sleep(_LOOK_AGAIN_S)
        return len(known)


def _settle(
    written: asyncio.Future[tuple[int, int]], place: tuple[int, int] | None, error: Exception | None
) -> None:
    if written.done():
        return
    if error is not None:
        written.set_exception(error)
    else:
        assert place is not None
        written.set_result(place)
