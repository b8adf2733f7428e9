"""From the ``sasl.*`` and ``ssl.*`` keys to credentials: what belongs together, and what contradicts itself.

Whatever is secret is a `Secret` from the configuration to the last moment; no message here shows one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kadence import jaas
from kadence.errors import ConfigError
from kadence.secret import Secret

if TYPE_CHECKING:
    from kadence.config import ClientConfig

__all__ = [
    "MECHANISMS",
    "ClientCredentials",
    "Credentials",
    "Kerberos",
    "Token",
    "check",
    "credentials",
    "is_loopback",
]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}
_OAUTH_OPTIONS: Final = ("clientId", "clientSecret", "scope")
_EXTENSION: Final = "extension_"
_KERBEROS_OPTIONS: Final = (
    "useKeyTab",
    "keyTab",
    "principal",
    "serviceName",
    "useTicketCache",
    "ticketCache",
)
_KERBEROS_HABITS: Final = ("storeKey", "doNotPrompt", "refreshKrb5Config", "renewTGT", "debug", "isInitiator")
"""Options of Java's login module that say nothing here, or what is so anyway."""


@dataclass(frozen=True, slots=True)
class Token:
    """An OAuth bearer token, as a token provider gives it.

    Attributes:
        value: what the broker is shown. expires_at: when it ends, in seconds since 1970; None when that is not
            known, and then every connection asks for a new one. extensions: SASL extensions (KIP-342).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """How to get tokens by OAuth's client credentials (RFC 6749, section 4.4).

    Attributes:
        is_encoded: id and secret are URL-encoded before they are joined, as the RFC has it (KIP-1025).
    """

    url: str
    client_id: str
    secret: Secret
    scope: str | None
    extensions: Mapping[str, str]
    is_encoded: bool


@dataclass(frozen=True, slots=True)
class Kerberos:
    """Whose tickets to show, for which service.

    Attributes:
        service: the first part of the brokers' principals, mostly ``kafka``.
        principal: who we are; None: whoever the keytab or the ticket cache is of.
        keytab: a file with our key; None: the tickets are in a cache, where kinit has put them.
        ticket_cache: which cache; None: the system's default.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    @property
    def who(self) -> str:
        """For messages."""
        if self.principal is not None:
            return f"principal {self.principal!r}"
        return f"keytab {self.keytab!r}" if self.keytab is not None else "the ticket cache"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What to authenticate with: a user and password, a source of tokens, or Kerberos."""

    mechanism: str
    username: str = ""
    password: Secret = field(default_factory=Secret)
    tokens: Callable[[], Token] | ClientCredentials | None = field(default=None, repr=False)
    kerberos: Kerberos | None = None


def credentials(config: ClientConfig) -> Credentials | None:
    """What a configuration says to authenticate with; None without SASL.

    Raises:
        ConfigError: it contradicts itself, or something is missing.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security.protocol={config.security_protocol} needs sasl.mechanism: one of {', '.join(MECHANISMS)}"
        )
    options: Mapping[str, str] = {}
    if config.sasl_jaas_config is not None:
        options = _options(mechanism, str(config.sasl_jaas_config))
    if mechanism == "OAUTHBEARER":
        return _oauth(config, options)
    if mechanism == "GSSAPI":
        return _kerberos(config, options)
    if options and (config.sasl_username is not None or config.sasl_password is not None):
        raise ConfigError(
            "sasl.jaas.config holds the user and password; leave out sasl.username and sasl.password"
        )
    username = options.get("username", config.sasl_username)
    password = options.get("password", config.sasl_password)
    if not username or password is None:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, or sasl.jaas.config"
        )
    if "\0" in username or "\0" in password:
        raise ConfigError("sasl.username and sasl.password cannot hold a NUL character")
    return Credentials(mechanism, username, Secret(password))


def check(config: ClientConfig, given: frozenset[str]) -> None:
    """Contradictions among the keys of security.

    Raises:
        ConfigError: there is one.
    """
    handler = config.sasl_login_callback_handler_class
    if handler is not None and not handler.endswith("OAuthBearerLoginCallbackHandler"):
        raise ConfigError(
            f"sasl.login.callback.handler.class: {handler!r} is Java's; give sasl.oauthbearer.token.provider instead, "
            "a callable that returns kadence.Token"
        )
    needed = credentials(config)
    for name in sorted(given):
        if not name.startswith("sasl.") or getattr(config, name.replace(".", "_")) is None:
            continue
        if needed is None:
            raise ConfigError(
                f"{name} has no effect with security.protocol={config.security_protocol}; set it to SASL_SSL "
                "(or SASL_PLAINTEXT, without encryption)"
            )
        if name.startswith("sasl.kerberos.") and needed.mechanism != "GSSAPI":
            raise ConfigError(f"{name} is for sasl.mechanism=GSSAPI, not {needed.mechanism}")
        if name.startswith("sasl.oauthbearer.") and needed.mechanism != "OAUTHBEARER":
            raise ConfigError(f"{name} is for sasl.mechanism=OAUTHBEARER, not {needed.mechanism}")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine by its looks; nothing is looked up."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _options(mechanism: str, text: str) -> Mapping[str, str]:
    module = jaas.parse(text)
    if module.name not in _MODULES:
        raise ConfigError(
            f"sasl.jaas.config: login module {module.name!r} is not supported; known are {', '.join(_MODULES)}"
        )
    if mechanism not in _MODULES[module.name]:
        raise ConfigError(
            f"sasl.jaas.config names {module.name}, which is for sasl.mechanism="
            f"{' or '.join(_MODULES[module.name])}, not {mechanism}"
        )
    if mechanism == "GSSAPI":
        return _kerberos_options(module.options)
    known = _OAUTH_OPTIONS if mechanism == "OAUTHBEARER" else ("username", "password")
    for name in module.options:
        if name not in known and not (mechanism == "OAUTHBEARER" and name.startswith(_EXTENSION)):
            raise ConfigError(
                f"sasl.jaas.config: {module.name} has no option {name!r} here; known: {', '.join(known)}"
            )
    if mechanism != "OAUTHBEARER" and set(known) - set(module.options):
        raise ConfigError(f"sasl.jaas.config: {module.name} needs username and password")
    return module.options


def _kerberos_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """Those of Java's Krb5LoginModule that mean something here."""
    for name in options:
        if name not in _KERBEROS_OPTIONS and name not in _KERBEROS_HABITS:
            raise ConfigError(
                f"sasl.jaas.config: Krb5LoginModule has no option {name!r} here; known: {', '.join(_KERBEROS_OPTIONS)}"
            )
    for switch, file in (("useKeyTab", "keyTab"), ("useTicketCache", "ticketCache")):
        if file in options and options.get(switch, "false").lower() != "true":
            raise ConfigError(f"sasl.jaas.config: Krb5LoginModule has {file}, but not {switch}=true")
    if options.get("useKeyTab", "false").lower() == "true" and "keyTab" not in options:
        raise ConfigError("sasl.jaas.config: Krb5LoginModule has useKeyTab=true, and no keyTab")
    if options.get("isInitiator", "true").lower() == "false":
        raise ConfigError("sasl.jaas.config: a client is the initiator; leave out isInitiator")
    return options


def _kerberos(config: ClientConfig, options: Mapping[str, str]) -> Credentials:
    if config.sasl_username is not None or config.sasl_password is not None:
        raise ConfigError(
            "sasl.username and sasl.password are not for GSSAPI; its keys are sasl.kerberos.principal and "
            "sasl.kerberos.keytab, or kinit gets tickets before"
        )
    found: dict[str, str | None] = {}
    for key, option in (("service.name", "serviceName"), ("principal", "principal"), ("keytab", "keyTab")):
        configured = getattr(config, f"sasl_kerberos_{key.replace('.', '_')}")
        if configured is not None and options.get(option, configured) != configured:
            raise ConfigError(
                f"sasl.kerberos.{key} is another one than {option} in sasl.jaas.config; give it once"
            )
        found[key] = options.get(option, configured)
    service, principal, keytab = found["service.name"], found["principal"], found["keytab"]
    if service is None:
        raise ConfigError(
            "sasl.mechanism=GSSAPI needs sasl.kerberos.service.name: the first part of the brokers' principals, "
            "mostly kafka"
        )
    kerberos = Kerberos(service, principal, keytab, options.get("ticketCache"))
    return Credentials("GSSAPI", principal or "", kerberos=kerberos)


def _oauth(config: ClientConfig, options: Mapping[str, str]) -> Credentials:
    if config.sasl_username is not None or config.sasl_password is not None:
        raise ConfigError(
            "sasl.username and sasl.password are not for OAUTHBEARER; its keys are "
            "sasl.oauthbearer.client.credentials.client.id and .secret"
        )
    url, provider = config.sasl_oauthbearer_token_endpoint_url, config.sasl_oauthbearer_token_provider
    client_id = _either(
        "client.credentials.client.id", config.sasl_oauthbearer_client_credentials_client_id, options
    )
    secret = _either(
        "client.credentials.client.secret", config.sasl_oauthbearer_client_credentials_client_secret, options
    )
    scope = _either("scope", config.sasl_oauthbearer_scope, options)
    if provider is not None:
        if url or client_id or secret or scope:
            raise ConfigError(
                "sasl.oauthbearer.token.provider gets tokens by itself; leave out the keys of an endpoint"
            )
        return Credentials("OAUTHBEARER", tokens=provider)
    if not url or not client_id or secret is None:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.provider (a callable), or "
            "sasl.oauthbearer.token.endpoint.url with sasl.oauthbearer.client.credentials.client.id and .secret"
        )
    _check_url(url)
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    encoded = config.sasl_oauthbearer_header_urlencode
    tokens = ClientCredentials(url, client_id, Secret(secret), scope, extensions, bool(encoded))
    return Credentials("OAUTHBEARER", client_id, tokens=tokens)


_JAAS_NAMES: Final = {
    "client.credentials.client.id": "clientId",
    "client.credentials.client.secret": "clientSecret",
    "scope": "scope",
}


def _either(key: str, configured: str | None, options: Mapping[str, str]) -> str | None:
    in_jaas = options.get(_JAAS_NAMES[key])
    if configured is not None and in_jaas is not None:
        raise ConfigError(
            f"sasl.oauthbearer.{key} is also in sasl.jaas.config as {_JAAS_NAMES[key]}; give it once"
        )
    return configured if in_jaas is None else in_jaas


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url is no URL such as https://login.example.org/token"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must begin with https://: the client's secret is sent there"
        )
