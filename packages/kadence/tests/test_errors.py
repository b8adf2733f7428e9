"""The error tree: codes survive, everything crosses processes."""

from __future__ import annotations

import pickle

import pytest

from kadence import errors
from kadence.errors.remedies import REPEATED, Remedy, may_pass, remedy_of, remedy_of_code
from kadence.producer.transaction_requests import Outcome, outcome_of
from kadence.producer.verdicts import Verdict, verdict_of
from kadence.protocol import error_codes as ec


def test_an_unknown_code_survives() -> None:
    error = errors.for_code(31999)
    assert type(error) is errors.BrokerError
    assert (error.code, error.name, error.retriable) == (31999, "UNKNOWN(31999)", False)


def test_a_known_code_has_its_class_name_and_retriability() -> None:
    error = errors.for_code(6)
    assert isinstance(error, errors.NotLeaderError)
    assert error.retriable
    assert "NOT_LEADER_OR_FOLLOWER" in str(error)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_can_be_pickled(name: str) -> None:
    cls = getattr(errors, name)
    if not (isinstance(cls, type) and issubclass(cls, Exception)):
        return
    error = cls("what happened")
    error.add_note("while testing")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)
    assert copy.__notes__ == ["while testing"]


def test_the_table_of_what_mends_an_error_says_repeated_of_what_kafka_calls_retriable() -> None:
    assert {code for code in ec.NAMES if remedy_of_code(code) in REPEATED} == ec.RETRIABLE
    assert remedy_of_code(31999) is Remedy.NONE


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_of_the_client_is_mended_by_a_repetition_where_it_is_retriable(name: str) -> None:
    cls = getattr(errors, name)
    if isinstance(cls, type) and issubclass(cls, errors.KafkaError):
        error = cls("what happened")
        assert (remedy_of(error) in REPEATED) == error.retriable
        assert may_pass(error) == (error.retriable or remedy_of(error) is Remedy.PERMISSION)


@pytest.mark.parametrize("code", sorted(ec.NAMES))
def test_what_a_producer_and_a_transaction_do_follows_from_the_table(code: int) -> None:
    """But for what has a meaning for records, or for transactions, alone."""
    remedy, verdict, outcome = remedy_of_code(code), verdict_of(code), outcome_of(code)
    if remedy in REPEATED:
        assert verdict in (Verdict.RETRY, Verdict.RETRY_ELSEWHERE)
        assert outcome in (Outcome.RETRY, Outcome.FIND_AGAIN)
    elif remedy is Remedy.FORM:
        assert (verdict, outcome) == (Verdict.SPLIT, Outcome.ABORT)
    else:
        assert verdict not in (Verdict.RETRY, Verdict.RETRY_ELSEWHERE, Verdict.SPLIT)
        assert outcome is not Outcome.FIND_AGAIN
        assert (outcome is Outcome.RETRY) == (code == ec.OPERATION_NOT_ATTEMPTED)
    assert (verdict is Verdict.RETRY_ELSEWHERE) == (remedy is Remedy.METADATA)
    if remedy is Remedy.MEMBERSHIP:
        assert outcome is Outcome.ABORT
