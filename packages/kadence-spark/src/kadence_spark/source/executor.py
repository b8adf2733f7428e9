"""The executors' side: one task reads its offset ranges and yields Arrow record batches.

The consumer reads ranges: it fetches and returns only their records. A range is done when the *position* has reached
its end, not when its last record was seen: compaction, aborted transactions and control records leave offsets without a
record, which a position passes.

Batches are cut at 32,000 rows and 4 MiB. Spark reads rows from Python at full speed from about 1,000 rows on, and each
batch has a constant cost in the worker. Spark loads a whole batch into the JVM's direct memory, so a limit of rows
alone would not be enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kadence.clock import Clock, SystemClock
from kadence.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kadence.logs import logger
from kadence.types import TopicPartition
from kadence_spark.source.loss import Loss
from kadence_spark.source.planning import Task
from kadence_spark.source.ports import Decoding, RecordClient

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_BYTES", "MAX_ROWS", "ReadSettings", "read_ranges"]

_log = logger("kadence.spark")

MAX_ROWS: Final = 32_000
MAX_BYTES: Final = 4 * 1024 * 1024

MIN_ROWS: Final = 1_000
MIN_BYTES: Final = 512 * 1024
"""Parts of a poll that are smaller than both on average are combined, because each batch has a cost in Spark."""

POLL_MS: Final = 1_000
"""How often a waiting task checks its timeout."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of all tasks of a query.

    Attributes:
        columns: names of Kafka's columns to read, in order.
        decoding: makes the query's columns of them; None: they are the query's.
        fail_on_data_loss: the option. poll_timeout_ms: the option kafkaConsumer.pollTimeoutMs.
        zone: the session's time zone; None: unknown.
    """

    columns: tuple[str, ...]
    decoding: Decoding | None = None
    zone: str | None = None
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_BYTES


def read_ranges(
    task: Task, client: RecordClient, reading: ReadSettings, schema: pa.Schema, clock: Clock | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all records of the task's ranges, none before a start or from an end on.

    Args:
        schema: of the batches: the columns of the query with Spark's Arrow types.

    Raises:
        DataLossError: records of the ranges do not exist any more (with failOnDataLoss).
        KafkaTimeoutError: no progress for kafkaConsumer.pollTimeoutMs.
    """
    return _Run(task, client, reading, schema, clock or SystemClock()).batches()


class _Run:
    """One task under way.

    ``_until``: the end of each partition that is not known to be done. ``_positions``: their last known positions,
    which a task looks up only if no records come; otherwise the client reports the end.
    """

    def __init__(
        self, task: Task, client: RecordClient, reading: ReadSettings, schema: pa.Schema, clock: Clock
    ) -> None:
        self._client = client
        self._reading = reading
        self._schema = schema
        self._decode = None if reading.decoding is None else reading.decoding.decoder(schema, reading.zone)
        self._clock = clock
        self._loss = Loss(fail=reading.fail_on_data_loss)
        # Two ranges of one partition (it was split, then packed together) are read one after the other.
        self._waiting: dict[TopicPartition, list[tuple[int, int]]] = {}
        for piece in task:
            self._waiting.setdefault(piece.topic_partition, []).append((piece.start, piece.end))
        self._until: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._resumed: dict[TopicPartition, int] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        while positions := self._next_ranges():
            self._positions = positions
            self._start(positions)
            moved_at = self._clock.now_ms()
            while self._until:
                table = self._poll()
                if moved := table is not None and table.num_rows > 0:
                    yield from self._cut(table)
                if self._client.is_done():
                    self._until.clear()
                elif not moved:
                    moved = self._follow()
                if moved:
                    moved_at = self._clock.now_ms()
                elif self._clock.now_ms() - moved_at >= self._reading.poll_timeout_ms:
                    self._give_up()
                    moved_at = self._clock.now_ms()

    def _next_ranges(self) -> dict[TopicPartition, int]:
        positions: dict[TopicPartition, int] = {}
        for partition, pieces in self._waiting.items():
            if pieces:
                start, end = pieces.pop(0)
                while pieces and pieces[0][0] == end:  # neighbours become one again
                    end = pieces.pop(0)[1]
                positions[partition] = start
                self._until[partition] = end
        return positions

    def _start(self, positions: dict[TopicPartition, int]) -> None:
        self._client.start({partition: (at, self._until[partition]) for partition, at in positions.items()})

    def _poll(self) -> pa.Table | None:
        try:
            return self._client.poll(None, POLL_MS / 1000)
        except OffsetOutOfRangeError as problem:
            self._step_in(problem)
            return None

    def _follow(self) -> bool:
        """Whether any position has changed since the last call. Done partitions are removed."""
        positions, moved = self._positions, False
        for partition, end in list(self._until.items()):
            position = self._client.position(partition)
            if position != positions[partition]:
                positions[partition] = position
                moved = True
            if position >= end:
                del self._until[partition]
        return moved

    # ------------------------------------------------------------ records that are not there

    def _step_in(self, problem: OffsetOutOfRangeError) -> None:
        """A position is outside its log: find it, and check for a loss."""
        self._follow()
        resumed: dict[TopicPartition, int] = {}
        changed = False
        for partition, end in list(self._until.items()):
            position = self._client.position(partition)
            log_start, log_end = self._client.log_range(partition)
            if position < log_start:
                self._loss.aged_out(partition, position, min(log_start, end))
                position, changed = min(log_start, end), True
            elif log_end < end:
                self._loss.cut_off(partition, end, log_end)
                self._until[partition] = log_end
                position, changed = min(position, log_end), True
            resumed[partition] = position
        # Within its log: the topic was recreated, and the client had old metadata. Allowed once.
        if not changed and resumed == self._resumed:
            raise problem
        self._resumed = resumed
        self._start(resumed)

    def _give_up(self) -> None:
        """No progress for too long: a loss if the logs end too early, else a timeout."""
        positions = self._positions
        for partition, end in list(self._until.items()):
            log_end = self._client.log_range(partition)[1]
            if log_end < end:
                self._loss.cut_off(partition, end, log_end)
                self._until[partition] = max(log_end, 0)
                if positions[partition] >= log_end:
                    del self._until[partition]
            else:
                raise KafkaTimeoutError(
                    f"no record of {partition} from offset {positions[partition]} on (up to {end}) came within "
                    f"{self._reading.poll_timeout_ms} ms; is its leader reachable from the executors? The option "
                    "kafkaConsumer.pollTimeoutMs sets the time"
                )

    # ------------------------------------------------------------ batches

    def _cut(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        batches = table.to_batches()
        pieces = len(batches)
        if pieces > 1 and table.num_rows < MIN_ROWS * pieces and table.nbytes < MIN_BYTES * pieces:
            batches = table.combine_chunks().to_batches()
        for batch in batches:
            if batch.num_rows:
                yield from self._bounded(batch)

    def _bounded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Halve until within the limits; a single record may exceed them."""
        import pyarrow as pa

        most = self._reading.max_bytes
        # The size of all buffers is cheap to get; this slice's own part costs as much as making the batch.
        if batch.num_rows > 1 and (
            batch.num_rows > self._reading.max_rows
            or (batch.get_total_buffer_size() > most and batch.nbytes > most)
        ):
            half = batch.num_rows // 2
            yield from self._bounded(batch.slice(0, half))
            yield from self._bounded(batch.slice(half))
        elif self._decode is not None:
            decoded = self._decode(batch)
            if decoded.num_rows:
                yield decoded
        elif batch.schema.equals(self._schema):
            yield batch
        else:  # names of nested fields
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
