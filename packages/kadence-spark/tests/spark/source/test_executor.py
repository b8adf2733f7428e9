"""One task: exactly the records of its ranges, in batches that Spark can take."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.source.memory import MemoryRecords, kafka_table

from kadence.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kadence.types import TopicPartition
from kadence_spark.source.executor import ReadSettings, read_ranges
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.planning import OffsetRange
from kadence_spark.source.ports import Decoder
from kadence_testing.clock import FakeClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())]
)


def reading(**more: Any) -> ReadSettings:
    return ReadSettings(tuple(SCHEMA.names), **more)


def log(*offsets: int, size: int = 1) -> list[tuple[int, bytes]]:
    return [(offset, b"x" * size) for offset in offsets]


def read(
    client: MemoryRecords, *task: OffsetRange, how: ReadSettings | None = None, clock: FakeClock | None = None
) -> list[tuple[int, int]]:
    """(partition, offset) of all records, in order."""
    client.clock = clock
    seen: list[tuple[int, int]] = []
    for batch in read_ranges(task, client, how or reading(), SCHEMA, clock):
        assert batch.schema.equals(SCHEMA)
        assert batch.num_rows
        seen += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return seen


def test_one_range() -> None:
    client = MemoryRecords({T0: log(*range(100))})
    assert read(client, OffsetRange("t", 0, 7, 30)) == [(0, offset) for offset in range(7, 30)]
    assert client.started == [{T0: (7, 30)}]


def test_several_ranges_end_each_at_its_own() -> None:
    client = MemoryRecords({T0: log(*range(50)), T1: log(*range(50))}, at_once=1000)
    seen = read(client, OffsetRange("t", 0, 3, 9), OffsetRange("t", 1, 40, 45))
    assert sorted(seen) == [(0, o) for o in range(3, 9)] + [(1, o) for o in range(40, 45)]


def test_no_ranges_is_nothing() -> None:
    client = MemoryRecords({})
    assert read(client) == []
    assert client.started == []


def test_offsets_without_records_at_the_end_are_stepped_over() -> None:
    client = MemoryRecords({T0: log(0, 1, 5, 90)}, ends={T0: 100})
    assert read(client, OffsetRange("t", 0, 0, 50)) == [(0, 0), (0, 1), (0, 5)]
    assert read(client, OffsetRange("t", 0, 6, 80)) == []


def test_two_pieces_of_a_partition_in_one_task() -> None:
    client = MemoryRecords({T0: log(*range(30))})
    seen = read(client, OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 8), OffsetRange("t", 0, 20, 22))
    assert [offset for _, offset in seen] == [0, 1, 2, 3, 4, 5, 6, 7, 20, 21]
    assert client.started == [{T0: (0, 8)}, {T0: (20, 22)}]


@given(
    st.lists(st.sets(st.integers(0, 60)), min_size=1, max_size=4),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 20),
)
def test_exactly_the_records_between_the_offsets(
    logs: list[set[int]], one: int, other: int, at_once: int
) -> None:
    start, end = sorted((one, other))
    partitions = {TopicPartition("t", number): log(*sorted(offsets)) for number, offsets in enumerate(logs)}
    client = MemoryRecords(
        partitions, ends=dict.fromkeys(partitions, 61), starts=dict.fromkeys(partitions, 0), at_once=at_once
    )
    seen = read(client, *[OffsetRange(*p, start, end) for p in partitions])
    wanted = [(n, o) for n, offsets in enumerate(logs) for o in sorted(offsets) if start <= o < end]
    assert sorted(seen) == wanted
    for number in range(len(logs)):  # in order within each partition
        own = [offset for n, offset in seen if n == number]
        assert own == sorted(own)


# ---------------------------------------------------------------- batches


def batches(client: MemoryRecords, *task: OffsetRange, **bounds: int) -> list[pa.RecordBatch]:
    return list(read_ranges(task, client, reading(**bounds), SCHEMA))


def test_batches_are_bounded_in_rows_and_bytes() -> None:
    client = MemoryRecords({T0: log(*range(1000), size=1000)}, at_once=1000)
    by_rows = batches(client, OffsetRange("t", 0, 0, 1000), max_rows=300)
    assert sum(batch.num_rows for batch in by_rows) == 1000
    assert max(batch.num_rows for batch in by_rows) <= 300
    by_bytes = batches(client, OffsetRange("t", 0, 0, 1000), max_bytes=50_000)
    assert sum(batch.num_rows for batch in by_bytes) == 1000
    assert max(batch.nbytes for batch in by_bytes) <= 50_000


def test_a_record_above_the_bound_goes_alone() -> None:
    client = MemoryRecords({T0: [(0, b"a"), (1, b"x" * 10_000), (2, b"b")]})
    sizes = [batch.num_rows for batch in batches(client, OffsetRange("t", 0, 0, 3), max_bytes=5000)]
    assert sizes == [1, 1, 1]


def test_small_pieces_of_a_poll_become_one_batch() -> None:
    logs = {TopicPartition("t", number): log(*range(10)) for number in range(20)}
    client = MemoryRecords(logs, at_once=1000)
    [batch] = batches(client, *[OffsetRange(*p, 0, 10) for p in logs])
    assert batch.num_rows == 200


# ---------------------------------------------------------------- what is not there


def test_records_deleted_while_the_task_waited() -> None:
    client = MemoryRecords({T0: log(*range(5, 20)), T1: log(*range(20))})
    task = OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 3)
    with pytest.raises(DataLossError, match=r"5 offsets of t-0 were deleted"):
        read(client, *task)
    seen = read(client, *task, how=ReadSettings(tuple(SCHEMA.names), fail_on_data_loss=False))
    assert sorted(seen) == [(0, o) for o in range(5, 10)] + [(1, o) for o in range(3)]


def test_all_records_of_a_range_deleted(caplog: pytest.LogCaptureFixture) -> None:
    client = MemoryRecords({T0: log(*range(50, 60))})
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        lenient = ReadSettings(tuple(SCHEMA.names), fail_on_data_loss=False)
        assert read(client, OffsetRange("t", 0, 0, 10), how=lenient) == []
    assert "10 offsets of t-0 were deleted" in caplog.text


def test_a_log_that_was_cut_off_below_the_start() -> None:
    client = MemoryRecords({T0: log(0, 1, 2)})
    with pytest.raises(DataLossError, match=r"t-0 ends at 3, below offset 20"):
        read(client, OffsetRange("t", 0, 10, 20))
    assert (
        read(
            client,
            OffsetRange("t", 0, 10, 20),
            how=ReadSettings(tuple(SCHEMA.names), fail_on_data_loss=False),
        )
        == []
    )


def test_a_log_that_was_cut_off_within_the_range() -> None:
    client = MemoryRecords({T0: log(0, 1, 2)})
    with pytest.raises(DataLossError, match=r"t-0 ends at 3, below offset 20"):
        read(client, OffsetRange("t", 0, 0, 20), clock=FakeClock())
    lenient = ReadSettings(tuple(SCHEMA.names), fail_on_data_loss=False)
    assert read(client, OffsetRange("t", 0, 0, 20), how=lenient, clock=FakeClock()) == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]


class Stuck(MemoryRecords):
    """A leader that answers nothing."""

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        assert self.clock is not None
        self.clock.advance(int(timeout * 1000))
        return kafka_table(T0, [])


def test_no_progress_is_a_timeout_that_names_the_partition() -> None:
    client = Stuck({T0: log(*range(20))})
    with pytest.raises(KafkaTimeoutError, match=r"no record of t-0 from offset 3 on .* 5000 ms"):
        read(client, OffsetRange("t", 0, 3, 9), how=reading(poll_timeout_ms=5000), clock=FakeClock())


class Confused(MemoryRecords):
    """Says out of range although nothing is."""

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        raise OffsetOutOfRangeError


def test_out_of_range_without_a_reason_is_raised_as_it_is() -> None:
    with pytest.raises(OffsetOutOfRangeError):
        read(Confused({T0: log(*range(20))}), OffsetRange("t", 0, 3, 9))


class MadeAnew(MemoryRecords):
    """Its metadata was of the topic before this one; it says so once."""

    told = False

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        if not self.told:
            self.told = True
            raise OffsetOutOfRangeError
        return super().poll(max_records, timeout)


def test_a_topic_made_anew_is_read_at_the_same_positions() -> None:
    client = MadeAnew({T0: log(*range(20))})
    assert sum(batch.num_rows for batch in batches(client, OffsetRange("t", 0, 3, 9))) == 6
    assert client.told


def test_a_partition_that_is_done_is_no_loss_when_another_one_is() -> None:
    """While rows come nobody asks where a partition stands; a finished one may be deleted then."""
    client = MemoryRecords({T0: log(*range(5)), T1: log(*range(20))}, at_once=5)
    seen: list[int] = []
    lenient = ReadSettings(tuple(SCHEMA.names), fail_on_data_loss=False)
    task = OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 10)
    for batch in read_ranges(task, client, lenient, SCHEMA):
        seen += batch["partition"].to_pylist()
        client.starts.update({T0: 5, T1: 5})
    assert seen == [0] * 5 + [1] * 5
    assert client.started[-1] == {T1: (5, 10)}


# ---------------------------------------------------------------- decoding in the source


class Lengths:
    """A decoding: the length of each value that is not null, beside its offset."""

    SCHEMA = pa.schema([("offset", pa.int64()), ("length", pa.int32())])

    def decoder(self, schema: pa.Schema, zone: str | None = None) -> Decoder:
        def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
            batch = batch.filter(pc.less(pc.binary_length(batch["value"]), 50))
            return pa.RecordBatch.from_arrays(
                [batch["offset"], pc.binary_length(batch["value"])], schema=schema
            )

        return decode


def test_decoding_makes_the_columns_and_may_drop_rows() -> None:
    client = MemoryRecords(
        {T0: [(0, b"a"), (1, b"bb"), (2, b"x" * 99), (3, b"ccc")]}, at_once=2, columns=("value", "offset")
    )
    how = ReadSettings(("value", "offset"), decoding=Lengths(), max_rows=1)
    made = list(read_ranges((OffsetRange("t", 0, 0, 4),), client, how, Lengths.SCHEMA))
    assert [batch.to_pylist() for batch in made] == [
        [{"offset": 0, "length": 1}],
        [{"offset": 1, "length": 2}],
        [{"offset": 3, "length": 3}],
    ]
