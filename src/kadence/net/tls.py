"""TLS contexts from Kafka's ``ssl.*`` keys."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kadence.errors import ConfigError

if TYPE_CHECKING:
    from kadence.config import ClientConfig

__all__ = ["make_context", "token_context"]


def make_context(config: ClientConfig) -> ssl.SSLContext:
    """A client context that verifies certificates, and host names unless that is switched off.

    Raises:
        ConfigError: a PEM file is missing, unreadable or not what its key says.
    """
    context = ssl.create_default_context() if config.ssl_ca_location is None else _trusting(config)
    context.check_hostname = config.ssl_endpoint_identification_algorithm != ""
    if config.ssl_certificate_location is not None:
        password = config.ssl_key_password
        try:
            context.load_cert_chain(
                config.ssl_certificate_location,
                config.ssl_key_location,
                # Without a password OpenSSL would ask for one on the terminal, on the network thread.
                password=str(password) if password is not None else "",
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ssl.certificate.location {config.ssl_certificate_location!r} and ssl.key.location "
                f"{config.ssl_key_location!r} cannot be loaded: {error} (PEM files are expected; an encrypted "
                "key needs ssl.key.password)"
            ) from error
    return context


def token_context(config: ClientConfig) -> ssl.SSLContext | None:
    """How the token endpoint of OAUTHBEARER is verified: as everybody does, and by ``ssl.ca.location`` too.

    Raises:
        ConfigError: that file cannot be used.
    """
    if not config.sasl_oauthbearer_token_endpoint_url or config.ssl_ca_location is None:
        return None
    context = _trusting(config)
    context.load_default_certs()
    return context


def _trusting(config: ClientConfig) -> ssl.SSLContext:
    """A context that trusts the configured authorities only."""
    try:
        return ssl.create_default_context(cafile=config.ssl_ca_location)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"ssl.ca.location: {config.ssl_ca_location!r} cannot be used as a PEM file of authorities: {error}"
        ) from error
