"""Ends a command soon when no broker can be reached: the clients themselves would try for a minute."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kadence.environment import REACHED_S
from kadence_cli.clusters import clusters_file
from kadence_cli.common import CommandError, client_config, cluster_asked, say

if TYPE_CHECKING:
    import argparse

    from kadence import Admin

__all__ = ["admin_settings", "quiet", "reached", "said_of_cluster"]


def admin_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a consumer or producer that an `Admin` has, too."""
    from kadence.config import AdminConfig, keys

    known = {key.name for key in keys(AdminConfig)}
    return {name: value for name, value in config.items() if name.replace("_", ".") in known}


@contextlib.contextmanager
def reached(config: Mapping[str, Any], arguments: argparse.Namespace) -> Iterator[Admin]:
    """An `Admin` of a cluster that has answered.

    A slow broker is not an error, but a message on stderr; nor is one that refuses to describe its cluster.

    Args:
        arguments: of the command line, which may name the cluster.

    Raises:
        CommandError: no address could be connected to, also later in the ``with`` block, or each closed the
            connection, as a listener that needs a login does.
        AuthenticationError: a broker refuses the credentials.
    """
    from kadence import Admin
    from kadence.errors import BrokerError, ConnectError, DisconnectedError, KafkaTimeoutError

    patience = str(config.get("default.api.timeout.ms", ""))
    is_short = patience.isdecimal() and int(patience) <= REACHED_S * 1000
    seconds = int(patience) / 1000 if is_short else REACHED_S
    with Admin({"socket.connection.setup.timeout.ms": int(seconds * 900), **config}) as admin:
        try:
            with quiet():
                admin.describe_cluster(timeout=seconds)
        except KafkaTimeoutError as problem:
            cause = problem.__cause__
            if isinstance(cause, ConnectError):
                raise CommandError(_unreached(str(cause), config, arguments)) from None
            if isinstance(cause, DisconnectedError):
                # The cause alone, without the request.
                said = said_of_cluster(str(cause.__cause__ or cause), arguments)
                raise CommandError(said) from None
            if not is_short:
                servers = config["bootstrap.servers"]
                whole = said_of_cluster(f"{servers} did not answer in time ({seconds:g} s)", arguments)
                say(f"kadence: {whole}; still waiting")
        except BrokerError:
            pass
        try:
            yield admin
        except KafkaTimeoutError as problem:
            # The first look may have been too short to find that out.
            if isinstance(problem.__cause__, ConnectError):
                raise CommandError(_unreached(str(problem.__cause__), config, arguments)) from None
            raise


def _unreached(why: str, config: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    """The error that no address could be connected to, with advice, which depends on where the addresses are from."""
    servers = str(config["bootstrap.servers"])
    cluster = cluster_asked(arguments, servers)
    if not cluster:
        return f"{why}; name a broker with -b HOST:PORT, or start one: kadence broker"
    return (
        f"{cluster}{_addresses(servers, why)} cannot be reached: {why}; its addresses stand in "
        f"{clusters_file(os.environ)}"
    )


def said_of_cluster(said: str, arguments: argparse.Namespace) -> str:
    """The message behind the cluster's name, and the addresses unless the message has them.

    Unchanged if the command line does not name a cluster.
    """
    if "bootstrap_servers" not in arguments:
        return said
    servers = str(client_config(arguments)["bootstrap.servers"])
    cluster = cluster_asked(arguments, servers)
    return f"{cluster}{_addresses(servers, said)}: {said}" if cluster else said


def _addresses(servers: str, said: str) -> str:
    are_said = all(address.strip() in said for address in servers.split(","))
    return "" if are_said else f" ({servers})"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without log lines for each connection attempt; the command prints one error."""
    log = logging.getLogger("kadence")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
