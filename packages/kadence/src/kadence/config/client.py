"""The keys that every client of a cluster has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from kadence.config.table import INT32_MAX, client_of, key, keys, read, unknown
from kadence.errors import ConfigError
from kadence.lazy_dataclasses import dataclass
from kadence.security import MECHANISMS, Secret

if TYPE_CHECKING:
    from kadence.security import Token

__all__ = ["AdminConfig", "ClientConfig", "Fault", "api_timeout", "generated_client_id"]

_client_ids = itertools.count(1)

_SECURITY: Final = ("security.", "sasl.", "ssl.")
"""The prefixes of keys about login and trust."""

Fault = tuple[str | None, str]
"""A key that is wrong, and the sentence that says why."""


def api_timeout() -> Any:
    """The row of ``default.api.timeout.ms``, for the clients that have it: a producer has max.block.ms."""
    return key(
        "int",
        60_000,
        "How long a blocking call without timeout= may take. It does not limit poll(), close(), or loops such as "
        "process().",
        low=0,
        high=INT32_MAX,
        since="KIP-266",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of every client of a cluster."""

    _BESIDES: ClassVar[str] = ""
    """An addition to the error for an argument that is not settings."""

    _REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys of other clients of which there is more to say than that this client does not have them."""

    bootstrap_servers: tuple[str, ...] = key(
        "list",
        (),
        "Required. Addresses (host:port) of brokers, from which the client learns all others; comma-separated or a "
        "list. If a name has several addresses, the client tries one after the other.",
    )
    bootstrap_resolve_timeout_ms: int = key(
        "int",
        0,
        "If no name in bootstrap.servers can be resolved within this time of the first look-up, calls raise "
        "BootstrapResolutionError, and the client can only be closed. 0: the client keeps trying, and calls end by "
        "their own timeouts.",
        low=0,
        high=INT32_MAX,
        since="KIP-909",
    )
    client_id: str = key(
        "string", "", "The client's name in the brokers' logs and quotas; generated when empty."
    )
    request_timeout_ms: int = key(
        "int",
        30_000,
        "How long the client waits for the response to a request; longer for Fetch, ShareFetch, JoinGroup and "
        "SyncGroup.",
        low=1,
        high=INT32_MAX,
    )
    retry_backoff_ms: int = key(
        "int",
        100,
        "How long the client usually waits before it repeats a failed request for the first time; at most "
        "retry.backoff.max.ms.",
        low=0,
    )
    retry_backoff_max_ms: int = key(
        "int",
        1_000,
        "While a request keeps failing, the wait usually doubles each time, up to this, and varies at random by up "
        "to 20 %.",
        low=0,
        since="KIP-580",
    )
    reconnect_backoff_ms: int = key(
        "int",
        50,
        "How long the client waits before it first tries again to connect to a broker.",
        low=0,
    )
    reconnect_backoff_max_ms: int = key(
        "int",
        1_000,
        "As retry.backoff.max.ms, for connection attempts; at least reconnect.backoff.ms.",
        low=0,
        since="KIP-144",
    )
    socket_connection_setup_timeout_ms: int = key(
        "int",
        10_000,
        "How long one attempt to connect to a broker may take: name look-up, all addresses, TLS and login.",
        low=1,
        since="KIP-601",
    )
    connections_max_idle_ms: int = key(
        "int",
        540_000,
        "The client closes a connection that has not been used for this long. -1: never.",
        low=-1,
    )
    metadata_max_age_ms: int = key(
        "int",
        300_000,
        "How old the cluster's metadata may become before the client requests it again.",
        low=0,
    )
    metadata_recovery_strategy: str = key(
        "choice",
        "rebootstrap",
        "What the client does when it can reach none of the known brokers. rebootstrap: it also tries the addresses"
        " in bootstrap.servers again. none: it keeps trying the known brokers.",
        choices=("rebootstrap", "none"),
        since="KIP-899",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = key(
        "int",
        300_000,
        "With metadata.recovery.strategy=rebootstrap: after metadata requests have failed for this long, the client"
        " asks bootstrap.servers again.",
        low=0,
        since="KIP-1102",
    )
    metadata_cluster_check_enable: bool = key(
        "bool",
        True,
        "With metadata.recovery.strategy=rebootstrap and Kafka 4.4 or newer: the client tells each broker which "
        "cluster id and node id it expects. Another broker refuses the connection, and the client asks "
        "bootstrap.servers again.",
        since="KIP-1242",
    )
    send_buffer_bytes: int = key(
        "int", -1, "Size of the socket's send buffer. -1: the operating system chooses it.", low=-1
    )
    receive_buffer_bytes: int = key(
        "int",
        -1,
        "As send.buffer.bytes, for the receive buffer.",
        low=-1,
    )
    security_protocol: str = key(
        "choice",
        "PLAINTEXT",
        "Whether connections are encrypted (SSL) and whether the client logs in (SASL).",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    sasl_mechanism: str | None = key(
        "choice",
        None,
        "How the client logs in when security.protocol is SASL_PLAINTEXT or SASL_SSL.",
        choices=MECHANISMS,
    )
    sasl_username: str | None = key("string", None, "User name for PLAIN and SCRAM.")
    sasl_password: Secret | None = key("password", None, "Password for PLAIN and SCRAM.")
    sasl_jaas_config: Secret | None = key(
        "password",
        None,
        "The credentials in Java's JAAS format, with PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or "
        "Krb5LoginModule.",
        since="KIP-85",
    )
    sasl_kerberos_service_name: str | None = key(
        "string", None, "For GSSAPI: the first part of the brokers' Kerberos principals, usually kafka."
    )
    sasl_kerberos_principal: str | None = key(
        "string",
        None,
        "For GSSAPI: the client's Kerberos principal. When not set, that of the keytab or of the ticket cache.",
    )
    sasl_kerberos_keytab: str | None = key(
        "string",
        None,
        "For GSSAPI: the file with the client's key. Without a keytab, here or in sasl.jaas.config, the client uses"
        " kinit's tickets.",
    )
    sasl_login_callback_handler_class: str | None = key(
        "string",
        None,
        "For settings copied from Java. Only OAuthBearerLoginCallbackHandler is accepted.",
    )
    sasl_oauthbearer_token_provider: Callable[[], Token] | None = key(
        "function",
        None,
        "A callable without arguments that returns a kadence.Token, or its name as module:function. The client "
        "calls it on a helper thread for each new token.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = key(
        "string",
        None,
        "The https address from which the client gets tokens with OAuth client credentials; http only to localhost.",
        since="KIP-768",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = key(
        "string", None, "The client's id at the token endpoint.", since="KIP-1139"
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = key(
        "password", None, "The client's secret at the token endpoint.", since="KIP-1139"
    )
    sasl_oauthbearer_scope: str | None = key(
        "string", None, "The OAuth scope of the tokens that the client requests.", since="KIP-1139"
    )
    sasl_oauthbearer_header_urlencode: bool | None = key(
        "bool",
        None,
        "Whether the client URL-encodes its id and secret, as RFC 6749 requires. As in Java, it does not by "
        "default.",
        since="KIP-1025",
    )
    ssl_ca_location: str | None = key(
        "string",
        None,
        "PEM file with the certificate authorities to trust. Without any trust settings, those of the operating "
        "system.",
    )
    ssl_certificate_location: str | None = key("string", None, "PEM file of the client certificate chain.")
    ssl_key_location: str | None = key(
        "string",
        None,
        "PEM file of the client's private key. When not set, the chain's file must contain it.",
    )
    ssl_key_password: Secret | None = key("password", None, "Password of the private key.")
    ssl_truststore_type: str | None = key("string", None, "Type of the trust store; only PEM is supported.")
    ssl_truststore_location: str | None = key(
        "string", None, "The same as ssl.ca.location; needs ssl.truststore.type=PEM."
    )
    ssl_truststore_certificates: str | None = key(
        "string", None, "The certificate authorities to trust, as PEM text.", since="KIP-651"
    )
    ssl_keystore_type: str | None = key("string", None, "Type of the key store; only PEM is supported.")
    ssl_keystore_location: str | None = key(
        "string",
        None,
        "PEM file with the client's private key and certificate chain; needs ssl.keystore.type=PEM.",
    )
    ssl_keystore_key: Secret | None = key(
        "password", None, "The client's private key as PEM text.", since="KIP-651"
    )
    ssl_keystore_certificate_chain: str | None = key(
        "string", None, "The client certificate chain as PEM text.", since="KIP-651"
    )
    ssl_endpoint_identification_algorithm: str = key(
        "choice",
        "https",
        "https: check that the broker's certificate names its host. Empty: do not check.",
        choices=("https", ""),
    )

    @classmethod
    def parse(cls, config: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """Read dotted keys from ``config`` and snake_case ones from keywords.

        Raises:
            ConfigError: unknown keys (each with the nearest known one), values of the wrong type or outside their
                bounds, the same key given both ways, or values that contradict each other. It names every mistake, each
                key as the caller wrote it; contradictions between keys only where each key was understood.
        """
        rows = {row.name: row for row in keys(cls)}
        given: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        mistakes: list[Fault] = []
        whatever: object = config or {}
        if not isinstance(whatever, Mapping):
            kind = type(whatever).__name__  # Not the value: it may hold a password.
            raise ConfigError(
                "settings are a mapping such as {'bootstrap.servers': 'localhost:9092'}, or keywords, "
                f"not a {kind}{cls._BESIDES}"
            )
        for name, value in (config or {}).items():
            if not isinstance(name, str):
                raise ConfigError(f"configuration keys are strings such as 'bootstrap.servers', not {name!r}")
            dotted = name.replace("_", ".")
            if dotted in given:
                mistakes.append((dotted, f"{dotted} is given twice: as {spelled[dotted]!r} and {name!r}"))
                continue
            given[dotted] = value
            spelled[dotted] = name
        for name, value in settings.items():
            dotted = name.replace("_", ".")
            if dotted in given:
                mistakes.append((dotted, f"{dotted} is given twice: in the dict and as {name}="))
                continue
            given[dotted] = value
            spelled[dotted] = name
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in rows:
                advice = cls._REFUSED.get(name) or _advice(name, value, given)
                mistakes.append((name, advice or unknown(spelled[name], cls, rows)))
                continue
            try:
                values[name.replace(".", "_")] = read(rows[name], value, spelled[name])
            except ConfigError as error:
                mistakes.append((name, _advice(name, value, {}) or str(error)))
        # The advice for a login of Java's is the same sentence for each of its keys.
        texts = [text for _, text in mistakes]
        mistakes = [each for at, each in enumerate(mistakes) if each[1] not in texts[:at]]
        result = cls(**values)
        faults = list(result._faults())
        if mistakes:
            _refuse(cls, mistakes + faults)
        _refuse(cls, faults + list(result._contradictions(spelled)))
        return result

    def _faults(self) -> Iterator[Fault]:
        """The errors of single keys that their types alone do not show."""
        for address in self.bootstrap_servers:
            host, colon, port = address.rpartition(":")
            if not (colon and host and "://" not in host and port.isdigit() and 0 < int(port) < 65536):
                yield (
                    "bootstrap.servers",
                    f"bootstrap.servers: {address!r} is not host:port, e.g. 'localhost:9092'",
                )

    def _contradictions(self, given: Mapping[str, str]) -> Iterator[Fault]:
        """The errors of keys that contradict each other.

        Args:
            given: the keys that the caller set, dotted, and how they were written.
        """
        if not self.bootstrap_servers:
            yield (
                "bootstrap.servers",
                "bootstrap.servers is required, e.g. bootstrap_servers='localhost:9092'",
            )
        if self.retry_backoff_ms > self.retry_backoff_max_ms and "retry.backoff.max.ms" in given:
            yield "retry.backoff.ms", "retry.backoff.ms is above retry.backoff.max.ms"
        if not any(name.startswith(_SECURITY) for name in given):
            return
        # Loaded where there is something to check.
        from kadence.security import login, stores

        try:
            stores.check(self)
            login.check(self, given)
        except ConfigError as error:
            yield error.key, str(error)


def _advice(name: str, value: object, given: Mapping[str, Any]) -> str | None:
    """The advice for a login of Java's, or for a password of its stores. Loaded for the first mistake."""
    from kadence.security import jaas, stores

    return jaas.advice(name, value) or stores.advice(name, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The admin client's keys."""

    default_api_timeout_ms: int = api_timeout()


def _refuse(cls: type, mistakes: list[Fault]) -> None:
    """Raise what is wrong, if anything is."""
    if len(mistakes) > 1:
        kind = client_of(cls)
        listed = "".join(f"\n- {text}" for _, text in mistakes)
        raise ConfigError(f"{len(mistakes)} mistakes in the {kind}'s settings:{listed}", key=mistakes[0][0])
    if mistakes:
        raise ConfigError(mistakes[0][1], key=mistakes[0][0])


def generated_client_id(kind: str) -> str:
    """A client.id for a client that was given none, e.g. ``consumer-1``."""
    return f"kadence-{kind}-{next(_client_ids)}"
