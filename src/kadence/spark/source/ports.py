"""The interfaces that the source needs: two small ones of the Kafka client, and one of the decoding.

`kadence.spark.source.clients` implements both with the front door (`kadence.Consumer`, `kadence.Admin`); tests
implement them in memory. So driver and executor logic run under test without a broker, and without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kadence.errors import KafkaTimeoutError
from kadence.spark.source.start import Lookups, Topics
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Decoder", "Decoding", "LeadersAwayError", "Listing", "OffsetClient", "RecordClient"]


class LeadersAwayError(KafkaTimeoutError):
    """Some leaders did not answer, and others did.

    Attributes:
        who: the silent brokers with the partitions that they lead. problem: the last one with them.
    """

    def __init__(self, who: str, problem: BaseException) -> None:
        super().__init__(f"no answer from {who}, while other brokers answer: {problem}")
        self.who = who
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is to read.

    Attributes:
        leaders: the partitions, each with its leader (None: it has none at the moment).
        ids: the id of each topic in the letters of Kafka's tools; without those that the brokers do not tell.
    """

    leaders: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)


class OffsetClient(Lookups, Protocol):
    """The driver's questions. Each blocks until answered, or raises a `kadence.errors.KafkaError`."""

    def partitions(self, topics: Topics) -> Listing:
        """The partitions that exist now. A topic that does not exist contributes none."""

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """(start, end) of each log, asked for at once.

        Raises:
            LeadersAwayError: of some partitions nobody answered for.
        """

    def wait_for_records(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Return when a partition may have records from its end on, at the latest after ``timeout_ms``."""

    def commit(self, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        """Commit for the query's group, as nobody's member. A group with live members refuses it.

        Offsets of topics that do not have these ``ids`` any more are left out, where the brokers can tell.

        This and `committers` may be called by one other thread than the rest.
        """

    def committers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Which run of a query committed last for each partition that has an offset; "" where none did.

        This one's is `run`.
        """

    @property
    def run(self) -> str:
        """The name of this run of the query, as it is noted beside each committed offset."""

    def live_members(self) -> int:
        """How many consumers are members of the query's group."""

    def sample(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(bytes, offsets) of some records at the start of each range: uncompressed bytes, and the offsets they span.

        For an estimate, so nothing fails: partitions of which nothing came are left out.
        """

    def close(self) -> None:
        """Let go of connections and threads."""


class RecordClient(Protocol):
    """The executor's reader: one consumer with positions of its own, used for one task at a time."""

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        """Read these ranges (start, end), and nothing else.

        Args:
            ids: of the topics that are meant, where they are known. What is at hand of others is not given.
        """

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        """Some records of the ranges: the columns asked for, with the types of Spark's Kafka schema.

        Empty when none came within ``timeout`` s, and at once when all ranges are done.

        Args:
            max_records: the most rows; None: as many as make about one batch for Spark.

        Raises:
            OffsetOutOfRangeError: a position is outside its log.
        """

    def is_done(self) -> bool:
        """Whether all ranges were read to their ends."""

    def position(self, partition: TopicPartition) -> int:
        """The next offset to read: past records handed out, and past offsets that have no record."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """(start, end) of the log now."""

    def others(self) -> dict[str, str]:
        """Topics of the ranges that do not have the id that is meant, with the id they have now.

        To be asked when records of the ranges are here: where it is not among these, they and what follows of the
        ranges are of the topic that is meant. Asks nobody where that is known.
        """

    def gone(self) -> set[TopicPartition]:
        """Partitions of the ranges that the cluster has not had for some seconds. Asks nobody where there are none."""

    def park(self) -> None:
        """End of the task: read nothing, keep connections, and what may be of use to the next one."""

    def close(self) -> None:
        """Let go of connections and threads."""


Decoder: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"
"""Makes the batch that Spark gets from one of Kafka's columns. It may have fewer rows, or none."""


class Decoding(Protocol):
    """How records are decoded in the source: a picklable value that travels with the tasks."""

    def decoder(self, schema: pa.Schema, zone: str | None = None) -> Decoder:
        """The decoder of one task, made in the worker.

        Args:
            schema: Spark's Arrow schema of the query; every batch that the decoder makes has exactly this one. What it
                is given has the columns that `Reading.columns` names, as the consumer's ``poll_arrow`` makes them.
            zone: the session's time zone; None: it is not known.
        """
