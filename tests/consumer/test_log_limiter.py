"""What a log says once."""

from __future__ import annotations

from kadence.consumer.log_limiter import LogLimiter, in_short
from kadence.types import TopicPartition


def test_a_change_is_news_a_repetition_only_after_a_minute() -> None:
    news = LogLimiter()
    assert news.is_new(0, "t-0", "A")
    assert not news.is_new(1, "t-0", "A")
    assert news.is_new(2, "t-1", "A"), "another subject"
    assert news.is_new(3, "t-0", "B")
    assert news.is_new(4, "t-0", "A")
    assert not news.is_new(60_003, "t-0", "A")
    assert news.is_new(60_004, "t-0", "A")
    news.over("t-0")
    assert news.is_new(60_005, "t-0", "A")


def test_partitions_in_short() -> None:
    assert in_short([]) == "none"
    numbers = [0, 1, 2, 7, 9, 10]
    found = in_short([*(TopicPartition("t", n) for n in reversed(numbers)), TopicPartition("a", 3)])
    assert found == "a[3] t[0-2,7,9-10]"
