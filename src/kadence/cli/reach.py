"""Ends a command soon when no broker can be reached: the clients themselves would try for a minute."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.cli.common import CommandError

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["admin_settings", "quiet", "reached"]

REACHED_S: Final = 4.0
"""How long a connection is tried."""


def admin_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a consumer or producer those that an `Admin` has, too."""
    from kadence.config import AdminConfig, keys

    known = {key.name for key in keys(AdminConfig)}
    return {name: value for name, value in config.items() if name.replace("_", ".") in known}


@contextlib.contextmanager
def reached(config: Mapping[str, Any]) -> Iterator[Admin]:
    """An `Admin` of a cluster that has answered.

    A broker that is merely slow, or does not describe its cluster, is no error here.

    Raises:
        CommandError: no address could be connected to, or each hung up: a listener that wants a login does so.
        AuthenticationError: a broker refuses the credentials.
    """
    from kadence import Admin
    from kadence.errors import BrokerError, ConnectError, DisconnectedError, KafkaTimeoutError

    patience = config.get("default.api.timeout.ms", "")
    seconds = min(REACHED_S, int(patience) / 1000) if str(patience).isdecimal() else REACHED_S
    with Admin({"socket.connection.setup.timeout.ms": int(seconds * 900), **config}) as admin:
        try:
            with quiet():
                admin.describe_cluster(timeout=seconds)
        except KafkaTimeoutError as problem:
            cause = problem.__cause__
            if isinstance(cause, ConnectError):
                raise CommandError(
                    f"{cause}; name a broker with -b HOST:PORT, or start one: kadence broker"
                ) from None
            if isinstance(cause, DisconnectedError):
                # What it says itself, without what it was asked.
                raise CommandError(str(cause.__cause__ or cause)) from None
        except BrokerError:
            pass
        yield admin


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without log lines for each attempt to connect: one sentence says it all."""
    log = logging.getLogger("kadence")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
