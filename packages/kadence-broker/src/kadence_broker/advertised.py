"""`advertised.listeners`: the addresses that clients are given in place of those on which the broker listens.

Behind a mapping of ports (a container, a tunnel, a NodePort) clients can connect only to these.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError

if TYPE_CHECKING:
    from kadence_broker.settings import Settings

__all__ = ["advertised_addresses"]

_KEY: Final = "advertised.listeners"

_LISTENER = re.compile(r"([a-z0-9_.-]+)://(.+):([0-9]{1,6})", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9._-]+", re.ASCII | re.IGNORECASE)


def advertised_addresses(settings: Settings, protocol: str, nodes: int) -> list[tuple[str, int]]:
    """The host and the port of each node for clients; empty if the settings name none.

    Args:
        protocol: the security protocol of every node. It is the name of the node's only listener.

    Raises:
        ConfigError: clients could not connect to one of them.
    """
    host = settings.advertised_host
    if not settings.advertised_listeners:
        if host:
            _checked("advertised.host.name", host)
        return []
    if host:
        raise ConfigError(f"{_KEY} has the host, too; leave out advertised.host.name")
    addresses = [_address(each.strip(), protocol) for each in settings.advertised_listeners.split(",")]
    if len(addresses) != nodes:
        raise ConfigError(
            f"{_KEY} must have one address for each node, in the order of their ids: {nodes}, not {len(addresses)}"
        )
    if len(set(addresses)) < nodes:
        raise ConfigError(f"{_KEY} has an address twice; clients could not tell the nodes apart")
    return addresses


def _address(text: str, protocol: str) -> tuple[str, int]:
    found = _LISTENER.fullmatch(text)
    if found is None:
        raise ConfigError(f"{_KEY}: {text!r} is no address with a port, such as {protocol}://localhost:19092")
    name, host, port = found[1].upper(), found[2], int(found[3])
    if name != protocol:
        raise ConfigError(
            f"{_KEY}: there is no listener {name}; the one of this broker is {protocol}, after its TLS and logins"
        )
    if not 1 <= port <= 65_535:
        raise ConfigError(f"{_KEY}: clients cannot connect to port {port}; name one from 1 to 65535")
    return _checked(_KEY, host[1:-1] if host.startswith("[") and host.endswith("]") else host), port


def _checked(key: str, host: str) -> str:
    """The host, if clients can connect to it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _NAME.fullmatch(host):
            raise ConfigError(f"{key}: {host!r} is no host, such as localhost or 192.0.2.1") from None
    else:
        if address.is_unspecified:
            raise ConfigError(
                f"{key}: {host} is for listening only; name the address that clients connect to"
            )
    return host
