"""Completes suggested commands with the options by which this command line reached its cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from kadence.environment import servers_of
from kadence.lazy_dataclasses import dataclass
from kadence_cli.common import read_settings

if TYPE_CHECKING:
    import argparse

__all__ = ["SameCluster"]


@dataclass(frozen=True, slots=True)
class SameCluster:
    """The cluster and the login of a command line.

    Attributes:
        servers: its brokers; None if ``options`` have them. options: of the program (-c, --config). settings: of the
            command (-X).
    """

    servers: str | None
    options: str = ""
    settings: str = ""

    @classmethod
    def of(cls, arguments: argparse.Namespace, config: Mapping[str, Any]) -> SameCluster:
        """The cluster of this command line, from which ``config`` was made."""
        named = [("-c", arguments.cluster), ("--config", arguments.client_settings)]
        options = " ".join(f"{option} {quote(value)}" for option, value in named if value)
        are_named = bool(options) and not arguments.bootstrap_servers
        servers = None if are_named else str(config["bootstrap.servers"])
        return cls(servers, options, _shown(arguments.settings))

    def command(self, said: str) -> str:
        """A command of ``kadence``, completed; the part behind a pipe is unchanged."""
        is_default = self.servers == servers_of(os.environ)
        first, pipe, rest = said.partition(" | ")
        if self.options:
            first = f"kadence {self.options} {first.removeprefix('kadence ')}"
        # `kadence doctor` checks brokers only if they are named.
        if self.servers is not None and not (is_default and said != "kadence doctor"):
            first += f" -b {quote(self.servers)}"
        return f"{first}{self.settings and ' '}{self.settings}{pipe}{rest}"


def _shown(settings: list[str]) -> str:
    """The settings of -X; secret ones without their value, because output is shown to others."""
    from kadence.config import AdminConfig, keys

    shown = {key.name for key in keys(AdminConfig) if key.kind != "password"}
    return " ".join(
        "-X " + quote(f"{name}={value if name in shown else '…'}")
        for name, value in read_settings(settings).items()
    )
