"""Makes credentials of the ``sasl.*`` keys, and refuses keys that are missing or contradict each other.

Secrets are a `Secret` from the configuration to the last moment; no message here shows one. Most clients have
no SASL: the modules that read its keys are imported only if it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError
from kadence.security import MECHANISMS

if TYPE_CHECKING:
    from kadence.security import Credentials
    from kadence.security.settings import Settings

__all__ = ["check", "credentials"]

_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}


def credentials(config: Settings) -> Credentials | None:
    """The credentials of a configuration; None without SASL.

    Raises:
        ConfigError: it contradicts itself, or something is missing.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security.protocol={config.security_protocol} needs sasl.mechanism: one of {', '.join(MECHANISMS)}",
            key="security.protocol",
        )
    from kadence.security import Credentials, Secret, kerberos, oauth

    options: Mapping[str, str] = {}
    if config.sasl_jaas_config is not None:
        options = _options(mechanism, config.sasl_jaas_config.reveal())
    if mechanism == "OAUTHBEARER":
        return oauth.credentials(config, options)
    if mechanism == "GSSAPI":
        return kerberos.credentials(config, options)
    if options and (config.sasl_username is not None or config.sasl_password is not None):
        raise ConfigError(
            "sasl.jaas.config holds the user and password; leave out sasl.username and sasl.password",
            key="sasl.jaas.config",
        )
    username = options.get("username", config.sasl_username)
    configured = config.sasl_password
    password = options.get("password", None if configured is None else configured.reveal())
    if not username or password is None:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, or sasl.jaas.config",
            key="sasl.mechanism",
        )
    if "\0" in username or "\0" in password:
        raise ConfigError("sasl.username and sasl.password cannot hold a NUL character", key="sasl.username")
    return Credentials(mechanism, username, Secret(password))


def check(config: Settings, given: Mapping[str, str]) -> None:
    """Contradictions among the keys of security.

    Raises:
        ConfigError: there is one.
    """
    handler = config.sasl_login_callback_handler_class
    if handler is not None and handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        from kadence.security import jaas

        raise ConfigError(
            jaas.of_class(handler)
            or f"sasl.login.callback.handler.class: {handler!r} is Java's; give sasl.oauthbearer.token.provider "
            "instead, a callable that returns kadence.Token, or module:function",
            key="sasl.login.callback.handler.class",
        )
    needed = credentials(config)
    for name in sorted(given):
        if not name.startswith("sasl.") or getattr(config, name.replace(".", "_")) is None:
            continue
        if needed is None:
            raise ConfigError(
                f"{name} has no effect with security.protocol={config.security_protocol}; set it to SASL_SSL "
                "(or SASL_PLAINTEXT, without encryption)",
                key=name,
            )
        if name.startswith("sasl.kerberos.") and needed.mechanism != "GSSAPI":
            raise ConfigError(f"{name} is for sasl.mechanism=GSSAPI, not {needed.mechanism}", key=name)
        if name.startswith("sasl.oauthbearer.") and needed.mechanism != "OAUTHBEARER":
            raise ConfigError(f"{name} is for sasl.mechanism=OAUTHBEARER, not {needed.mechanism}", key=name)


def _options(mechanism: str, text: str) -> Mapping[str, str]:
    from kadence.security import jaas, kerberos, oauth

    module = jaas.parse(text)
    if module.name not in _MODULES:
        raise ConfigError(
            jaas.of_login_module(module.name)
            or f"sasl.jaas.config: login module {module.name!r} is not supported; known are {', '.join(_MODULES)}",
            key="sasl.jaas.config",
        )
    if mechanism not in _MODULES[module.name]:
        raise ConfigError(
            f"sasl.jaas.config names {module.name}, which is for sasl.mechanism="
            f"{' or '.join(_MODULES[module.name])}, not {mechanism}",
            key="sasl.jaas.config",
        )
    if mechanism == "GSSAPI":
        return kerberos.options(module.options)
    known = oauth.OPTIONS if mechanism == "OAUTHBEARER" else ("username", "password")
    for name in module.options:
        if name not in known and not (mechanism == "OAUTHBEARER" and name.startswith(oauth.EXTENSION)):
            raise ConfigError(
                f"sasl.jaas.config: {module.name} has no option {name!r} here; known: {', '.join(known)}",
                key="sasl.jaas.config",
            )
    if mechanism != "OAUTHBEARER" and set(known) - set(module.options):
        raise ConfigError(
            f"sasl.jaas.config: {module.name} needs username and password", key="sasl.jaas.config"
        )
    return module.options
