"""Where a query starts by time (W7): what is written while the brokers are asked is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from kadence.errors import ConfigError
from kadence.types import TopicPartition
from kadence_spark.source.start import AtTimestamp, AtTimestamps, Place, resolve

T0 = TopicPartition("t", 0)


class Brokers:
    """A log of six records that are older than the time; one of now is written after each question."""

    def __init__(self, *, finds: int | None = None) -> None:
        self.end = 6
        self._finds = finds

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        raise AssertionError("nobody asks for it")

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        end, self.end = self.end, self.end + 1
        return dict.fromkeys(partitions, end)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.end += 1
        return dict.fromkeys(times, self._finds)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        raise AssertionError("nobody asks for it")


PLACES = [
    AtTimestamp("startingTimestamp", 7, True),
    AtTimestamps("startingOffsetsByTimestamp", {T0: 7}, True),
]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_passed_over_where_no_record_is_so_late(place: Place) -> None:
    assert resolve(place, [T0], Brokers()) == {T0: 6}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_found_by_time_counts(place: Place) -> None:
    assert resolve(place, [T0], Brokers(finds=3)) == {T0: 3}


def test_without_the_strategy_latest_it_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no record of t-0 is as late as 7"):
        resolve(AtTimestamp("startingTimestamp", 7, False), [T0], Brokers())
