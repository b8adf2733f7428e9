"""The error tree: codes survive, everything crosses processes."""

from __future__ import annotations

import pickle

import pytest

from kadence import errors


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
