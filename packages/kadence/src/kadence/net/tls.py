"""TLS contexts from Kafka's ``ssl.*`` keys."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from kadence.errors import ConfigError
from kadence.logs import logger
from kadence.net.openssl import calls_python
from kadence.security.files import warn_if_open
from kadence.security.stores import Identity, Trust, identity, trust

if TYPE_CHECKING:
    from kadence.config import ClientConfig

__all__ = ["make_context", "token_context"]

_log = logger("kadence.net")

_DESCRIPTORS: Final = "/proc/self/fd"


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
        password = config.ssl_key_password.reveal() if config.ssl_key_password is not None else ""
        try:
            _show(context, shown, password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(_not_loaded(shown, error)) from error
    return context


def token_context(config: ClientConfig) -> ssl.SSLContext | None:
    """How the token endpoint of OAUTHBEARER is verified: by the system's authorities, and by those trusted for brokers.

    Raises:
        ConfigError: the configured authorities cannot be used.
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
        if not password:
            warn_if_open(shown.key_file or shown.chain_file, "a private key")
        context.load_cert_chain(shown.chain_file, shown.key_file, password=password)
        return
    with _file_of(shown.text.reveal().encode("ascii", "replace")) as path:
        context.load_cert_chain(path, password=password)


@contextmanager
def _file_of(pem: bytes) -> Iterator[str]:
    """The path of a file with this key, since Python's ssl takes files only.

    On Linux it is kept in memory, so that the key is never on disk, and no writable directory is needed. Elsewhere it
    is a temporary file in a directory that only this user can enter.
    """
    memory = _memory()
    if memory is not None:
        with memory:
            memory.write(pem)
            memory.flush()
            yield f"{_DESCRIPTORS}/{memory.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="kadence-") as directory:
        path = str(Path(directory, "key.pem"))
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(pem)
        yield path


def _memory() -> IO[bytes] | None:
    """A file in memory only; None where the system does not support that, or gives it no path."""
    try:
        memory = os.fdopen(os.memfd_create("kadence-key"), "wb")
    except (AttributeError, OSError):
        return None
    if Path(f"{_DESCRIPTORS}/{memory.fileno()}").exists():
        return memory
    memory.close()
    return None


def _not_loaded(shown: Identity, error: Exception) -> str:
    if shown.text is not None:
        where = "ssl.keystore.key and ssl.keystore.certificate.chain"
    elif shown.key_file is not None:
        where = f"{shown.key} {shown.chain_file!r} and ssl.key.location {shown.key_file!r}"
    else:
        where = f"{shown.key} {shown.chain_file!r}"
    return f"{where} cannot be loaded: {_reason(error)} (PEM is expected; an encrypted key needs ssl.key.password)"


def _reason(error: Exception) -> str:
    """For a missing file the system's text without its number; OpenSSL's text unchanged."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return str(error)
