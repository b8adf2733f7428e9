"""Regular expressions of subscriptions: RE2's syntax, and whole names."""

from __future__ import annotations

import sys

import pytest

from kadence.coordinator.consumer import patterns
from kadence.coordinator.consumer.patterns import InvalidPatternError, matches, validate

NAMES = ["orders", "orders-eu", "old-orders", "payments"]


def test_whole_names_match() -> None:
    assert matches(["orders.*", "orders"], NAMES) == {
        "orders.*": frozenset({"orders", "orders-eu"}),
        "orders": frozenset({"orders"}),
    }


@pytest.mark.parametrize(
    "pattern", [r"\C", r"a\Cb", "(?P<a>x)(?P<a>y)", "(?P<a>x)|(?<a>y)", r"[[:alpha:]]\C"]
)
def test_what_kafkas_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        validate(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"\\C", r"\Q\C\E", "(?P<a>x)(?P<b>y)", r"\Q(?P<a>\E(?P<a>x)", "[(?P<a>](?P<a>x)", "[](?P<a>](?P<a>x)"],
)
def test_what_only_looks_like_it_is_not(pattern: str) -> None:
    validate(pattern)


@pytest.mark.parametrize("pattern", ["(orders", "(?=orders)", r"(o)\1", "a++", "[z-a]"])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match="syntax of RE2"):
        validate(pattern)


@pytest.mark.timeout(10)
def test_no_expression_keeps_the_broker_busy() -> None:
    assert matches(["(a+)+b"], ["a" * 249]) == {"(a+)+b": frozenset()}


def test_without_re2_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(InvalidPatternError, match=r"kadence\[broker\]"):
        validate("orders.*")
    assert matches(["orders.*"], NAMES) == {"orders.*": frozenset()}
