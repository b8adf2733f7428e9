"""The mechanisms: the RFCs' own examples, and brokers that lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.connection.sasl.exchange import BadChallengeError, Exchange
from kadence.connection.sasl.oauthbearer import OAuthBearer
from kadence.connection.sasl.passwords import PasswordLogin
from kadence.connection.sasl.plain import Plain
from kadence.connection.sasl.scram import MAX_ITERATIONS, Scram
from kadence.security import Secret
from kadence.security.scram import HASHES

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_7677() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_plain_is_one_message() -> None:
    exchange: Exchange = Plain("tim", "tanstaaftanstaaf")
    assert exchange.first() == b"\0tim\0tanstaaftanstaaf"
    assert exchange.answer(b"") is None


def test_scram_as_in_rfc_7677() -> None:
    exchange = rfc_7677()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.answer(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.answer(SERVER_FINAL) is None


def test_scram_as_in_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hash of that time, which is no mechanism of ours."""
    monkeypatch.setitem(HASHES, "SCRAM-SHA-1", "sha1")
    exchange = Scram("SCRAM-SHA-1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    assert exchange.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    server = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    assert exchange.answer(server + b",s=QSXCR+Q6sek8bf92,i=4096") == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    assert exchange.answer(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None


def test_scram_names_are_escaped_and_nonces_differ() -> None:
    first = Scram("SCRAM-SHA-512", "a=b,c", "p").first()
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert Scram("SCRAM-SHA-512", "a=b,c", "p").first() != first


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"", "not one of SCRAM's"),
        (b"\xff\xfe", "not one of SCRAM's"),
        (b"e=unknown-user", "unknown-user"),
        (b"m=x," + SERVER_FIRST, "unknown extension"),
        (b"s=W22Z,i=4096", "lacks r="),
        (SERVER_FIRST.replace(b",i=4096", b""), "lacks i="),
        (SERVER_FIRST.replace(b"rOpr", b"rOps"), "does not begin with this client's"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "does not begin with this client's"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!22"), "broken base64"),
        (SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""), "is invalid"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-4096"), "is invalid"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (MAX_ITERATIONS + 1)), "iterations; between"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), "is invalid"),
    ],
)
def test_scram_refuses_a_first_message_that_is_wrong(challenge: bytes, told: str) -> None:
    exchange = rfc_7677()
    exchange.first()
    with pytest.raises(BadChallengeError) as error:
        exchange.answer(challenge)
    assert told in str(error.value)
    assert "pencil" not in str(error.value)


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "does not know the password"),
        (b"v=", "does not know the password"),
        (b"x=y", "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "not one of SCRAM's"),
        (b"v=!", "broken base64"),
    ],
)
def test_scram_believes_no_broker_without_the_password(challenge: bytes, told: str) -> None:
    exchange = rfc_7677()
    exchange.first()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(BadChallengeError, match=told):
        exchange.answer(challenge)


@given(st.binary(max_size=200), st.booleans())
def test_scram_answers_garbage_with_its_own_error(challenge: bytes, is_late: bool) -> None:
    exchange = rfc_7677()
    exchange.first()
    if is_late:
        exchange.answer(SERVER_FIRST)
    with pytest.raises(BadChallengeError):
        exchange.answer(challenge)


def test_oauthbearer_as_in_rfc_7628() -> None:
    exchange = OAuthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"traceId": "12"})
    assert exchange.first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01traceId=12\x01\x01"
    )
    assert exchange.answer(b"") is None


def test_oauthbearer_acknowledges_a_refusal_so_that_the_broker_can_end_it() -> None:
    assert OAuthBearer("t", {}).answer(b'{"status":"invalid_token"}') == b"\x01"
    for garbage in (b"no", b"[]", b"{}", b"\xff"):
        with pytest.raises(BadChallengeError):
            OAuthBearer("t", {}).answer(garbage)


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "a\n"])
def test_a_token_cannot_break_out_of_its_place(token: str) -> None:
    with pytest.raises(ValueError, match="no bearer token has"):
        OAuthBearer(token, {})


@pytest.mark.parametrize("pair", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "x\x01auth=y"}, {"a": "é"}])
def test_extensions_cannot_either(pair: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        OAuthBearer("t", pair)


def test_a_login_begins_an_exchange_of_its_mechanism_and_hides_the_password() -> None:
    plain, scrammed = (
        PasswordLogin(mechanism, "al", Secret("geheim")) for mechanism in ("PLAIN", "SCRAM-SHA-256")
    )
    assert isinstance(plain.begin(0), Plain)
    assert isinstance(scrammed.begin(0), Scram)
    assert repr(scrammed) == "<login by SCRAM-SHA-256 of user 'al'>"
