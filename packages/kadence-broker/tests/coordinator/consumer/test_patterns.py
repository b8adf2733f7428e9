"""Regular expressions of subscriptions: RE2's syntax, and whole names."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from kadence_broker.coordinator.consumer import patterns
from kadence_broker.coordinator.consumer.patterns import (
    MOST_CHARACTERS,
    InvalidPatternError,
    Matching,
    matches,
    validate,
)

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


def test_only_a_few_expressions_stay_compiled_and_none_is_large() -> None:
    re2: Any = pytest.importorskip("re2")
    re2.purge()
    patterns._compiled.cache_clear()
    gc.collect()
    before = sum(isinstance(each, re2._Regexp) for each in gc.get_objects())

    for number in range(200):
        validate(f"{number}.*")
        assert patterns._compiled(f"{number}.*").options.max_mem == 1024 * 1024

    kept = sum(isinstance(each, re2._Regexp) for each in gc.get_objects()) - before
    assert kept == 16


@pytest.mark.parametrize("pattern", [r"\pL{1000}", "(?:.?){1000}" * 40])
def test_an_expression_that_needs_more_than_a_mebibyte_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match="too large"):
        validate(pattern)


def test_the_length_of_an_expression_is_bounded() -> None:
    validate("a" * MOST_CHARACTERS)
    with pytest.raises(InvalidPatternError, match=f"{MOST_CHARACTERS + 1} characters"):
        validate("a" * (MOST_CHARACTERS + 1))


@pytest.mark.parametrize("bad", ["(", r"\C", "(?P<a>x)(?P<a>y)"])
def test_an_error_has_the_beginning_of_a_long_expression(bad: str) -> None:
    """The text of an answer has 32,767 bytes at most; here are four for each character."""
    with pytest.raises(InvalidPatternError) as caught:
        validate("\U0001f600" * 16_000 + bad)
    assert len(str(caught.value)) < 600


def test_a_step_of_matching_is_bounded_by_what_the_engine_may_have_to_do() -> None:
    names = ["a" * 200] * 15
    small, large = Matching(["a*"], names), Matching(["(?:(?:a?){30}){30}x"], names)

    assert small.advance()
    steps = 1
    while not large.advance():
        steps += 1
    # 1,805 instructions, 200 characters: six names are one step.
    assert steps == 3
    assert large.found == {"(?:(?:a?){30}){30}x": frozenset()}
