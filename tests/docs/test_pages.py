"""Facts that single pages repeat from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kadence import Consumer, KafkaError, errors
from kadence.metrics.prometheus import prometheus_name
from kadence.protocol import error_codes

DOCS = Path(__file__).resolve().parents[2] / "docs"


def retriable(kind: type[KafkaError]) -> bool:
    return kind.code in error_codes.RETRIABLE if issubclass(kind, errors.BrokerError) else kind.retriable


def test_each_error_says_what_to_do_and_whether_it_is_retriable() -> None:
    page = (DOCS / "errors.md").read_text()
    told = dict(
        re.findall(r"^\| `(\w+Error)` \| (yes|no|depends on the (?:code|rows)) \|", page, re.MULTILINE)
    )
    kinds = [getattr(errors, name) for name in errors.__all__]
    expected = {kind.__name__: "yes" if retriable(kind) else "no" for kind in kinds if isinstance(kind, type)}
    del expected["KafkaError"]  # the page's first sentence
    expected |= {"BrokerError": "depends on the code", "RowsNotWrittenError": "depends on the rows"}
    assert told == expected


@pytest.mark.parametrize("page", ["production.md", "metrics.md"])
def test_names_in_rules_for_prometheus_are_those_of_the_collector(page: str) -> None:
    known = {prometheus_name(name) for name in Consumer.metric_names()}
    text = (DOCS / page).read_text()
    named = set(re.findall(r"\bka(?:fka|dence)_consumer_\w+", text))
    assert named
    assert named - known == set()


def test_what_one_client_may_cost_has_a_test_in_each_row() -> None:
    page = (DOCS.parent / "SECURITY.md").read_text()
    (table,) = re.findall(
        r"## What one client of the embedded broker may cost\n.*?\| what .*?\n\|---\|---\|---\|\n(.*?)\n\n",
        page,
        re.DOTALL,
    )
    rows = table.splitlines()
    assert len(rows) > 10
    for row in rows:
        (path, name) = re.findall(r"\| `([\w./]+\.py)::(test_\w+)` \|$", row)[0]
        text = (DOCS.parent / "packages/kadence-broker/tests/broker" / path).read_text()
        assert f"\ndef {name}(" in text, row
