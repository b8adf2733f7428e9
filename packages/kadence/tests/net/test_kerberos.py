"""Contexts of Kerberos are begun on a thread of their own, one for each connection that waits."""

from __future__ import annotations

import threading

import pytest
from tests.patience import PATIENCE

from kadence.connection.sasl.exchange import Exchange
from kadence.connection.sasl.plain import Plain
from kadence.errors import AuthenticationError, ConnectError
from kadence.net.kerberos import KerberosLogin


class Centre:
    """Stands for the library: makes one exchange when it is allowed to, or fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.allowed = threading.Semaphore(0)
        self.notified = threading.Semaphore(0)
        self.error: Exception | None = None
        self.login = KerberosLogin(self._begin, "principal 'alice'", self.notified.release)

    def _begin(self, host: str) -> Exchange:
        self.asked.append(host)
        assert self.allowed.acquire(timeout=PATIENCE)
        if self.error is not None:
            raise self.error
        return Plain(host, "")

    def make(self) -> None:
        """Let one end, and wait until it lies ready."""
        self.allowed.release()
        assert self.notified.acquire(timeout=PATIENCE)


@pytest.fixture
def centre() -> Centre:
    return Centre()


def test_a_connection_waits_for_its_context_and_gets_it_once(centre: Centre) -> None:
    login = centre.login
    assert login.begin(0, "a") is None
    assert not login.deliver(1)
    centre.make()
    assert login.deliver(2)
    assert login.begin(2, "a") is not None
    login.served()
    assert login.begin(3, "a") is None, "a context is good for one connection"
    login.close()


def test_connections_that_wait_get_one_each_and_ask_no_more_than_that(centre: Centre) -> None:
    login = centre.login
    for host in ("a", "a", "b"):
        assert login.begin(0, host) is None
    got: list[str] = []
    waiting = ["a", "a", "b"]
    for now in range(1, 4):
        centre.make()
        assert login.deliver(now)
        for host in tuple(waiting):
            if login.begin(now, host) is not None:
                waiting.remove(host)
                got.append(host)
        login.served()
    assert (got, waiting) == (["a", "a", "b"], [])
    assert centre.asked == ["a", "a", "b"]
    login.close()


def test_a_connection_that_finds_another_one_has_taken_its_context_gets_a_new_one(centre: Centre) -> None:
    login = centre.login
    assert login.begin(0, "a") is None
    centre.make()
    login.deliver(1)
    assert login.begin(1, "a") is not None
    assert login.begin(1, "a") is None
    login.served()
    centre.make()
    login.deliver(2)
    assert login.begin(2, "a") is not None
    assert centre.asked == ["a", "a"]
    login.close()


def test_connections_that_come_again_and_again_pile_up_no_work(centre: Centre) -> None:
    """A centre that does not answer: each attempt to connect times out, and the next one asks again."""
    login = centre.login
    for now in range(100):
        assert login.begin(now, "a") is None
    for _ in range(4):
        centre.make()
    assert login.deliver(100)
    assert len(centre.asked) == 4
    got = [login.begin(100, "a") for _ in range(5)]
    assert [one is not None for one in got] == [True] * 4 + [False]
    login.served()
    centre.make()
    assert login.deliver(101)
    assert login.begin(101, "a") is not None
    login.close()


def test_what_nobody_took_in_time_is_not_used(centre: Centre) -> None:
    login = centre.login
    assert login.begin(0, "a") is None
    centre.make()
    login.deliver(1)
    login.served()
    assert login.begin(1 + 60_001, "a") is None
    centre.make()
    login.close()


@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (ConnectError("no centre answers"), ConnectError, "no centre answers"),
        (
            OSError("disk on fire"),
            AuthenticationError,
            "no ticket for principal 'alice': OSError: disk on fire",
        ),
    ],
)
def test_a_failure_is_told_to_whoever_waits_and_the_next_one_tries_again(
    centre: Centre, raised: Exception, kind: type[Exception], told: str
) -> None:
    login, centre.error = centre.login, raised
    assert login.begin(0, "a") is None
    centre.make()
    login.deliver(1)
    with pytest.raises(kind, match=told):
        login.begin(1, "a")
    login.served()
    assert login.begin(2, "a") is None
    centre.make()
    login.close()


def test_the_thread_ends_with_the_client(centre: Centre) -> None:
    centre.login.begin(0, "a")
    centre.make()
    thread = centre.login._thread
    assert thread is not None
    centre.login.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert repr(centre.login) == "<login by GSSAPI of principal 'alice'>"
