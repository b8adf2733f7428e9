"""Names in bootstrap.servers that have no address, and how long they may (KIP-909)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.net.conftest import Connect
from tests.net.servers import answering, serve
from tests.net.test_client import METADATA

from kadence import Admin, Consumer, Producer
from kadence.clock import FOREVER
from kadence.errors import BootstrapResolutionError
from kadence.net.dial import Address, Found
from kadence.net.names import BootstrapNames
from kadence.protocol.metadata import MetadataResponse

NAMES = [("a", 1), ("b", 1)]
UNKNOWN = OSError(-2, "Name or service not known")
AN_ADDRESS = (Address(socket.AF_INET, ("10.0.0.1", 1)),)


def test_the_time_runs_from_the_first_look_up() -> None:
    names = BootstrapNames(NAMES, 1_000)
    names.check(10_000)
    names.sought(500)
    names.sought(900)
    assert names.due == 1_500
    names.found(Found("a", 1, (), UNKNOWN))
    names.check(1_499)
    with pytest.raises(BootstrapResolutionError, match=r"timeout\.ms=1000: a: Name or service not known"):
        names.check(1_500)


def test_one_name_that_has_an_address_is_enough_and_for_ever() -> None:
    names = BootstrapNames(NAMES, 1_000)
    names.sought(0)
    names.found(Found("a", 1, (), UNKNOWN))
    names.found(Found("b", 1, AN_ADDRESS, None))
    assert names.due == FOREVER
    names.sought(5_000)
    names.found(Found("b", 1, (), UNKNOWN))
    names.check(100_000)


def test_a_broker_that_has_an_address_does_not_count() -> None:
    names = BootstrapNames(NAMES, 1_000)
    names.sought(0)
    names.found(Found("broker-1", 1, AN_ADDRESS, None))
    with pytest.raises(BootstrapResolutionError, match="no answer"):
        names.check(1_000)


def test_with_a_numeric_address_no_time_runs() -> None:
    names = BootstrapNames([("a", 1), ("127.0.0.1", 2)], 1_000)
    names.sought(0)
    names.check(1_000_000)


def test_a_name_that_comes_in_time_is_used(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="c"))) as (host, port):
        tries: list[int] = []

        def lookup(*_: Any, **__: Any) -> list[Any]:
            tries.append(1)
            if len(tries) < 3:
                raise UNKNOWN
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

        driver = connect(("kafka.example", 9092), lookup=lookup, resolve_timeout_ms=60_000)
        assert driver.ask(METADATA).response.cluster_id == "c"


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_a_client_without_an_address_is_finished(kind: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": "no.such.host:9092",
        "bootstrap_resolve_timeout_ms": 100,
        "reconnect_backoff_ms": 10,
    }
    client: Any
    call: Callable[[], object]
    if kind == "consumer":
        client = Consumer(**settings)
        call = lambda: client.partitions_for("t")  # noqa: E731
    elif kind == "producer":
        client = Producer(**settings)
        call = lambda: client.send("t", b"v")  # noqa: E731
    else:
        client = Admin(**settings)
        call = client.list_topics
    with client:
        for _ in range(2):
            with pytest.raises(BootstrapResolutionError, match=r"timeout\.ms=100: no\.such\.host: "):
                call()
