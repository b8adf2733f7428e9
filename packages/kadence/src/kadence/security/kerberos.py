"""Kerberos: principal, keytab and service name, from the keys or from Java's Krb5LoginModule.

Tickets themselves are got by `kadence.net.kerberos`, which may block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError
from kadence.security import Credentials, Kerberos

if TYPE_CHECKING:
    from kadence.security.settings import Settings

__all__ = ["credentials", "options"]

_OPTIONS: Final = (
    "useKeyTab",
    "keyTab",
    "principal",
    "serviceName",
    "useTicketCache",
    "ticketCache",
)
_HABITS: Final = ("storeKey", "doNotPrompt", "refreshKrb5Config", "renewTGT", "debug", "isInitiator")
"""Options of Java's login module that say nothing here, or what is so anyway."""


def options(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options of Java's Krb5LoginModule, once they are found to make sense.

    Raises:
        ConfigError: one is not known, or they contradict each other.
    """
    for name in given:
        if name not in _OPTIONS and name not in _HABITS:
            raise ConfigError(
                f"sasl.jaas.config: Krb5LoginModule has no option {name!r} here; known: {', '.join(_OPTIONS)}",
                key="sasl.jaas.config",
            )
    for switch, file in (("useKeyTab", "keyTab"), ("useTicketCache", "ticketCache")):
        if file in given and given.get(switch, "false").lower() != "true":
            raise ConfigError(
                f"sasl.jaas.config: Krb5LoginModule has {file}, but not {switch}=true", key="sasl.jaas.config"
            )
    if given.get("useKeyTab", "false").lower() == "true" and "keyTab" not in given:
        raise ConfigError(
            "sasl.jaas.config: Krb5LoginModule has useKeyTab=true, and no keyTab", key="sasl.jaas.config"
        )
    if given.get("isInitiator", "true").lower() == "false":
        raise ConfigError(
            "sasl.jaas.config: a client is the initiator; leave out isInitiator", key="sasl.jaas.config"
        )
    return given


def credentials(config: Settings, given: Mapping[str, str]) -> Credentials:
    """Kerberos credentials from the keys and from the options of a JAAS login module.

    Raises:
        ConfigError: they contradict each other, or the service is missing.
    """
    if config.sasl_username is not None or config.sasl_password is not None:
        raise ConfigError(
            "sasl.username and sasl.password are not for GSSAPI; its keys are sasl.kerberos.principal and "
            "sasl.kerberos.keytab, or kinit gets tickets before",
            key="sasl.username",
        )
    found: dict[str, str | None] = {}
    for key, option in (("service.name", "serviceName"), ("principal", "principal"), ("keytab", "keyTab")):
        configured = getattr(config, f"sasl_kerberos_{key.replace('.', '_')}")
        if configured is not None and given.get(option, configured) != configured:
            raise ConfigError(
                f"sasl.kerberos.{key} differs from {option} in sasl.jaas.config; give it once",
                key=f"sasl.kerberos.{key}",
            )
        found[key] = given.get(option, configured)
    service, principal, keytab = found["service.name"], found["principal"], found["keytab"]
    if service is None:
        raise ConfigError(
            "sasl.mechanism=GSSAPI needs sasl.kerberos.service.name: the first part of the brokers' principals, "
            "mostly kafka",
            key="sasl.mechanism",
        )
    kerberos = Kerberos(service, principal, keytab, given.get("ticketCache"))
    return Credentials("GSSAPI", principal or "", kerberos=kerberos)
