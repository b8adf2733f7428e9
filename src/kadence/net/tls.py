"""TLS contexts from Kafka's ``ssl.*`` keys."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kadence.errors import ConfigError

if TYPE_CHECKING:
    from kadence.config import ClientConfig

__all__ = ["make_context"]


def make_context(config: ClientConfig) -> ssl.SSLContext:
    """A client context that verifies certificates, and host names unless that is switched off.

    Raises:
        ConfigError: a PEM file is missing, unreadable or not what its key says.
    """
    try:
        context = ssl.create_default_context(cafile=config.ssl_ca_location)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"ssl.ca.location: {config.ssl_ca_location!r} cannot be used as a PEM file of authorities: {error}"
        ) from error
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
