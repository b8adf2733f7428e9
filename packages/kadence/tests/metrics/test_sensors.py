"""Statistics under virtual time, against values computed by hand. `test_java` compares with Kafka's own."""

from __future__ import annotations

from math import isnan

import pytest

from kadence.metrics import MetricName
from kadence.metrics.sensors import WINDOW_MS, Meter, Tally


def test_what_was_never_measured_is_not_a_number_and_its_rate_is_nothing() -> None:
    meter = Meter()
    assert (meter.count, meter.total, meter.rate(5_000), meter.frequency(5_000)) == (0, 0, 0, 0)
    assert all(map(isnan, (meter.average(5_000), meter.highest(5_000), meter.lowest(5_000))))


def test_a_rate_divides_by_one_whole_window_at_least() -> None:
    """Ten values in the first second are not ten per second: Kafka counts a window before it as empty."""
    meter = Meter()
    for tenth in range(10):
        meter.record(1_000_000 + 100 * tenth, 4)
    assert meter.rate(1_001_000) == pytest.approx(40 / 31)
    assert meter.frequency(1_001_000) == pytest.approx(10 / 31)
    assert meter.frequency(1_001_000, 3_600_000) == pytest.approx(10 * 3600 / 31)


def test_a_rate_over_two_windows_divides_by_the_time_since_the_oldest_began() -> None:
    meter = Meter()
    for second in range(50):
        meter.record(second * 1_000, 2)
    assert meter.rate(50_000) == pytest.approx(100 / 50)


def test_values_count_until_a_minute_after_the_last_of_their_sample() -> None:
    meter = Meter()
    meter.record(0, 5)
    meter.record(10_000, 9)
    assert (meter.average(69_999), meter.highest(69_999), meter.lowest(69_999)) == (7, 9, 5)
    assert isnan(meter.highest(70_000))
    assert meter.rate(70_000) == 0
    assert (meter.count, meter.total) == (2, 14)


def test_a_maximum_is_forgotten_with_its_sample_only() -> None:
    meter = Meter()
    meter.record(0, 100)
    meter.record(WINDOW_MS, 1)
    meter.record(2 * WINDOW_MS - 1, 3)
    assert (meter.highest(59_999), meter.lowest(59_999)) == (100, 1)
    assert (meter.highest(60_000), meter.lowest(60_000)) == (3, 1)


def test_reading_changes_nothing() -> None:
    meter = Meter()
    meter.record(0, 1)
    before = [meter.rate(now) for now in (1_000, 30_000, 59_000, 60_000)]
    assert [meter.rate(now) for now in (1_000, 30_000, 59_000, 60_000)] == before


def test_a_tally_is_cut_into_samples_by_whoever_writes_it() -> None:
    tally = Tally(0)
    tally.count, tally.total, tally.last = 3, 300, 20_000
    tally.mark(30_000)
    tally.count, tally.total, tally.last = 4, 360, 40_000
    assert tally.rate(45_000) == pytest.approx(360 / 45)
    assert tally.average(45_000) == 90
    assert tally.rate(80_000) == pytest.approx(60 / 50)
    assert tally.rate(100_000) == 0


def test_names_are_equal_by_name_group_and_tags() -> None:
    one = MetricName("records-lag", "g", {"topic": "t", "partition": "0"}, "how far behind")
    two = MetricName("records-lag", "g", {"partition": "0", "topic": "t"})
    assert one == two
    assert {one: 1.0}[two] == 1.0
    assert one != MetricName("records-lag", "g", {"topic": "t", "partition": "1"})
    with pytest.raises(AttributeError):
        one.name = "other"


def test_names_can_be_pickled_and_show_themselves() -> None:
    import pickle

    name = MetricName("fetch-total", "g", {"client-id": "c"}, "d")
    copy = pickle.loads(pickle.dumps(name))
    assert (copy, copy.description, repr(copy)) == (name, "d", "<g fetch-total client-id=c>")
    assert name.cumulative
    assert not MetricName("fetch-rate", "g").cumulative
