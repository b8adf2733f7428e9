"""How to reach a schema registry: the keys ``schema.registry.*``, for clients and for Spark's options.

Confluent's Python client has the same keys without ``schema.registry.``; both spellings are read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kadence.environment import REGISTRY
from kadence.errors import ConfigError

__all__ = ["KEYS", "RegistryOptions", "Token", "options_of", "read_options"]

Token = str | Callable[[], str]
"""A bearer token, or a callable that returns one; it is called before each request."""

TIMEOUT_S: Final = 10.0

RETRIES: Final = 3
"""How often a request is repeated, spread over the addresses, after waits of 0.25 s, 0.5 s and 1 s."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How to reach a schema registry. Only the addresses show in repr.

    Attributes:
        user_info: NAME:PASSWORD. token: see `Token`. ca, certificate, key: PEM files.
        context: the context that ids and subjects are in, with its dot; None: the default one.
        timeout: of one request, in seconds. retries: how often a failed request is repeated.
    """

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: Token | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    context: str | None = field(default=None, repr=False)
    timeout: float = field(default=TIMEOUT_S, repr=False)
    retries: int = field(default=RETRIES, repr=False)


KEYS: Final[dict[str, str]] = {
    "url": "Addresses of the registry, comma separated or a list; if one does not answer, the next one is tried.",
    "basic.auth.user.info": "NAME:PASSWORD.",
    "bearer.auth.token": "A token, or a callable that returns one before each request.",
    "ssl.ca.location": "A PEM file with the certificate authorities to trust; by default the system's.",
    "ssl.certificate.location": "A PEM file with the client's certificate.",
    "ssl.key.location": "A PEM file with its key, if the certificate's file has none.",
    "ssl.key.password": "The key's password.",
    "context": "The context that schema ids and subjects are in, such as .staging; by default none.",
    "timeout": "Seconds that one request may take; 10 by default.",
    "max.retries": "How often a failed request is repeated, each time after a longer wait, but once at least for each "
    "further address; 3 by default.",
}
"""Every key, with a line for the reader."""


def read_options(given: Mapping[str, Any], keywords: Mapping[str, Any]) -> RegistryOptions:
    """The options of a client, from its keys and its keywords.

    Raises:
        ConfigError: an unknown key, a key given twice, or an invalid value.
    """
    values: dict[str, Any] = {}
    pairs = [(key.removeprefix(REGISTRY), value) for key, value in given.items()]
    pairs += [(name.replace("_", "."), value) for name, value in keywords.items()]
    for key, value in pairs:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KEYS)}"
            raise ConfigError(f"a schema registry has no key {key!r}; {hint}", key=key)
        if key in values:
            raise ConfigError(f"{REGISTRY}{key} is given twice", key=REGISTRY + key)
        if value is not None:
            values[key] = value
    made = options_of(values)
    if made is None:
        raise ConfigError(f"a schema registry needs {REGISTRY}url, such as http://localhost:8081")
    return made


def options_of(values: Mapping[str, Any]) -> RegistryOptions | None:
    """The options from keys without prefix; None if there are no such keys.

    Raises:
        ConfigError: an invalid value, or keys without ``url``.
    """
    urls = _urls(values.get("url"))
    if not urls:
        if values:
            raise ConfigError("the options schema.registry.* need schema.registry.url")
        return None
    if values.get("basic.auth.user.info") and values.get("bearer.auth.token"):
        raise ConfigError(
            "schema.registry.basic.auth.user.info and schema.registry.bearer.auth.token: give one",
            key="schema.registry.basic.auth.user.info",
        )
    return RegistryOptions(
        urls=urls,
        user_info=_text(values, "basic.auth.user.info"),
        token=_token(values),
        ca=_text(values, "ssl.ca.location"),
        certificate=_text(values, "ssl.certificate.location"),
        key=_text(values, "ssl.key.location"),
        key_password=_text(values, "ssl.key.password"),
        context=_context(values),
        timeout=_number(values, "timeout", TIMEOUT_S, above=True),
        retries=int(_number(values, "max.retries", RETRIES)),
    )


def _urls(given: Any) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given or ()
    if not isinstance(listed, list | tuple) or not all(isinstance(url, str) for url in listed):
        raise ConfigError(
            "schema.registry.url takes an address, or a list of addresses", key="schema.registry.url"
        )
    urls = tuple(url.strip().rstrip("/") for url in listed if url.strip())
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "option schema.registry.url: an address begins with http:// or https://",
                key="schema.registry.url",
            )
        if "@" in url.partition("://")[2].partition("/")[0]:
            raise ConfigError(
                "option schema.registry.url: an address must not contain a name and password; use the option "
                "schema.registry.basic.auth.user.info for these",
                key="schema.registry.url",
            )
    return urls


def _text(values: Mapping[str, Any], name: str) -> str | None:
    found = values.get(name)
    if found is not None and not isinstance(found, str):
        # Not the value, which may be secret.
        raise ConfigError(
            f"{REGISTRY}{name} must be a string, not {type(found).__name__}", key=REGISTRY + name
        )
    return found or None


def _context(values: Mapping[str, Any]) -> str | None:
    found = _text(values, "context")
    if found is None:
        return None
    name = "." + found.strip(":").removeprefix(".")
    if ":" in name or not name.isprintable():
        raise ConfigError(
            f"{REGISTRY}context: {found!r} is not the name of a context, such as .staging",
            key=REGISTRY + "context",
        )
    return name


def _token(values: Mapping[str, Any]) -> Token | None:
    found = values.get("bearer.auth.token")
    return found if callable(found) else _text(values, "bearer.auth.token")


def _number(values: Mapping[str, Any], name: str, default: float, *, above: bool = False) -> float:
    found = values.get(name, default)
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = -1.0
    if not (number > 0 if above else number >= 0) or number > 86_400:
        raise ConfigError(f"{REGISTRY}{name}: {found!r} is not a valid number", key=REGISTRY + name)
    return number
