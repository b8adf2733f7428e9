"""Look-ups off the network thread."""

from __future__ import annotations

import socket
import threading
from typing import Any

from tests.patience import PATIENCE

from kadence.net.dial import Address, Resolver, interleave

V4, V6 = socket.AF_INET, socket.AF_INET6


def info(family: int, host: str) -> tuple[Any, ...]:
    return family, socket.SOCK_STREAM, 6, "", (host, 9092) if family == V4 else (host, 9092, 0, 0)


def test_families_take_turns_beginning_with_the_systems_choice() -> None:
    infos = [
        info(V6, "::1"),
        info(V6, "::2"),
        info(V6, "::1"),
        info(V4, "10.0.0.1"),
        info(V4, "10.0.0.2"),
        info(V4, "10.0.0.3"),
    ]
    hosts = [str(address) for address in interleave(infos)]
    assert hosts == ["[::1]:9092", "10.0.0.1:9092", "[::2]:9092", "10.0.0.2:9092", "10.0.0.3:9092"]


def test_numeric_addresses_are_answered_at_once_and_start_no_thread() -> None:
    resolver = Resolver(lambda: None)
    found = resolver.ask("127.0.0.1", 9092)
    assert found is not None
    assert found.addresses == (Address(V4, ("127.0.0.1", 9092)),)
    assert resolver._thread is None
    resolver.close()


def test_names_are_looked_up_once_on_the_worker() -> None:
    ready = threading.Event()
    callers = []

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        callers.append(threading.current_thread().name)
        return [info(V4, "10.0.0.1")]

    resolver = Resolver(ready.set, lookup)
    assert resolver.ask("kafka.example", 9092) is None
    assert resolver.ask("kafka.example", 9092) is None
    assert ready.wait(PATIENCE)
    [found] = resolver.results()
    assert (found.host, found.port, found.error) == ("kafka.example", 9092, None)
    assert callers == ["kadence-dns"]
    assert resolver.results() == []
    resolver.close()


def test_failures_come_back_as_results() -> None:
    ready = threading.Semaphore(0)

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        if host == "label..empty":
            host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolver = Resolver(ready.release, lookup)
    resolver.ask("no.such.host", 1)
    resolver.ask("label..empty", 1)
    assert ready.acquire(timeout=PATIENCE)
    assert ready.acquire(timeout=PATIENCE)
    errors = {found.host: str(found.error) for found in resolver.results()}
    assert "Name or service not known" in errors["no.such.host"]
    assert "not a host name" in errors["label..empty"]
    resolver.close()
