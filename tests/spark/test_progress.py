"""Lag from what Spark reports."""

from __future__ import annotations

import json
from types import SimpleNamespace

from kadence.spark import lag
from kadence.types import TopicPartition

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
