"""``kadence top --serve``: the same screen in a browser, by textual-serve. Each page has a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import logging
import shlex
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kadence.errors import MissingDependencyError
from kadence_broker.server.listener import listen
from kadence_cli.common import say

try:
    from aiohttp import web
    from textual_serve import server as textual_serve
    from textual_serve.app_service import AppService
except ModuleNotFoundError as missing:
    raise MissingDependencyError(
        "kadence top --serve needs textual-serve: pip install 'kadence[serve]'"
    ) from missing

__all__ = ["serve"]

_TEMPLATES: Final = Path(__file__).with_name("templates")
"""A page of Kadence's own: textual-serve's loads a font from another site."""


def serve(arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        ConnectError: the port is in use, or the address is not of this machine. ConfigError: the port is invalid.
    """
    textual_serve.AppService = _Service  # type: ignore[attr-defined]
    server = _Server(_command(arguments), arguments.host, arguments.port, arguments.name)
    logging.getLogger("textual-serve").addHandler(logging.NullHandler())
    server.run()


def _command(arguments: argparse.Namespace) -> str:
    """The command line of each page's process."""
    command = [sys.executable, "-m", "kadence"]
    if arguments.cluster:
        command += ["-c", arguments.cluster]
    if arguments.client_settings:
        command += ["--config", arguments.client_settings]
    command += ["top", "--delay", f"{arguments.delay:g}"]
    if not arguments.records or not is_loopback(arguments.host):
        command.append("--no-records")
    if arguments.bootstrap_servers:
        command += ["-b", arguments.bootstrap_servers]
    for pair in arguments.settings:
        command += ["-X", pair]
    if arguments.group:
        command += ["--", arguments.group]
    return shlex.join(command)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_name(name: str, host: str, own: Collection[str]) -> bool:
    """Whether a request with this Host header is for this page (against DNS rebinding).

    Another site can point its own name at this address, and then send requests from its page as if from this one. It
    cannot do that with an IP address, or with a name of this server.

    Args:
        name: of the Host header, without the port. host: the listening address. own: names of this server.
    """
    if name in own or name == host:
        return True
    if is_loopback(host):
        return is_loopback(name)
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


class _Service(AppService):
    """The process of a page. Wait for it: outliving the event loop, it would end with a traceback."""

    async def stop(self) -> None:
        await super().stop()
        if self._process is not None:
            await self._process.wait()


class _Server(textual_serve.Server):
    """textual-serve's server with this page, without its log, and closed to the pages of other sites."""

    def __init__(self, command: str, host: str, port: int, name: str | None) -> None:
        names = [name] if name else []
        if not is_loopback(host):
            names += [socket.gethostname(), socket.getfqdn()]
        self._own = frozenset(map(str.lower, names))
        # The broker's own listen function: its errors have advice, and it returns the port chosen for 0.
        self._sock = listen(host, port)
        taken = self._sock.getsockname()[1]
        super().__init__(command, host, taken, title="kadence top", templates_path=_TEMPLATES)

    def run(self) -> None:
        web.run_app(self._make_app(), sock=self._sock, access_log=None, print=self._say_where)

    def _say_where(self, *_: object) -> None:
        """Print the address, without the command, which may have a password in it."""
        if not is_loopback(self.host):
            say(f"kadence top: whoever reaches {self.host}:{self.port} sees the groups; there is no password")
        say(f"kadence top is at {self.public_url}/ (Ctrl-C ends it)")

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: textual-serve would print its name and the command."""

    async def handle_index(self, request: web.Request) -> Any:
        self._check_name(request)
        # The page's own address, under the name by which it was opened.
        self.public_url = f"http://{request.host}"
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> Any:
        """Start a session. Refuse pages of other sites, which browsers allow to connect."""
        self._check_name(request)
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="this page may be opened at its own address only")
        return await super().handle_websocket(request)

    def _check_name(self, request: web.Request) -> None:
        """Raise if the Host header is not a name of this page."""
        if not is_own_name(urlsplit(f"//{request.host}").hostname or "", self.host, self._own):
            raise web.HTTPForbidden(
                text="kadence top is opened by an address that it listens on, or by the name given to --name"
            )
