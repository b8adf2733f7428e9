"""The certificates and keys for TLS: PEM files, PEM texts, and Java's names for them.

Java's own key stores (JKS, PKCS12) are refused with the command that makes PEM files of them: Python's TLS does not
read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.errors import ConfigError
from kadence.security import Secret

if TYPE_CHECKING:
    from kadence.security.settings import Settings

__all__ = ["Identity", "Trust", "advice", "check", "identity", "trust"]

_PASSWORDS: Final = ("ssl.truststore.password", "ssl.keystore.password")


class Trust(NamedTuple):
    """The authorities to trust: a PEM file or a PEM text; neither is the system's. ``key`` names where it came from."""

    file: str | None = None
    text: str | None = None
    key: str = "ssl.ca.location"


class Identity(NamedTuple):
    """The client's certificate chain and private key: files, or one text with both."""

    chain_file: str | None = None
    key_file: str | None = None
    text: Secret | None = None
    key: str = "ssl.certificate.location"


def trust(config: Settings) -> Trust:
    """Whom a configuration trusts.

    Raises:
        ConfigError: it says so twice, or names a store that cannot be read.
    """
    _check_kind("truststore", config.ssl_truststore_type, config.ssl_truststore_location)
    given = [
        found
        for found in (
            Trust(file=config.ssl_ca_location),
            Trust(file=config.ssl_truststore_location, key="ssl.truststore.location"),
            Trust(text=config.ssl_truststore_certificates, key="ssl.truststore.certificates"),
        )
        if found.file is not None or found.text is not None
    ]
    if len(given) > 1:
        raise ConfigError(
            f"{given[0].key} and {given[1].key} both say whom to trust; give one", key=given[0].key
        )
    return given[0] if given else Trust()


def identity(config: Settings) -> Identity | None:
    """The client certificate of a configuration; None without one.

    Raises:
        ConfigError: it is set twice or in part, or names a store that cannot be read.
    """
    _check_kind("keystore", config.ssl_keystore_type, config.ssl_keystore_location)
    if config.ssl_key_location is not None and config.ssl_certificate_location is None:
        raise ConfigError(
            "ssl.key.location needs ssl.certificate.location, the certificate of that key",
            key="ssl.key.location",
        )
    chain, key = config.ssl_keystore_certificate_chain, config.ssl_keystore_key
    if (chain is None) != (key is None):
        raise ConfigError(
            "ssl.keystore.key and ssl.keystore.certificate.chain belong together; one is missing",
            key="ssl.keystore.key",
        )
    given = []
    if config.ssl_certificate_location is not None:
        given.append(Identity(config.ssl_certificate_location, config.ssl_key_location))
    if config.ssl_keystore_location is not None:
        given.append(Identity(config.ssl_keystore_location, key="ssl.keystore.location"))
    if chain is not None and key is not None:
        given.append(Identity(text=Secret(f"{key.reveal()}\n{chain}"), key="ssl.keystore.certificate.chain"))
    if len(given) > 1:
        raise ConfigError(
            f"{given[0].key} and {given[1].key} both say which certificate to show; give one",
            key=given[0].key,
        )
    return given[0] if given else None


def check(config: Settings) -> None:
    """Contradictions among the keys of TLS.

    Raises:
        ConfigError: there is one.
    """
    trust(config)
    identity(config)


def advice(name: str, given: Mapping[str, Any]) -> str | None:
    """The advice for a store's password, which no PEM file has; None for any other key."""
    if name not in _PASSWORDS:
        return None
    kind = name.split(".")[1]
    if str(given.get(f"ssl.{kind}.type") or "JKS").upper() == "PEM":
        instead = "leave it out" if kind == "truststore" else "ssl.key.password is the one of the private key"
        return f"{name}: PEM files have no such password; {instead}"
    return _conversion(kind, str(given.get(f"ssl.{kind}.type") or "JKS"), given.get(f"ssl.{kind}.location"))


def _check_kind(side: str, kind: str | None, location: str | None) -> None:
    if (kind is not None or location is not None) and (kind or "JKS").upper() != "PEM":
        raise ConfigError(
            _conversion(side, kind or "JKS", location),
            key=f"ssl.{side}.{'type' if location is None else 'location'}",
        )


def _conversion(side: str, kind: str, location: object) -> str:
    store = location or f"{side}.{'p12' if kind.upper() == 'PKCS12' else 'jks'}"
    if side == "truststore":
        commands = f"keytool -list -rfc -keystore {store} > ca.pem"
        then = "ssl.ca.location=ca.pem"
    else:
        convert = (
            f"keytool -importkeystore -srckeystore {store} -destkeystore client.p12 -deststoretype PKCS12"
        )
        commands = f"openssl pkcs12 -in {store if kind.upper() == 'PKCS12' else 'client.p12'} -out client.pem"
        if kind.upper() != "PKCS12":
            commands = f"{convert} && {commands}"
        then = "ssl.certificate.location=client.pem with ssl.key.password"
    return (
        f"ssl.{side}.location: a {side} of type {kind} cannot be read, PEM can. Convert it once with\n"
        f"    {commands}\n"
        f"and set {then} (a PEM file already? set ssl.{side}.type=PEM)"
    )
