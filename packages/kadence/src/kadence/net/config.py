"""The settings of a network client. They are the same for consumer, producer and admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from kadence.lazy_dataclasses import dataclass
from kadence.version import VERSION

if TYPE_CHECKING:
    import ssl

    from kadence.config import ClientConfig
    from kadence.security import Credentials

__all__ = ["ConnectionConfig"]

# Below the values of a TLS alert (352 MB) or "HTTP" (1.2 GB) read as a length, so those are always recognised.
_FRAME_BYTES: Final = 268_435_456
# A response is a little longer than the records in it.
_FRAME_ROOM: Final = 16_777_216
_SPARE_BYTES: Final = 67_108_864


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Settings of one `NetworkClient`.

    Attributes:
        bootstrap: (host, port) pairs, in the order in which they are tried.
        returns_to_bootstrap: whether to try them again when no known broker can be reached (KIP-899).
        checks_cluster: whether brokers are told which node of which cluster the client means (KIP-1242).
        resolve_timeout_ms: after which the client ends if no name in ``bootstrap`` has an address (KIP-909); 0: never.
        connect_timeout_ms: for all addresses of one host together: TCP, TLS, ApiVersions and SASL.
        max_frame_bytes: the longest response that is accepted.
        receive_buffer_bytes, send_buffer_bytes: -1 leaves them to the system.
        ssl_context: None: plaintext. credentials: for SASL; None: no SASL. token_context: how to verify the token
            endpoint of OAUTHBEARER; None: as the system does.
        spare_arena_bytes: how much free memory for Fetch responses is kept for the next ones.
    """

    bootstrap: tuple[tuple[str, int], ...]
    returns_to_bootstrap: bool = True
    checks_cluster: bool = True
    client_id: str = "kadence"
    request_timeout_ms: int = 30_000
    resolve_timeout_ms: int = 0
    connect_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    max_frame_bytes: int = _FRAME_BYTES
    spare_arena_bytes: int = _SPARE_BYTES
    ssl_context: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    token_context: ssl.SSLContext | None = None
    software_name: str = "kadence"
    software_version: str = "0"

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """The network part of a client's configuration.

        Raises:
            ConfigError: a PEM file that cannot be read or used.
        """
        context, tokens = _contexts(config)
        return cls(
            bootstrap=tuple(split_address(address) for address in config.bootstrap_servers),
            returns_to_bootstrap=(begins_again := config.metadata_recovery_strategy == "rebootstrap"),
            checks_cluster=begins_again and config.metadata_cluster_check_enable,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            resolve_timeout_ms=config.bootstrap_resolve_timeout_ms,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=max(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            connections_max_idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            max_frame_bytes=max(_FRAME_BYTES, getattr(config, "fetch_max_bytes", 0) + _FRAME_ROOM),
            spare_arena_bytes=min(_SPARE_BYTES, getattr(config, "buffer_memory", _SPARE_BYTES)),
            ssl_context=context,
            credentials=_credentials(config),
            token_context=tokens,
            software_version=VERSION,
        )


def _credentials(config: ClientConfig) -> Credentials | None:
    """The keys of SASL are read by a module that is imported only with SASL."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    from kadence.security.login import credentials

    return credentials(config)


def _contexts(config: ClientConfig) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For brokers, and for the token endpoint. OpenSSL is loaded only if one of them is needed."""
    has_tls = config.security_protocol.endswith("SSL")
    if not has_tls and not config.sasl_oauthbearer_token_endpoint_url:
        return None, None
    # The network thread, which must not wait for files, finds loaded what it needs of TLS.
    from kadence.net import secured  # noqa: F401
    from kadence.net.tls import make_context, token_context

    return make_context(config) if has_tls else None, token_context(config)


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` to its parts."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
