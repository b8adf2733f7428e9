"""TLS contexts from Kafka's ``ssl.*`` keys."""

from __future__ import annotations

import ssl
import tempfile
from typing import TYPE_CHECKING

from kadence.errors import ConfigError
from kadence.logs import logger
from kadence.net.openssl import calls_python
from kadence.security.stores import Identity, Trust, identity, trust

if TYPE_CHECKING:
    from kadence.config import ClientConfig

__all__ = ["make_context", "token_context"]

_log = logger("kadence.net")


def make_context(config: ClientConfig) -> ssl.SSLContext:
    """A client context that verifies certificates, and host names unless that is switched off.

    Raises:
        ConfigError: a PEM file is missing, unreadable or not what its key says.
    """
    context = _trusting(trust(config))
    if calls_python(context):
        _log.warning(
            "SSLKEYLOGFILE is set: %s gets the keys of every TLS connection. Python's ssl moves all bytes, so reading "
            "is slower, and no heartbeat is sent while a C call holds the interpreter",
            context.keylog_filename,
        )
    context.check_hostname = config.ssl_endpoint_identification_algorithm != ""
    shown = identity(config)
    if shown is not None:
        # Without a password OpenSSL would ask for one on the terminal, on the network thread.
        password = str(config.ssl_key_password) if config.ssl_key_password is not None else ""
        try:
            _show(context, shown, password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(_not_loaded(shown, error)) from error
    return context


def token_context(config: ClientConfig) -> ssl.SSLContext | None:
    """How the token endpoint of OAUTHBEARER is verified: as everybody does, and by whom brokers are trusted too.

    Raises:
        ConfigError: those authorities cannot be used.
    """
    trusted = trust(config)
    if not config.sasl_oauthbearer_token_endpoint_url or trusted == Trust():
        return None
    context = _trusting(trusted)
    context.load_default_certs()
    return context


def _trusting(trusted: Trust) -> ssl.SSLContext:
    """A context that trusts these authorities only."""
    try:
        return ssl.create_default_context(cafile=trusted.file, cadata=trusted.text)
    except (OSError, ssl.SSLError, ValueError) as error:
        what = "its text" if trusted.file is None else repr(trusted.file)
        raise ConfigError(
            f"{trusted.key}: {what} cannot be used as PEM of authorities: {_reason(error)}"
        ) from error


def _show(context: ssl.SSLContext, shown: Identity, password: str) -> None:
    if shown.text is None:
        assert shown.chain_file is not None
        context.load_cert_chain(shown.chain_file, shown.key_file, password=password)
        return
    # OpenSSL is given files only; this one is ours alone, and gone at once.
    with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace", suffix=".pem") as file:
        file.write(str(shown.text))
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _not_loaded(shown: Identity, error: Exception) -> str:
    if shown.text is not None:
        where = "ssl.keystore.key and ssl.keystore.certificate.chain"
    elif shown.key_file is not None:
        where = f"{shown.key} {shown.chain_file!r} and ssl.key.location {shown.key_file!r}"
    else:
        where = f"{shown.key} {shown.chain_file!r}"
    return f"{where} cannot be loaded: {_reason(error)} (PEM is expected; an encrypted key needs ssl.key.password)"


def _reason(error: Exception) -> str:
    """Of a missing file the system's words without their number; what OpenSSL says stays whole."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return str(error)
