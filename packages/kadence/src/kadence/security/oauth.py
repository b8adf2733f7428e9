"""OAuth bearer tokens: from a function, or by client credentials from an endpoint (KIP-255, KIP-768)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kadence.errors import ConfigError
from kadence.security import ClientCredentials, Credentials, Secret

if TYPE_CHECKING:
    from kadence.security.settings import Settings

__all__ = ["EXTENSION", "OPTIONS", "credentials", "is_loopback"]

OPTIONS: Final = ("clientId", "clientSecret", "scope")
"""Options of Java's OAuthBearerLoginModule."""

EXTENSION: Final = "extension_"
"""The prefix of options that are SASL extensions (KIP-342)."""

_JAAS_NAMES: Final = {
    "client.credentials.client.id": "clientId",
    "client.credentials.client.secret": "clientSecret",
    "scope": "scope",
}


def credentials(config: Settings, options: Mapping[str, str]) -> Credentials:
    """A source of tokens from the keys and from the options of a JAAS login module.

    Raises:
        ConfigError: they contradict each other, or something is missing.
    """
    if config.sasl_username is not None or config.sasl_password is not None:
        raise ConfigError(
            "sasl.username and sasl.password are not for OAUTHBEARER; its keys are "
            "sasl.oauthbearer.client.credentials.client.id and .secret",
            key="sasl.username",
        )
    url, provider = config.sasl_oauthbearer_token_endpoint_url, config.sasl_oauthbearer_token_provider
    client_id = _either(
        "client.credentials.client.id", config.sasl_oauthbearer_client_credentials_client_id, options
    )
    configured = config.sasl_oauthbearer_client_credentials_client_secret
    revealed = None if configured is None else configured.reveal()
    secret = _either("client.credentials.client.secret", revealed, options)
    scope = _either("scope", config.sasl_oauthbearer_scope, options)
    if provider is not None:
        if url or client_id or secret or scope:
            raise ConfigError(
                "sasl.oauthbearer.token.provider gets tokens by itself; leave out the keys of an endpoint",
                key="sasl.oauthbearer.token.provider",
            )
        return Credentials("OAUTHBEARER", tokens=provider)
    if not url or not client_id or secret is None:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.provider (a callable, or module:function), or "
            "sasl.oauthbearer.token.endpoint.url with sasl.oauthbearer.client.credentials.client.id and .secret",
            key="sasl.mechanism",
        )
    _check_url(url)
    extensions = {
        name.removeprefix(EXTENSION): value for name, value in options.items() if name.startswith(EXTENSION)
    }
    encoded = config.sasl_oauthbearer_header_urlencode
    tokens = ClientCredentials(url, client_id, Secret(secret), scope, extensions, bool(encoded))
    return Credentials("OAUTHBEARER", client_id, tokens=tokens)


def is_loopback(host: str) -> bool:
    """True if a host name or address looks like this machine's; nothing is resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _either(key: str, configured: str | None, options: Mapping[str, str]) -> str | None:
    in_jaas = options.get(_JAAS_NAMES[key])
    if configured is not None and in_jaas is not None:
        raise ConfigError(
            f"sasl.oauthbearer.{key} is also in sasl.jaas.config as {_JAAS_NAMES[key]}; give it once",
            key=f"sasl.oauthbearer.{key}",
        )
    return configured if in_jaas is None else in_jaas


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url is no URL such as https://login.example.org/token",
            key="sasl.oauthbearer.token.endpoint.url",
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url must begin with https://: the client's secret is sent there",
            key="sasl.oauthbearer.token.endpoint.url",
        )
