"""``kadence top --serve``: the page in a real browser, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.patience import until

import browser
from kadence import Consumer, Producer
from kadence.errors import MissingDependencyError
from kadence_broker import Broker
from kadence_testing.kafka import free_ports


@contextlib.contextmanager
def served(broker: Broker, *arguments: str) -> Iterator[str]:
    """The address of a page."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "kadence", "top", "--serve", "--port", str(port)]
    # What this user's top remembers is not for the page of a test.
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [*command, "-b", broker.bootstrap_servers, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": state},
        )
        yield from _until_it_ends(process, port)


def _until_it_ends(process: subprocess.Popen[str], port: int) -> Iterator[str]:
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert f"http://127.0.0.1:{port}/" in said
        assert "secret" not in said
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in process.communicate(timeout=60)[1]


def answered(port: int, path: str, **headers: str) -> int:
    """The status of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return connection.getresponse().status


def test_pages_of_other_sites_cannot_connect(broker: Broker) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    with served(broker, "-X", "client.id=secret") as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        assert answered(port, "/") == 200
        assert answered(port, "/ws", Origin=url.rstrip("/"), **upgrade) == 101
        assert answered(port, "/ws", Origin="http://elsewhere.example", **upgrade) == 403
        # A name of elsewhere that was made to lead here.
        elsewhere = f"elsewhere.example:{port}"
        assert answered(port, "/ws", Host=elsewhere, Origin=f"http://{elsewhere}", **upgrade) == 403
        assert answered(port, "/", Host=elsewhere) == 403


@pytest.mark.parametrize(
    ("name", "host", "own", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", "", True),
        ("localhost", "127.0.0.1", "", True),
        ("::1", "::1", "", True),
        ("10.0.0.5", "127.0.0.1", "", False),
        ("top.example", "127.0.0.1", "top.example", True),
        ("elsewhere.example", "127.0.0.1", "top.example", False),
        ("10.0.0.5", "0.0.0.0", "", True),
        ("fd00::5", "::", "", True),
        ("top.example", "0.0.0.0", "top.example", True),
        ("elsewhere.example", "0.0.0.0", "top.example", False),
        ("elsewhere.example", "10.0.0.5", "", False),
        ("top.example", "top.example", "", True),
    ],
)
def test_a_page_is_opened_by_its_own_name_only(name: str, host: str, own: str, expected: bool) -> None:
    """DNS rebinding: a name of elsewhere that leads here has the Host and the Origin of elsewhere, and they agree."""
    serve = pytest.importorskip("kadence_cli.top.serve", exc_type=MissingDependencyError)
    assert serve.is_own_name(name, host, {own} - {""}) == expected


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "10.0.0.5")])
def test_what_is_refused_under_another_name_says_how_to_open_it(host: str, address: str) -> None:
    serve = pytest.importorskip("kadence_cli.top.serve", exc_type=MissingDependencyError)

    def opened(name: str | None, asked: str) -> None:
        server = serve._Server("kadence", host, 0, name)
        with contextlib.closing(server._sock):
            server._check_name(SimpleNamespace(host=f"{asked}:80"))

    with pytest.raises(serve.web.HTTPForbidden) as refused:
        opened(None, "top.example")
    assert refused.value.text.endswith("by an address that it listens on, or by the name given to --name")
    opened(None, address)
    opened("top.example", "top.example")


def test_a_browser_shows_the_group(broker: Broker, tmp_path: Path) -> None:
    program = browser.find()
    if program is None:
        pytest.skip("NO BROWSER: kadence top --serve was not shown; apt-get install chromium-headless-shell")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", b"1")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "shown-in-a-browser",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings) as consumer:
        consumer.subscribe("flights")
        until(lambda: consumer.poll(0.1), every=0)
        consumer.commit()
        with served(broker) as url:
            asked, picture = asyncio.run(shown(program, url))
    assert picture.startswith(b"\x89PNG")
    assert [each for each in asked if not each.startswith((url, "data:"))] == []
    assert any("RobotoMono" in each for each in asked)
    (tmp_path / "page.png").write_bytes(picture)


async def shown(program: str, url: str) -> tuple[list[str], bytes]:
    async with browser.page(program) as page, asyncio.timeout(30):
        await page.open(url)
        await page.wait_for("shown-in-a-browser", "Stable")
        await page.press("\r")
        await page.wait_for("[members]", "reader", "flights 0")
        return page.requests, await page.picture()
