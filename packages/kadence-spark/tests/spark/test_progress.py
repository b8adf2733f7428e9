"""Lag from what Spark reports."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kadence.types import TopicPartition
from kadence_spark import lag

REPORT = {
    "sources": [
        {
            "endOffset": {"#t": {"0": 0}, "t": {"0": 10, "1": 5}},
            "latestOffset": {"t": {"0": 15, "1": 5, "2": 7}},
        },
        {"endOffset": "17", "latestOffset": "18"},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": json.dumps({"u": {"0": 3}}), "latestOffset": json.dumps({"u": {"0": 2}})},
        {"endOffset": "not json", "latestOffset": 7},
    ]
}


def test_lag_is_what_is_not_in_the_sink() -> None:
    expected = {
        TopicPartition("t", 0): 5,
        TopicPartition("t", 1): 0,
        TopicPartition("t", 2): 7,
        TopicPartition("u", 0): 0,
    }
    assert lag(REPORT) == expected
    assert lag(SimpleNamespace(json=json.dumps(REPORT))) == expected


def test_no_report_yet() -> None:
    assert lag(None) == {}


def test_a_query_and_whatever_else_is_given() -> None:
    progress = SimpleNamespace(json=json.dumps(REPORT))
    assert lag(SimpleNamespace(lastProgress=progress)) == lag(REPORT)
    for wrong in (7, "query", {"id": 3}, object()):
        with pytest.raises(TypeError, match=r"a streaming query, its lastProgress, or .* dict"):
            lag(wrong)


def test_a_query_that_has_reported_nothing_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    named = SimpleNamespace(lastProgress=None, runId="run-1", name="orders")
    nameless = SimpleNamespace(lastProgress=None, runId="run-2", name=None)
    for query in (named, nameless, named):
        assert lag(query) == {}
    assert [message.partition(" has not reported progress yet")[0] for message in caplog.messages] == [
        "query orders",
        "query run-2",
    ]
    assert all(message.endswith("call it again after its first batch") for message in caplog.messages)
    named.lastProgress = SimpleNamespace(json=json.dumps(REPORT))
    assert lag(named) == lag(REPORT)


def test_a_partition_that_no_batch_has_met_counts_from_its_start() -> None:
    source = {"endOffset": {"t": {"0": 3}}, "latestOffset": {"#t": {"1": 40}, "t": {"0": 3, "1": 45}}}
    assert lag({"sources": [source]}) == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 5}


def test_nobody_knows_the_lag_while_no_broker_answers() -> None:
    source = {"endOffset": {"#t": {"0": 0}, "@t=id": {}, "t": {"0": 3}}, "latestOffset": {}}
    assert lag({"sources": [source]}) == {TopicPartition("t", 0): None}
