"""The interfaces that the source needs: two small ones of the Kafka client, and one of the decoding.

`kadence_spark.source.clients` implements both with the public clients (`kadence.Consumer`, `kadence.Admin`); tests
implement them in memory. So driver and executor can be tested without a broker and without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kadence.errors import KafkaTimeoutError
from kadence.types import TopicPartition
from kadence_spark.source.start import Lookups, Topics

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Decoder", "Decoding", "LeadersAwayError", "Listing", "OffsetClient", "RecordClient"]


class LeadersAwayError(KafkaTimeoutError):
    """Some leaders did not answer, and others did.

    Attributes:
        who: the silent brokers with the partitions that they lead. problem: their last error.
    """

    def __init__(self, who: str, problem: BaseException) -> None:
        super().__init__(f"no answer from {who}, while other brokers answer: {problem}")
        self.who = who
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Listing:
    """The partitions and topic ids of the cluster.

    Attributes:
        leaders: the partitions, each with its leader (None: it has none at the moment).
        ids: the id of each topic in the notation of Kafka's tools, if the brokers send it.
    """

    leaders: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)


class OffsetClient(Lookups, Protocol):
    """The driver's requests. Each blocks until answered, or raises a `kadence.errors.KafkaError`."""

    def partitions(self, topics: Topics) -> Listing:
        """The partitions that exist now. A topic that does not exist contributes none."""

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """(start, end) of each log, requested at once.

        Raises:
            LeadersAwayError: the leaders of some partitions did not answer.
        """

    def wait_for_records(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Return when a partition may have records from its end on, at the latest after ``timeout_ms``."""

    def commit(self, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        """Commit for the query's group, without being a member. A group with live members refuses it.

        Offsets of topics that do not have these ``ids`` any more are left out, if the brokers can detect that.

        This and `committers` may be called by one other thread than the rest.
        """

    def committers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The run of a query that committed last, for each partition that has an offset; "": none did.

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

        For an estimate, so it does not fail: partitions without an answer are left out.
        """

    def close(self) -> None:
        """Close connections and threads."""


class RecordClient(Protocol):
    """The executor's reader: one consumer with positions of its own, used for one task at a time."""

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        """Read these ranges (start, end), and nothing else.

        Args:
            ids: of the planned topics, if known. Buffered records of other topics are not returned.
        """

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        """Some records of the ranges: the selected columns, with the types of Spark's Kafka schema.

        Empty when none came within ``timeout`` s, and at once when all ranges are done.

        Args:
            max_records: the most rows; None: about one batch for Spark.

        Raises:
            OffsetOutOfRangeError: a position is outside its log.
        """

    def is_done(self) -> bool:
        """Whether all ranges were read to their ends."""

    def position(self, partition: TopicPartition) -> int:
        """The next offset to read: behind returned records, and behind offsets without a record."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """(start, end) of the log now."""

    def others(self) -> dict[str, str]:
        """Topics of the ranges with another id than the planned one, with their present id.

        To be called when records of the ranges have arrived: unless their topic is among these, they and all later ones
        of the ranges are of the planned topic. No request is sent if that is known.
        """

    def gone(self) -> set[TopicPartition]:
        """Partitions of the ranges that the cluster has not had for some seconds. Requests only if some are missing."""

    def park(self) -> None:
        """End of the task: stop fetching; keep connections, and records that the next task may use."""

    def close(self) -> None:
        """Close connections and threads."""


Decoder: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"
"""Makes Spark's batch from a batch of Kafka's columns. It may have fewer rows, or none."""


class Decoding(Protocol):
    """The decoding of records in the source; a picklable value that is sent with the tasks."""

    def decoder(self, schema: pa.Schema, zone: str | None = None) -> Decoder:
        """The decoder of one task, made in the worker.

        Args:
            schema: Spark's Arrow schema of the query; each batch of the decoder has exactly this one. Its input has the
                columns of `Reading.columns`, as returned by the consumer's ``poll_arrow``.
            zone: the session's time zone; None: unknown.
        """
