"""GSSAPI's exchange (RFC 4752) with a context of our own, no Kerberos needed."""

from __future__ import annotations

import pytest

from kadence.connection.sasl.exchange import BadChallengeError
from kadence.connection.sasl.gssapi import Gssapi


class BrokenError(Exception):
    """Stands for an error of GSS-API."""


class Peer:
    """A context that is complete after some tokens, and whose protection is two brackets."""

    def __init__(self, *steps: bytes | None) -> None:
        self.steps = list(steps)
        self.complete = not steps

    def step(self, token: bytes | None = None) -> bytes | None:
        if token == b"junk":
            raise BrokenError("token is no token")
        said = self.steps.pop(0)
        self.complete = not self.steps
        return said

    def protect(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def open(self, token: bytes) -> bytes:
        if not token.startswith(b"["):
            raise BrokenError("message has been modified")
        return token[1:-1]


def exchange(*steps: bytes | None) -> Gssapi:
    return Gssapi(
        Peer(*steps), b"ticket", lambda error: str(error) if isinstance(error, BrokenError) else None
    )


def test_mutual_authentication_then_no_layer() -> None:
    talk = exchange(None)
    assert talk.first() == b"ticket"
    assert talk.answer(b"proof") == b"", "the broker speaks next"
    assert talk.answer(b"[\x07\x00\xff\xff]") == b"[\x01\x00\x00\x00]"
    assert talk.answer(b"") is None


def test_a_context_may_take_several_steps() -> None:
    talk = exchange(b"more", None)
    assert talk.answer(b"a") == b"more"
    assert talk.answer(b"b") == b""
    assert talk.answer(b"[\x01\x00\x00\x00]") == b"[\x01\x00\x00\x00]"


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"[\x06\x00\xff\xff]", "insists on a security layer"),
        (b"[\x01\x00]", "has 2 bytes, not 4"),
        (b"[]", "has 0 bytes"),
        (b"\x01\x00\x00\x00", "Kerberos: message has been modified"),
    ],
)
def test_what_is_no_offer_ends_it(challenge: bytes, told: str) -> None:
    with pytest.raises(BadChallengeError, match=told):
        exchange().answer(challenge)


def test_a_broker_that_cannot_prove_itself_is_not_trusted() -> None:
    with pytest.raises(BadChallengeError, match="Kerberos: token is no token"):
        exchange(None).answer(b"junk")


def test_a_bug_is_not_the_brokers_fault() -> None:
    with pytest.raises(IndexError):
        Gssapi(_Buggy(), b"", lambda error: None).answer(b"x")


class _Buggy(Peer):
    def __init__(self) -> None:
        super().__init__(b"")

    def step(self, token: bytes | None = None) -> bytes | None:
        raise IndexError
